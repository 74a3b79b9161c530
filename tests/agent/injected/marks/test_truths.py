"""Which asserted expressions cannot be false."""

from __future__ import annotations

import ast

import pytest

from orchestrator.agent.injected.marks.truths import literals, why_method_holds, why_true
from tests.honesty.stand_in_cases import TRUTHS

_CONSTANTS = {"ok": True, "e": 9.0}
# Those are told from what the names stand for while the test runs.
_SEEN_AT_RUN_TIME = {
    "xs.append",
    "square",
    "anything == x",
    "xs[5:] == [1][5:]",
    "always(x)",
    "made(x)",
    "math.isclose(x, x)",
}


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


@pytest.mark.parametrize(
    "text", [*(text for text in TRUTHS if text not in _SEEN_AT_RUN_TIME), "(x == y).all", "np.isclose(x, y).all"]
)
def test_what_cannot_be_false(text: str) -> None:
    assert why_true(_expression(text), _CONSTANTS)


@pytest.mark.parametrize(
    "text",
    [
        "x", "not x", "x == 9", "1 == 2", "f(x) == f(x)", "next(i) == next(i)", "len(x) >= 1", "len(x) != 0", "x is []",
        "x is not None", "f() is f()", "x or y", "x in (1, 2)", "x in [True, False]", "isinstance(x, (int, str))",
        "() or x", "all([x])", "any([])", "all(x for x in xs)", "abs(x) < 1e-6", "x != None", "x == approx(y)",
        "0 + x", "x[0] == x[1]", "a.b == a.c", "x < y or x > y", "x == 1 or y != 1",
        "max(x, y) >= 0", "x ** 3 >= 0", "*xs, == ()",
        "(x == y).all()", "parse(x).all", "args.any", "s.startswith('a')", "'a' in s", "bool(x)", "x if y else 0",
        "e == 8.0",
    ],
)  # fmt: skip
def test_what_may_be_false(text: str) -> None:
    assert why_true(_expression(text.replace("*xs, == ()", "(*xs,) == ()")), _CONSTANTS) is None


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


def test_only_what_is_bound_once_stands_for_its_literal() -> None:
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
    """
    assert literals(ast.parse(source).body[0]) == {"alone": 6}
