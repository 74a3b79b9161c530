"""Who has made a call, and what it makes of the result."""

from __future__ import annotations

import os
from sys import getrefcount

OWN = __name__.partition(".")[0]
IMPORTING = ("importlib", "_frozen_importlib", "_frozen_importlib_external")
"""What runs a module while it is imported: by the first of these names only once somebody has imported that."""
INSTALLED = ("site-packages", "dist-packages")
STANDARD_LIBRARY = os.path.dirname(os.__file__) + os.sep
_OPTIMIZED = 0x1  # of functions: their locals are no dictionary, as those of classes and modules are
_NOBODY_ELSE = 3  # references to a frame's copy of its locals: the frame's, the one here, and of the call that counts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, FrameType, TracebackType
    from typing import Any


def is_written_there(file: str) -> bool:
    """Whether a file of code is neither Python's nor a package's."""
    return not (file.startswith((STANDARD_LIBRARY, "<frozen ")) or any(site in file for site in INSTALLED))


def drops_result(frame: FrameType) -> bool:
    """Whether the call that `frame` is in the midst of is a statement by itself."""
    return drops_at(frame.f_code, frame.f_lasti)


def drops_at(code: CodeType, last: int) -> bool:
    """The same of the call at the instruction `last`."""
    import dis

    after = (i for i in dis.get_instructions(code) if i.offset > last and i.opname != "CACHE")
    found = next(after, None)
    return found is not None and found.opname == "POP_TOP"


def always_raises(error: BaseException, file: str) -> bool:
    """Whether a function of `file` has raised it by a statement to which it comes whatever happens."""
    import dis

    traceback = raised_at(error)
    if traceback is None or traceback.tb_frame.f_code.co_filename != file:
        return False
    before = [i for i in dis.get_instructions(traceback.tb_frame.f_code) if i.offset <= traceback.tb_lasti]
    jumps = (*dis.hasjrel, *dis.hasjabs)
    return before[-1].opname == "RAISE_VARARGS" and not any(i.opcode in jumps for i in before)


def raised_at(error: BaseException) -> TracebackType | None:
    """The innermost frame that it came out of, and where in there."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback


def assertion_in(error: object) -> AssertionError | None:
    """The error itself if it is one, or the first that a group of exceptions holds."""
    if any(kind.__name__ == "BaseExceptionGroup" for kind in type(error).__mro__):
        return next(filter(None, map(assertion_in, getattr(error, "exceptions", ()))), None)
    return error if isinstance(error, AssertionError) else None


def codes_in(code: CodeType) -> list[CodeType]:
    """It, and all code of functions, classes and comprehensions inside it."""
    found = [code]
    for each in found:
        found += [constant for constant in each.co_consts if isinstance(constant, type(code))]
    return found


def importing(function: Any) -> Any:
    """`function`, which runs a module, as one of Python's own that import: warnings and tracebacks pass over those."""
    function.__code__ = function.__code__.replace(co_filename="<frozen importlib._bootstrap>")
    return function


def outside(frame: FrameType | None, *packages: str) -> FrameType | None:
    """The first frame from `frame` upwards that runs no code of the packages, nor of this one."""
    while frame is not None and is_of(frame, OWN, *packages):
        frame = frame.f_back
    return frame


def local(frame: FrameType, name: str, absent: Any = None) -> Any:
    """A local of `frame`. Until Python 3.13 a function's frame keeps the copy of them all that is made for this, and
    with it what the function lets go of: nothing stays in it, unless somebody has asked for `locals()`.
    """
    copied = frame.f_locals
    value = copied.get(name, absent)
    if type(copied) is dict and frame.f_code.co_flags & _OPTIMIZED and getrefcount(copied) <= _NOBODY_ELSE:
        copied.clear()
    return value


def is_of(frame: FrameType, *packages: str) -> bool:
    """Whether `frame` runs code of one of the packages."""
    return package(frame) in packages


def package(frame: FrameType) -> str:
    """The outermost package that the code which `frame` runs is of."""
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]
