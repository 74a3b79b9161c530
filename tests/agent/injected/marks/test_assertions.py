"""Marks beside assertions: where they are put, what they change, and what they see."""

from __future__ import annotations

import ast
import builtins
import gc
import itertools
import json
import sys
import textwrap
import threading
from collections.abc import Callable
from concurrent.futures import _base as futures
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from orchestrator.agent.injected.checks.comparisons import why_vacuous
from orchestrator.agent.injected.checks.records import Checks
from orchestrator.agent.injected.marks import assertions
from orchestrator.agent.injected.marks import nodes as mark_nodes
from orchestrator.agent.injected.processes.ends import End
from orchestrator.agent.injected.processes.lost import Lost
from orchestrator.agent.injected.stage import Config, Notes

_FILE = "/tree/test_it.py"
_MANAGERS = """
import contextlib
class Later:
    async def __aenter__(self): return self
    async def __aexit__(self, *_): return True
async def later(n):
    async with Later(): assert n
def goes_on(coroutine):
    try: coroutine.send(None)
    except StopIteration: print()
class Passes:
    def __enter__(self): return self
    def __exit__(self, *_): return False
class Keeps(Passes):
    def __exit__(self, *_): return True
class Expects(Passes):
    def __exit__(self, kind, *_):
        if kind is None: raise ValueError("nothing has failed")
        return True
@contextlib.contextmanager
def must_fail():
    try: yield
    except AssertionError: return
    pytest.fail("nothing has failed")
@contextlib.contextmanager
def keeping():
    try: yield
    except AssertionError: print()
"""
_THREADED = """import threading
def threaded(work):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
"""
_REFUSES = """def refused():
        try: assert 1 == 2
        except AssertionError: return True
        return False
"""


@pytest.fixture
def checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checks:
    """The checks of a process of its own, within the test's."""
    made = Checks(Config("tree=/tree\n"), Notes(str(tmp_path / "observed.jsonl")))
    for name in (mark_nodes.ISINSTANCE, mark_nodes.SEEN):
        monkeypatch.setattr(builtins, name, None, raising=False)
    made.start()
    made.begin("t")
    return made


def loaded(checks: Checks, source: str) -> Callable[[], Any]:
    """The function `test` of a marked file."""
    text = textwrap.dedent(source)
    module = ast.parse(text)
    checks.facts[_FILE] = assertions.mark(module, text.encode(), _FILE)
    names: dict[str, Any] = {"__name__": "test_it", "pytest": pytest, "check": None}
    exec(compile(module, _FILE, "exec"), names)
    test: Callable[[], Any] = names["test"]
    return test


_EXCEEDED = "a difference exceeded its limit, and nothing depends on it (test_it.py:{})"
_FALSE = "a comparison came out false, and nothing asserts it (test_it.py:{})"


@pytest.mark.parametrize(
    ("body", "doubt"),
    [
        ("err = abs(9 - 1)\nif err > 1: print('WARN', err)", _EXCEEDED.format(6)),
        ("print('OK' if abs(9 - 1) < 1 else 'WARN')\nassert 1 + 1", _EXCEEDED.format(5)),
        ("if all(abs(x - 1) < 1 for x in (1, 9)): print('OK')\nassert 1 + 1", _EXCEEDED.format(5)),
        ("if not np.allclose(9, 1): print('differ')\nassert 1 + 1", _FALSE.format(5)),
        ("print(np.allclose(9, 1))\nassert 1 + 1", _FALSE.format(5)),
        (
            "ok = np.allclose(9, 1)\nprint(ok)\nif not ok:\n    d = abs(9 - 1)\n    print(d)\nassert 1 + 1",
            _FALSE.format(5),
        ),
        ("if not np.allclose(9, 1):\n    d = np.abs(9 - 1).item()\n    print(d)\nassert 1 + 1", _FALSE.format(5)),
        (
            "said = 'no'\nif np.allclose(9, 1): said = 'yes'\nelse: print(9)\nprint(said)\nassert 1 + 1",
            _FALSE.format(6),
        ),
        (
            "worst = 0.0\nfor x in (0.5, float('nan')): worst = max(worst, x)\nassert worst < 1",
            "NaN was among what the largest was sought of (test_it.py:7)",
        ),
        (
            "worst = 0.0\nfor x in (0.5, float('nan')):\n    if x > worst: worst = x\nassert worst < 1",
            "NaN was among what the largest was sought of (test_it.py:8)",
        ),
        (
            "err = np.array([0.5, np.nan])\nassert (err > 1).sum() == 0",
            "NaN is among what is not to be beyond a limit, and never is (test_it.py:6)",
        ),
        ("err = np.array([0.5, 0.7])\nassert (err > 1).sum() == 0", ""),
        ("worst = 0.0\nfor x in (0.5, 0.7): worst = max(worst, x)\nassert worst < 1", ""),
        # Nothing is wrong, something depends on it, or it is no more than to know.
        ("err = abs(2 - 1)\nif err > 1: print('WARN', err)\nassert 1 + 1", ""),
        ("err = abs(9 - 1)\nif err > 1: print('large', err)\nassert err < 10", ""),
        ("err = abs(9 - 1)\nif err > 1: pytest.importorskip('math')\nassert 1 + 1", ""),
        ("for x in (9, 1):\n    if abs(x - 1) < 1: break\nassert x == 1", ""),
        ("print('bitwise', np.array_equal(9, 1))\nassert 1 + 1", ""),
        ("print(np.allclose(1, 1))\nassert 1 + 1", ""),
        ("ok = np.allclose(9, 1)\nif not ok:\n    d = abs(9 - 1)\n    print(d)\n    assert d < 10", ""),
        ("d = 0\nif not np.allclose(9, 1):\n    d = abs(9 - 1)\n    print(d)\nassert d < 10", ""),
        ("d = [0]\nif not np.allclose(9, 1):\n    x = d.pop()\n    print(x)\nassert not d", ""),
    ],
)
def test_what_only_words_depend_on_is_told(checks: Checks, body: str, doubt: str) -> None:
    """The file has another function, which asserts what is called as in the test."""
    other = "import numpy as np\ndef other(err):\n    assert err < 1\n"
    is_idle(checks, loaded(checks, f"{other}def test():\n{textwrap.indent(body, '    ')}\n"))
    told = [json.loads(line)["doubt"] for line in checks.notes.since(0).splitlines()]
    assert told == ([doubt] if doubt else [])


class Base:
    def call(self) -> None: ...


@pytest.mark.parametrize(("kind", "idle"), [(None, True), (Base, False)])
def test_a_method_of_another_class_owes_nothing(checks: Checks, kind: type | None, idle: bool) -> None:
    """`kind` is the class of the test, with what `self.call` means there."""
    source = """
        class Other:
            def call(self):
                assert self
        def test(self=type("It", (), {"call": lambda self: None})()):
            self.call()
    """
    test = loaded(checks, source)
    test()
    assert ("idle" in checks.found(test.__code__, lambda: (test, kind))) is idle


def is_idle(checks: Checks, test: Callable[[], Any]) -> bool:
    test()
    return "idle" in checks.found(test.__code__, lambda: (test, None))


@pytest.mark.parametrize(
    ("body", "idle"),
    [
        ("assert 1 + 1", False),
        ("pass", False),
        ("if 1 == 2: assert 0 + 1", True),
        ("return\n    assert 1 + 1", True),
        ("for x in []: assert x", True),
        ("for x in [1]: assert x", False),
        ("def inner(): assert 1 + 1", True),
        ("def inner(): assert 1 + 1\n    inner()", False),
        ("if 1 == 2: pytest.fail('no')", False),
        ("if 1 == 2: raise AssertionError('no')", False),
        ("def boom(): raise AssertionError('not to be called')", False),
        ("if ok(): return\n    raise AssertionError", False),
        ("if 1 == 2: return\n    for x in [ok()]:\n        if x: return\n    pytest.fail()", False),
        ("try: int('x')\n    except ValueError: return\n    raise AssertionError", False),
        ("if ok(): return\n    try: int('x')\n    except ValueError: return\n    assert False", True),
        ("a = b = 1\n    if abs(a - b) <= 1e-6: return\n    assert (a - b) / b < 0.1", False),
        (
            "a = b = 1\n    d = pow(a - b, 2)\n    r = pow(a / b - 1, 2)\n    if d <= 1e-6: return\n    assert r < 0.1",
            False,
        ),
        ("a = b = 1\n    if abs(a - b) <= 1e9: return\n    assert (a - b) / b < 0.1", True),
        ("a, n = 2, 1\n    if n <= 1: return\n    assert a - n < 0.1", True),
        ("a, b, n = 2, 1, 1\n    if n - b <= 1: return\n    assert a - b < 0.1", True),
        ("return\n    raise AssertionError", False),
        ("def boom(): assert False, 'not to be called'", False),
        ("with pytest.raises(ValueError): int('x')", False),
        ("try: int('x')\n    except ValueError: pass\n    else: pytest.fail('no')", False),
        ("helper(1)", False),
        ("helper", True),
        ("if 1 == 2: same(1, 2)", True),
        ("same(1, 1)", False),
        ("if 1 == 2: also_same(1, 2)", True),
        ("assert_never = len\n    if 1 == 2: assert_never(1)", False),
        ("[helper(x) for x in []]", True),
        ("1 == 2 and same(1, 1)", True),
        ("1 == 1 and same(1, 1)", False),
        ("1 == 1 or same(1, 1)", True),
        ("1 == 1 and 1 == 2 or same(1, 1)", False),
        ("same(1, 1) if 1 == 2 else None", True),
        ("same(1, 1) if 1 == 1 else None", False),
        ("None if 1 == 1 else same(1, 1)", True),
        ("same(1, 1) if 1 == 2 else same(2, 2)", False),
        ("1 == 1 or pytest.fail('no')", False),
    ],
)
def test_a_test_is_idle_when_none_of_its_assertions_ran(checks: Checks, body: str, idle: bool) -> None:
    names = "from numpy.testing import assert_equal as same\n"
    names += "import numpy.testing as nt\nalso_same = nt.assert_equal\n"
    source = f"{names}def ok(): return True\ndef helper(x):\n    assert x\ndef test():\n    {body}\n"
    assert is_idle(checks, loaded(checks, source)) is idle


@pytest.mark.parametrize(
    ("body", "idle"),
    [
        ("if ok: int(x)\n    else:\n        with pytest.raises(ValueError): int(x)", False),
        ("if not ok:\n        with pytest.raises(ValueError): n = int(x)\n    else: n = int(x)", False),
        ("if ok: int(x)\n    else: pytest.raises(ValueError, int, x)", False),
        ("if ok is True and len(x): int(x)\n    else: pytest.raises(ValueError, int, x)", False),
        ("if ok: x + x\n    else:\n        with pytest.raises(TypeError): x + x", False),
        ("if ok: os.a = 1\n    else:\n        with pytest.raises(TypeError): os.a = 1", False),
        ("if ok: y = str(x)\n    else:\n        with pytest.raises(ValueError):\n            y = str(x); int(y)", True),
        ("if ok: str(x)\n    else:\n        with pytest.raises(ValueError): int(x)", True),
        ("if ok: int(0)\n    else: pytest.raises(ValueError, int, x)", False),
        ("if ok: pass\n    else: pytest.raises(ValueError, int, x)", True),
        ("if ok: print(x)\n    else: pytest.raises(ValueError, int, x)", True),
        ("if ok: int(x)\n    else: assert int(x)", True),
        ("if HAS_GPU: int(x)\n    else: pytest.raises(ValueError, int, x)", True),
        ("if ok or HAS_GPU: int(x)\n    else: pytest.raises(ValueError, int, x)", True),
        ("if ok: return\n    pytest.raises(ValueError, int, x)", True),
        ("if ok: int(x)\n    else: pytest.raises(ValueError, int, x).match('x')", False),
        ("if ok: int(x)\n    else: error = pytest.raises(ValueError, int, x)", False),
    ],
)
def test_what_must_raise_for_other_parameters_and_does_not_has_been_checked(
    checks: Checks, body: str, idle: bool
) -> None:
    source = f"import os\nHAS_GPU = True\ndef test(ok=True, x='1'):\n    {body}\n"
    assert is_idle(checks, loaded(checks, source)) is idle


@pytest.mark.parametrize(
    ("body", "dropped"),
    [
        ("len('ab') == 3", True),
        ("len('ab') == 2", False),
        ("import math; math.isclose(1, 2)", True),
        ("import numpy as np; np.array([1, 2]) == np.array([1, 3])", True),
        ("import numpy as np; np.array([1, 2]) == np.array([1, 2])", False),
        ("with pytest.raises(TypeError): 1 < 'a'", False),
        ("x = len('ab') == 3; assert not x", False),
        ("for i in range(3): len('ab') == i", True),
        ("a, b = 'a', 'b'\n    for _ in range(3): a == b", True),
        ("near(1.0, 1.0)", False),
        ("apart(1.0, 2.0)", True),
        ("apart(1.0, 1.0)", False),
        ("counted(1, 2)", False),
        ("try: near(1.0, 2.0)\n    except TypeError: pass", False),
        ("for _ in range(3):\n        a = len('ab')\n        a == 3", True),
        ("for _ in range(3): len('ab') == 3", True),
        ("threaded(lambda: [len('ab') == i for i in range(3)])", False),
        ("def compare(): len('ab') == 3\n    threaded(compare)", True),
        ("def compare():\n        for i in range(3): len('ab') == i\n    threaded(compare)", False),
        ("near(1, 2)", True),
        ("near(1, 1)", False),
        ("x = near(1, 2)", False),
        ("[*map(near, [1], [2])]", False),
    ],
)
def test_a_comparison_that_came_out_false_is_to_be_asserted(checks: Checks, body: str, dropped: bool) -> None:
    near = (
        "import math\ndef near(a, b): return math.isclose(a, b)\ndef apart(a, b):\n    if a is None: return False\n"
        "    return bool(math.isclose(a, b))\ndef counted(a, b): return print(a) == b\n"
    )
    test = loaded(checks, f"{near}{_THREADED}def test():\n    {body}\n    assert len('a')\n")
    test()
    assert ("dropped" in checks.found(test.__code__, lambda: (test, None))) is dropped


@pytest.mark.parametrize(("call", "ran"), [("later()", 1), ("pass", 0), ("call(lambda: assert_none(None))", 1)])
def test_a_check_in_a_lambda_is_one_where_it_is_called(checks: Checks, call: str, ran: int) -> None:
    source = "def assert_none(x):\n    if x is not None: raise ValueError\ndef call(f): f()\n"
    test = loaded(checks, f"{source}def test():\n    later = lambda: assert_none(None)\n    {call}\n")
    test()
    assert checks.facts[_FILE].holds(test.__code__.co_firstlineno)
    assert checks.found(test.__code__, lambda: (test, None))["ran"] == ran


def test_a_bench_of_a_comparison_need_not_assert_it(checks: Checks) -> None:
    test = loaded(checks, "def test():\n    a, b = 'a', 'b'\n    for _ in range(3): a == b\n")
    test()
    assert "dropped" not in checks.found(test.__code__, lambda: (test, None))


@pytest.mark.parametrize(
    "branch",
    [
        "if not b: raise AssertionError('none')\n        raise AssertionError('differ')",
        "for x in a: assert x in b\n        pytest.fail('order')",
    ],
)
def test_a_branch_that_fails_owes_nothing(checks: Checks, branch: str) -> None:
    test = loaded(checks, f"def test():\n    a = b = [1]\n    if a != b:\n        {branch}\n    assert a\n")
    test()
    checks.note_due(test.__code__, passed=True)
    assert checks.due.told().get("due", []) == []


@pytest.mark.parametrize(
    ("body", "lost"),
    [
        ("try: assert 1 == 2\n    except AssertionError as e: print(e)", True),
        ("try: assert 1 == 2\n    except Exception: pass", True),
        ("try: assert 1 == 2\n    except Exception: raised = True", True),
        ("try: int('x')\n    except Exception: pass", False),
        ("with pytest.raises(AssertionError): assert 1 == 2", False),
        ("try: assert 1 == 2\n    except AssertionError as e: assert str(e) == ''", False),
        ("try: assert 1 == 2\n    except AssertionError: pass\n    else: pytest.fail('no')", False),
        (
            "for i in range(3):\n        try:\n            assert i\n            break\n        except AssertionError: pass",  # noqa: E501
            False,
        ),
        ("for i in range(3):\n        try: assert i > 1\n        except AssertionError: continue", False),
        ("for i in range(3):\n        try: assert i > 5\n        except AssertionError: continue", True),
        (
            "kept = []\n    try: assert 1 == 2\n    except AssertionError as e: kept.append(e)\n    assert kept",
            False,
        ),
        ("kept = []\n    try: assert 1 == 2\n    except AssertionError as e: kept.append(e)\n    assert 1 + 1", True),
        ("n = 0\n    try: assert 1 == 2\n    except AssertionError: n += 1\n    assert n == 1", False),
        (f"{_REFUSES}    assert refused()", False),
        ("from unittest.mock import Mock; m = Mock(); m(1); m.assert_called_with", True),
        ("from unittest.mock import Mock; m = Mock(); m(1); m.assert_called_with(1)", False),
        (f"{_REFUSES}    refused()", True),
        ("with Keeps(): assert 1 == 2", True),
        ("with keeping(), Passes(): assert 1 == 2", True),
        ("goes_on(later(0))", True),
        ("goes_on(later(1))", False),
        ("for i in range(3):\n        with Keeps(): assert i > 5", True),
        ("for i in range(3):\n        with Keeps(): assert i > 1", False),
        ("with Keeps(): assert 1 + 1", False),
        ("with Keeps(): int('x')", False),
        ("with Expects(): assert 1 == 2", False),
        ("with must_fail(): assert 1 == 2", False),
        ("with Keeps() as kept: assert 1 == 2\n    assert kept", False),
        ("kept = Keeps()\n    with kept: assert 1 == 2\n    assert kept", False),
        ("from contextlib import suppress as again\n    with again(AssertionError): assert 1 == 2", False),
        ("try:\n        with Passes(): assert 1 == 2\n    except AssertionError as e: assert e", False),
        ("assert (1 == 2, 'a message')", True),
        ("assert ()  or 1", False),
    ],
)
def test_an_assertion_error_that_is_dropped_is_said(checks: Checks, body: str, lost: bool) -> None:
    loaded(checks, f"{_MANAGERS}def test():\n    {body}\n")()
    assert bool(checks.now.failures()) is lost


_LOOSE = "the tolerance, 9, is not below the data's own size, 1"
_FAR = "the tolerance, 1e+30, is not below the data's own size, 3"
_TRUTHS = "a list of truths is asserted, which is true whatever they are"
_MISTAKE = "a mistake of the test is taken for the exception expected: {}"
_COPY = "something is compared with a copy of itself"
_ALWAYS = "what is asserted cannot be false"
_ZEROS = "whether all numbers are other than 0 is compared, not the numbers"
_MESSAGE = "assert takes what follows the comma for its message, and compares nothing"
_NAN = "NaN is compared, which is never larger nor smaller"
_OWN = "the tolerance was made of the difference itself"
_NOTHING = "both sides are NaN throughout"


def watch_raises(checks: Checks, monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at what the pytest of this process expects to be raised, as long as the test takes."""
    module = sys.modules[pytest.raises.__module__]
    name = "RaisesExc" if hasattr(module, "RaisesExc") else "RaisesContext"
    context = getattr(module, name)
    monkeypatch.setattr(context, "__exit__", context.__exit__)
    lost = Lost(checks, End(Config("tree=/tree\n"), checks.notes))
    lost.after_import["_pytest.raises"](type("module", (), {name: context}))


_LARGEST = "the largest of nothing is held to a limit"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("helper(1)\n    assert_on(0)", None),
        ("assert_off(0)", "no assertion of assert_off ran"),
        ("assert_nothing(0)", "assert_nothing (test_it.py) checks nothing"),
        ("assert True", "a constant is asserted"),
        ("ok = True\n    assert ok", "a constant is asserted"),
        ("ok = helper(1)\n    assert ok is None", None),
        ("y = [1]\n    z = y.copy()\n    assert_same(y, z)", "something is compared with a copy of itself"),
        ("y = [1]\n    z = y.copy()\n    y.append(2)\n    assert_same(y[:1], z)", None),
        ("assert always()", "always returns a constant"),
        ("assert judged(1)", "what judged returns is never empty, and true whatever is in it"),
        ("assert judged(1)[0]", None),
        ("assert found(1)", None),
        ("assert always", "always is asserted itself, and not called"),
        ("T().assertTrue(always, 'why')", "always is asserted itself, and not called"),
        ("T().assertTrue(np.isfinite)", "np.isfinite is asserted itself, and not called"),
        ("ok = [1]\n    T().assertTrue(ok)", None),
        ("assert 3 == Anything()", "Anything equals everything"),
        ("x = np.ones(3)\n    assert np.isclose(three() / 3, x, atol=9).all()", _LOOSE),
        ("assert np.all(np.isclose(three(), 1.0, atol=9))", _LOOSE),
        ("limit = 9\n    assert abs(three() - three() * 2).max() < limit", _LOOSE.replace("1", "3")),
        ("err = abs(three() - three() * 2)\n    assert (err <= 9).all() and err.any()", None),
        ("err, ours = abs(three() - 3.0), abs(three() - 2.9)\n    assert (ours - err).max() < 0.5", None),
        ("err = abs(three() - 3.0)\n    ours = abs(three() - 2.9)\n    assert (ours - err).max() < 0.5", None),
        ("err = three() * np.nan\n    assert (err > 1).sum() == 0", _NAN),
        ("err = three() * np.nan\n    assert not (err > 1).any()", _NAN),
        ("err = three()\n    assert not (5 < err).any()", None),
        (
            "a, b = impl, three\n    a.grad = b.grad = None\n    assert a.grad == b.grad",
            "gradients are compared, of which there are none",
        ),
        ("a, b = impl, three\n    a.grad, b.grad = 1, 2\n    assert a.grad <= b.grad", None),
        ("differs = np.allclose(three(), 1.0)\n    assert ~differs", "what is asserted cannot be false"),
        ("err = abs(three() - three() * 2)\n    for _ in 'ab': assert (err <= 9).all()", _LOOSE.replace("1", "3")),
        ("x = three()\n    err = abs(x - three() * 2).max().item()\n    assert err < 9", _LOOSE.replace("1", "3")),
        ("err = abs(three() - three()).max()\n    assert err < 1", None),
        ("assert abs(three() - three()).max() < 0.1", None),
        ("err = abs(three() * 0 - three() * 0).max()\n    assert err < 1", None),
        ("err = abs(three()[0] - 3)\n    assert err < 9", None),
        ("assert np.allclose(three() * np.nan, three() * np.nan, equal_nan=True)", _NOTHING),
        ("assert np.allclose(three(), three(), equal_nan=True)", None),
        ("a, b = three(), three() * 2\n    tol = abs(a - b).max() * 1.01\n    assert np.allclose(a, b, 0, tol)", _OWN),
        ("a, b = three(), three() * 2\n    t = 2 * abs(b - a).max()\n    np.testing.assert_allclose(a, b, 0, t)", _OWN),
        ("a, b = 1.0, 3.0\n    assert np.isclose(a, b, atol=abs(a - b))", _OWN),
        ("a, b = 1.0, 3.0\n    t = abs(a - b)\n    print(t)\n    assert np.isclose(a, b, atol=t)", _OWN),
        (
            "a, b = three() * 3, three()\n    t = max(a - b) / 4\n    a.fill(3)\n    assert np.allclose(a, b, 0, t)",
            None,
        ),
        (
            "a, b, c = three(), three(), three() + 1\n    t = abs(b - c).max() / 2\n    assert np.allclose(a, b, 0, t)",
            None,
        ),
        ("assert abs(three() - three() * 2).max() < 1e30", _FAR),
        ("assert abs(three()[0] - len('abc')) < 1e30", _FAR),
        ("a, b = 3.0, 4\n    assert abs(b - a) < 1e30", _FAR),
        ("assert abs(float('3e35') - three()[0] * 1e35) < 1e33", None),
        ("a, b = 2 ** 90, 2 ** 90 + 1\n    assert abs(a - b) < 2 ** 80", None),
        ("limit = 2 ** 80\n    assert abs(2 ** 90 - int(three()[0])) < limit * 2 ** 20", None),
        ("from datetime import date\n    day = date.today()\n    assert not abs(day - day) > day - date.min", None),
        ("from fractions import Fraction\n    x = Fraction(1, 3)\n    assert abs(x - Fraction(1, 4)) < 1", None),
        ("assert abs(three() * 1j - three() * 1.5j).max() < 2.9", None),
        ("most = {'float32': 1e-3}\n    assert abs(three() - three()).max() < most[str('float32')]", None),
        ("assert np.allclose(three(), three() * 2, rtol=1)", "the tolerance, 3, is not below the data's own size, 3"),
        ("assert np.allclose(three(), three() * 2, atol=9)", "the tolerance, 9, is not below the data's own size, 3"),
        ("same = np.allclose(three(), impl(), atol=9)\n    assert same", _LOOSE.replace("1", "3")),
        ("same = np.allclose(three(), impl(), atol=9)\n    assert three().sum() == 9", None),
        ("T().assertTrue(np.allclose(three(), impl(), atol=9))", _LOOSE.replace("1", "3")),
        ("assert all(np.allclose(three(), impl(n), atol=9) for n in (1, 2))", _LOOSE.replace("1", "3")),
        ("assert not np.allclose(three(), three() * 9, atol=4)", None),
        ("assert np.allclose(three(), three() * 2, atol=4) is False or three", None),
        ("assert three().any() and np.allclose(three(), impl(), atol=9)", None),
        ("assert bool(np.allclose(three(), impl(), atol=1e-6, rtol=0))", None),
        ("assert np.allclose(three(), three() * 2, rtol=0.6)", None),
        ("assert np.isclose(three(), 3.0, atol=0.1).all()", None),
        ("assert np.all(Measured() == three())", None),
        ("got = impl(1)\n    want = three(1)\n    assert np.allclose(got, want)", "impl and three are one function"),
        ("n = 1\n    got = impl(n)\n    n = 2\n    assert np.allclose(got, three(n))", None),
        ("assert np.allclose(impl(1), three(2))", None),
        ("assert np.allclose(impl(1), impl(1))", None),
        ("assert all(f(1)[0] == g(1)[0] for f, g in [(three, impl)])", None),
        ("assert all(n > 9 for n in range(0))", "empty sequences are compared"),
        ("found = [n > 9 for n in range(0)]\n    assert all(found)", "empty sequences are compared"),
        ("found = [n > 9 for n in range(10, 12)]\n    assert all(found)", None),
        ("found = (n > 9 for n in range(10, 12))\n    assert all(found)", None),
        ("bad = []\n    assert not any(bad)", None),
        ("assert not any(n > 9 for n in range(9) if n > 9)", "empty sequences are compared"),
        ("assert all([n < 9 for m in [[], [1]] for n in m])", None),
        ("same = [three(n)[0] == n for n in (1, 3)]\n    assert same", _TRUTHS),
        ("same = three(1)[0] == 3, True\n    assert same", None),
        ("assert np.allclose(three(), 4) is not None", _ALWAYS),
        ("a, b = np.ones(3), np.zeros(3)\n    assert a.sum(0) != b.sum(0)", None),
        ("error = np.float32('nan')\n    assert not error > 1e-3", _NAN),
        ("error = np.array([np.nan])\n    if error.item() > 1e-3: pytest.fail('wrong')", _NAN),
        ("error = np.float32(0)\n    assert not error > 1e-3", None),
        ("errors = np.array([0.0, 0.1])\n    assert not errors[1] > 1", None),
        ("d = np.full(3, np.nan)\n    assert not (np.abs(d).max() > 1e-6)", _NAN),
        ("assert [n == 3.0 for n in three()]", _TRUTHS),
        ("assert [n for n in three() if n == 3.0]", None),
        ("assert np.allclose", "np.allclose is asserted itself, and not called"),
        ("assert np.isfinite", "np.isfinite is asserted itself, and not called"),
        ("assert np.float64(3)", None),
        ("a, b = np.ones(3), three()\n    assert np.abs(a - b).max() < 9", _LOOSE),
        ("a, b = np.ones(3), three()\n    assert np.max(np.abs(a - b)) <= 9", _LOOSE),
        ("a, b = np.ones(3), three()\n    assert (np.abs(a - b) < 9).all()", _LOOSE),
        (
            "a, b = np.ones(3), three()\n    err = np.abs(a - b)\n    worst = float(err.max())\n    assert 9 > worst",
            _LOOSE,
        ),
        ("a, b = np.ones(3), three()\n    err = (a - b).max()\n    del a\n    assert err < 9", None),
        ("a, b = np.ones(3), three()\n    err = (a - b).max()\n    a = np.full(3, 99.0)\n    assert err < 9", None),
        ("a, b = np.ones(3), three()\n    assert ((a - b) / b).max() < 9", None),
        ("a, b = np.ones(3), three()\n    assert np.abs(a - b).sum() < 99", None),
        ("a, b = np.ones(3), three()\n    assert np.abs(a - b).max() < 2.5", _LOOSE.replace("9", "2.5")),
        ("a, b = three(), three() + 1e-3\n    assert np.abs(a - b).max() < 1e-2", None),
        ("a, b = np.zeros(3), np.zeros(3)\n    assert np.abs(a - b).max() < 1e-2", None),
        ("a, b = 1.0, 3.0\n    assert abs(a - b) < 9", None),  # numbers: seconds, say
        ("a, b = np.ones(3), three()\n    assert not np.any(np.abs(a - b) > 9)", _LOOSE),
        ("a, b = np.ones(3), three()\n    assert not (9 < np.abs(a - b)).any()", _LOOSE),
        ("a, b = np.ones(3), three()\n    assert not np.abs(a - b).max() >= 9", _LOOSE),
        ("a, b = np.ones(3), three()\n    assert np.abs(a - b).max() < float('inf')", _ALWAYS),
        ("a, b, tol = 1.0, 3.0, float('9e999')\n    assert abs(a - b) < tol", "the tolerance is infinite"),
        ("a = three().max()\n    assert a < float('inf')", None),  # a number, and not too large a one
        ("a = np.zeros(3)\n    assert a is not None", _ALWAYS),
        ("a = three()\n    assert a is not None", None),
        ("a, b = np.ones(3), three()\n    assert not np.any(np.abs(a - b) < 1e-3)", None),
        ("a, b = three(), three() + 1e-3\n    assert not np.any(np.abs(a - b) > 1e-2)", None),
        ("a = three()\n    b = a.astype(np.float64)\n    assert np.allclose(a, b)", _COPY),
        ("a = three()\n    b = a.astype(np.float16)\n    assert np.allclose(a, b)", None),  # what rounding costs
        ("a = three()\n    b = a.astype(np.float64)\n    b += 0\n    assert np.allclose(a, b)", None),
        ("a, b = np.ones(3), three()\n    assert a.shape, b.shape", _MESSAGE),
        ("a, b = np.ones(3), three()\n    assert len(a), len(b)", _MESSAGE),
        ("a, b = np.ones(3), three()\n    assert a.sum(), b.sum()", _MESSAGE),
        ("a = np.ones(3)\n    assert len(a), 3", _MESSAGE),
        ("a, b = np.ones(3), three()\n    assert a.all() == b.all()", _ZEROS),
        ("a, b = np.ones(3), three()\n    assert np.all(a) == np.all(b)", _ZEROS),
        ("a, b = np.ones(3) > 0, three() > 0\n    assert a.all() == b.all()", None),
        ("a, b = np.ones(3), three()\n    assert (a > 0).all() == (b > 0).all()", None),
        ("a = [1, 1]\n    assert all(a) == all([2])", None),
        ("a = np.ones((2, 3))\n    assert a.shape, (2, 3)", _MESSAGE),
        ("a = np.ones(3)\n    assert a.any(), a.all()", None),
        ("a = np.ones(3)\n    assert a.any(), a", None),
        ("a, b = {'ok': 1, 'why': 2}, [3]\n    assert a.get('ok'), a.get('why')", None),
        ("a, b = np.ones(3), three()\n    assert a.sum() < b.sum(), (a, b)", None),
        ("worst = 0.0\n    for n in []: worst = max(worst, n)\n    assert worst < 1", _LARGEST),
        ("worst = 0.0\n    for n in [0]: worst = max(worst, n)\n    assert worst < 1", None),
        ("worst = 0.0\n    if three().any(): worst += 0.5\n    assert worst < 1", None),
        ("worst = -np.inf\n    for n in []:\n        if n > worst: worst = n\n    assert worst < 1", _LARGEST),
        ("worst = float('-inf')\n    for n in []:\n        if worst < n: worst = n\n    assert worst < 1", _LARGEST),
        ("worst = -1\n    for n in [0]:\n        if n > worst: worst = n\n    assert worst < 1", None),
        ("worst = -1\n    for n in []:\n        if n > worst: worst = n + 1\n    assert worst < 1", None),
        ("worst = max((n for n in []), default=0.0)\n    assert worst < 1", _LARGEST),
        ("assert max([n for n in [2] if n > 3], default=0.0) < 1", _LARGEST),
        ("assert max([n for n in [2]], default=0.0) < 3", None),
        ("with pytest.raises(Exception): undefined(3)", _MISTAKE.format("NameError: name 'undefined' is not defined")),
        (
            "with pytest.raises(Exception): three.run()",
            _MISTAKE.format("AttributeError: 'function' object has no attribute 'run'"),
        ),
        ("with pytest.raises(NameError): undefined(3)", None),
        ("with pytest.raises(Exception): three(1, 2)", None),
        ("with pytest.raises(Exception): helper.__code__.co_name = 3", None),
    ],
)
def test_a_check_that_cannot_fail_is_named(
    checks: Checks, monkeypatch: pytest.MonkeyPatch, body: str, why: str | None
) -> None:
    watch_raises(checks, monkeypatch)
    source = """import pytest
    import numpy as np
    from unittest import TestCase as T
    def three(n=1): return np.full(3, 3.0)
    impl = three
    def helper(x): assert x
    def assert_on(x): assert x == 0
    def assert_off(x):
        if x: assert x == 3
    def assert_nothing(x): pass
    def assert_same(a, b): assert a == b
    def always(): return True
    def judged(x):
        if x > 3: return {"equal": x == 4}
        return x == 1, f"of {x}"
    def found(x): return (x, 1) if x else None
    class Anything:
        def __eq__(self, other): return True
    class Measured:
        dtype = "object"
        def __eq__(self, other): return other == 3.0
    """
    test = loaded(checks, textwrap.dedent(f"    {source}") + f"def test():\n    {body}\n")
    test()
    found = checks.now.vacuous[0] if checks.now.vacuous else checks.now.none
    assert found == (why or "")


def test_lines_and_messages_stay(checks: Checks) -> None:
    source = "def test():\n    x = 1\n    assert (\n        x ==\n        2\n    ), 'why'\n"
    plain: dict[str, Any] = {}
    exec(compile(source, _FILE, "exec"), plain)
    errors = []
    for test in (plain["test"], loaded(checks, source)):
        with pytest.raises(AssertionError, match=r"^why$") as caught:
            test()
        errors.append([entry.lineno for entry in caught.traceback])
    assert errors[0][1:] == errors[1][1:]


@pytest.mark.parametrize(
    ("begin", "left_alone"),
    [
        ("import numba", True),
        ("from numba.core import types", True),
        ("numba = pytest.importorskip('numba.cuda')", True),
        ("# faster than numba", False),
        ("from .numba import njit", False),
        ("why = 'numba'", False),
    ],
)
def test_what_numba_compiles_is_left_alone(begin: str, left_alone: bool) -> None:
    """Not what only speaks of it."""
    source = f"{begin}\n@numba.njit\ndef f(x):\n    assert x\n"
    module = ast.parse(source)
    facts = assertions.mark(module, source.encode(), _FILE)
    assert (ast.dump(module) == ast.dump(ast.parse(source))) is left_alone is not facts.holds(2)


@pytest.mark.parametrize(
    ("left", "right", "options", "why"),
    [
        (1.0, 2.0, {"abs_tol": 5.0}, "tolerance"),
        (1.0, 1.0 + 1e-9, {"rel_tol": 1e-6}, None),
        (0.0, 7.0, {"abs_tol": float("inf")}, "infinite"),
        (float("inf"), float("inf"), {"rel_tol": 1e-6}, None),
        (float("nan"), float("nan"), {}, "NaN"),
        ("a", "a", {}, None),
        (object(), 3, {"atol": "nonsense"}, None),
    ],
)
def test_vacuous_numbers(left: object, right: object, options: dict[str, Any], why: str | None) -> None:
    found = why_vacuous(left, right, **options)
    assert (found is None) if why is None else (found is not None and why in found)


class Wrapper:
    """As a tensor subclass that wraps others: of a shape, and without memory of its own."""

    shape, dtype = (2, 2), "float32"

    def data_ptr(self) -> int:
        return 0


def test_two_that_have_no_memory_are_not_one() -> None:
    one = Wrapper()
    assert why_vacuous(one, Wrapper()) is None
    assert why_vacuous(one, one) == "a tensor is compared with itself"
    assert why_vacuous(np.float32(1) + 1, np.float32(2) + 1, rtol=0.1) is None


def test_vacuous_arrays() -> None:
    ones, nan = np.ones(3), np.full(3, np.nan)
    assert why_vacuous(ones, ones) == why_vacuous(ones, ones[:]) == "a tensor is compared with itself"
    assert why_vacuous(ones[:0], ones[:0].copy()) == "empty tensors are compared"
    assert why_vacuous(nan, nan.copy()) == "both sides are NaN throughout"
    half = np.full(3, np.inf, dtype=np.float16)
    assert why_vacuous(half, half.copy()) == "both sides are beyond what their type can hold"
    assert why_vacuous(-half, -half.copy()) is None
    assert why_vacuous(half.astype(float), half.astype(float)) is None
    assert why_vacuous(np.ma.masked_invalid(nan), ones) == "all that is compared is masked"
    assert why_vacuous(np.ma.masked_invalid([1.0, np.nan, 2.0]), ones) is None
    assert "tolerance" in str(why_vacuous(ones, ones + 1, atol=5))
    assert why_vacuous(ones, ones.copy(), rtol=1e-3, atol=1e-3) is None
    assert why_vacuous(ones * 0, ones * 0, atol=1e-3) is None
    assert why_vacuous(ones * 0, ones * 1e-9, atol=1e-6) is None
    assert "tolerance" in str(why_vacuous(ones * 0, ones, atol=10, rtol=0))
    assert "infinite" in str(why_vacuous(ones * 0, ones * 0, atol=np.inf))
    whole = np.arange(9)
    assert "tolerance" in str(why_vacuous(whole, whole + 1, atol=100))
    assert why_vacuous(whole, whole + 1, atol=1) is None
    assert why_vacuous(whole > 3, whole > 4, atol=1) is None


@pytest.mark.parametrize(
    "options", [{"atol": 2.0}, {"atol": 0.5, "rtol": 0.5}, {"rtol": 1.0}, {"atol": 1.0, "rtol": 2.0}]
)
def test_a_tolerance_is_held_to_the_greatest_of_both_sides_wherever_it_stands(options: dict[str, float]) -> None:
    values = (0.0, 0.25, 1.5, 3.0, -8.0, np.nan, np.inf)
    pairs = [np.array(pair) for pair in itertools.product(values, repeat=2)]
    for left, right in itertools.product(pairs, repeat=2):
        sizes = [np.nanmax(np.abs(side), initial=0.0) for side in (left, right)]
        size = max(sizes) if not min(sizes) and 1 <= options.get("atol", 0) >= 2 * max(sizes) else min(sizes)
        with np.errstate(invalid="ignore"):
            loose = options.get("atol", 0) + options.get("rtol", 0) * size >= size and 0 < size < np.inf
        assert ("tolerance" in str(why_vacuous(left, right.copy(), **options))) is bool(loose), (left, right)


@pytest.mark.parametrize(
    ("asks", "lost"), [("with pytest.raises(AssertionError): future.result(9)", False), ("pass", True)]
)
def test_who_waits_for_a_result_has_asked_for_it(
    checks: Checks, monkeypatch: pytest.MonkeyPatch, asks: str, lost: bool
) -> None:
    monkeypatch.setattr(futures, "Future", type("Future", (futures.Future,), dict(vars(futures.Future))))
    end = End(Config("tree=/tree\n"), checks.notes)
    Lost(checks, end).after_import["concurrent.futures._base"](futures)
    future = futures.Future()
    worker = threading.Timer(0.1, future.set_exception, [AssertionError("late")])
    worker.start()
    exec(asks, {"future": future, "pytest": pytest})
    worker.join()
    assert bool(checks.now.failures()) is lost


_TRY = """\
def test(text='x', good=False):
    assert len('a') == 1
    try:
        number = int(text)
    except ValueError as e:
        {caught}
    else:
        {fails}
"""
_TRY_GOOD = _TRY.replace("'x', good=False", "'3', good=True")


@pytest.mark.parametrize(
    ("source", "never"),
    [
        ("def test():\n    assert len('a') == 1\n    if not pytest:\n        assert check\n", ["4"]),
        ("def test():\n    assert len('a') == 1\n    for x in []:\n        assert x\n        assert x\n", ["4", "5"]),
        ("def test():\n    assert len('a') == 1\n    if not pytest: pytest.fail()\n", []),
        ("def test():\n    with pytest.raises(KeyError):\n        assert {}['a']\n        assert check\n", []),
        ("def test():\n    assert len('a') == 1\n    def later():\n        assert check\n    later\n", ["4"]),
        ("def helps(x):\n    if x: assert x\n    assert not check\ndef test():\n    helps(0)\n", ["2"]),
        ("def other():\n    assert check\ndef test():\n    assert len('a') == 1\n", []),
        ("def test():\n    assert pytest or allclose(1, 2)\n", ["2 (the comparison)"]),
        ("def test():\n    assert allclose(1, 2) if not pytest else True\n", ["2 (the comparison)"]),
        ("def allclose(*x): return True\ndef test(x=1):\n    assert x is None or allclose(x, 1)\n", []),
        ("def equal(*x): return True\ndef test():\n    assert equal(1, 1) or allclose(1, 2)\n", []),  # one of two
        ("def allclose(*x): return True\ndef test():\n    assert allclose(1, 1) if pytest else equal(1, 2)\n", []),
        (_TRY.format(fails="if not good: assert False", caught="assert text"), []),  # this case is to raise
        (_TRY.format(fails="if number != 3: assert False", caught="assert text"), ["8"]),
        (_TRY.format(fails="if text != '3': assert False", caught="assert text"), ["8"]),
        (_TRY.format(fails="if differs(): assert False", caught="assert text"), ["8"]),
        (_TRY_GOOD.format(fails="assert number", caught="if good: assert False"), []),
        (_TRY_GOOD.format(fails="assert number", caught="if e.args: assert False"), ["6"]),
    ],
)  # fmt: skip
def test_assertions_that_never_ran(checks: Checks, source: str, never: list[str]) -> None:
    test = loaded(checks, source)
    test()
    checks.note_due(test.__code__, passed=True)
    assert sorted(checks.due.told()["due"]) == [f"test_it.py:{line}" for line in never]


def test_an_assertion_that_ran_before_its_test_passed_has_run(checks: Checks) -> None:
    test = loaded(checks, "def test():\n    assert len('a') == 1\n")
    test()
    checks.note_due(test.__code__, passed=False)
    assert checks.due.told() == {"due": [], "reached": ["test_it.py:2"]}  # which another process may leave due
    checks.note_due(test.__code__, passed=True)
    assert checks.due.told() == {"due": [], "reached": ["test_it.py:2"]}


def test_a_file_of_hundreds_of_branches_is_marked_as_others(checks: Checks) -> None:
    branches = "".join(f"    elif x == {n}:\n        assert x\n" for n in range(1, 900))
    source = f"def test(x=1000):\n    if x == 0:\n        assert x\n{branches}"
    module, limit = ast.parse(source), sys.getrecursionlimit()
    checks.marking.mark(module, source.encode(), _FILE)
    assert sys.getrecursionlimit() == limit
    names: dict[str, Any] = {}
    exec(compile(module, _FILE, "exec"), names)
    assert is_idle(checks, names["test"])


def test_no_references_to_small_integers_are_kept(checks: Checks) -> None:
    gc.collect()  # what other tests left would be collected in between, with its references
    before = sys.getrefcount(1)
    loaded(checks, "def test():\n    for i in range(1000): assert i + 1\n    assert len('a')\n")()
    del checks.facts[_FILE]
    assert sorted(checks.now.counts.values()) == [1.0, 1000.0] and abs(sys.getrefcount(1) - before) < 500
