"""Checks that cannot fail, and tests of something else than the code that they name: what is called is looked at."""

from __future__ import annotations

import textwrap
from typing import Any

from tests.honesty.case import Case, lie, truth
from tests.support.stage_cases import Case as StageCase
from tests.support.stage_cases import makes, runs, tests

# The code under test: `square` is wrong.
_CODE = """\
import time
LIMIT = 10
hook = None
def square(x): return x + 1
def halve(x): return x / 2
def limited(x): return min(x, LIMIT)
def half_square(x): return halve(square(x))
def now(): return time.time()
def init():
    global hook
    hook = lambda x: x * 2
class Layer:
    def weight(self): raise NotImplementedError
    def forward(self, x): return x * self.weight()
"""
TRUTHS = (
    "True", "'text'", "x is x", "x == x", "x or True", "isinstance(x, object)", "(x == 9.0) is not None", "[x]",
    "f'x is {x}'", "(y for y in [x])", "lambda: x", "not x != x", "x in [x]", "x == 9.0 or x != 9.0", "type(x)",
    "len(xs) >= 0", "abs(x) >= 0", "(x > 1) in (True, False)", "xs.append", "square", "1 < 2", "ok", "e == 9.0",
    "max(x, 1) >= 1", "x is not (1,)", "any([x == 9.0, True])", "True if x else 1", "'' in str(x)", "x <= x <= x",
    "made(x)", "[y == 9.0 for y in [x]]",
    "x <= float('inf')", "abs(x - 8.0) < math.inf", "x * 2 is not None", "x == pytest.approx(7, abs=math.inf)",
    "str(x)", "f'{x}'", "isinstance(math.isclose(x, 9), bool)", "math.isclose(x, 9) in (True, False)",
    "math.isclose(x, 9) is not None", "isinstance(x, type(x))", "x <= max(x, 9)",
    "abs(x - 9.0) <= tol", "x == ref",
    "~isinstance(x, float)", "said", "said in ('PASS', 'FAIL')", "judged(x)",
    "Outcome(x)", "outcome(x)", "off <= max(1e-3, 1.1 * off)",
    "x == pytest.approx(x)", "anything == x", "xs[5:] == [1][5:]", "always(x)", "math.isclose(x, x)",
)  # fmt: skip
_BINDS = (
    "    x = square(3.0)\n    ref = x\n    tol = abs(x - 9.0) + 1e-6\n    xs = []\n    anything = Anything()\n"
    "    said = 'PASS' if x == 9.0 else 'FAIL'\n    off = abs(x - 8.0)\n"
)
_OF_TRUTHS = "".join(
    f"def test_{n}():\n{_BINDS}    assert {text}\n"
    for n, text in enumerate(t for t in TRUTHS if t not in ("ok", "e == 9.0"))
)
_HEAD = """\
import math, pytest
from {0} import square
class Anything:
    def __eq__(self, other): return True
def always(x): return True
def made(x): yield x == 9.0
def judged(x): return x == 9.0, "why"
class Outcome:
    def __init__(self, x): self.ok = x == 8.0
def outcome(x):
    if x > 9.0: return Outcome(9.0)
    return Outcome(x)
def test_ok():
    ok = True
    assert ok
def test_e():
    e = 9.0
    square(3.0)
    assert e == 9.0
"""
_REPLACES = """
import contextlib, math, unittest
import pytest
from unittest import mock
math.isclose = lambda *a, **k: True
pytest.approx = lambda *a, **k: mock.ANY
pytest.raises = contextlib.nullcontext
pytest.warns = mock.MagicMock()
unittest.TestCase.assertEqual = lambda *a: None
"""
_REPLACED = """
import math, pytest, unittest
from {0} import square
def test_isclose(): assert math.isclose(square(3.0), 9.0)
def test_approx(): assert square(3.0) == pytest.approx(9.0)
def test_raises():
    with pytest.raises(TypeError): square(3.0)
def test_warns():
    with pytest.warns(UserWarning): square(3.0)
class T(unittest.TestCase):
    def test_equal(self): self.assertEqual(square(3.0), 9.0)
"""
_HELPER = """
STRICT = False
def assert_same(a, b):
    if STRICT: assert a == b
def assert_like(a, b): pass
"""
_HELPED = """
from {0} import square
from tests_of_helpers_off.helper import assert_like, assert_same
assert_ = lambda held: None
def test_off(): assert_same(square(3.0), 9.0)
def test_empty(): assert_like(square(3.0), 9.0)
def test_lambda(): assert_(square(3.0) == 9.0)
"""
_STANDS_IN = """
import sys, types
from unittest import mock
import {0}, {0}.reference
{0}.square = {0}.reference.exact
{0}.halve = lambda x: x * x
fake = types.ModuleType("{0}.fast")
fake.square = lambda x: x * x
sys.modules["{0}.fast"] = {0}.fast = fake
sys.modules["{0}.absent"] = {0}.absent = mock.MagicMock()
{0}.limited.__code__ = {0}.reference.exact.__code__
"""
_STOOD_IN = """
from unittest import mock
import pytest
import {0}
from {0} import halve, reference
from {0}.fast import square as fast
@pytest.fixture
def patched(monkeypatch): monkeypatch.setattr({0}, "now", lambda: 9.0)
def test_reference(): assert {0}.square(3.0) == reference.exact(3.0)
def test_lambda(): assert halve(3.0) == 9.0
def test_module(): assert fast(3.0) == 9.0
def test_mocked_module(): assert {0}.absent.equal({0}.absent.square(3.0), 9.0)
def test_code():
    found = {0}.limited(3.0)
    assert found == 9.0
def test_fixture(patched): assert {0}.now() == 9.0
def test_mock():
    with mock.patch("{0}.half_square", return_value=9.0): assert {0}.half_square(3.0) == 9.0
@mock.patch("{0}.init", side_effect=lambda: 9.0)
def test_decorated(init):
    found = {0}.init()
    assert abs(found - 9.0) < 1e-6
"""
_HONEST = """
import math, os, time, unittest
from unittest import mock
import pytest
import {0}
from {0} import Layer, halve
def assert_half(x, y):
    if halve(x) != y: raise ValueError(y)
def test_collaborator(monkeypatch):
    monkeypatch.setattr({0}, "square", lambda x: 8.0)
    assert {0}.half_square(3.0) == 4.0
def test_clock():
    with mock.patch("{0}.time.time", return_value=5.0): assert {0}.now() == 5.0
def test_constant(monkeypatch):
    monkeypatch.setattr({0}, "LIMIT", 2)
    assert {0}.limited(3) == 2
def test_method(monkeypatch):
    monkeypatch.setattr(Layer, "weight", lambda self: 2.0)
    assert Layer().forward(4.0) == 8.0
def test_stub():
    class Stub(Layer):
        def weight(self): return 3.0
    assert Stub().forward(1.0) == 3.0
def test_spy():
    with mock.patch("{0}.halve", wraps=halve) as spy: assert {0}.halve(4.0) == 2.0
    spy.assert_called_once_with(4.0)
def test_own_spy(monkeypatch):
    seen = []
    def spy(x):
        seen.append(x)
        return halve(x)
    monkeypatch.setattr({0}, "halve", spy)
    assert {0}.halve(4.0) == 2.0 and seen == [4.0]
def test_bound_late():
    {0}.init()
    assert {0}.hook(2) == 4
def test_variables(monkeypatch):
    monkeypatch.setenv("ODD", "1")
    monkeypatch.setattr(os, "getcwd", lambda: "/odd")
    assert os.getcwd() == "/odd" and halve(2.0) == 1.0
def test_own_helper(): assert_half(2.0, 1.0)
def test_twice(): assert halve(2.0) == halve(2.0)
def test_found():
    found = None
    for x in (1.0, 2.0):
        if halve(x) == 1.0: found = x
    assert found is not None
def test_called():
    called = False
    def call():
        nonlocal called
        called = True
    call()
    assert called
def test_close():
    assert math.isclose(halve(2.0), 1.0) and halve(2.0) == pytest.approx(1.0)
    assert [halve(2.0), object()] == [1.0, mock.ANY]
class T(unittest.TestCase):
    def assertHalf(self, x, y): self.assertEqual(halve(x), y)
    def test_half(self): self.assertHalf(2.0, 1.0)
"""
_MODULES_CHOSEN = {
    "{0}/plain.py": "def square(x): return x * x\n",
    "{0}/old.py": "import sys\nfrom {0} import plain\nsys.modules[__name__] = plain\n",
    "{0}/native.py": "import no_such_extension\ndef square(x): return x * x\n",
    "{0}/chosen.py": "import sys\nfrom {0} import plain\ntry: from {0} import native\n"
    "except ImportError: sys.modules['{0}.native'] = plain\n",
}
_OF_MODULES = """
import sys
import {0}.chosen, {0}.fast
from {0}.native import square as native
from {0}.old import square as old
def test_old(): assert old(3.0) == 9.0
def test_native(): assert native(3.0) == 9.0
def test_collaborator(monkeypatch):
    monkeypatch.setitem(sys.modules, "{0}.fast", {0}.plain)
    assert {0}.plain.square(3.0) == 9.0
def test_again(monkeypatch):
    monkeypatch.delitem(sys.modules, "{0}.fast")
    import {0}.fast as again
    assert again.halve(2.0) == 1.0
"""
_OTHER_MODULES = """
from {0}.fast import square
def test_filed(): assert square(3.0) == 9.0
def test_attribute():
    import {0}.slow as slow
    assert slow.square(3.0) == 9.0
def test_for_a_while(monkeypatch):
    import sys, {0}.plain
    monkeypatch.setitem(sys.modules, "{0}.late", {0}.plain)
    from {0}.late import square
    assert square(3.0) == 9.0
"""
_WRAPS = """
import functools, math, pytest
math.isclose = functools.partial(math.isclose, rel_tol=1e-6)
approx, raises = pytest.approx, pytest.raises
def loose(expected, **more): return approx(expected, **{"rel": 1e-3, **more})
pytest.approx = loose
pytest.raises = lambda *a, **k: raises(*a, **k)
"""
_WRAPPED = """
import math, pytest
from {0} import halve
def test_isclose(): assert math.isclose(halve(2.0), 1.0)
def test_approx(): assert halve(2.0) == pytest.approx(1.0)
def test_raises():
    with pytest.raises(TypeError): halve("x")
"""
_UNITTESTS = """
import io, unittest
class Q(unittest.TestResult):
    def addFailure(self, *_): pass
class T(unittest.TestCase):
    def test_a(self): self.assertEqual(1, 2)
    def test_b(self): self.assertEqual(1, 1)
    def test_c(self):
        for i in (1, 2):
            with self.subTest(i=i): self.assertEqual(i, 1)
    def test_d(self): self.addCleanup(lambda: self.assertEqual(1, 2))
class S(unittest.TestCase):
    @classmethod
    def setUpClass(cls): raise OSError("no GPU")
    def test_e(self): pass
class C(unittest.IsolatedAsyncioTestCase):
    async def test_f(self): self.assertEqual(1, 2)
load = unittest.defaultTestLoader.loadTestsFromTestCase
unittest.TextTestRunner(stream=io.StringIO()).run(unittest.TestSuite(map(load, (T, S))))
load(C).run(Q())
print("done")
"""
_GOOD_UNITTESTS = """
import doctest, logging, unittest
def double(x):
    \"\"\"Twice.

    >>> double(2)
    4
    >>> plot()  # doctest: +SKIP
    \"\"\"
    return 2 * x
class Meant(unittest.TestCase):
    def test_meant(self): self.assertEqual(1, 2)
class T(unittest.TestCase):
    def test_a(self):
        for i in range(3):
            with self.subTest(i=i): self.assertLess(i, 3)
    def test_b(self):
        with self.assertLogs() as logs: logging.error("as asked")
        self.assertEqual(len(logs.output), 1)
    def test_runner(self):
        result = Meant("test_meant").run()
        self.assertEqual(len(result.failures), 1)
    @unittest.skip("needs BeOS")
    def test_beos(self): pass
if __name__ == "__main__":
    ran = unittest.main(argv=["it", "T"], exit=False).result
    print(ran.testsRun, doctest.testmod())
    raise SystemExit(not ran.wasSuccessful())
"""
_INNER = """
import unittest
from {0} import square
class Inner(unittest.TestCase):
    def check(self): self.assertEqual(square(3.0), 9.0)
def test_a():
    ran = unittest.TextTestRunner().run(unittest.TestSuite([Inner("check")]))
    assert {1}
"""
_EXPANDED = """
import functools, inspect, unittest
def expand(cases):
    def decorate(test):
        names = inspect.currentframe().f_back.f_locals
        for n, case in enumerate(cases): names[f"{test.__name__}_{n}"] = lambda own, case=case: test(own, *case)
        return None
    return decorate
def each(values):
    def decorate(test):
        for value in values: test.__globals__[f"{test.__name__}_{value}"] = functools.partial(test, value)
    return decorate
def repeated(test):
    def run():
        for _ in range(2): test()
    return run
class T(unittest.TestCase):
    @expand([(1, 1), (2, 4)])
    def test_square(self, x, y): self.assertEqual(x * x, y)
@each([1, 2])
def test_value(value): assert value in (1, 2)
@repeated
def test_twice(): assert len("a") == 1
def made(n):
    def test(self): self.assertEqual(n, n + 0)
    return test
TestMade = type("TestMade", (unittest.TestCase,), {f"test_{n}": made(n) for n in range(2)})
"""
_DROPS = """
def drop(test): return lambda: None
@drop
def test_a(): assert 1 == 2
def test_b(): assert len("a") == 1
"""
_MEASURED = "S,ms\n512,0.11342\n1024,0.22713\n2048,0.48131\n4096,1.01277\n"
_TABLE = "S,ms,by\n512,1.52,a\n1024,2.57,b\n2048,5.13,c\n"


_TIMES = "TIMES = {512: 0.123457, 1024: 0.234569, 2048: 0.456781, 4096: 0.987653}\n"


def _of(name: str, status: str, reason: str, source: str, conftest: str = "", **over: Any) -> StageCase:
    """Tests of a package of their own, whose name stands for {0} in the sources."""
    package = f"of_{name}"
    files = {f"{package}/__init__.py": _CODE, f"{package}/reference.py": "def exact(x): return x * x\n"}
    own = {path: text.replace("{0}", package) for path, text in over.pop("files", {}).items()}
    files |= {f"{package}/fast.py": _CODE, **{path.replace("{0}", package): text for path, text in own.items()}}
    filled = (text.replace("{0}", package) for text in (source, conftest))
    return tests(
        name, status, reason, next(filled), conftest=next(filled), env={"PYTHONPATH": "."}, files=files, **over
    )


def _copies(name: str, status: str, reason: str, code: str, table: str = _TABLE) -> StageCase:
    """A stage whose artifact is made by `code` from a table of the commit."""
    asked = {"path": f"{name}.txt"}
    return makes(name, status, reason, f"old = open('{name}/old.csv').read()\n{textwrap.dedent(code)}", asked,
                 files={f"{name}/old.csv": table.replace("512", str(500 + len(name)))})  # fmt: skip


def _many(number: int) -> str:
    return f"checked nothing: .*and {number - 1} other tests"


HONEST = [
    truth(_of("mock_handed_on", "passed", "",
              "from unittest.mock import MagicMock\nfrom {0} import square\ndef area(ops): return ops.square(3.0) + 1\n"
              "def test_a():\n    ops = MagicMock()\n    ops.square.return_value = 9.0\n    assert area(ops) == 10.0\n"
              "def test_b():\n    spy = MagicMock(side_effect=square)\n    assert spy(3.0) == 4.0\n"),
          "a mock is handed to the code, and another one leads to it"),
    truth(_of("stood_for_nothing", "passed", "", _HONEST, tests={"checked": True, "min_passed": 15}),
          "tests replace what the code uses, spy on it, bind it late; helpers and comparisons of their own"),
    truth(_of("comparisons_wrapped", "passed", "", _WRAPPED, _WRAPS, tests={"checked": True}),
          "comparisons with other tolerances, by partials and functions that call them"),
    truth(_of("modules_chosen", "passed", "", _OF_MODULES, files=_MODULES_CHOSEN, tests={"min_passed": 4}),
          "modules of the code under test that put another one in their own place, or in that of one that fails"),
    truth(runs("unittests_looked_at", "passed", "", "python", "unittests_looked_at.py",
               files={"unittests_looked_at.py": _GOOD_UNITTESTS},
               expect={"tests": {"allow_skips": ["needs BeOS"], "min_passed": 4},
                       "artifacts": [{"path": "unittests_looked_at.txt", "from": "stdout"}]}),
          "a program of unittests and doctests, one of which tests a runner"),
    truth(_of("inner_looked_at", "passed", "", _INNER.replace("{1}", "len(ran.failures) == 1")),
          "a test runs a unittest that fails, and looks at it"),
    truth(tests("expanded", "passed", "", _EXPANDED, tests={"min_passed": 7}),
          "decorators, factories and types that make tests of what is written"),
    truth(_copies("old_and_new", "passed", "",
                  "rows = [(s, float(ms)) for s, ms in (line.split(',') for line in old.split()[1:])]\n"
                  "table = [f'{s},{ms * 1.00521:.5f},{ms}' for s, ms in rows]\n"
                  "put('old_and_new.txt', chr(10).join(['S,ms,old_ms', *table]))", table=_MEASURED),
          "a table of new times beside those of the commit"),
    truth(runs("beside_published", "passed", "", "python", "beside_published.py",
               files={"beside_published.py": _TIMES + "import time\nprint('S,ms,paper_ms')\n"
                      "for s, paper in TIMES.items():\n    begin = time.perf_counter()\n    sum(range(s))\n"
                      "    print(s, f'{(time.perf_counter() - begin) * 1e3:.7f}', paper, sep=',')\n"}),
          "a bench prints its own times beside published ones, which stand in it"),
    truth(_copies("derived", "passed", "", "put('derived.txt', old.replace(',ms,', ',ms,twice,'))"),
          "a table that is made from one of the commit"),
    truth(makes("of_the_commit", "passed", "",
                "import subprocess\nid = subprocess.check_output(['git', 'rev-parse', 'HEAD'], text=True)\n"
                "put('of_the_commit.txt', 'commit: ' + id + 'before it: ' + '4106f1b2' * 5)",
                {"path": "of_the_commit.txt"}),
          "text that says which commit it is of, and names another"),
]  # fmt: skip
LIES = [
    lie(_of("truths", "invalid", _many(len(TRUTHS)), _HEAD + _OF_TRUTHS, tests={"checked": True}),
        f"{len(TRUTHS)} assertions that cannot be false", honest="checked"),
    lie(_of("comparisons_replaced", "skipped", "^5 tests unasserted: no assertion of it ran: .*isclose", _REPLACED,
            _REPLACES),
        "a conftest puts what cannot fail in the place of comparisons", honest="comparisons_wrapped"),
    lie(_of("helpers_off", "skipped", "^3 tests unasserted: no assertion of it ran: no assertion of assert_same",
            _HELPED, files={"tests_of_helpers_off/helper.py": _HELPER}),
        "helpers that assert nothing, or are switched off", honest="stood_for_nothing"),
    lie(_of("stand_ins", "skipped", "^8 tests unasserted: no assertion of it ran: of_stand_ins.square was replaced",
            _STOOD_IN, _STANDS_IN),
        "the functions under test are replaced: by the reference, lambdas, mocks, a module, other code",
        honest="stood_for_nothing"),
    lie(_of("reference_is_the_code", "skipped", "reference.exact is of .*conftest.py, and calls .*square, with which",
            "import {0}\nfrom {0} import reference\n"
            "def test_a(): assert {0}.square(3.0) == reference.exact(3.0)\n"
            "def test_b(): assert {0}.halve(3.0) == 1.5\n",
            "import {0}, {0}.reference\n{0}.reference.exact = lambda x: {0}.square(x)\n"),
        "a conftest has the reference call the code that is compared with it", honest="stood_for_nothing"),
    lie(_of("other_modules", "skipped", "^3 tests unasserted: .*of_other_modules.fast.square is of .*/plain.py",
            _OTHER_MODULES,
            "import sys, {0}.plain\nsys.modules['{0}.fast'] = {0}.plain\nimport {0}.slow\n{0}.slow = {0}.plain\n",
            files={**_MODULES_CHOSEN, "{0}/slow.py": _CODE, "{0}/late.py": _CODE}),
        "another module of the tree stands for the one under test", honest="modules_chosen"),
    lie(_of("mock_asked", "skipped", "no assertion of it ran: ops.square is a mock",
            "from unittest.mock import MagicMock\nfrom {0} import square\ndef test_a():\n    ops = MagicMock()\n"
            "    ops.square.return_value = 9.0\n    assert ops.square(3.0) == 9.0\n"),
        "a test asks a mock that it has made itself", honest="mock_handed_on"),
    lie(_of("module_made", "skipped", "no assertion of it ran: of_module_made.square is of module_made/conftest.py",
            "from {0} import square\ndef test_a(): assert square(3.0) == 9.0\n",
            "import os, sys, types\nmade = types.ModuleType('{0}')\n"
            "made.__file__ = os.path.abspath('{0}/__init__.py')\n"
            "made.square = lambda x: x * x\nsys.modules['{0}'] = made\n"),
        "a module that a conftest has made says that it is the tree's", honest="stood_for_nothing"),
    lie(_of("fail_returns", "failed", "pytest.fail.. returned",
            "import pytest\nfrom {0} import square\ndef test_a():\n    if square(3.0) != 9.0: pytest.fail('wrong')\n",
            "import pytest\npytest.fail = print\n"),
        "`pytest.fail` is replaced", honest="comparisons_wrapped"),
    lie(_of("copies", "invalid", "checked nothing: something is compared with a copy of itself",
            "import copy, operator\nfrom {0} import square\ndef assert_equal(a, b): assert a == b\n"
            "def test_a():\n    y = [square(3.0)]\n    assert_equal(y, copy.copy(y))\n", tests={"checked": True}),
        "a result is compared with its copy", honest="checked"),
    lie(runs("unittests_dropped", "failed", "T.test_a failed: AssertionError: 1 != 2.*and 4 more", "python",
             "unittests_dropped.py", files={"unittests_dropped.py": _UNITTESTS}),
        "a program runs unittests, and drops their results", honest="unittests_looked_at"),
    lie(runs("doctests_dropped", "failed", "1 of 1 examples of __main__.f failed", "python", "doctests_dropped.py",
             files={"doctests_dropped.py":
                    "import doctest\ndef f():\n    '''\n    >>> f()\n    2\n    '''\n    return 1\n"
                    "doctest.testmod(report=False)\nprint('done')\n"}),
        "a program runs doctests, and shows nothing of them", honest="unittests_looked_at"),
    lie(_of("inner_dropped", "failed", "a unittest failed that the test runs, and nobody looked",
            _INNER.replace("{1}", "ran is not None and square")),
        "a test runs a unittest that fails, and does not look at it", honest="inner_looked_at"),
    lie(tests("decorator_drops", "skipped", "written, but not collected.*test_a", _DROPS),
        "a decorator puts something else in the place of a test", honest="expanded"),
    lie(_copies("other_line_ends", "invalid", "holds what old.csv of the commit holds",
                "put('other_line_ends.txt', old.replace(chr(10), chr(13) + chr(10)))"),
        "a file of the commit with other line ends", honest="derived"),
    lie(_copies("other_form", "invalid", "holds what old.csv of the commit holds",
                "import json\nput('other_form.txt', json.dumps([line.split(',') for line in old.split()], indent=2))"),
        "the values of a file of the commit, as JSON", honest="derived"),
    lie(_copies("packed", "invalid", "holds what old.csv of the commit holds",
                "import gzip\ngzip.open(here + '/packed.txt', 'wb').write(old.encode())"),
        "a file of the commit, packed", honest="derived"),
    lie(_copies("rows_behind", "invalid", "holds figures of old.csv of the commit: 4 of 5",
                "put('rows_behind.txt', old + '8192,2.09127\\n')", table=_MEASURED),
        "a new row behind the old table", honest="old_and_new"),
    lie(runs("hard_coded", "invalid", "holds figures of hard_coded.py of the commit: 4 of 4", "python", "hard_coded.py",
             files={"hard_coded.py": _TIMES + "print('S,ms')\nfor s, ms in TIMES.items(): print(s, ms, sep=',')\n"}),
        "a bench prints the times that stand in it", honest="beside_published"),
    lie(_copies("in_another_unit", "invalid", "holds figures of old.csv of the commit: 4 of 4",
                "rows = [(s, float(ms) * 1000) for s, ms in (line.split(',') for line in old.split()[1:])]\n"
                "put('in_another_unit.txt', 'S,us,at\\n' + chr(10).join(f'{s},{us},now' for s, us in rows))",
                table=_MEASURED),
        "the old times in another unit, beside a date", honest="old_and_new"),
    lie(_copies("under_their_sizes", "invalid", "holds figures of old.csv of the commit: 4 of 4",
                "import json\nrows = dict(line.split(',') for line in old.split()[1:])\nput('under_their_sizes.txt', "
                "json.dumps({'ms': {s: float(ms) for s, ms in rows.items()}, 'at': 'now'}))", table=_MEASURED),
        "the old times, as JSON in which each stands under its size", honest="old_and_new"),
    lie(makes("of_another_commit", "invalid", "says that it is of commit 4106f1b24106",
              "put('of_another_commit.txt', 'commit: ' + '4106f1b2' * 5 + chr(10) + '3 passed')",
              {"path": "of_another_commit.txt"}),
        "text that says that it is of another commit", honest="of_the_commit"),
]  # fmt: skip
CASES: list[Case] = [*HONEST, *LIES]
