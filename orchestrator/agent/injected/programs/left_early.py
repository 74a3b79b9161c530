"""Where a program is left with success before its own assertions, and has done no more than to say why:
`if not torch.cuda.is_available(): print("no GPU"); return`; or, whatever happens, before the first of them.
"""

from __future__ import annotations

import ast

from ..source.statements import checks
from ..source.syntax import BLOCKS, FUNCTIONS, LOOPS, SCOPES, called, name_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator, List, Tuple

    from ..source.uses import Program

    Leave = Tuple[List[ast.stmt], ast.stmt]  # a block, and the statement of it by which the program is left

_EXITS = ("exit", "quit", "_exit", "SystemExit")
_CHOICES = (ast.If, ast.ExceptHandler, *(getattr(ast, name) for name in ("Match",) if hasattr(ast, name)))


def left_early(module: ast.Module, program: Program) -> Iterator[Leave]:
    """In the module itself, and in the functions for which it is there: those that it calls where it is executed."""
    names = {name_of(call.func) for call in _calls(module.body)}
    functions = [node for node in module.body if isinstance(node, FUNCTIONS) and node.name in names]
    for body in (module.body, *(function.body for function in functions)):
        for block, leave in _before_assertions(body, False):
            if not program.reacts(block[: block.index(leave)], set()):
                yield block, leave
        yield from ((body, leave) for leave in _at_once(body, program))


def _calls(block: list[ast.stmt]) -> Iterator[ast.Call]:
    """Those in statements of their own, as `sys.exit(main())`; in a loop a function is called for a case."""
    for statement in block:
        if isinstance(statement, (ast.Expr, ast.Raise)):
            yield from (node for node in ast.walk(statement) if isinstance(node, ast.Call))
        elif not isinstance(statement, (*SCOPES, *LOOPS)):
            yield from (c for name in BLOCKS for c in _calls(getattr(statement, name, None) or []))


def _before_assertions(block: list[ast.stmt], follow: bool, *, chosen: bool = False) -> Iterator[Leave]:
    """The statements of a block, and of those in it, by which it is left where it would have come to an assertion;
    `follow` says that some follow it, `chosen` that it is one branch of several.
    """
    for statement in reversed(block):
        if isinstance(statement, SCOPES):
            continue
        if follow and chosen and _leaves(statement):
            yield block, statement
        for holder in (statement, *getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
            inside = chosen or isinstance(holder, _CHOICES)
            for inner in (getattr(holder, name, None) for name in BLOCKS):
                if isinstance(inner, list):
                    yield from _before_assertions(inner, follow, chosen=inside)
        follow = follow or _asserts(statement)


def _at_once(body: list[ast.stmt], program: Program) -> Iterator[ast.stmt]:
    """The way out, if any, that stands before all of a body's assertions, and before what may hold others."""
    leaves = next((statement for statement in body if _leaves(statement)), None)
    place = len(body) if leaves is None else body.index(leaves)
    begins, rest = body[:place], body[place + 1 :]
    does_more = any(_asserts(s) or isinstance(s, LOOPS) for s in begins) or not all(map(program.says, _calls(begins)))
    if leaves is not None and not does_more and any(map(_asserts, rest)):
        yield leaves


def _asserts(statement: ast.stmt) -> bool:
    """Whether it comes to an assertion in any case; `assert False` says that nobody comes there."""
    if isinstance(statement, ast.Assert):
        return not isinstance(statement.test, ast.Constant)
    if isinstance(statement, ast.Expr):
        return checks(statement)
    held = [] if isinstance(statement, (ast.If, *SCOPES)) else getattr(statement, "body", [])
    return any(map(_asserts, held))


def _leaves(statement: ast.stmt) -> bool:
    """Whether it ends its function with nothing, or the program with success."""
    if isinstance(statement, ast.Return):
        return getattr(statement.value, "value", statement.value) in (None, 0)
    value = statement.exc if isinstance(statement, ast.Raise) else getattr(statement, "value", None)
    if not isinstance(statement, (ast.Raise, ast.Expr)) or value is None:
        return False
    status = value.args[:1] if isinstance(value, ast.Call) else []
    is_exit = (called(value) if isinstance(value, ast.Call) else name_of(value)) in _EXITS
    is_left = isinstance(value, ast.Call) or isinstance(statement, ast.Raise)
    return is_exit and is_left and all(getattr(code, "value", 1) in (None, 0) for code in status)
