"""What a program drops by which it would say that something is wrong: the exit code that its `main` returns, a
comparison that came out false, an assertion that failed, a tuple that is asserted, an exception that is made and not
raised, an exit that is named and not called.

Python gives nobody the code of its program before it runs that. But a path that has an importer of its own, as a zip
file has, it runs by that: so has the file of a program in which such a thing stands, and no other. A program that comes
in no file is run by `unfiled`. What stands there is no more than looked at where it is reached: most comparisons come
out well.
"""

from __future__ import annotations

import builtins
import os
import sys

from ..checks.comparisons import EXCEEDED, exceeds, is_false
from ..files import COMMAND, is_pipe, may_hold_limits, read, title, unfiled
from ..frames import INSTALLED, assertion_in, is_of, raised_at
from ..hooks import compile_by, tell, watch
from ..processes.inner import is_checking
from ..stage import runs_pytest, test_around
from .unfiled import run_by

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ast
    from types import CodeType, ModuleType, TracebackType
    from typing import Any, Callable, Iterator

    from ..processes.ends import End
    from ..processes.inner import Inner
    from ..stage import Notes

_MARKS = "@nsa_pod_program"
_ONLY_SYNTAX = 0x400  # the flag of `compile`, as `ast` has it
_OF_FUTURE = 0x1FE0000  # flags of code, as `__future__` has them
_SUSPICIOUS = (
    b"standalone_mode", b"exec(", b"'exec'", b'"exec"', b"allclose(", b"gradcheck(", b"equal(", b"assert (", b"assert(",
)  # fmt: skip
_ASSERTING = (b"assert ", b"assert(")
# Perhaps of a module that asserts.
_IMPORTING = (b"    import ", b"    from ", b"\timport ", b"\tfrom ", b"import_module(")
_CATCHING_ALL = (b"except:", b"except Exception", b"BaseException")
_CATCHING = (*_CATCHING_ALL, b"except*", b"AssertionError", b"with ")
# By which Python says that code cannot be right; what a device or a version lacks is said by others too.
_MISTAKES = (TypeError, NameError, UnboundLocalError, AttributeError)
_CAUGHT = "an AssertionError was caught, and nothing depends on it"
_TIMES = (b"perf_counter", b"monotonic", b"time.time", b"elapsed_time", b"do_bench", b"timeit", b"Timer")
_BEGINNING = (b"#", b"assert ", b"if ", b"elif ", b"while ", b"return ", b"and ", b"or ", b"print(")
_CODES = (b"-", *(b"%d" % digit for digit in range(1, 10)))


class Programs:
    """Of this process, if it runs a program of the tree."""

    def __init__(self, tree: str, inner: Inner, end: End, notes: Notes, helps: Callable[[str], bool]) -> None:
        """Files of tests, and what `helps` them, have marks of their own."""
        self._tree, self._inner, self._end, self._notes, self._helps = tree, inner, end, notes, helps
        self._path = ""
        self._is_read = False  # whether the program is one to look at
        self.after_import: dict[str, Callable[[ModuleType], None]] = {"runpy": self._watch_runpy}
        self._doubts: set[str] = set()
        self._out: tuple[str, int] | None = None  # the `with` out of which an assertion's failure is on its way

    def start(self) -> None:
        """Before the program begins; in a folder that has gone, or of another Python, it begins as it is."""
        tell(self._look)

    def _look(self) -> None:
        words: list[str] = getattr(sys, "orig_argv", [])
        program = (getattr(sys, "argv", None) or [""])[0]
        if test_around() is not None:
            return
        compile_by(lambda loader, name: tell(self._part, os.path.abspath(loader.path), loader.path))
        if program == "-m" and "-m" in words:
            module = words[words.index("-m") + 1]
            self._watch_module(program, module, f"{module}.__main__")
        elif os.path.isdir(program):
            self._watch_module(program, "__main__")
        elif program in ("-c", "-", "") or is_pipe(program):
            run_by(self._marked)
        elif os.path.isfile(program):  # whatever its name: of an archive nothing can be read
            # As Python names it.
            self._path = program if sys.version_info < (3, 9) else os.path.join(os.getcwd(), program)
            code = self._marked(self._path, is_script=True)
            if code is not None:
                sys.path_importer_cache[self._path] = _Importer(self._path, code)

    def _watch_module(self, program: str, *modules: str) -> None:
        """The first of these that is imported while Python still has the name of the program for what it was given."""

        def marked(loader: Any, name: str) -> Any:
            is_program = sys.argv[:1] == [program] and name in modules
            return tell(self._marked, loader.path) if is_program else None

        compile_by(marked)

    def _marked(self, path: str, *, is_script: bool = False) -> CodeType | None:
        """The code of a program with marks; None where nothing is to be looked at, or it cannot be read."""
        if not self._is_own(path):
            return None
        self._is_read = True
        source = read(path)
        if sys.flags.optimize and any(word in source for word in _ASSERTING) and self._asserts(path, source):
            self._notes.add(doubt=f"Python left the assertions of {_called(path)} out (-O)")
        if not _may_drop(source):
            return None
        from ..source.syntax import parsed
        from .marked import imports_numba, marked

        module = parsed(path, source)
        if module is None:
            return None
        if b"numba" in source and imports_numba(module):
            self._notes.add(doubt=f"what {_called(path)} drops is not seen, for it imports numba")
            return None
        code = marked(module, path, source, _MARKS, begins=is_script)
        if code is not None:
            setattr(builtins, _MARKS, self)
        return code

    def _watch_runpy(self, runpy: Any) -> None:
        """What `run_path` compiles."""

        def compiled(source: Any, path: str, mode: str) -> Any:
            return tell(self._part, os.path.realpath(path), path) or compile(source, path, mode, dont_inherit=True)

        runpy.compile = compiled

    def _part(self, path: str, name: str) -> CodeType | None:
        """The same of a file of the tree that the program imports, or runs in itself, where it has this `name`."""
        if not (self._is_read and path.startswith(self._tree)) or runs_pytest():
            return None
        inside = path[len(self._tree) :]
        is_other = self._helps(path) or any(site in inside for site in INSTALLED)
        source = b"" if is_other else read(path)
        module = self._with_statements(path, source, source)
        return None if module is None else _code_of(module, name)

    def _with_statements(self, path: str, source: bytes, text: str | bytes) -> ast.Module | None:
        """A text with marks beside what is dropped there by statements of their own, if any."""
        from .by_statement import Statements, may_hold

        if not may_hold(source) or b"numba" in source:
            return None
        from ..source.syntax import parsed, walked

        module = parsed(path, text)
        if module is None or not Statements(module, path, _MARKS, list(walked(module))).mark():
            return None
        setattr(builtins, _MARKS, self)
        return module

    def _is_own(self, path: str) -> bool:
        """Whether it is the tree's, as a program in no file is that runs there; or one such that is the stage's own,
        which may have gone elsewhere before.
        """
        return os.path.realpath(path).startswith(self._tree) or (path in unfiled and self._end.is_of_stage())

    @staticmethod
    def _asserts(path: str, source: bytes) -> bool:
        from ..source.syntax import asserts_in, parsed

        module = parsed(path, source)
        return module is not None and asserts_in(module) > 0

    # --- what the marks call ---

    def begins(self, names: dict[str, Any]) -> None:
        """Have the program find what it does where it is run as it is, and not by an importer."""
        from _frozen_importlib_external import SourceFileLoader  # as in `hooks`

        names.update(__spec__=None, __package__=None, __cached__=None)
        names["__loader__"] = SourceFileLoader("__main__", self._path)
        sys.path_importer_cache.pop(self._path, None)
        if self._path in sys.path:
            place = sys.path.index(self._path)
            safe = getattr(sys.flags, "safe_path", sys.flags.isolated)
            sys.path[place : place + 1] = [] if safe else [os.path.dirname(os.path.realpath(self._path))]
        watch(sys, "excepthook", before=_leave_importer_out)

    def returns(self, status: Any, name: str, file: str, line: int) -> Any:
        """What a function returned, in a statement that drops it: the exit code of a `main`, or of a check."""
        if type(status) is int and status:
            if name == "main" or is_checking(name):
                self._end.ended_inside(status)
            else:
                self._doubt(f"{name}() returned {status}, which the program drops", file, line)
        return status

    def answers(self, value: Any, name: str, file: str, line: int) -> Any:
        """What a check returned, in a statement that drops it: whether all was right."""
        if is_false(value):
            self._doubt(f"{name}() returned False, and nothing depends on it", file, line)
        return value

    def is_timed(self, value: Any, name: str, file: str, line: int) -> Any:
        """What a lambda gives of which the time is taken."""
        if callable(value):
            self._doubt(f"what is timed only names {name}, and does not call it", file, line)
        return value

    def compares(self, value: Any, name: str, file: str, line: int) -> Any:
        """A comparison on which nothing depends."""
        if is_false(value):
            self._inner.note(name, 1, file, line, call=True)
        return value

    def may_compare(self, value: Any, name: str, file: str, line: int) -> Any:
        """The same, where it is as likely that it is meant to be false, or to take time."""
        if is_false(value):
            self._doubt(f"{name} came out false, and nothing depends on it", file, line)
        return value

    def all_equal(self, value: Any, file: str, line: int) -> Any:
        """Whether all elements of a comparison were true, as a statement of its own."""
        return self.may_compare(value, "all()", file, line)

    def compiles(self, function: Any, file: str, line: int, *given: Any) -> tuple[Any, ...]:
        """What is given to `function`, if it is Python's own: a text with marks."""
        is_own = function is compile and len(given) > 1 and given[2:3] in ((), ("exec",))
        is_own = is_own and not any(flags & _ONLY_SYNTAX for flags in given[3:4])
        module = self._of_text(given[0], given[1], file, line) if is_own else None
        return given if module is None else (module, *given[1:])

    def executes(self, function: Any, file: str, line: int, *given: Any) -> tuple[Any, ...]:
        """The same of what is executed, as in the future of whoever does."""
        if function is not exec or not given or not self._is_reached(*given[1:2]):
            return given
        module = self._of_text(given[0], COMMAND, file, line)
        code = None if module is None else _code_of(module, COMMAND, sys._getframe(1).f_code.co_flags & _OF_FUTURE)
        return given if code is None else (code, *given[1:])

    def _is_reached(self, names: Any = None) -> bool:
        """Whether code finds the marks where it has these names; builtins of its own are given them."""
        own = names.get("__builtins__", builtins) if isinstance(names, dict) else builtins
        own = getattr(own, "__dict__", own)
        if isinstance(own, dict):
            own.setdefault(_MARKS, self)
        return isinstance(own, dict)

    def _of_text(self, text: Any, called: Any, file: str, line: int) -> ast.Module | None:
        if not isinstance(text, (str, bytes)):
            return None
        name = f"<text of {os.path.basename(file)} line {line}>"
        source = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
        module: ast.Module | None = tell(self._with_statements, name, source, text)
        if module is None or _warned(text, called):
            return None
        unfiled[name] = source
        return module

    def exceeds(self, value: Any, bad: bool, file: str, line: int) -> Any:
        """A difference that is held to a limit, of which no more than words are made."""
        if exceeds(value, bad):
            self._doubt(EXCEEDED, file, line)
        return value

    def leaves(self, file: str, line: int) -> None:
        """The program is left before its assertions; a rank of several leaves these to another one."""
        if self._end.is_of_stage():
            self._doubt("it was left before its assertions", file, line)

    def asserts(self, value: Any, file: str, line: int) -> Any:
        """The first item of a tuple, which is always true."""
        try:
            if not value:
                self._inner.note("an assertion of a tuple", 1, file, line, call=True)
        except Exception:  # of an array
            return value
        return value

    def catches(self, file: str, line: int) -> None:
        """An exception that a handler makes no more than words of: an assertion of the tree that failed."""
        if self._is_assertion(sys.exc_info()[1]):
            self._doubt(_CAUGHT, file, line)

    def substitutes(self, what: str, file: str, line: int) -> None:
        """A handler of whatever is raised, which does `what` instead: after a mistake in the tree's own code."""
        error = sys.exc_info()[1]
        if error is not None and self._is_mistake(error):
            said = f"{type(error).__name__}: {error}"[:200]
            self._doubt(f"{said} was caught, and {what}", file, line)

    def _is_mistake(self, error: BaseException) -> bool:
        """Whether Python says by it that the tree's code cannot be right: not what the statement that caught it tries
        out itself, of an object or of a function of others, which is how one asks what they can do.
        """
        inner, outer = raised_at(error), error.__traceback__
        if inner is None or outer is None or not self._is_own(inner.tb_frame.f_code.co_filename):
            return False
        if isinstance(error, NameError) or inner is not outer:
            return type(error) in _MISTAKES
        named, calls, _ = str(error).partition("()")
        return bool(calls) and any(map(self._is_own, _files_of(named.partition(".")[0])))

    def _is_assertion(self, error: BaseException | None) -> bool:
        """Whether it is of the tree."""
        failed = assertion_in(error)
        traceback = raised_at(failed) if failed is not None else None
        return traceback is not None and self._is_own(traceback.tb_frame.f_code.co_filename)

    def lets_out(self, file: str, line: int) -> None:
        """An exception comes out of what stands in a `with`."""
        self._out = (file, line) if self._is_assertion(sys.exc_info()[1]) else None

    def ends(self, file: str, line: int) -> None:
        self._out = None

    def goes_on(self, file: str, line: int) -> None:
        """Behind a `with`: its managers have let an exception go no further."""
        if self._out == (file, line):
            self._doubt(_CAUGHT, file, line)
        self._out = None

    def names(self, value: Any, name: str, file: str, line: int) -> Any:
        """What would have ended the program there; anything may be called so."""
        if value in (sys.exit, os._exit) or type(value).__name__ == "Quitter":
            self._inner.note(f"a check ({name} is named, and not called)", 1, file, line, call=True)
        return value

    def makes(self, value: Any, file: str, line: int) -> Any:
        """What is raised nowhere."""
        ends_well = (value.code if isinstance(value, SystemExit) else getattr(value, "exit_code", 1)) in (None, 0)
        if isinstance(value, BaseException) and not (ends_well or isinstance(value, Warning)):
            self._inner.note(f"a check ({type(value).__name__} is made, and not raised)", 1, file, line, call=True)
        return value

    def _doubt(self, sentence: str, file: str, line: int) -> None:
        place = title(file) or os.path.relpath(os.path.realpath(file), self._tree)
        doubt = f"{sentence} ({place} line {line})"
        if doubt not in self._doubts:  # as in a loop
            self._doubts.add(doubt)
            self._notes.add(doubt=doubt)


def _files_of(name: str) -> Iterator[str]:
    """Of the modules that have themselves defined what is called so."""
    for module in list(sys.modules.values()):
        value = getattr(module, "__dict__", {}).get(name)
        if value is not None and getattr(value, "__module__", None) == module.__name__:
            yield str(getattr(module, "__file__", ""))


def _code_of(module: ast.Module, name: str, flags: int = 0) -> CodeType | None:
    """Of a text with marks; None where Python itself is to say what is wrong with it."""
    from ..source.places import compiled

    try:
        return compiled(module, name, flags)
    except (SyntaxError, ValueError, RecursionError):
        return None


def _warned(text: str | bytes, name: str) -> bool:
    """Whether Python's warnings of a text, which it has now said, are errors."""
    import ast

    try:
        return ast.parse(text, name) is None
    except SyntaxError:
        return True


def _called(path: str) -> str:
    return title(path) or os.path.basename(path)


def _leave_importer_out(frame: object, kind: type, error: BaseException, traceback: TracebackType | None) -> None:
    """Of what Python is about to print: its own frames, by which it runs the program of an importer."""
    while traceback is not None and is_of(traceback.tb_frame, "runpy"):
        traceback = traceback.tb_next
    error.__traceback__ = traceback or error.__traceback__


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
    """Whether it is worth to read, which takes longer than many a program: it holds a comparison, an assertion in
    brackets, or one and what may catch it, a text that is executed, a line that begins with an exception or ends with
    `exit`, or a `return` that may be of another number than 0.
    """
    if any(word in source for word in _SUSPICIOUS):
        return True
    if any(word in source for word in _CATCHING) and any(word in source for word in (*_ASSERTING, *_IMPORTING)):
        return True
    if may_hold_limits(source) or any(word in source for word in _CATCHING_ALL):
        return True
    if b"assert" in source and any(word in source for word in (b"return", b"exit", b"SystemExit")):
        return True
    if b"lambda:" in source and any(word in source for word in _TIMES):
        return True
    if b"import " in source and b"main()" in source.replace(b"def main()", b""):
        return True
    if b"return False" in source and b"return True" in source:
        return True
    lines = [line.strip() for line in source.split(b"\n")]
    if any(b"all(" in line and _is_by_itself(line) for line in lines):
        return True
    if any(line.endswith((b"exit", b"quit")) for line in lines):
        return True
    begins = (line.partition(b"(")[0] for line in lines)
    if any(name.endswith((b"Error", b"Exception", b"Exit", b"Abort")) and b" " not in name for name in begins):
        return True
    returned = [line.partition(b"return ")[2] for line in lines]
    return any(value[:1] in _CODES or b" else " in value for value in returned if value)


def _is_by_itself(line: bytes) -> bool:
    """Whether a line with a comparison may be that alone."""
    return b"==" in line and not line.startswith(_BEGINNING) and b"=" not in line.partition(b"==")[0]
