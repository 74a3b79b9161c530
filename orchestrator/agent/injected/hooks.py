"""How functions and attributes of others are watched: the one way, for all of these modules.

What is watched keeps its name and signature, and works as ever: what looks on is told of each call, and cannot make
one fail. Several that watch the same look on one after another, and each is told of the same caller.
"""

from __future__ import annotations

import sys
from sys import _getframe  # bound here: a test may replace it while this is called

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Callable

    Function = Callable[..., Any]

missed: list[Function] = []
"""Are told of what could not look on, with the error: it is wrong, or the version of a library is another."""
_OWN = globals()
_NAMED = (
    "__module__", "__name__", "__qualname__", "__doc__",
    "__annotate__" if sys.version_info >= (3, 14) else "__annotations__",
)  # fmt: skip


def watch(holder: Any, name: str, **told: Function) -> None:
    """Have a function, a method or a property that `holder` has under this name `watched`. A property is called by who
    reads it.
    """
    replace(holder, name, lambda function: watched(function, **told))


def watched(
    function: Function, *, before: Function | None = None, after: Function | None = None, failed: Function | None = None
) -> Function:
    """`function`, which has `before(frame, ...)` told of each call, with the caller's frame and the arguments;
    `after(frame, result, ...)` of what it returns, `failed(frame, error, ...)` of what it raises.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        frame = caller(_getframe())
        if before is not None:
            tell(before, frame, *args, **kwargs)
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            if failed is not None:
                tell(failed, frame, error, *args, **kwargs)
            raise
        if after is not None:
            tell(after, frame, result, *args, **kwargs)
        return result

    as_named(call, function)
    return call


def replace(holder: Any, name: str, made: Callable[[Function], Function]) -> None:
    """Put what is `made` of it in the place of a function, a method or a property; nothing where there is none."""
    found = getattr(holder, name, None)
    if isinstance(found, property) and found.fget is not None:
        setattr(holder, name, property(as_named(made(found.fget), found.fget), found.fset, found.fdel, found.__doc__))
    elif found is not None:
        new = as_named(made(found), found)
        if type(found) in (type(len), BuiltIn):  # which somebody else may have put there
            new = as_named(BuiltIn(new), found)
        if type(holder) is type(sys):  # found there by its name, as what pickles it for a pool does
            new.__module__, new.__qualname__ = holder.__name__, name
        setattr(holder, name, new)


class BuiltIn:
    """What is in the place of a built-in function: as that, it does not become a method where a class has it."""

    __slots__ = ("__dict__", "_function")  # what is named as another takes over all that this has in its `__dict__`

    def __init__(self, function: Function) -> None:
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        return self._function(*args, **kwargs)

    def __reduce__(self) -> str:
        return str(getattr(self, "__qualname__", ""))  # by which its module has it


def compile_by(code_of: Callable[[Any, str], Any]) -> None:
    """Have a module of a file run the code that `code_of(loader, name)` gives, if any, in the place of the file's."""
    from _frozen_importlib_external import SourceFileLoader  # without what `importlib` takes with it

    def giving(get_code: Function) -> Function:
        def given(loader: Any, name: str) -> Any:
            code = code_of(loader, name)
            return get_code(loader, name) if code is None else code

        return given

    replace(SourceFileLoader, "get_code", giving)


def as_named(function: Any, other: Any) -> Any:
    """`function` with the name and the signature of another one: `functools` does it too, and takes long to import."""
    for name in _NAMED:
        value = getattr(other, name, None)
        if value is not None:
            setattr(function, name, value)
    function.__dict__.update(getattr(other, "__dict__", {}))
    function.__dict__.setdefault("_torchdynamo_inline", other)  # what looks on is no part of a graph
    function.__wrapped__ = other
    return function


class Attribute:
    """An attribute that objects keep in their own dictionaries: tells `read(frame, holder, value)` who reads it, and
    `written(holder, value)` what it is set to.
    """

    def __init__(self, name: str, read: Function, written: Function | None = None) -> None:
        self._name, self._read, self._written = name, read, written

    def __get__(self, holder: Any, kind: type) -> Any:
        if holder is None:
            return self
        if self._name not in holder.__dict__:
            raise AttributeError(self._name)
        value = holder.__dict__[self._name]
        tell(self._read, caller(_getframe()), holder, value)
        return value

    def __set__(self, holder: Any, value: Any) -> None:
        holder.__dict__[self._name] = value
        if self._written is not None:
            tell(self._written, holder, value)


def caller(frame: FrameType | None) -> FrameType | None:
    """The first frame upwards that is none of a hook, of which several may watch the same; None where Python calls."""
    while frame is not None and frame.f_globals is _OWN:
        frame = frame.f_back
    return frame


def tell(look: Function, /, *args: Any, **kwargs: Any) -> Any:
    """Call what only looks on, for what it returns: what it raises is noted, and nobody else's affair."""
    try:
        return look(*args, **kwargs)
    except Exception as error:  # of what it looked at, or of a version that is otherwise: the program is not to see it
        for told in missed:
            try:
                told(look, error)
            except Exception:  # an error that cannot even be written
                continue
