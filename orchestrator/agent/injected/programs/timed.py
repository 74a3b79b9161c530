"""Whether anything is done between two reads of a clock, by the source of what reads it.

Nothing is what calls nothing there but `sleep` and the like, and calculates nothing: `fn` for `fn()`, a placeholder
that sleeps, `timeit("pass")`, a loop over `range(0)`, a function that only returns another, a generator that nobody
goes through, a cache of results that makes none meanwhile. What is not known here may well be something: an attribute
that is not found without running code, say.
"""

from __future__ import annotations

import ast
import builtins
import linecache
import sys
from itertools import repeat

from ..frames import STANDARD_LIBRARY, is_written_there
from ..source.syntax import called, walked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Callable, Iterable, Iterator

    Place = tuple[str, str, int]  # a function, whichever copy of it
    Read = Callable[[ast.AST], bool]  # whether it calls a clock

_UNKNOWN: Any = object()
_IDLE = ("sleep", "synchronize", "range", "repeat")
_WORK = (ast.MatMult, ast.Await, ast.Yield, ast.YieldFrom, ast.ListComp, ast.SetComp, ast.DictComp)
_PLAIN = (ast.expr_context, ast.Name, ast.Constant, ast.Expr, ast.Pass, ast.Assign, ast.Attribute, ast.operator)
_STATEMENTS = (*_PLAIN, ast.For)
# Of functions that do nothing but to give back what they have, or another function.
_INSTRUCTIONS = (
    "RESUME", "LOAD_FAST", "LOAD_CONST", "LOAD_SMALL_INT", "LOAD_GLOBAL", "LOAD_DEREF", "LOAD_CLOSURE", "MAKE_CELL",
    "COPY_FREE_VARS", "MAKE_FUNCTION", "SET_FUNCTION_ATTRIBUTE", "BUILD_TUPLE", "STORE_FAST", "POP_TOP", "PUSH_NULL",
    "NOP", "CACHE", "RETURN_VALUE", "RETURN_CONST",
)  # fmt: skip
_LAZY = 0x20 | 0x80 | 0x200  # generators, coroutines, and both: to call one runs nothing of it


class Spans:
    """What stands between the places where clocks are read; `clocks` are these, by their names and as they are."""

    def __init__(self, names: tuple[str, ...], clocks: Callable[[], set[int]]) -> None:
        self._names = names
        self._clocks = clocks
        self._last: tuple[Place, int] | None = None
        self._made: dict[str, tuple[int, int]] = {}  # what caches had made by then
        self._known: dict[tuple[Any, ...], bool] = {}  # by the span, and by what it may call

    def read_at(self, frame: FrameType) -> bool:
        """A clock is read there; whether anything was done since the last time."""
        code, line = frame.f_code, frame.f_lineno
        place = (code.co_filename, code.co_name, code.co_firstlineno)
        last, self._last = self._last, (place, line)
        before, self._made = self._made, _made_by_caches(frame)
        if last is None:
            return False
        if last[0] != place:
            return True
        if line < last[1]:  # the next turn of a loop
            return False
        idle = tuple(name for name, made in self._made.items() if before.get(name) == made)
        codes = frozenset(v.__code__ for v in frame.f_locals.values() if type(v) is type(_source))
        key = (place, last[1], line, idle, codes)
        if key not in self._known:
            self._known[key] = self._has_work(frame, last[1], idle)
        return self._known[key]

    def _has_work(self, frame: FrameType, begin: int, idle: Iterable[str]) -> bool:
        try:
            module = ast.parse(_source(frame))
        except (SyntaxError, ValueError, RecursionError):
            return True
        nodes = [n for n in walked(module) if begin <= _last_line(n) and getattr(n, "lineno", 0) <= frame.f_lineno]
        known = {**frame.f_globals, **frame.f_locals, **dict.fromkeys(idle, _gives_back)}
        unrun = {id(inner) for n in nodes if _goes_nowhere(n, known) for inner in walked(n)}
        nodes = [n for n in nodes if id(n) not in unrun]
        clocks = self._clocks()

        def is_read(node: ast.AST) -> bool:
            if not isinstance(node, ast.Call):
                return False
            if isinstance(node.func, ast.Name):
                return id(known.get(node.func.id)) in clocks
            return called(node) in self._names

        statements = [n for n in nodes if isinstance(n, ast.stmt)]
        return sum(map(is_read, nodes)) < 2 or any(_works(n, frame.f_lineno, is_read, known) for n in statements)


def _made_by_caches(frame: FrameType) -> dict[str, tuple[int, int]]:
    """How many results each cache (`functools`) has made until now, of those that the code has a name for."""
    code, made = frame.f_code, {}
    for name in (*code.co_names, *code.co_varnames, *code.co_freevars):
        value: Any = frame.f_locals.get(name, frame.f_globals.get(name))
        if type(value).__name__ == "_lru_cache_wrapper":
            made[name] = id(value), value.cache_info().misses
    return made


def _gives_back(*_: Any) -> None:
    """What a cache is that makes nothing."""


def _source(frame: FrameType) -> str:
    """Of the file that it is in, or of what timeit has made, which keeps it to itself."""
    timer = frame.f_back and frame.f_back.f_locals.get("self")
    if frame.f_code.co_filename == "<timeit-src>":
        return str(getattr(timer, "src", ""))
    return "".join(linecache.getlines(frame.f_code.co_filename, frame.f_globals))


def _last_line(node: Any) -> int:
    """On which it ends; of what holds other statements, on which it begins."""
    begin = getattr(node, "lineno", 0)
    is_simple = isinstance(node, ast.stmt) and not hasattr(node, "body")
    return (getattr(node, "end_lineno", None) or begin) if is_simple else begin


def _works(statement: ast.stmt, end: int, is_read: Read, known: dict[str, Any]) -> bool:
    """Whether it does something until the clock is read in the line `end`, but for what the statements inside it do."""
    nodes = list(_own(statement, known))
    reads = [_place(n) for n in nodes if is_read(n)]
    if reads:  # what is made of the time that it is now is done behind that
        around = [n for n in nodes if not any(map(is_read, walked(n)))]
        if _last_line(statement) >= end:
            around = [n for n in around if _place(n) < max(reads)]
        return any(_calls(n, known) or isinstance(n, _WORK) for n in around)
    if isinstance(statement, ast.For) and not (
        _idles(statement.iter, known) or isinstance(_found(statement.iter, known), (range, repeat))
    ):
        return True
    return any(_calls(n, known) or not isinstance(n, (*_STATEMENTS, ast.Call)) or _computes(n, known) for n in nodes)


def _goes_nowhere(node: ast.AST, known: dict[str, Any]) -> bool:
    """Whether it is a loop over a `range` of nothing."""
    if not isinstance(node, ast.For) or called(node.iter) != "range":
        return False
    arguments: list[Any] = node.iter.args  # type: ignore[attr-defined]
    found: list[Any] = [a.value if isinstance(a, ast.Constant) else _found(a, known) for a in arguments]
    return all(isinstance(each, int) for each in found) and not range(*found)


def _place(node: Any) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def _calls(node: ast.AST, known: dict[str, Any]) -> bool:
    return isinstance(node, ast.Call) and not (_idles(node, known) or _does_nothing(_found(node.func, known)))


def _does_nothing(function: Any) -> bool:
    """Whether to call it does; what it returns may be called, or gone through, by whoever has called it."""
    import dis

    function = getattr(function, "__func__", function)
    if type(function) is not type(_does_nothing):  # what is compiled may show code, too, that is none
        return False
    code = function.__code__
    names = (i.opname for i in dis.get_instructions(code))
    return bool(code.co_flags & _LAZY) or all(name.startswith(_INSTRUCTIONS) for name in names)


def _idles(node: ast.AST, known: dict[str, Any]) -> bool:
    """Whether it calls one of those that do nothing, and none that the stage's own code has by such a name."""
    if not isinstance(node, ast.Call) or called(node) not in _IDLE:
        return False
    module = sys.modules.get(getattr(_found(node.func, known), "__module__", None) or "")
    file = getattr(module, "__file__", None) or STANDARD_LIBRARY
    return not is_written_there(file)


def _computes(node: ast.AST, known: dict[str, Any]) -> bool:
    """Whether it is an attribute that may be made by whoever asks for it: a property, or what `__getattr__` gives."""
    if not isinstance(node, ast.Attribute):
        return False
    of_kind = _attribute(type(_found(node.value, known)), node.attr)  # one that is cached lies in front of it
    return _found(node, known) is _UNKNOWN or (hasattr(type(of_kind), "__get__") and not _is_method(of_kind))


def _is_method(found: Any) -> bool:
    """Or a slot, which is computed no more than one."""
    from inspect import ismemberdescriptor

    return callable(found) or isinstance(found, (staticmethod, classmethod)) or ismemberdescriptor(found)


def _attribute(holder: Any, name: str) -> Any:
    from inspect import getattr_static

    return getattr_static(holder, name, _UNKNOWN)


def _found(node: ast.expr, known: dict[str, Any]) -> Any:
    """What a name, dotted or not, stands for, without running code for it."""
    if isinstance(node, ast.Name):
        return known.get(node.id, getattr(builtins, node.id, _UNKNOWN))
    holder = _found(node.value, known) if isinstance(node, ast.Attribute) else _UNKNOWN
    return _UNKNOWN if holder is _UNKNOWN else _attribute(holder, node.attr)  # type: ignore[attr-defined]


def _own(node: ast.AST, known: dict[str, Any]) -> Iterator[ast.AST]:
    """What is in a statement, but for others, for how long it sleeps, or how often it goes round, and by which
    name it is called.
    """
    yield node
    idles = _idles(node, known)
    for inner in ast.iter_child_nodes(node):
        if not (isinstance(inner, ast.stmt) or (idles and (_is_number(inner) or inner is node.func))):  # type: ignore[attr-defined]
            yield from _own(inner, known)


def _is_number(node: ast.AST) -> bool:
    return all(isinstance(n, (*_PLAIN, ast.BinOp)) and not isinstance(n, ast.MatMult) for n in walked(node))
