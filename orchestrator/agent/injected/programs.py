"""What a program drops by which it would say that something is wrong: the exit code that its `main` returns, a
comparison that came out false, a tuple that is asserted, an exception that is made and not raised, an exit that is
named and not called.

Python gives nobody the code of its program before it runs that. But a path that has an importer of its own, as a zip
file has, it runs by that: so has the file of a program in which such a thing stands, and no other. What stands there is
no more than looked at where it is reached: most comparisons come out well.
"""

from __future__ import annotations

import builtins
import os
import sys

from .hooks import replace, tell
from .stage import test_around

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType
    from typing import Any, Callable

    from .ends import End
    from .inner import Inner
    from .stage import Notes

_MARKS = "@nsa_pod_program"
_SUSPICIOUS = (b"allclose(", b"gradcheck(", b"equal(", b"assert (", b"assert(")
_CODES = (b"-", *(b"%d" % digit for digit in range(1, 10)))


class Programs:
    """Of this process, if it runs a program of the tree."""

    def __init__(self, tree: str, inner: Inner, end: End, notes: Notes) -> None:
        self._tree, self._inner, self._end, self._notes = tree, inner, end, notes
        self._path = ""

    def start(self) -> None:
        """Before the program begins; in a folder that has gone, or of another Python, it begins as it is."""
        tell(self._look)

    def _look(self) -> None:
        words: list[str] = getattr(sys, "orig_argv", [])
        program = (getattr(sys, "argv", None) or [""])[0]
        if test_around() is not None:
            return
        if program == "-m" and "-m" in words:
            self._watch_module(words[words.index("-m") + 1])
        elif program.endswith(".py"):
            self._path = os.path.join(os.getcwd(), program)
            code = self._marked(self._path, is_script=True)
            if code is not None:
                sys.path_importer_cache[self._path] = _Importer(self._path, code)

    def _watch_module(self, module: str) -> None:
        from _frozen_importlib_external import SourceFileLoader  # as in `checks`

        def marking(get_code: Callable[..., Any]) -> Callable[..., Any]:
            def marked(loader: Any, name: str) -> Any:
                is_program = sys.argv[:1] == ["-m"] and name in (module, f"{module}.__main__")
                code = tell(self._marked, loader.path) if is_program else None
                return get_code(loader, name) if code is None else code

            return marked

        replace(SourceFileLoader, "get_code", marking)

    def _marked(self, path: str, *, is_script: bool = False) -> CodeType | None:
        """The code of a program with marks; None where nothing is to be looked at, or it cannot be read."""
        if not os.path.realpath(path).startswith(self._tree):
            return None
        try:
            with open(path, "rb") as f:
                source = f.read()
        except OSError:
            return None
        if sys.flags.optimize and b"assert " in source:
            self._notes.add(doubt=f"Python left the assertions of {os.path.basename(path)} out (-O)")
        if b"numba" in source or not _may_drop(source):  # as in `assertions`
            return None
        from .program_marks import marked

        setattr(builtins, _MARKS, self)
        return marked(path, source, _MARKS, begins=is_script)

    # --- what the marks call ---

    def begins(self, names: dict[str, Any]) -> None:
        """Have the program find what it does where it is run as it is, and not by an importer."""
        from _frozen_importlib_external import SourceFileLoader  # as above

        names.update(__spec__=None, __package__=None, __cached__=None)
        names["__loader__"] = SourceFileLoader("__main__", self._path)
        sys.path_importer_cache.pop(self._path, None)
        if self._path in sys.path:
            place = sys.path.index(self._path)
            safe = getattr(sys.flags, "safe_path", False)
            sys.path[place : place + 1] = [] if safe else [os.path.dirname(os.path.realpath(self._path))]

    def returns(self, status: Any) -> Any:
        """What `main` returned, in a statement that drops it."""
        if type(status) is int and status:
            self._end.ended_inside(status)
        return status

    def compares(self, value: Any, name: str, file: str, line: int) -> Any:
        """A comparison on which nothing depends."""
        try:
            if not (value.all() if hasattr(value, "all") else value):
                self._inner.note(name, 1, file, line, call=True)
        except Exception:  # it may be anything
            return value
        return value

    def asserts(self, value: Any, file: str, line: int) -> Any:
        """A tuple, which is always true."""
        self.compares(value[0], "an assertion of a tuple", file, line)
        return value

    def names(self, name: str, file: str, line: int) -> None:
        """What would have ended the program there."""
        self._inner.note(f"a check ({name} is named, and not called)", 1, file, line, call=True)

    def makes(self, value: Any, file: str, line: int) -> None:
        """What is raised nowhere."""
        if isinstance(value, BaseException):
            self._inner.note(f"a check ({type(value).__name__} is made, and not raised)", 1, file, line, call=True)


class _Importer:
    """Finds nothing but the program, of which it has the code."""

    def __init__(self, path: str, code: CodeType) -> None:
        self._path, self._code = path, code

    def find_spec(self, name: str, target: object = None) -> Any:
        if name != "__main__":
            return None
        from _frozen_importlib import ModuleSpec

        spec = ModuleSpec(name, self, origin=self._path)  # type: ignore[arg-type]
        spec.has_location = True
        return spec

    def create_module(self, spec: object) -> None:
        return None

    def exec_module(self, module: object) -> None:
        """Never: a program is not imported."""

    def get_code(self, name: str) -> CodeType:
        return self._code


def _may_drop(source: bytes) -> bool:
    """Whether it is worth to read, which takes longer than many a program: it holds a comparison, or an assertion in
    brackets, a line that begins with an exception or ends with `exit`, or a `return` that may be of another number
    than 0.
    """
    if any(word in source for word in _SUSPICIOUS):
        return True
    lines = [line.strip() for line in source.split(b"\n")]
    if any(line.endswith((b"exit", b"quit")) for line in lines):
        return True
    begins = (line.partition(b"(")[0] for line in lines)
    if any(name.endswith((b"Error", b"Exception")) and b" " not in name for name in begins):
        return True
    returned = [line.partition(b"return ")[2] for line in lines]
    return any(value[:1] in _CODES or b" else " in value for value in returned if value)
