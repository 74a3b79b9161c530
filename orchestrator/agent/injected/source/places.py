"""Where in the text the instruction stands that a frame has come to.

Before Python 3.11 code says no more than lines: there the text is compiled once more with the numbers of its nodes for
lines, and the same instruction is looked up in that.
"""

from __future__ import annotations

import sys
from itertools import islice
from typing import TYPE_CHECKING, Any, Iterator, NamedTuple

from ..frames import codes_in
from .syntax import parsed

if TYPE_CHECKING:
    import ast
    from types import CodeType, FrameType


class Place(NamedTuple):
    """Of a node, as `ast` has it."""

    line: int
    column: int
    end: int
    end_column: int


_NAMED = sys.version_info >= (3, 11)
_marked: dict[str, list[ast.Module]] = {}
_numbered: dict[str, list[_Numbered]] = {}
# What the compiler leaves out, or writes twice, depending on the lines that stand beside.
_BY_LINES = frozenset(("NOP", "EXTENDED_ARG", "LOAD_CONST", "POP_TOP", "RETURN_VALUE", "RERAISE"))


def place_of(frame: FrameType) -> Place | None:
    """None where that is not known."""
    if _NAMED:
        positions = frame.f_code.co_positions()  # type: ignore[attr-defined]
        line, end, column, end_column = next(islice(positions, frame.f_lasti // 2, None))
        known = None not in (line, end, column, end_column)
        return Place(line, column, end, end_column) if known else None
    file, steps = frame.f_code.co_filename, list(_steps(frame.f_code))
    here = next((n for n, (offset, _) in enumerate(steps) if offset == frame.f_lasti), None)
    if here is None:
        return None
    if file not in _numbered:
        modules = [*_marked.get(file, ()), parsed(file)]
        _numbered[file] = [_Numbered(module, file) for module in modules if module is not None]
    found = {place for numbered in _numbered[file] for place in numbered.places(frame.f_code, steps, here)}
    return found.pop() if len(found) == 1 else None


def compiled(module: ast.Module, file: str, flags: int = 0) -> CodeType:
    """The code of a text with marks, of which places are asked."""
    if not _NAMED:
        _marked.setdefault(file, []).append(module)
        _numbered.pop(file, None)
    code: CodeType = compile(module, file, "exec", flags, dont_inherit=True)
    return code


class _Numbered:
    """A text compiled with the numbers of its nodes for lines."""

    def __init__(self, module: ast.Module, file: str) -> None:
        import ast
        from copy import deepcopy

        self._places: list[Place] = []
        self._codes: list[CodeType] = []
        try:
            copied = deepcopy(module)
            nodes: list[Any] = [node for node in ast.walk(copied) if hasattr(node, "lineno")]
            for node in nodes:
                self._places.append(Place(node.lineno, node.col_offset, node.end_lineno, node.end_col_offset))
                node.lineno = node.end_lineno = len(self._places)
            for node in nodes:
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                    node.func.end_lineno = node.lineno  # where Python 3.10 has the call of a method stand
            self._codes = codes_in(compile(copied, file, "exec", dont_inherit=True))
        except (SyntaxError, ValueError, RecursionError):
            pass

    def places(self, code: CodeType, steps: list[tuple[int, object]], here: int) -> Iterator[Place]:
        """Where the step `here` of `code` may stand: in each part of the text that is compiled to the same steps."""
        import dis

        wanted = [what for _, what in steps]
        for twin in self._codes:
            if twin.co_name == code.co_name and self._line(twin) in (code.co_firstlineno, None):
                its = list(_steps(twin))
                if [what for _, what in its] == wanted:
                    starts = [line for offset, line in dis.findlinestarts(twin) if offset <= its[here][0]]
                    yield self._places[starts[-1] - 1]

    def _line(self, twin: CodeType) -> int | None:
        """In which line of the text it begins; None of the whole."""
        return None if twin is self._codes[0] else self._places[twin.co_firstlineno - 1].line


def _steps(code: CodeType) -> Iterator[tuple[int, object]]:
    """Offsets of the instructions that do not depend on lines, and what they do."""
    import dis

    jumps = {*dis.hasjrel, *dis.hasjabs}
    for step in dis.get_instructions(code):
        if step.opcode not in jumps and step.opname not in _BY_LINES:
            yield step.offset, (step.opcode, step.argrepr if step.opcode in dis.hasname else step.arg)
