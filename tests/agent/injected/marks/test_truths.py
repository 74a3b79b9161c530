"""Which asserted expressions cannot be false."""

from __future__ import annotations

import ast

import pytest

from orchestrator.agent.injected.marks.kinds import bound_once
from orchestrator.agent.injected.marks.truths import why_method_holds, why_true
from tests.honesty.stand_in_cases import TRUTHS

_BOUND = {
    name: ast.parse(value, mode="eval").body
    for name, value in {
        "ok": "True", "e": "9.0", "close": "torch.allclose(x, y)", "n": "len(xs)", "made": "[f(x)]", "a": "b", "b": "a",
        "err": "(x - y).abs().max()", "same": "close",
        "ref": "made", "other": "y", "limit": "abs(x - y) + 1e-6", "off": "abs(x - y)", "tight": "abs(x - y) * 2",
        "loose": "max(1e-6, 2 * off)",
        "said": "'PASS' if close else 'FAIL'", "some": "'PASS' if close else ''",
        "far": "float('inf')", "zeros": "torch.zeros(3).cuda()",
    }.items()
}  # fmt: skip
# Those are told from what the names stand for, in the test around or while it runs.
_SEEN_AT_RUN_TIME = {
    "abs(x - 9.0) <= tol",
    "x == ref",
    "xs.append",
    "square",
    "anything == x",
    "xs[5:] == [1][5:]",
    "always(x)",
    "made(x)",
    "judged(x)",
    "Outcome(x)",
    "outcome(x)",
    "math.isclose(x, x)",
    "x == pytest.approx(7, abs=math.inf)",
    "str(x)",
    "f'{x}'",
}


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


@pytest.mark.parametrize(
    "text",
    [
        *(text for text in TRUTHS if text not in _SEEN_AT_RUN_TIME), "(x == y).all", "np.isclose(x, y).all",
        "str(torch.allclose(x, y))", "str(close)", "f'{close}'", "f'{x!r}'", "f'{x:.3f}'",
        "isinstance(np.allclose(x, y), bool)", "isinstance(same, (int, str))", "isinstance(x, type(x))",
        "isinstance(x, x.__class__)", "close in (True, False)", "close is not None", "made is not None", "n >= 0",
        "err >= 0", "(x - y).abs().max() >= 0", "torch.linalg.norm(x - y) >= 0", "float(abs(x - y)) > -1",
        "sum(abs(i) for i in xs) >= 0", "np.max(np.abs(x)) >= 0.0", "x <= max(x, y)", "max(x, y) >= x",
        "err < max(1e-3, 1.1 * err)", "off <= loose", "off <= tight", "off < abs(x - y) + 1", "x < max(y, x + 1)",
        "min(x, y) <= y", "x.numel() >= 0", "(x := [y])", "not n < 0", "made == ref",
        "x <= float('inf')", "x >= -math.inf", "float('-inf') <= x", "not x > np.inf", "n < math.inf",
        "len(x) < float('inf')",
        "abs(x - y) < math.inf", "(x - y).abs().max() < float('inf')", "off < np.inf", "zeros is not None",
        "x + y is not None", "torch.randn(3).to(d) is not None", "x <= far",
        "~torch.allclose(x, y)", "~close", "said", "said in ('FAIL', 'PASS', 'NONE')", "not not said",
        "(x == y).mean() <= 1", "n > -1",
        "(~np.isclose(x, y)).mean() <= 1.0", "np.mean(x != y) < 1.5", "not (x == y).mean() > 1", "0 <= np.mean(x == y)",
        "out.shape[0] >= 0", "out.shape[0] != -2", "len(x) != -1", "out.ndim >= 0", "(x == y).sum() >= 0",
        "abs(x - y) <= limit", "off < limit", "limit >= off", "abs(x) < abs(x) + 1",
    ],
)  # fmt: skip
def test_what_cannot_be_false(text: str) -> None:
    assert why_true(_expression(text), _BOUND)


@pytest.mark.parametrize(
    "text",
    [
        "x", "not x", "x == 9", "1 == 2", "f(x) == f(x)", "next(i) == next(i)", "len(x) >= 1", "len(x) != 0", "x is []",
        "x is not None", "f() is f()", "x or y", "x in (1, 2)", "x in [True, False]",
        "~x", "~f(x)", "some", "said in ('PASS',)", "said == 'PASS'", "said in x", "isinstance(x, (int, str))",
        "() or x", "all([x])", "any([])", "all(x for x in xs)", "abs(x) < 1e-6", "x != None", "x == approx(y)",
        "0 + x", "x[0] == x[1]", "a.b == a.c", "x < y or x > y", "x == 1 or y != 1",
        "max(x, y) >= 0", "x ** 3 >= 0", "*xs, == ()",
        "(x == y).all()", "parse(x).all", "args.any", "s.startswith('a')", "'a' in s", "bool(x)", "x if y else 0",
        "e == 8.0", "str(x)", "f'{x}'", "f'{x:>s}'", "str('')", "isinstance(x == y, bool)", "isinstance(f(x), bool)",
        "made == other", "off <= tol", "limit <= off", "off < off + x", "off < off - 1",
        "x < float('inf')", "x > -math.inf", "math.inf > x", "x == math.inf", "x <= -math.inf", "x != float('inf')",
        "x >= math.inf", "abs(x - y) > -y", "torch.load(f) is not None", "f(x) is not None", "x <= float(y)",
        "x <= shape.inf", "abs(x) < math.inf", "-(x - y) < y",
        "isinstance(close, str)", "x is not None", "a is not None", "a >= 0", "n >= 1", "err > 0", "v.norm() >= 0",
        "norm(x) >= 0", "x <= min(x, y)", "err < max(1e-3, 0.9 * err)", "off <= tight * y", "x <= 2 * x",
        "x < max(x, y)", "off <= max(1e-3, abs(y))", "x < x + n",
        "f(x) <= max(f(x), y)", "close", "made", "n", "isinstance(x, type(y))",
        "x <= 1e30", "abs(x) < 1e30", "abs(x - y) < 1e30", "1e30 < off", "(x == y).mean() < 1", "(x == y).mean() >= 1",
        "(x == y).sum() <= 1", "np.isclose(x, y).mean() > 0", "out.size >= 0", "out.shape[0] > 0", "pool.size(x) >= 0",
        "out.ndim > 0", "out.shape[0] != -1",
        "ours.allclose(x, y) is True", "(x - y).max() >= 0", "x.min() >= 0", "y in (True, False)",
    ],
)  # fmt: skip
def test_what_may_be_false(text: str) -> None:
    assert why_true(_expression(text.replace("*xs, == ()", "(*xs,) == ()")), _BOUND) is None


@pytest.mark.parametrize(
    ("call", "holds"),
    [
        ("assertTrue(True)", True), ("assertTrue(x)", False), ("assertTrue(x, 9.0)", True),
        ("assertTrue(x, [2, 4])", True), ("assertTrue(x, [x, y])", False),
        ("assertTrue(x, 'why')", False), ("assertEqual(x, x)", True), ("assertEqual(x, y)", False),
        ("assertIsNotNone(x == y)", True), ("assertIsNotNone(x)", False), ("assertGreaterEqual(len(x), 0)", True),
        ("assertIsInstance(x, object)", True), ("assertFalse(x)", False), ("assertFalse(False)", True),
        ("assertIn(x, [x])", True), ("assertRaises(E, f)", False), ("assertEqual(*both)", False),
    ],
)  # fmt: skip
def test_what_a_method_asserts(call: str, holds: bool) -> None:
    node = _expression(call)
    assert isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    assert bool(why_method_holds(node.func.id, node.args, {})) is holds


def test_only_what_is_bound_once_stands_for_its_value() -> None:
    source = """def test(given):
        once, again, looped, inner, caught = 1, 2, 3, 4, 5
        alone = 6
        twice = 7
        twice = g()
        for each in []: each = 8
        seen = False
        def call():
            nonlocal seen
            seen = True
        given = 9
        some = True
        some &= g()
        flags = 1
        flags |= g()
        for each in given: kept = True; kept |= each
    """
    found = bound_once(ast.parse(source).body[0])
    assert {name: ast.literal_eval(value) for name, value in found.items()} == {"alone": 6, "kept": True}
