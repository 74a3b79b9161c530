"""The text of a module: where its code is in it, what stands around what, and whose variable a name is."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, Callable, Iterator, Sequence

from .places import place_of
from .syntax import FUNCTIONS, LOOPS, called, first_line, name_of, within

if TYPE_CHECKING:
    from types import FrameType

_BY_TEXT = frozenset(
    ("vars", "getattr", "setattr", "attrgetter", "asdict", "astuple", "__dict__", "model_dump", "pickle")
)


class Text:
    """Of the program itself (`is_main`) nobody else has the objects."""

    def __init__(self, module: ast.Module, nodes: Sequence[ast.AST], *, is_main: bool = False) -> None:
        """`nodes` are all of the module's."""
        self.module = module
        self.nodes = nodes
        self.is_main = is_main
        self._named: dict[str, list[ast.Name | ast.Attribute]] = {}
        for node in nodes:
            if isinstance(node, (ast.Name, ast.Attribute)):
                self._named.setdefault(name_of(node), []).append(node)
        self.names_attributes = _BY_TEXT.isdisjoint(self._named)
        """Whether all that is read of objects stands there by its name."""
        self._above = {below: node for node in nodes for below in ast.iter_child_nodes(node)}

    def at(self, frame: FrameType) -> ast.stmt | None:
        """The innermost statement around the place where `frame` is; None if there are several in its line."""
        place = place_of(frame)
        line, column = (frame.f_lineno, None) if place is None else place[:2]
        around = [s for s in self.nodes if isinstance(s, ast.stmt) and _holds(s, line, column)]
        found = max(around, key=lambda s: (s.lineno, s.col_offset), default=None)
        beside = [s for s in around if s.lineno == line and not hasattr(s, "body")]
        return None if column is None and len(beside) > 1 else found

    def function_at(self, line: int) -> Any:
        """The one that begins there, decorators and all."""
        return next((n for n in self.nodes if isinstance(n, FUNCTIONS) and first_line(n) == line), None)

    def expression(self, frame: FrameType) -> ast.expr | None:
        """What `frame` computes, where that is known."""
        place = place_of(frame)
        expressions = (node for node in self.nodes if isinstance(node, ast.expr))
        return next((e for e in expressions if (e.lineno, e.col_offset, e.end_lineno, e.end_col_offset) == place), None)

    def handler(
        self, place: ast.AST | None, kinds: set[str], drops: Callable[[ast.expr], bool]
    ) -> Sequence[ast.stmt] | None:
        """What runs where an exception that comes up to a `place` is caught; None where it is not, in its function.
        What a `with` is of may well have it dropped, too.
        """
        for node, above in self.around(place):
            if isinstance(above, (ast.With, ast.AsyncWith)) and node in above.body:
                for manager in (item.context_expr for item in above.items):
                    suppresses = isinstance(manager, ast.Call) and called(manager) == "suppress"
                    if (suppresses and kinds & set(map(name_of, manager.args))) or drops(manager):  # type: ignore[attr-defined]
                        return ()
            if isinstance(above, ast.Try) and node in above.body:
                for handler in above.handlers:
                    if handler.type is None or kinds & set(names_of(handler.type)):
                        return handler.body
            if isinstance(above, ast.Try) and node not in above.finalbody:
                leaving = list(_leaving(above.finalbody))
                if leaving:  # it goes no further, and what the body has set may tell of it
                    told = {name for s in above.body for name in names_of(s)}
                    return () if all(told.isdisjoint(names_of(s)) for s in leaving) else above.finalbody
        return None

    def is_in_finally(self, frame: FrameType) -> bool:
        around = self.around(self.at(frame))
        return any(isinstance(above, ast.Try) and node in above.finalbody for node, above in around)

    def around(self, node: ast.AST | None) -> Iterator[tuple[ast.AST, ast.AST]]:
        """It, and each node that it stands in within its function, with the node around that."""
        while node in self._above and not isinstance(node, FUNCTIONS):
            yield node, self._above[node]
            node = self._above[node]

    def rest_of_function(self, statement: ast.stmt) -> Iterator[ast.stmt]:
        """What comes behind a statement in its block, and behind those around it."""
        for node, _ in self.around(statement):
            if isinstance(node, ast.stmt) and not isinstance(node, FUNCTIONS):
                block = self.block_of(node)
                yield from block[block.index(node) + 1 :]

    def block_of(self, statement: ast.stmt) -> list[ast.stmt]:
        above = self._above[statement]
        blocks = (getattr(above, name, []) for name in ("body", "orelse", "finalbody"))
        return next((block for block in blocks if statement in block), [statement])

    def reads_of(self, name: str, scope: ast.AST, kind: type[ast.Name | ast.Attribute]) -> list[ast.expr]:
        """Where a variable of `scope`, or an attribute, is read."""
        read = (n for n in self._named.get(name, ()) if isinstance(n, kind) and isinstance(n.ctx, ast.Load))
        if kind is ast.Attribute:
            return list(read)
        return [n for n in read if scope is self.scope_of(name, n) and not self._is_bound_in(n)]

    def _is_bound_in(self, name: ast.AST) -> bool:
        """Whether a name is one of a comprehension, or of a lambda, around it."""
        for _, above in self.around(name):
            bound = [g.target for g in getattr(above, "generators", ())]
            own = _parameters(above) if isinstance(above, ast.Lambda) else set()
            if name_of(name) in own.union(n.id for t in bound for n in ast.walk(t) if isinstance(n, ast.Name)):
                return True
        return False

    def holder_of(self, node: ast.AST) -> ast.AST:
        return self._above[node]

    def statement(self, node: ast.AST) -> ast.stmt:
        while not isinstance(node, ast.stmt):
            node = self._above[node]
        return node

    def function_of(self, node: ast.AST) -> ast.AST | None:
        return next((above for _, above in self.around(node) if isinstance(above, FUNCTIONS)), None)

    def scope_of(self, name: str, place: ast.AST) -> ast.AST:
        """The function whose variable a name is, or the module."""
        function = self.function_of(place)
        while function is not None and not _binds(function, name):
            above = self._above[function]
            function = above if isinstance(above, FUNCTIONS) else self.function_of(above)
        return function or self.module

    def is_of_others(self, name: str, scope: ast.AST, place: ast.AST, *, is_filled: bool) -> bool:
        """Whether a function's caller has the object too that `place` has `filled`, or other modules the name."""
        if scope is self.module:
            return not self.is_main and self.function_of(place) is not None
        return is_filled and name in _parameters(scope)


def _leaving(block: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that leave a block for another place, whatever was raised."""
    inside = within(block)
    loops = any(isinstance(s, LOOPS) for s in inside)
    return (s for s in inside if isinstance(s, ast.Return if loops else (ast.Return, ast.Break, ast.Continue)))


def _holds(statement: ast.stmt, line: int, column: int | None) -> bool:
    end = statement.end_lineno or 0, statement.end_col_offset or 0
    if column is None:
        return statement.lineno <= line <= end[0]
    return (statement.lineno, statement.col_offset) <= (line, column) < end


def _binds(function: Any, name: str) -> bool:
    inside = within(function.body)
    if any(isinstance(n, (ast.Global, ast.Nonlocal)) and name in n.names for n in inside):
        return False
    sets = (n for n in inside if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    return name in _parameters(function) or any(n.id == name for n in sets)


def _parameters(function: Any) -> set[str]:
    return {n.arg for n in ast.walk(function.args) if isinstance(n, ast.arg)}


def names_of(node: ast.AST) -> Iterator[str]:
    return filter(None, map(name_of, ast.walk(node)))
