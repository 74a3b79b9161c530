"""Tests that pass and check nothing, and tests that are written and never collected."""

from __future__ import annotations

import sys
import textwrap
from typing import Any

from tests.honesty.case import Case, first, lie, truth
from tests.honesty.pytest_cases import folder
from tests.support.stage_cases import tests

_HEAD = """\
import asyncio, contextlib, os, subprocess, sys, threading
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import Pool, Process
import pytest
def work(x): assert x == 1
def test_other(): assert work
"""
_ASYNC = """\
async def f(x): assert x == 2
def test_a():
    {}
    assert len("a")
"""
_THREAD = """\
def raises(): raise KeyError(1)
def test_a(monkeypatch):
    seen = []
    def hook(args): seen.append(args.exc_value)
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    {}
    t = threading.Thread(target=raises); t.start(); t.join()
    assert len(seen) == 1
"""
_ANSWERING = """\
import math
SEEN = []
def same(a, b):
    if a is None: return False
    return math.isclose(a, b)
def kept(a, b):
    SEEN.append((a, b))
    return a == b
"""
_ANSWERS = "import helper, pytest\nfrom helper import kept, same\ndef test_a():\n"
_CASES = """
import sys
match sys.platform:
    case "{}":
        def test_p(): assert 1 == 2
    case {!s}:
        def test_p(): assert len("b")
"""
_EXAMPLES = """\
def test_z(): assert len("a")
def f(x):
    \"\"\"
    >>> f(1)
    2

    Not everywhere:
    >>> f(2)  # doctest: +SKIP
    4
    \"\"\"
    return x + 1
"""
_KEEPS = """\
import contextlib
class Keeps:
    tries = 0
    def __enter__(self): return self
    def __exit__(self, kind, error, _):
        self.tries += 1
        self.error = error
        return kind is AssertionError
class Passes(Keeps):
    def __exit__(self, *_): print("left")
class Expects(Keeps):
    def __exit__(self, kind, *_):
        if kind is None: raise ValueError("nothing has failed")
        return True
def test_a():
    {}
    assert len("a")
"""
_WITHOUT_SLOW = """\
import os
def test_a():
    if os.environ.get("SLOW"): assert 1 + 1 == 2
"""
_PYTEST = "import subprocess, sys\nsubprocess.run([sys.executable, '-m', 'pytest', '-q', '{}/test_it.py'], check=True)"
_CHILD = "[sys.executable, '-c', 'assert 1 == 2']"


# For `except*`, the Python of the stages is 3.11 or later.
_GROUP = """\
async def one(x): work(x)
async def all_of_it():
    async with asyncio.TaskGroup() as group: group.create_task(one(2))
"""


def _file(body: str) -> str:
    return _HEAD + "def test_a():\n" + textwrap.indent(textwrap.dedent(body).strip(), "    ") + "\n"


def _since_311(*cases: Case) -> tuple[Case, ...]:
    """Of groups of tasks and of exceptions."""
    return cases if sys.version_info >= (3, 11) else ()


def _ran(name: str, body: str, says: str) -> Case:
    return truth(tests(name, "passed", "", _file(body)), says)


def _idle(name: str, body: str, pretends: str, honest: str) -> Case:
    return lie(tests(name, "skipped", "no assertion of it ran.*test_a", _file(body)), pretends, honest=honest)


def _lost(name: str, body: str, pretends: str, honest: str) -> Case:
    return lie(
        tests(name, "failed", "test_a failed: .*(Assertion|tuple|Thread|Return|Unraisable)", _file(body)),
        pretends,
        honest=honest,
    )


def _unwritten(name: str, source: str, pretends: str, honest: str, **over: Any) -> Case:
    made = tests(
        name,
        "skipped",
        "written, but not collected",
        "def test_z(): assert len('a')\n" + textwrap.dedent(source),
        **over,
    )
    return lie(made, pretends, honest=honest)


def _collected(name: str, source: str, says: str, **over: Any) -> Case:
    return truth(tests(name, "passed", "", "def test_z(): assert len('a')\n" + textwrap.dedent(source), **over), says)


_EMPTY = """
class Tensor:
    dtype, shape = "float32", (0, 4)
    def __lt__(self, other): return self
    def all(self): return True
class Full(Tensor):
    shape = 2, 4
"""
MUST_RAISE = """
    import os, pytest
    HAS_GPU = os.path.exists("/no/such/device")
    @pytest.mark.parametrize(("text", "valid"), [("1", True), ("x", False)][:1 + ("{0}" == "valid")])
    def test_a(text, valid):
        if {0}:
            int(text)
        else:
            with pytest.raises(ValueError):
                int(text)
"""

HONEST = [
    _ran("check_guarded", "if os.environ.get('HOME'): assert len('a') == 1", "the guard holds"),
    truth(tests("must_and_must_not_raise", "passed", "", MUST_RAISE.format("valid")),
          "a call that must raise for some parameters, and must not for others"),
    truth(tests("must_raise_and_match", "passed", "", MUST_RAISE.format("valid").replace(
        "with pytest.raises(ValueError):\n                int(text)",
        "pytest.raises(ValueError, int, text).match('invalid')")),
          "the same, as a call of raises whose text is looked at"),
    truth(tests("must_raise_of_another", "passed", "", MUST_RAISE.format("valid").replace(
        "int(text)\n        else", "int('7')\n        else")),
          "a function that must raise for one argument, and must not for another"),
    truth(tests("must_raise_by_another_name", "passed", "", """
        import pytest
        from contextlib import nullcontext
        from functools import partial
        @pytest.mark.parametrize("text", ["1", "x"])
        def test_a(text):
            context = nullcontext if text == "1" else partial(pytest.raises, ValueError)
            with context():
                assert int(text) == 1
    """), "what must raise for some parameters is entered by another name"),
    truth(tests("check_by_another_name", "passed", "", """
        from tests_checks import assert_equal as same
        def test_a(): same(len("a"), 1)
    """, files={"tests_checks.py": "def assert_equal(a, b):\n    assert a == b\ndef assert_nothing(a, b): pass\n"},
                env={"PYTHONPATH": "."}, expect={"tests": {"checked": True}}),
          "a check that is imported under another name"),
    _ran("check_in_loop", "for x in [1]: assert x == 1", "the loop has something to check"),
    _ran("check_nested", "def inner(): assert len('a')\ninner()", "the inner function is called"),
    truth(tests("finalizer_of_a_library", "passed", "", """
        import pytest
        from pool_of_its_own import Pool
        def test_a():
            pool = Pool()
            with pytest.raises(TypeError): pool.close(1, 2)
            pool.is_open = True
            del pool
    """, files={"pool_of_its_own.py": "class Pool:\n    is_open = False\n    def close(self): self.is_open = False\n"
                                      "    def __del__(self): assert not self.is_open\n"}, env={"PYTHONPATH": "."}),
          "a test breaks a library on purpose, whose `__del__` minds"),
    _collected(
        "check_without_interpreter",
        """
        import contextlib, json, os, sys
        def test_a(monkeypatch):
            monkeypatch.delattr(sys, "_getframe")
            for module, name in ((os, "getpid"), (os, "write"), (json, "dumps")):
                monkeypatch.setattr(module, name, lambda *_: 0)
            with contextlib.suppress(KeyError):
                {}[1]
            assert len("a")
        """,
        "a test takes from sys, os and json what the observer needs itself",
    ),
    _ran("check_coroutine", "async def f(): assert len('a')\nasyncio.run(f())", "the coroutine runs"),
    _ran("check_thread", "t = threading.Thread(target=work, args=(1,)); t.start(); t.join()",
          "the thread's assertion holds"),
    _ran("check_pool",
          "with ThreadPoolExecutor() as p:\n    with pytest.raises(AssertionError): p.submit(work, 2).result()",
         "what the pool raises is asked for, and expected"),
    _ran("check_pool_map",
         "def slowly(x):\n    threading.Event().wait(x / 10)\n    work(x)\n"
         "with ThreadPoolExecutor() as p, pytest.raises(AssertionError): list(p.map(slowly, [0, 2, 3]))",
         "what a map over several raises first is expected, and stands for all"),
    _ran("check_workers", "with Pool(1) as p: p.map(work, [1, 1])", "the workers' assertions hold"),
    _ran("check_process", "p = Process(target=work, args=(2,)); p.start(); p.join(); assert p.exitcode == 1",
         "the exit code of the child is what is expected"),
    _ran("check_child", f"assert subprocess.run({_CHILD}).returncode == 1", "the child is expected to fail"),
    _ran("check_child_said",
         "command = f'{sys.executable} -c \"assert 1 == 2\" || true'\n"
         "r = subprocess.run(command, shell=True, capture_output=True, text=True)\nassert 'AssertionError' in r.stderr",
         "a shell drops what a program returned, and its error is looked at"),
    _ran("check_retry",
          "n = 0\nwhile True:\n    n += 1\n    try:\n        assert n > 2\n        break\n"
          "    except AssertionError: pass",
         "an assertion is tried again until it holds"),
    _ran("check_refused", "try: work(2)\nexcept AssertionError: pass\nelse: pytest.fail('accepted')",
          "a refusal is expected"),
    _ran("check_refused_in_helpers",
         "def refuses(x):\n    try: work(x)\n    except AssertionError: return\n    raise RuntimeError('accepted')\n"
         "refuses(2)\n"
         "try:\n    work(2)\n    raise RuntimeError('accepted')\nexcept AssertionError: pass\n"
         "try:\n    work(2)\n    pytest.fail('accepted')\nexcept AssertionError: print('refused')",
         "a refusal is expected, or what follows raises something else"),
    _ran("check_refusals",
          "with pytest.raises(AssertionError): assert 1 == 2\n"
          "with pytest.raises(Exception, match='int'): int('x')\n"
          "def check(x): assert x == 1\nwith pytest.raises(AssertionError): check(2)",
         "exceptions that are expected, an assertion's among them"),
    *_since_311(
        _ran("check_group", f"{_GROUP}failed = []\ntry: asyncio.run(all_of_it())\n"
             "except* AssertionError as group: failed += group.exceptions\nassert len(failed) == 1\n"
             "try: asyncio.run(all_of_it())\nexcept* AssertionError: pass\nelse: pytest.fail('accepted')",
             "a failure in a group of tasks is expected"),
        _lost("grouped", f"{_GROUP}try: asyncio.run(all_of_it())\nexcept* AssertionError: pass",
              "it fails in a group of tasks, whose exceptions are dropped", "check_group"),
        _lost("grouped_whole", f"{_GROUP}try: asyncio.run(all_of_it())\nexcept Exception as e: print(e)",
              "it fails in a group of tasks, which is caught as a whole and printed", "check_group"),
    ),
    truth(tests("check_edges", "passed", "", """
        import pytest
        from numbers_of_its_own import first
        @pytest.mark.parametrize("n", [0, 1, 7])
        def test_a(n):
            some = list(range(n))
            assert all(x >= 0 and x < 7 for x in some)
            small = [x < 7 for x in some]
            assert all(small)
        """, tests={"checked": True}, files={"numbers_of_its_own.py": "first = 1\n"}),
          "a size of nothing, beside others"),
    _ran("check_forbidden", "def never(): raise AssertionError('called')\n(lambda f: None)(never)",
          "what must not be called is not"),
    _ran("check_message", "assert len('a') == 1, 'a message'", "an assertion with a message"),
    _collected("mixin", "class Mixin:\n    def test_m(self): assert len('a')\nclass TestM(Mixin): pass\n",
          "a mixin, whose subclass is collected"),
    _collected("by_platform",
          "import sys\nif sys.platform == 'win32':\n    def test_p(): assert len('a')\n"
          "else:\n    def test_p(): assert len('b')\n",
               "a test in two versions, one for each platform"),
    truth(folder("helper_file", "passed", "", {
              "test_it.py": "from helper import Client\ndef test_c(): assert Client().test_connection() is None\n",
              "helper.py": "class Client:\n    def test_connection(self): pass\ndef test_pair(a, b): return a == b\n"}),
          "a helper beside the tests whose functions have such names"),
    _collected("check_helper", "def check_k(): assert len('a')\ndef check_of(x): assert x\n"
               "def test_k(): check_k()\n", "a function called check_ is called by a test, another takes an argument"),
    _collected("inner_used", "def test_o():\n    def test_i(): assert len('a')\n    test_i()\n",
          "an inner function that the test calls"),
    _collected("inner_registered",
          "def test_o():\n    names = {}\n    def add(f): names[f.__name__] = f\n"
          "    @add\n    def test_i(): return 1\n    assert names['test_i']() == 1\n",
          "an inner function that a decorator takes, as those of click and Flask do"),
    _collected("reassigned", "def twice(f):\n    def g(): f(); f()\n    return g\n"
          "def test_k(): assert len('a')\ntest_k = twice(test_k)\n", "a test that is wrapped by hand"),
    _collected("named_like_a_test", "import pytest\ndef run_test(x): assert x\ndef test_k(): run_test(1)\n"
               "def setup_test(): pass\n"
               "def get_test_size(): return 3\n@pytest.fixture\ndef _test_data(): assert 1\n"
               "@pytest.mark.parametrize('n', [1, 2])\ndef test_l(n, _test_data): assert n\n",
          "helpers whose names are like those of tests"),
    _collected("step_overridden",
          "from base import Base\nclass TestK(Base):\n    def _test_step(self): assert len('a')\n",
          "a class has its own of a step that the tests of its base call",
          files={"step_overridden/base.py": "class Base:\n    def test_k(self): self._test_step()\n"
                                            "    def _test_step(self): pass\n"}),
    truth(tests("wrapped_later", "passed", "", "def test_k(): assert len('a')\n",
                conftest="def pytest_runtest_setup(item):\n    f = item.obj\n    item.obj = lambda: f()\n"),
          "a hook that wraps each test"),
    _ran("check_finally", "for x in [1, 2]:\n    try: assert x > 0\n    finally: continue",
         "a `finally` that is left by a jump, and drops nothing"),
    truth(tests("gradchecked", "passed", "",
                _EMPTY + "def gradcheck(f, x, raise_exception=True): return f(x) == len(x)\n"
                "def test_a():\n    gradcheck(len, 'ab')\n    assert gradcheck(len, 'ab', raise_exception=False)\n"
                "    ok = gradcheck(len, 'ab', raise_exception=False)\n    print(ok)\n"
                "def test_b():\n    error = Full()\n    assert (error < 1).all()\n", tests={"checked": True}),
          "gradchecks on which something depends; all elements of a tensor are small"),
    truth(tests("writes_by_version", "passed", "",
                "import io\ndef made(version):\n    file = io.BytesIO()\n    if version == 1: file.write(b'1')\n"
                "    else: file.write(b'%d' % version)\n    return file\n"
                "def test_a(): made(2)\ndef test_b(): assert made(1).tell()\n"),
          "a comparison decides what a helper writes into a file, of a test that only runs it"),
    truth(tests("difference_asserted", "passed", "",
                "import math\ndef test_a():\n    match, largest = math.isclose(2.0, 2.1), 0.0\n    print(match)\n"
                "    if not match:\n        largest = abs(2.0 - 2.1)\n        print('maximum difference', largest)\n"
                "    assert largest < 0.2\n"),
          "whether two results are near to the last bit is printed, and how far they are apart is asserted"),
    truth(tests("compared_beside", "passed", "",
                "import pytest\nfrom unittest.mock import Mock\ndef test_a():\n    len('ab') == 2\n    [] == []\n"
                "    with pytest.raises(TypeError): 1 < 'a'\n    m = Mock(); m(1)\n    m.assert_called_with(1)\n"
                "def test_b():\n    assert 0.1 + 0.2 == pytest.approx(0.3, abs=1e-9)\n"
                "    assert 1e-12 == pytest.approx(0.0, abs=1e-6)\n"
                "def test_c():\n    import math\n    assert math.isclose(len('ab'), 2, abs_tol=1.5)\n"
                "    assert math.isclose(len(''), 0, abs_tol=1e-6)\n", tests={"checked": True}),
          "comparisons that hold, or are to raise, beside assertions; tolerances below the numbers"),
    truth(tests("compared_functions", "passed", "",
                "import math, os, pytest, posixpath\nfrom os.path import basename\n"
                "impl = math.fabs if os.sep == '/' else abs\n"
                "def test_a():\n    got = impl(-2.0)\n    want = abs(-2.0)\n    assert got == want\n"
                "def test_alias(): assert basename('a/b') == posixpath.basename('a/b')\n"
                "def test_twice(): assert impl(-2.0) == impl(-2.0)\n"
                "def test_order():\n    error = abs(-0.5)\n    assert not error > 1\n"
                "    if error > 1: pytest.fail('wrong')\n"
                "def test_magnitude(): assert math.isclose(impl(2.0), abs(2.5), rel_tol=0.5)\n",
                tests={"checked": True}),
          "a function and another one, a function and its other name, errors below a limit"),
    truth(tests("answers_looked_at", "passed", "",
                _ANSWERS + "    assert helper.same(len('ab'), 2)\n    assert not same(1, 2)\n    kept(1, 2)\n"
                "    with pytest.raises(TypeError): helper.same(1, 'a')\n"
                "    class Outcome:\n        def __len__(self): return 2\n    assert Outcome()\n",
                files={"answers_looked_at/helper.py": _ANSWERING}, tests={"checked": True}),
          "what helpers return that only compare is asserted; another does more than that"),
    truth(tests("checks_in_lambdas", "passed", "",
                "import unittest\nclass T(unittest.TestCase):\n    def test_a(self):\n        seen = []\n"
                "        self.addCleanup(lambda: self.assertEqual(seen, [1]))\n        seen.append(1)\n",
                tests={"checked": True}),
          "a unittest's only check is a lambda, which is called when it has ended"),
    truth(tests("compared_in_a_bench", "passed", "",
                "def test_a():\n    a, b = [1], [2]\n    for _ in range(3): a == b\ndef test_b(): assert len('a')\n"),
          "a bench does nothing but compare two things that differ"),
    truth(tests("compared_for_a_warning", "passed", "",
                "import warnings, pytest\nclass Old:\n    def __eq__(self, other):\n"
                "        warnings.warn('by id', DeprecationWarning)\n        return False\n"
                "def test_a():\n    with pytest.warns(DeprecationWarning): Old() == 3\n"
                "def test_b():\n    with warnings.catch_warnings():\n        warnings.simplefilter('ignore')\n"
                "        Old() == 3\n    assert len('a')\n"),
          "comparisons that come out false, and are made for their warning"),
    truth(tests("with_of_its_own", "passed", "", _KEEPS.format("with Passes(): assert len('a')")
                + "    with Keeps() as kept: assert 1 == 2\n    assert kept.error\n"
                "    with Expects(): assert 1 == 2\n"
                "    retries = Keeps()\n    for n in range(3):\n        with retries: assert n == 2\n"
                "    with contextlib.suppress(ZeroDivisionError): assert 1 / 0\n"),
          "a `with` of the tests' own lets fail what does, expects it, tries again, or is asked what it has kept"),
    truth(tests("exit_functions", "passed", "",
                "import atexit, os, weakref\nclass K: pass\nk = K()\n@atexit.register\n"
                "def tidy():\n    assert len('a')\n    os.rmdir('/none')\n"
                "weakref.finalize(k, print, 'gone')\ndef test_a(): assert len('a')\n"),
          "functions that `atexit` calls, one of which cannot tidy up"),
    truth(tests("check_async_helper", "passed", "", _HEAD + _ASYNC.format("asyncio.run(f(2))")),
          "a coroutine of the module runs"),
    truth(tests("check_hooked", "passed", "", _HEAD + _THREAD.format("threading.excepthook = hook")),
          "what a thread raises is asked for by an excepthook"),
    truth(tests("again_in_another_stage", "passed", "", _WITHOUT_SLOW, env={"SLOW": "1"}),
          "a file that an earlier stage has run, and its assertion once more",
          before=first("again_in_another_stage", _PYTEST.format("again_in_another_stage"), env={"SLOW": "1"})),
    _collected("fixtures_named_as_tests", """
        import pytest
        @pytest.fixture
        def test_data():
            assert len("a")
            return 1
        @pytest.fixture
        def test_unused(): return 2
        @pytest.fixture(name="other")
        def test_renamed():
            assert len("b")
            return 3
        def test_y(test_data, other): assert test_data + other == 4
        """, "fixtures whose names are like those of tests"),
    _collected("by_case", _CASES.format("win32", "_"), "a test in two versions, one for each platform, by `match`"),
    truth(tests("example_allowed", "passed", "", _EXAMPLES, "--doctest-modules",
                tests={"allow_skips": ["SKIP in line 8"]}), "one example of a doctest is skipped, which is allowed"),
    truth(tests("refused_by_the_code", "passed", "",
                "import pytest\ndef test_a():\n    with pytest.raises(Exception):\n        pytest.approx(1, -1, -1)\n"
                "        int('x')\n", tests={"checked": True}), "any exception is expected, and the code raises one"),
    truth(tests("checked", "passed", "",
          "import pytest\n@pytest.mark.parametrize('x', [1, 2])\ndef test_a(x): assert x\n",
                tests={"checked": True}), "every test checks something"),
]  # fmt: skip
LIES = [
    _idle("guarded", "if os.environ.get('NO_SUCH'): assert 1 == 2", "the assertion is behind a guard", "check_guarded"),
    lie(tests("raises_on_another_machine", "skipped", "no assertion of it ran", MUST_RAISE.format("not HAS_GPU")),
        "a call that must raise where there is a GPU, on a machine without", honest="must_and_must_not_raise"),
    lie(tests("nothing_by_another_name", "skipped", "same .tests_checks.py. checks nothing", """
        from tests_checks import assert_nothing as same
        def test_a(): same(len("a"), 2)
    """, files={"tests_checks.py": "def assert_equal(a, b):\n    assert a == b\ndef assert_nothing(a, b): pass\n"},
              env={"PYTHONPATH": "."}),
        "a check that checks nothing is imported under another name", honest="check_by_another_name"),
    lie(tests("left_out_in_another_stage", "skipped", "no assertion of it ran", _WITHOUT_SLOW),
        "an earlier stage has run the file with the assertion that is left out here", honest="again_in_another_stage",
        before=first("left_out_in_another_stage", _PYTEST.format("left_out_in_another_stage"), env={"SLOW": "1"})),
    _idle("early_return", "return\nassert 1 == 2", "the test returns before its assertion", "check_guarded"),
    _idle("empty_loop", "for x in []: assert x == 1", "the assertion is in a loop over nothing", "check_in_loop"),
    _idle("never_called", "def inner(): assert 1 == 2", "the assertion is in a function that nobody calls",
          "check_nested"),
    lie(tests("not_awaited", "failed", "test_a failed: the coroutine f.. holds assertions, and was never awaited",
              _file("async def f(): assert 1 == 2\nf()")),
        "the assertion is in a coroutine that nobody awaits", honest="check_coroutine"),
    _lost("thread", "t = threading.Thread(target=work, args=(2,)); t.start(); t.join()",
          "the assertion fails in a thread", "check_thread"),
    _lost("pool", "with ThreadPoolExecutor() as p: p.submit(work, 2)", "it fails in a pool that nobody asks",
          "check_pool"),
    _lost("pool_map", "p = ThreadPoolExecutor()\nfound = p.map(work, [1, 2])\np.shutdown()\nnext(found)",
          "only the first of a map is asked for, and another fails", "check_pool_map"),
    _lost("workers", "with Pool(1) as p: p.apply_async(work, (2,)); p.close(); p.join()",
          "it fails in a worker process", "check_workers"),
    _lost("process", "p = Process(target=work, args=(2,)); p.start(); p.join()",
          "it fails in a process whose exit code nobody asks for", "check_process"),
    _lost("child", f"subprocess.run({_CHILD})", "it fails in a program whose exit code is ignored", "check_child"),
    _lost("child_called", f"subprocess.call({_CHILD})", "the exit code is returned, and dropped", "check_child"),
    _lost("caught", "try: assert 1 == 2\nexcept AssertionError as e: print(e)", "the failed assertion is printed",
          "check_retry"),
    _lost("caught_with_its_own", "try:\n    work(1)\n    assert False, 'accepted'\nexcept AssertionError: pass",
          "what says that nothing was refused is caught as well", "check_refused_in_helpers"),
    _lost("caught_before_the_end",
          "def runs(x):\n    try: work(x)\n    except AssertionError: return\n    print('works')\nruns(2)",
          "a helper returns at the failed assertion", "check_refused_in_helpers"),
    _lost("suppressed", "with contextlib.suppress(Exception): work(2)", "the failed assertion is suppressed",
          "check_refused"),
    _lost("tuple", "assert (1 == 2, 'a message')", "a tuple is asserted", "check_message"),
    _lost("returned", "return 1 == 2", "the comparison is returned, not asserted", "check_message"),
    _lost("any_exception", "with pytest.raises(Exception):\n    x = len('a')\n    assert x == 2",
          "any exception is expected, and the failed assertion is one", "check_refusals"),
    lie(tests("edge_only", "invalid", "checked nothing: empty sequences are compared",
              "def test_a():\n    got = []\n    assert all(x == 1 for x in got)\n", tests={"checked": True}),
        "all(...) of an empty list", honest="check_edges"),
    lie(tests("all_of_a_name", "invalid", "checked nothing: empty sequences are compared",
              "def test_a():\n    same = [x == 1 for x in range(0)]\n    print(same)\n    assert all(same)\n",
              tests={"checked": True}),
        "all(...) of a name, of an empty list", honest="check_edges"),
    lie(tests("all_of_no_size", "invalid", "checked nothing: empty sequences are compared",
              "def test_a():\n    assert all(n < 0 for n in range(len('a'), 9, 2) if n % 2 == 0)\n",
              tests={"checked": True}),
        "all(...) of a range, of which a condition leaves nothing", honest="check_edges"),
    lie(tests("truths_listed", "invalid", "checked nothing: a list of truths is asserted",
              "def test_a():\n    same = [len('a') == n for n in (2, 3)]\n    assert same\n", tests={"checked": True}),
        "a list of comparisons is asserted, and not all of them", honest="check_edges"),
    lie(tests("own_mistake", "invalid", "checked nothing: a mistake of the test is taken for the exception expected",
              "import pytest\ndef test_a():\n    with pytest.raises(Exception):\n        pytest.approximately(1)\n",
              tests={"checked": True}),
        "any exception is expected, and the test calls what is not there", honest="refused_by_the_code"),
    lie(tests("answer_dropped", "skipped", "3 tests unasserted: a comparison came out false",
              _ANSWERS + "    helper.same(len('ab'), 3)\n    assert len('a')\n"
              "def test_b():\n    same(len('ab'), 3)\n    assert len('a')\n"
              "class TestC:\n    def near(self, a, b): return bool(helper.math.isclose(a, b))\n"
              "    def test_c(self):\n        self.near(len('ab'), 3)\n        assert len('a')\n",
              files={"answer_dropped/helper.py": _ANSWERING}),
        "what an imported helper returns that only compares is dropped", honest="answers_looked_at"),
    lie(tests("compared_beside_a_check", "skipped", "a comparison came out false",
              "def test_a():\n    a, b = [1], [2]\n    for _ in range(3): a == b\n    assert len(a) == 1\n"),
        "a loop does nothing but compare, in a test that asserts something else", honest="compared_in_a_bench"),
    lie(tests("compared_in_a_list", "skipped", "a comparison came out false",
              "def test_a():\n    [len('a' * n) == n * n for n in (1, 2)]\n"),
        "comparisons in a list, which is a statement of its own", honest="told_right"),
    _lost("any_exception_of_a_lambda",
          "import unittest\npytest.raises(Exception, lambda: unittest.TestCase().assertEqual(len('a'), 2))",
          "any exception is expected of a lambda, and assertEqual's is one", "check_refusals"),
    _unwritten("class_name", "class Kernels:\n    def test_k(self): assert len('a')\n",
          "a class whose name does not begin with Test", "mixin"),
    _unwritten("check_name", "def check_k(): assert len('a')\n", "a function is called check_, and nothing calls it",
               "check_helper"),
    _unwritten("class_init", "class TestK:\n    def __init__(self): pass\n    def test_k(self): assert len('a')\n",
          "a class with `__init__`", "mixin"),
    _unwritten("not_a_test", "class TestK:\n    __test__ = False\n    def test_k(self): assert len('a')\n",
          "`__test__ = False`", "mixin"),
    _unwritten("shadowed", "def test_k(): assert 1 == 2\ndef test_k(): assert len('a')\n",
          "a second test of the same name", "by_platform"),
    _unwritten("nested_test", "def test_o():\n    def test_i(): assert 1 == 2\n    assert len('a')\n",
          "a test inside a test", "inner_used"),
    _unwritten("nested_marked", "import pytest\ndef test_o():\n    @pytest.mark.parametrize('x', [1])\n"
               "    def test_i(x): assert x == 2\n    assert len('a')\n",
          "a test inside a test, with a mark", "inner_registered"),
    _unwritten("conditional", "import os\nif os.environ.get('NO_SUCH'):\n    def test_gpu(): assert 1 == 2\n",
          "a test that is only there on a condition", "by_platform"),
    _unwritten("dropped_by_hook", "def test_hard(): assert 1 == 2\n", "a hook makes nothing of a test", "mixin",
               conftest="def pytest_pycollect_makeitem(name): return [] if 'hard' in name else None\n"),
    _idle("callback", "def check(x): assert x == 1\n(lambda f: None)(check)", "the assertion is in a callback that "
          "nobody calls", "check_forbidden"),
    lie(folder("file_name", "skipped", "written, but not collected.*kernels.py::test_k",
               {"test_it.py": "def test_z(): assert len('a')\n", "kernels.py": "def test_k(): assert 1 == 2\n"}),
        "a file of tests that is named otherwise", honest="helper_file"),
    _unwritten("ini_functions", "def test_hard(): assert 1 == 2\n", "an ini that knows other names", "mixin",
               files={"ini_functions/pytest.ini": "[pytest]\npython_functions = test_z\n"}),
    _unwritten("misspelt", "def tset_k(): assert 1 == 2\n", "`tset_`", "named_like_a_test"),
    _unwritten("suffixed", "def kernel_test(): assert 1 == 2\n", "a test whose name ends with test",
               "named_like_a_test"),
    _unwritten("switched_off", "def off_test_k(): assert 1 == 2\n", "a test with a word before its name",
               "named_like_a_test"),
    _unwritten("switched_off_with_marks",
               "import pytest\n@pytest.mark.parametrize('n', [1, 2])\ndef _test_k(n): assert n == 3\n",
               "a parametrized test with a _ before its name", "named_like_a_test"),
    _unwritten("misspelt_method",
               "class TestK:\n    def tets_k(self): assert 1 == 2\n    def test_l(self): assert len('a')\n",
               "`tets_`, in a class", "mixin"),
    _unwritten("assigned_over", "def test_k(): assert 1 == 2\ntest_k = lambda: None\n",
               "a name that is assigned again", "reassigned"),
    lie(tests("replaced_later", "skipped", "no assertion of it ran.*test_k",
              "def test_k(): assert 1 == 2\ndef test_l(): pass\n",
              conftest="def pytest_runtest_setup(item):\n    item.obj = lambda: None\n"),
        "a hook gives each test something else to call", honest="wrapped_later"),
    _lost("child_behind_a_shell",
          "code = f'{sys.executable} -c \"assert 1 == 2\" || true'\nassert subprocess.call(code, shell=True) == 0",
          "it fails in a program, of which a shell drops what it returned", "check_child_said"),
    _lost("output_only",
          "r = subprocess.run([sys.executable, '-c', 'print(1); assert 1 == 2'], capture_output=True)\nassert r.stdout",
          "it fails in a program of which only the output is looked at", "check_child"),
    _lost("finalizer",
          "from unittest import TestCase\nclass K:\n    def __del__(self): TestCase().assertEqual(1, 2)\nK()",
          "it fails in a `__del__`", "finalizer_of_a_library"),
    _lost("finally_returns", "try: assert 1 == 2\nfinally: return", "a `finally` that returns drops it",
          "check_finally"),
    lie(tests("exit_function", "failed", "pytest .* returned 1, and nobody was told",
              "import atexit\n@atexit.register\ndef check(): assert 1 == 2\ndef test_a(): assert len('a')\n"),
        "it fails in a function that `atexit` calls behind pytest", honest="exit_functions"),
    lie(tests("at_the_end_of_an_object", "failed", "pytest .* returned 1, and nobody was told",
              "import weakref\nclass K: pass\nk = K()\ndef check(): assert 1 == 2\n"
              "weakref.finalize(k, check)\ndef test_a(): assert len('a')\n"),
        "it fails in a `weakref.finalize` behind pytest", honest="exit_functions"),
    lie(tests("finally_in_a_fixture", "failed", "test_a failed: an AssertionError was caught and dropped",
              "import pytest\n@pytest.fixture\ndef f():\n    try: assert 1 == 2\n    finally: return 1\n"
              "def test_a(f): assert f == 1\n"),
        "a `finally` in a fixture drops it", honest="check_finally"),
    lie(tests("kept_by_a_with", "failed", "test_a failed: an AssertionError was kept by what a `with` is of",
              _KEEPS.format("with Keeps(): assert 1 == 2")),
        "a `with` of the tests' own returns True, and the test goes on", honest="with_of_its_own"),
    lie(tests("not_awaited_beside", "failed", "the coroutine f.. holds assertions, and was never awaited",
              _HEAD + _ASYNC.format("f(2)"), "-p", "no:warnings"),
        "a coroutine with assertions is not awaited, beside an assertion that holds", honest="check_async_helper"),
    lie(tests("thread_unseen", "failed", "a KeyError was raised in a thread, and nobody looked at it",
              _HEAD + _THREAD.format("seen.append(1)"), "-p", "no:threadexception"),
        "a thread fails, and pytest was told not to look", honest="check_hooked"),
    _unwritten("made_a_fixture", "import pytest\n@pytest.fixture\ndef test_hard(): assert 1 == 2\n",
          "a test that was made a fixture, which nobody asks for", "fixtures_named_as_tests"),
    _unwritten("in_a_case", _CASES.format("no such", "'no other'"), "a test in a case of `match` that is none",
               "by_case"),
    lie(tests("example_skipped", "skipped", "written, but not collected.*SKIP in line 8", _EXAMPLES,
              "--doctest-modules"),
        "one example of a doctest is skipped", honest="example_allowed"),
    lie(tests("unchecked", "invalid", "test_a passed and checked nothing",
          "def test_a(): print(1)\n", tests={"checked": True}),
        "a test that only runs, where the runbook wants checks", honest="checked"),
    lie(tests("taken_out", "skipped", "no assertion of it ran.*test_a",
              "def test_a(): assert len('a') == 2\ndef test_b(): assert len('b')\n", conftest="""
        import ast
        from _pytest.assertion import rewrite
        class TakeOut(ast.NodeTransformer):
            def visit_Assert(self, node): return ast.copy_location(ast.Pass(), node)
        rewrites = rewrite.rewrite_asserts
        def without(module, *args):
            rewrites(ast.fix_missing_locations(TakeOut().visit(module)), *args)
        rewrite.rewrite_asserts = without
        """),
        "a conftest takes the assertions out before pytest rewrites them", honest="compared_beside"),
    lie(tests("compared_only", "skipped", "1 test unasserted: a comparison came out false, and nothing asserts it",
              "def test_a():\n    len('ab') == 3\n    assert len('a')\n"),
        "a comparison that is false, and a statement of its own", honest="compared_beside"),
    lie(tests("gradcheck_dropped", "skipped", "1 test unasserted: a comparison came out false, and nothing asserts it",
              "def gradcheck(f, x, raise_exception): return f(x) == x\n"
              "def test_a():\n    gradcheck(len, 'ab', raise_exception=False)\n"),
        "a gradcheck that was told not to raise, and whose result is dropped", honest="gradchecked"),
    lie(tests("gradcheck_printed", "skipped", "1 test unasserted: a comparison came out false, and nothing asserts it",
              "def gradcheck(f, x, raise_exception): return f(x) == x\n"
              "def test_a():\n    ok = gradcheck(len, 'ab', raise_exception=False)\n    print(ok)\n"),
        "a gradcheck that was told not to raise, and whose result is printed", honest="gradchecked"),
    lie(tests("equality_written", "skipped", "1 test unasserted: a comparison came out false, and nothing asserts it",
              "import sys\ndef test_a():\n    if len('ab') == len('abc'): sys.stdout.write('same')\n"
              "    else: sys.stdout.write('differs')\n"),
        "whether two results are equal is written to stdout, and nothing else", honest="writes_by_version"),
    lie(tests("difference_printed", "skipped", "a comparison came out false, and nothing asserts it .*:3.",
              "import math\ndef test_a():\n    match = math.isclose(2.0, 3.0)\n    print(f'values match: {match}')\n"
              "    if not match:\n        largest = abs(2.0 - 3.0)\n        print('maximum difference', largest)\n"),
        "whether two results are near is printed, and how far they are apart, and nothing else",
        honest="difference_asserted"),
    lie(tests("all_of_nothing", "invalid", "test_a passed and checked nothing: empty tensors are compared",
              _EMPTY + "def test_a():\n    error = Tensor()\n    assert (error < 1).all()\n", tests={"checked": True}),
        "all elements of an empty tensor are small", honest="gradchecked"),
    lie(tests("named_only", "failed", "assert_called_with is named, and not called",
              "from unittest.mock import Mock\ndef test_a():\n    m = Mock(); m(1)\n    m.assert_called_with\n"
              "    assert m.called\n"),
        "a mock's assertion that is named, and not called", honest="compared_beside"),
    lie(tests("approximately", "invalid", "the tolerance, 1e.09, is not below the data's own size",
              "import pytest\ndef test_a(): assert len('ab') == pytest.approx(4, abs=1e9)\n", tests={"checked": True}),
        "pytest.approx with a tolerance above the number", honest="compared_beside"),
    lie(tests("one_function", "invalid", "^(?=.*impl and ref are one function).*and 1 other test",
              "import os\ndef ref(x): return abs(x)\n"
              "HAS_TRITON = os.sep == '!'\nimpl = (lambda x: x) if HAS_TRITON else ref\n"
              "def test_a():\n    got, x = impl(-2.0), 1\n    got = impl(-2.0)\n    want = ref(-2.0)\n"
              "    assert (got - want) ** 2 < 1e-3\n"
              "def test_b(): assert impl(-2.0) == ref(-2.0)\n", tests={"checked": True}),
        "the reference stands on both sides, for there is no Triton", honest="compared_functions"),
    lie(tests("nan_below", "invalid", "^(?=.*NaN is compared).*and 1 other test",
              "import pytest\ndef test_a():\n    error = abs(float('nan') - len('ab'))\n    assert not error > 1e-3\n"
              "def test_b():\n    error = abs(float('nan') - len('ab'))\n    if error > 1e-3: pytest.fail('wrong')\n",
              tests={"checked": True}),
        "an error that is NaN is not above its limit", honest="compared_functions"),
    lie(tests("relative_one", "invalid", "the tolerance, 4, is not below the data's own size, 4",
              "import math\ndef test_a(): assert math.isclose(len('a'), abs(-4.0), rel_tol=1.0)\n",
              tests={"checked": True}),
        "a relative tolerance of 1, with which zeros pass too", honest="compared_functions"),
    lie(tests("close_to_anything", "invalid", "the tolerance, 1e.09, is not below the data's own size",
              "import math\ndef test_a():\n    same = math.isclose(len('ab'), abs(-4), abs_tol=1e9)\n    assert same\n",
              tests={"checked": True}),
        "math.isclose of two things that are calculated there, with a tolerance above them", honest="compared_beside"),
    lie(tests("tolerance_of_the_difference", "invalid", "the tolerance was made of the difference itself",
              "import math\ndef test_a():\n    a, b = len('ab'), abs(-4)\n    tolerance = 2 * abs(a - b)\n"
              "    assert math.isclose(a, b, abs_tol=tolerance)\n", tests={"checked": True}),
        "two numbers are close, by a tolerance made of how far they are apart", honest="compared_beside"),
    lie(tests("vacuous", "invalid", "checked nothing: a constant",
          "def test_a(): assert True\n", tests={"checked": True}),
        "an assertion that cannot fail", honest="checked"),
]  # fmt: skip
CASES = [*HONEST, *LIES]
