"""Marks at the largest of several numbers that a test holds to a limit: `worst = max(worst, error)` in a loop, or `if
error > worst: worst = error`, or `max((error for ...), default=0.0)`. Of nothing it is what it began with, and NaN is
passed over.
"""

from __future__ import annotations

import ast

from ..source.statements import ORDERS
from ..source.syntax import SETS, called, targets_of, walked
from .nodes import ENTERED, call_seen, is_seen, noted, place_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, Iterator


def mark_largest(node: ast.stmt, size: ast.expr, function: ast.AST | None, path: str) -> list[ast.stmt]:
    """Have what `size` is the largest of be looked at where it is calculated, and that behind the assertion `node`."""
    found = [*_largest(size, function)] if isinstance(size, (ast.Name, ast.Call)) else []
    place = f"{path}:{node.lineno}"
    key = f"{ENTERED}{place}:{node.col_offset}"
    for each in found:
        if isinstance(each, ast.Compare):
            each.left, *each.comparators = _noted((each.left, *each.comparators), size, key)
            continue
        inside = each.args[0]
        if isinstance(inside, (ast.GeneratorExp, ast.ListComp)):
            inside.generators[-1].ifs.append(ast.UnaryOp(ast.Not(), is_seen(each, key), **place_of(each)))
        else:
            each.args = _noted(each.args, size, key)
    return [call_seen(node, "largest", ast.Constant(key), ast.Constant(place))] if found else []


def _noted(values: Iterable[ast.expr], size: ast.expr, key: str) -> list[ast.expr]:
    return [value if _is_named(value, size) else noted(value, "among", key) for value in values]


def _largest(size: ast.expr, function: ast.AST | None) -> Iterator[ast.Call | ast.Compare]:
    """Each `max` that it may come from, or comparison by which it is kept; none if it may come from anything else but
    what is written there.
    """
    made = [size] if isinstance(size, ast.Call) else _made(size.id, function) if isinstance(size, ast.Name) else []
    kept = dict(_kept(size.id, function)) if isinstance(size, ast.Name) and len(made) > 1 else {}
    found = [kept.get(value, value) for value in made if not _is_number(value)]
    if all(isinstance(each, ast.Compare) or _is_largest(each, size) for each in found):
        yield from found  # type: ignore[misc]


def _kept(name: str, function: ast.AST | None) -> Iterator[tuple[ast.expr, ast.Compare]]:
    """What a name is set to because it is larger, with the comparison that says so."""
    for node in walked(function) if function is not None else []:
        test = node.test if isinstance(node, ast.If) else None
        if not isinstance(test, ast.Compare) or len(test.ops) != 1:
            continue
        grows = isinstance(test.ops[0], (ast.Gt, ast.GtE))
        larger, smaller = (test.left, test.comparators[0]) if grows else (test.comparators[0], test.left)
        if not isinstance(test.ops[0], ORDERS) or not _is_name(smaller, name):
            continue
        for inner in node.body:  # type: ignore[attr-defined]
            if isinstance(inner, ast.Assign) and ast.dump(inner.value) == ast.dump(larger):
                yield inner.value, test


def _is_number(value: ast.AST | None) -> bool:
    """Whether it is one that is written there: `0.0`, `-1`, `float("-inf")`, `-math.inf`."""
    if isinstance(value, ast.UnaryOp):
        return _is_number(value.operand)
    if isinstance(value, ast.Call):
        return called(value) == "float" and all(map(_is_number, value.args))
    return isinstance(value, ast.Constant) or (isinstance(value, ast.Attribute) and value.attr == "inf")


def _made(name: str, function: ast.AST | None) -> list[ast.expr]:
    """What a name is set to in a function; nothing if that is not known of each time."""
    nodes = walked(function) if function is not None else []
    bound = sum(isinstance(n, ast.Name) and n.id == name and not isinstance(n.ctx, ast.Load) for n in nodes)
    plain = [n for n in nodes if isinstance(n, SETS) and not isinstance(n, ast.AugAssign) and n.value is not None]
    found = [n.value for n in plain if any(_is_name(target, name) for target in targets_of(n))]
    is_given = any(isinstance(n, ast.arg) and n.arg == name for n in nodes)
    return [value for value in found if value is not None] if len(found) == bound and not is_given else []


def _is_largest(call: ast.expr, size: ast.expr) -> bool:
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and called(call) == "max" and call.args):
        return False
    if len(call.args) == 1:
        return isinstance(call.args[0], (ast.GeneratorExp, ast.ListComp)) and any(
            k.arg == "default" for k in call.keywords
        )
    return not call.keywords and any(_is_named(a, size) for a in call.args)


def _is_named(node: ast.expr, size: ast.expr) -> bool:
    return isinstance(size, ast.Name) and _is_name(node, size.id)


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
