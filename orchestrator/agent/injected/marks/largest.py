"""Marks at the largest of several numbers that a test holds to a limit: `worst = max(worst, error)` in a loop, or
`max((error for ...), default=0.0)`. Of nothing it is what it began with, and NaN is passed over.
"""

from __future__ import annotations

import ast

from ..source.syntax import SETS, called, targets_of, walked
from .nodes import ENTERED, call_seen, is_seen, noted, place_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator


def mark_largest(node: ast.stmt, size: ast.expr, function: ast.AST | None, path: str) -> list[ast.stmt]:
    """Have what `size` is the largest of be looked at where it is calculated, and that behind the assertion `node`."""
    calls = [*_calls(size, function)] if isinstance(size, (ast.Name, ast.Call)) else []
    place = f"{path}:{node.lineno}"
    key = f"{ENTERED}{place}:{node.col_offset}"
    for call in calls:
        inside = call.args[0]
        if isinstance(inside, (ast.GeneratorExp, ast.ListComp)):
            inside.generators[-1].ifs.append(ast.UnaryOp(ast.Not(), is_seen(call, key), **place_of(call)))
        else:
            call.args = [a if _is_named(a, size) else noted(a, "among", key) for a in call.args]
    return [call_seen(node, "largest", ast.Constant(key), ast.Constant(place))] if calls else []


def _calls(size: ast.expr, function: ast.AST | None) -> Iterator[ast.Call]:
    """Each `max` that it may come from; none if it may come from anything else but what is written there."""
    made = [size] if isinstance(size, ast.Call) else _made(size.id, function) if isinstance(size, ast.Name) else []
    calls = [value for value in made if not isinstance(value, ast.Constant)]
    if all(_is_largest(call, size) for call in calls):
        yield from calls  # type: ignore[misc]


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
