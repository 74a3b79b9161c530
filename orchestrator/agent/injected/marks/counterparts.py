"""`if valid: load(x)` beside an `else` in which that function must raise: that it has not raised there is the check.

Only where the test's own parameters decide between the two: what the machine decides is a guard.
"""

from __future__ import annotations

import ast
import builtins

from ..source.syntax import called, ids_in, walked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

_PLAIN = (ast.Name, ast.Constant)
_RAISE = ("raises", "assertRaises", "assertRaisesRegex")


def must_not_raise(node: ast.If, function: Any) -> Iterator[tuple[list[ast.stmt], ast.stmt]]:
    """The statements of a branch that do what must raise in the other one, each with the block that it stands in."""
    if function is None or not node.orelse or not _decide(node.test, function.args):
        return
    for block, other in ((node.body, node.orelse), (node.orelse, node.body)):
        raising = set(_that_must_raise(other))
        yield from [(block, s) for s in block if raising and not raising.isdisjoint(_done_by(s))]


def _decide(test: ast.expr, arguments: ast.arguments) -> bool:
    """Whether nothing but arguments, and what every Python has, is asked."""
    own = {a.arg for a in (*getattr(arguments, "posonlyargs", ()), *arguments.args, *arguments.kwonlyargs)} - {"self"}
    asked = ids_in(test)
    return not asked.isdisjoint(own) and all(name in own or hasattr(builtins, name) for name in asked)


def _that_must_raise(block: list[ast.stmt]) -> Iterator[str]:
    for statement in block:
        if isinstance(statement, (ast.With, ast.AsyncWith)):
            if any(called(item.context_expr) in _RAISE for item in statement.items):
                yield from next((done for done in map(list, map(_done_by, reversed(statement.body))) if done), [])
        elif isinstance(statement, (ast.Expr, ast.Assign)):
            for call in walked(statement.value):  # raises(Error, function, *arguments), with a .match behind it
                if isinstance(call, ast.Call) and called(call) in _RAISE and len(call.args) > 1:
                    yield ast.dump(call.args[1])


def _done_by(statement: ast.stmt) -> Iterator[str]:
    """What a statement computes, without the name that it gets: the function that it calls, whatever for; or the
    whole of one that changes something.
    """
    value = getattr(statement, "value", None)
    if isinstance(statement, (ast.Expr, ast.Assign, ast.AnnAssign)) and not isinstance(value, _PLAIN):
        value = value.value if isinstance(value, ast.Await) else value
        if value is not None and called(value)[:1] != "@":  # a mark
            yield ast.dump(value.func if isinstance(value, ast.Call) else value)
    targets = [getattr(statement, "target", None), *getattr(statement, "targets", ())]
    if any(isinstance(target, (ast.Subscript, ast.Attribute)) for target in targets):
        yield ast.dump(statement)
