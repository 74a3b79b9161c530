"""A program whose `main` returns an exit code that nobody passes on: whatever it finds, it ends with 0."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Iterator, Optional, Sequence

_PYTHON = re.compile(r"(?:.*/)?(?:python|pypy)[\d.]*")
_ALONE = re.compile(r"-[^mcWX]*")
"""Options of Python that take no value."""


def main_that_drops(argv: Sequence[str], cwd: Path) -> Optional[str]:
    """`main() of check.py`, if that is what a Python command runs; None of what cannot be read."""
    file = _program(argv) if argv and _PYTHON.fullmatch(argv[0]) else None
    if file is None:
        return None
    try:
        module = ast.parse((cwd / file).read_bytes(), file)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None
    functions = {node.name: node for node in module.body if isinstance(node, ast.FunctionDef)}
    for name in _called_last(module):
        if name in functions and not functions[name].decorator_list and _returns_codes(functions[name]):
            return f"{name}() of {file}"
    return None


def _program(argv: Sequence[str]) -> Optional[str]:
    """The file that it is started with, as a script or a module."""
    words = list(argv[1:])
    while words and _ALONE.fullmatch(words[0]):
        del words[0]
    if words[:1] == ["-m"] and len(words) > 1:
        return f"{words[1].replace('.', '/')}.py"
    return words[0] if words and words[0].endswith(".py") else None


def _called_last(module: ast.Module) -> Iterator[str]:
    """The function for which the program is there, called by a statement of its own: `main`, last, or a guard's any."""
    last = module.body[-1] if module.body else None
    is_guard = isinstance(last, ast.If) and any(
        isinstance(n, ast.Name) and n.id == "__name__" for n in ast.walk(last.test)
    )
    node = last.body[-1] if is_guard and isinstance(last, ast.If) else last
    call = node.value if isinstance(node, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and (is_guard or call.func.id == "main"):
        yield call.func.id


def _returns_codes(function: ast.FunctionDef) -> bool:
    """Whether it returns whole numbers, or nothing, and not always the same: of a `main`, not always 0."""
    values = [value for node in _returns(function.body) if node.value for value in _values(node.value)]
    codes = [value.value for value in values if isinstance(value, ast.Constant)]
    whole = len(codes) == len(values) and all(type(code) is int for code in codes)
    return whole and any(codes) and (0 in codes or function.name == "main")


def _returns(body: Sequence[ast.AST]) -> Iterator[ast.Return]:
    for node in body:
        if isinstance(node, ast.Return):
            yield node
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            yield from _returns(list(ast.iter_child_nodes(node)))


def _values(node: ast.expr) -> Iterator[ast.expr]:
    """What a returned expression may come to."""
    if isinstance(node, ast.IfExp):
        yield from _values(node.body)
        yield from _values(node.orelse)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield node.operand
    else:
        yield node
