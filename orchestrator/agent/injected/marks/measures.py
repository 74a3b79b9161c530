"""Marks beside an assertion that look at what it compares, and at the limit to which it holds a difference."""

from __future__ import annotations

import ast

from ..source import statements
from ..source.syntax import called
from .nodes import (
    APART,
    ENTERED,
    THROUGH,
    WITHIN,
    call_seen,
    constant,
    is_seen,
    place_of,
    seen_mark,
    with_extent,
    with_sizes,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .callees import Callees

_COUNTS = ("any", "sum", "count_nonzero")


class Measures:
    """Of one function, or of what stands in none: what its `callees` are, and its `arguments`."""

    def __init__(self, callees: Callees, path: str, arguments: ast.arguments | None = None) -> None:
        self._callees = callees
        self._path = path
        self._arguments = arguments

    def limited(self, node: ast.stmt, test: ast.expr) -> list[ast.stmt]:
        """What compares the limit of a difference with the size of the data: `assert (a - b).abs().max() < 1e3`. What a
        name was made of may be gone by now, and what is calculated there is not to be calculated again: its size is
        taken on the way.
        """
        if isinstance(test, ast.BoolOp):
            return [self._within(node, None)]  # any of several
        asked = statements.limited(test)
        if asked is None:
            return [self._within(node, 0.0)] if statements.is_exact(test) else []
        size, limit = asked
        apart = self._callees.difference(size)
        if apart is None:
            return [self._within(node, limit)] if self.is_limit(limit) and not isinstance(size, ast.Constant) else []
        if any(self._callees.difference(side) is not None for side in (apart.left, apart.right)):
            return [self._within(node, limit)] if self.is_limit(limit) else []  # of errors, which are small
        averages = self._callees.averages(size)
        if not statements.is_plain(limit):
            known = limit if self.is_limit(limit) else None
            return [self._within(node, known, with_extent(apart), averages)]
        if not self._callees.is_named(size):
            if all(map(statements.is_plain, (apart.left, apart.right))):
                return [call_seen(node, "apart", apart.left, apart.right, limit, constant(averages))]
            if _is_small(limit):
                return [self._within(node, limit, with_extent(apart), averages)]
        left, right = map(statements.measured, (apart.left, apart.right))
        if self._callees.is_named(size) and isinstance(left, ast.Name) and isinstance(right, ast.Name):
            return [seen_mark(node, (APART, left.id, right.id, averages), limit)]
        key = with_sizes(apart)
        return [call_seen(node, "kept_apart", key, limit), self._within(node, limit, key, averages)]

    def compared(self, node: ast.Assert, call: ast.Call) -> list[ast.stmt]:
        """What looks at the arguments of a comparison again, where to look at them does nothing else."""
        if called(call) == "all":  # of all elements
            inside = getattr(call.func, "value", None) if not call.args else call.args[0]
            if isinstance(inside, ast.Compare):
                equal = isinstance(inside.ops[0], ast.Eq)
                if statements.is_plain(inside.left):
                    return [call_seen(node, "compared_all", inside.left, constant(equal))]
                return [self._within(node, 0.0)] if equal else []
            call = inside if isinstance(inside, ast.Call) else call
        if called(call) not in statements.COMPARES or not isinstance(call.func, ast.Attribute):
            return []
        keywords = [k for k in call.keywords if k.arg]
        operands = [call.func.value, *call.args, *(k.value for k in keywords)]
        if len(keywords) < len(call.keywords) or not all(map(statements.is_plain, operands)):
            return []
        return [call_seen(node, "compared", constant(called(call)), call.func.value, *call.args, keywords=keywords)]

    def ordered(self, node: ast.stmt, test: Any) -> list[ast.stmt]:
        """What looks for NaN where a test fails if one side is larger, or smaller, than the other, which it never is:
        `assert not error > limit`, `if error > limit: pytest.fail()`.
        """
        asked = getattr(test, "operand", None) or getattr(test, "test", None)
        if not (isinstance(asked, ast.Compare) and len(asked.ops) == 1 and isinstance(asked.ops[0], statements.ORDERS)):
            return []
        sides = (asked.left, asked.comparators[0])
        return [call_seen(node, "ordered", *sides)] if all(map(statements.may_measure_again, sides)) else []

    def none_beyond(self, node: ast.stmt, counted: ast.expr) -> list[ast.stmt]:
        """The same of elements: `assert not (error > limit).any()`, `assert (error > limit).sum() == 0`."""
        inside = getattr(getattr(counted, "func", None), "value", None) if called(counted) in _COUNTS else None
        if not isinstance(inside, ast.Compare) or not isinstance(inside.ops[0], statements.ORDERS):
            return []
        larger = inside.left if isinstance(inside.ops[0], (ast.Gt, ast.GtE)) else inside.comparators[0]
        place = constant(f"{self._path}:{node.lineno}")
        return [call_seen(node, "beyond", larger, place)] if statements.is_plain(larger) else []

    def went_through(self, node: ast.Assert, test: ast.expr) -> list[ast.stmt]:
        """What looks whether there was anything for `all(... for ... in ...)` to go through, or `not any(...)`: a mark
        among its conditions, which is false.
        """
        inside = test.args[0] if isinstance(test, ast.Call) and len(test.args) == 1 else None
        if called(test) == "all" and isinstance(inside, ast.Name):
            return [call_seen(node, "gone_over", inside)]
        if called(test) not in ("all", "any") or not isinstance(inside, (ast.GeneratorExp, ast.ListComp)):
            return []
        key = f"{ENTERED}{self._path}:{node.lineno}:{node.col_offset}"
        inside.generators[-1].ifs.append(ast.UnaryOp(ast.Not(), is_seen(node, key), **place_of(node)))
        each = statements.limited(inside.elt if called(test) == "all" else ast.UnaryOp(ast.Not(), inside.elt))
        limit = each[1] if each is not None and _is_small(each[1]) else None  # a name may be one of those in there
        return [seen_mark(node, (THROUGH, key)), self._within(node, limit)]

    def is_limit(self, limit: ast.expr) -> bool:
        """Whether it is written down to be one, or given to the test; what is calculated may be the other thing."""
        if isinstance(limit, ast.Name):
            return limit.id.isupper() or any(a.arg == limit.id for a in getattr(self._arguments, "args", ()))
        if isinstance(limit, ast.BinOp):
            return all(isinstance(side, ast.Constant) or self.is_limit(side) for side in (limit.left, limit.right))
        return _is_small(limit)

    def _within(
        self, node: ast.stmt, limit: ast.expr | float | None, key: ast.Constant | None = None, averages: bool = False
    ) -> ast.stmt:
        """That something was held to a limit: a difference, by whose key its elements are known, or what may be one."""
        known = limit if isinstance(limit, ast.expr) else ast.copy_location(constant(limit), node)
        return seen_mark(node, (WITHIN, key.value if key else "", averages), known)


def _is_small(limit: ast.expr) -> bool:
    """Of one that is written there: what pytest explains of such an assertion stays as it is."""
    return isinstance(limit, ast.Constant) and isinstance(limit.value, (int, float)) and abs(limit.value) < 1
