"""Where an exception that comes up to a frame is caught, and whether anything depends on it there."""

from __future__ import annotations

import ast  # as in `uses`
from typing import TYPE_CHECKING, Any, Iterable

from ..frames import is_of, is_written_there, local
from .syntax import within
from .text import names_of
from .uses import PASSES, program_in, program_of

if TYPE_CHECKING:
    from types import CodeType, FrameType


def drops_error(frame: FrameType | None, kinds: Iterable[str]) -> bool:
    """Whether an exception of these kinds, which comes up to `frame`, is caught where nothing depends on it."""
    kinds = set(kinds)
    while frame is not None:
        program = program_of(frame)
        if program is not None:
            handler = program.handler(program.at(frame), kinds, _Managers(frame, kinds).drop)
            if handler is not None:
                return not program.reacts(handler, set())
        elif not is_of(frame, *PASSES):
            return False
        frame = frame.f_back
    return False


class _Managers:
    """What the `with` statements of a frame are of, for exceptions of these kinds."""

    def __init__(self, frame: FrameType, kinds: set[str]) -> None:
        self._frame = frame
        self._kinds = kinds

    def drop(self, manager: ast.expr) -> bool:
        """Whether one lets such an exception go no further, and makes no more of it than words; none of a library."""
        code = self._left_by(manager.func if isinstance(manager, ast.Call) else manager)
        program = program_in(code.co_filename) if code is not None and is_written_there(code.co_filename) else None
        function = program.function_at(code.co_firstlineno) if program is not None and code is not None else None
        if program is None or function is None:
            return False
        given = next((s for s in within(function.body) if isinstance(getattr(s, "value", s), ast.Yield)), None)
        if given is None:
            return self._keeps(function) and not program.reacts(function.body, {f"{function.name}()"})
        handler = program.handler(given, self._kinds, lambda inner: False)
        return handler is not None and not program.reacts(handler, set())

    def _keeps(self, leaves: Any) -> bool:
        """Whether an `__exit__` may say that it has dealt with an exception of the kinds."""
        says = [s for s in within(leaves.body) if isinstance(s, ast.Return) and getattr(s.value, "value", True)]
        always = any(s in leaves.body and getattr(s.value, "value", None) is True for s in says)
        return always or (bool(says) and not self._kinds.isdisjoint(names_of(leaves)))

    def _left_by(self, manager: ast.expr) -> CodeType | None:
        """The code of the method by which it is left, or of the generator that contextlib has made it of."""
        found = self._value(manager)
        made_of = getattr(found, "__wrapped__", None)
        kind = found if isinstance(found, type) else type(found)
        return getattr(made_of or getattr(kind, "__exit__", None), "__code__", None)

    def _value(self, name: ast.expr) -> object:
        if isinstance(name, ast.Attribute):
            owner = self._value(name.value)
            return vars(owner).get(name.attr) if isinstance(owner, (type, type(ast))) else None
        root = getattr(name, "id", "")
        return local(self._frame, root, self._frame.f_globals.get(root))
