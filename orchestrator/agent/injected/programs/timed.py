"""Whether anything is done between two reads of a clock, by the source of what reads it.

Nothing is what calls nothing there but `sleep` and the like, and calculates nothing: `fn` for `fn()`, a placeholder
that sleeps, `timeit("pass")`. What is not known here may well be something.
"""

from __future__ import annotations

import ast
import linecache
from itertools import repeat

from ..source.syntax import called, walked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Callable, Iterator

    Place = tuple[str, str, int]  # a function, whichever copy of it
    Read = Callable[[ast.AST], bool]  # whether it calls a clock

_IDLE = ("sleep", "synchronize", "range", "repeat")
_PLAIN = (ast.expr_context, ast.Name, ast.Constant, ast.Expr, ast.Pass, ast.Assign, ast.Attribute, ast.operator)
_STATEMENTS = (*_PLAIN, ast.For)


class Spans:
    """What stands between the places where clocks are read; `clocks` are these, by their names and as they are."""

    def __init__(self, names: tuple[str, ...], clocks: Callable[[], set[int]]) -> None:
        self._names = names
        self._clocks = clocks
        self._last: tuple[Place, int] | None = None
        self._known: dict[tuple[Place, int, int], bool] = {}

    def read_at(self, frame: FrameType) -> bool:
        """A clock is read there; whether anything was done since the last time."""
        code, line = frame.f_code, frame.f_lineno
        place = (code.co_filename, code.co_name, code.co_firstlineno)
        last, self._last = self._last, (place, line)
        if last is None:
            return False
        if last[0] != place:
            return True
        if line < last[1]:  # the next turn of a loop
            return False
        key = (place, last[1], line)
        if key not in self._known:
            self._known[key] = self._has_work(frame, last[1])
        return self._known[key]

    def _has_work(self, frame: FrameType, begin: int) -> bool:
        try:
            module = ast.parse(_source(frame))
        except (SyntaxError, ValueError, RecursionError):
            return True
        nodes = [n for n in walked(module) if begin <= getattr(n, "lineno", 0) <= frame.f_lineno]
        known = {**frame.f_globals, **frame.f_locals}
        clocks = self._clocks()

        def is_read(node: ast.AST) -> bool:
            if not isinstance(node, ast.Call):
                return False
            if isinstance(node.func, ast.Name):
                return id(known.get(node.func.id)) in clocks
            return called(node) in self._names

        return sum(map(is_read, nodes)) < 2 or any(_works(n, is_read, known) for n in nodes if isinstance(n, ast.stmt))


def _source(frame: FrameType) -> str:
    """Of the file that it is in, or of what timeit has made, which keeps it to itself."""
    timer = frame.f_back and frame.f_back.f_locals.get("self")
    if frame.f_code.co_filename == "<timeit-src>":
        return str(getattr(timer, "src", ""))
    return "".join(linecache.getlines(frame.f_code.co_filename, frame.f_globals))


def _works(statement: ast.stmt, is_read: Read, known: dict[str, Any]) -> bool:
    """Whether it does something, but for what the statements inside it do."""
    nodes = list(_own(statement))
    if any(map(is_read, nodes)):  # what is made of the time that it is now is done behind that
        return any(_calls(node) for node in nodes if not any(map(is_read, walked(node))))
    if isinstance(statement, ast.For) and not (
        called(statement.iter) in _IDLE or isinstance(known.get(getattr(statement.iter, "id", "")), (range, repeat))
    ):
        return True
    return any(_calls(node) or not isinstance(node, (*_STATEMENTS, ast.Call)) for node in nodes)


def _calls(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and called(node) not in _IDLE


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """What is in a statement, but for others, and for how long it sleeps, or how often it goes round."""
    yield node
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, ast.stmt) or (isinstance(node, ast.Call) and not _calls(node) and _is_number(inner)):
            continue
        yield from _own(inner)


def _is_number(node: ast.AST) -> bool:
    return all(isinstance(n, (*_PLAIN, ast.BinOp)) and not isinstance(n, ast.MatMult) for n in walked(node))
