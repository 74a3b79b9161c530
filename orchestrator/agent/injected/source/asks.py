"""Programs of one line that only ask what there is: `python -c 'import torch; assert torch.cuda.is_available()'`.

They import what is not the commit's, and end by what an attribute of it says, or a call without arguments; one that
reads a file, or calculates something, is a check.
"""

from __future__ import annotations

import ast
from typing import Collection, Iterator

from ..files import COMMAND
from .syntax import called, parsed

_ENDS = ("exit", "SystemExit")
_ASKING = (*_ENDS, "hasattr", "int", "bool", "len", "print", "tuple", "find_spec")
_STATEMENTS = (ast.Import, ast.ImportFrom, ast.Assert, ast.Expr, ast.Raise)


def only_asks(program: bytes, names: Collection[str]) -> bool:
    """Whether the program does no more than that; `names` are those of the commit's modules."""
    module = parsed(COMMAND, program)
    if module is None:
        return False
    nodes = list(ast.walk(module))
    if not all(isinstance(statement, _STATEMENTS) for statement in module.body):
        return False
    if any(root in names for node in nodes for root in _imported(node)):
        return False
    return all(_asks(node) for node in nodes if isinstance(node, ast.Call)) and any(map(_decides, nodes))


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield (node.module or "").partition(".")[0]


def _asks(call: ast.Call) -> bool:
    return not (call.args or call.keywords) or called(call) in _ASKING


def _decides(node: ast.AST) -> bool:
    """Whether it ends the program by what it has been told, which a number is not."""
    if isinstance(node, ast.Assert):
        return True
    ends = isinstance(node, ast.Call) and called(node) in _ENDS
    return ends and not all(isinstance(argument, ast.Constant) for argument in node.args)  # type: ignore[attr-defined]
