"""Marks at limits to which a test holds a difference, and of which it makes no more than words, as in
`if err > 1e-3: print("WARN", err)`, or `if not allclose(a, b): bad.append(a)`, where `bad` is only printed.
"""

from __future__ import annotations

import ast  # this module is imported where a file may hold such a limit

from ..source.limits import held_to_limits, meant_to_fail, only_told
from ..source.statements import EXACT, compares, only_tells, told_in
from ..source.syntax import FUNCTIONS, called, walked, within
from ..source.uses import Program
from .nodes import constant, seen_by

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Iterator


def mark_limits(module: ast.Module, path: str) -> None:
    told = dict(_told(module))
    if told:
        _Marker(told, path).visit(module)


def _told(module: ast.Module) -> Iterator[tuple[ast.expr, bool]]:
    """Of each function by itself, for others may assert what is called as it is here."""
    program = None
    for function in _outermost(module):
        nodes = walked(function)
        asserted = {inner for node in nodes if isinstance(node, ast.Assert) for inner in walked(node)}
        held = {**dict(held_to_limits(nodes)), **dict.fromkeys(_decide_more(function, nodes), False)}
        if not held.keys() <= asserted:
            program = program or Program(module, list(ast.walk(module)))
            meant = set(meant_to_fail(nodes))
            yield from only_told(program, {node: bad for node, bad in held.items() if node not in meant})


def _decide_more(function: ast.AST, nodes: Iterable[ast.AST]) -> Iterator[ast.expr]:
    """What compares with a tolerance, and decides about more than words, for which `assertions` looks."""
    for node in nodes:
        compared = [n for n in walked(node.test) if compares(n)] if isinstance(node, ast.If) else []
        if compared and not only_tells(node, lambda: told_in(function)):  # type: ignore[arg-type]
            yield from (n for n in compared if called(n) not in EXACT)  # type: ignore[misc]


def _outermost(node: Any) -> Iterator[ast.AST]:
    for inner in within(node.body):
        if isinstance(inner, FUNCTIONS):
            yield inner
        elif isinstance(inner, ast.ClassDef):
            yield from _outermost(inner)


class _Marker(ast.NodeTransformer):
    def __init__(self, told: dict[ast.expr, bool], path: str) -> None:
        self._told, self._path = told, path

    def visit(self, node: ast.AST) -> Any:
        self.generic_visit(node)
        if not isinstance(node, ast.expr) or node not in self._told:
            return node
        return seen_by(node, "exceeds", constant(self._told[node]), constant(f"{self._path}:{node.lineno}"))
