"""Programs that come in no file: `python -c ...`, what Python reads of its standard input, as `python - <<EOF`, and of
a pipe, as `python <(...)`.

No importer runs them. But Python tells its audit hooks of one before it runs it, and what such a hook raises ends the
process as an exception of the program would. So a hook runs the program in Python's place, and leaves by SystemExit.
"""

from __future__ import annotations

import os
import sys

from ..files import COMMAND, STDIN, text, unfiled
from ..hooks import tell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, TracebackType
    from typing import Any, Callable

    CodeOf = Callable[[str], "CodeType | None"]

_NAMES = {"cpython.run_command": COMMAND, "cpython.run_stdin": STDIN, "cpython.run_file": ""}
_MISSING = object()
_PIPE_HOLDS = 4096  # at least, in any system
_INTERRUPTED = 130


def run_by(code_of: CodeOf) -> None:
    """Have such a program run by the code that `code_of(NAME)` makes of `unfiled[NAME]`; as it is if that is None."""

    def hook(event: str, args: tuple[Any, ...], names: Any = _NAMES, run: Any = _run) -> None:  # to the very end
        if event in names:
            hook.__cantrace__ = False  # type: ignore[attr-defined]  # it follows no other call of this
            run(names[event] or str(args[0]), args, code_of)

    hook.__cantrace__ = True  # type: ignore[attr-defined]  # a debugger, or coverage, follows the program as ever
    sys.addaudithook(hook)


def _run(name: str, args: tuple[Any, ...], code_of: CodeOf) -> None:
    is_given = name == COMMAND
    if sys.flags.inspect or sys.flags.interactive or (name == STDIN and (sys.stdin is None or sys.stdin.isatty())):
        return
    unfiled[name] = source = args[0].encode("utf-8", "surrogatepass") if is_given else _read(name)
    code = tell(code_of, name)
    if code is None and is_given:
        return
    if code is None:
        try:
            code = compile(source, name, "exec", dont_inherit=True)
        except (SyntaxError, ValueError):  # Python says itself what is wrong with it, or makes something of it
            return _put_back(name, source)
    main = sys.modules["__main__"].__dict__
    if not is_given:
        main.update(__file__=name, __cached__=None)
    if name not in (COMMAND, STDIN):
        from _frozen_importlib_external import SourceFileLoader  # as in `hooks`

        main["__loader__"] = SourceFileLoader("__main__", name)
    elif is_given and sys.version_info >= (3, 13):  # which shows the lines of these
        import linecache

        lines = source.decode("utf-8", "replace").splitlines(keepends=True)
        linecache.cache[name] = (len(source), None, lines, name)
    ended = None
    try:
        exec(code, main)
    except SystemExit:
        raise
    except BaseException as error:
        ended = error
    if not is_given:
        for own in ("__file__", "__cached__"):  # as Python does
            main.pop(own, None)
    if ended is not None:  # behind the handler: what tells of it is not raised while it is handled
        _ends_by(ended)
    raise SystemExit


def _read(name: str) -> bytes:
    """All of it, which can be read once."""
    return sys.stdin.buffer.read() if name == STDIN else text(name)


def _put_back(name: str, source: bytes) -> None:
    """In its place, from which Python reads it anew: into a pipe, which can be read once, as far as one holds it."""
    from tempfile import TemporaryFile

    number = name.rpartition("/dev/fd/")[2]
    place = int(number) if number.isdigit() else 0
    if len(source) <= _PIPE_HOLDS:
        out, into = os.pipe()
        os.write(into, source)
        os.close(into)
        os.dup2(out, place)
        os.close(out)
        return
    with TemporaryFile() as f:
        f.write(source)
        f.seek(0)
        os.dup2(f.fileno(), place)


def _ends_by(error: BaseException) -> None:
    """As Python does where an exception ends a program."""
    traceback = _without_own(error)
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, traceback
    if sys.version_info >= (3, 12):
        sys.last_exc = error
    _say(error, traceback)
    if type(error) is KeyboardInterrupt:
        try:
            exec("raise KeyboardInterrupt")  # a text that has ended so is why Python itself ends by the signal
        except KeyboardInterrupt:
            raise SystemExit(_INTERRUPTED) from None
    raise SystemExit(1)


def _say(error: BaseException, traceback: TracebackType | None) -> None:
    """By the program's own hook; what that raises is said too."""
    told = type(error), error, traceback
    hook: Any = vars(sys).get("excepthook", _MISSING)
    if hook is _MISSING:
        print("sys.excepthook is missing", file=sys.stderr)
        hook = sys.__excepthook__
    try:
        hook(*told)
    except SystemExit:
        raise
    except BaseException as raised:
        print("Error in sys.excepthook:", file=sys.stderr)
        sys.__excepthook__(type(raised), raised, _without_own(raised))
        print("\nOriginal exception was:", file=sys.stderr)
        sys.__excepthook__(*told)


def _without_own(error: BaseException) -> TracebackType | None:
    """Its traceback, of which the first frame was one of this module."""
    error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
    return error.__traceback__
