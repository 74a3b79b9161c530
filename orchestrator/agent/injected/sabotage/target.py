"""One function of a stage whose tests run again returns wrong results, in each process that imports its module.

`package.module:function`, also `:Class.method`. A Python function is replaced in place (its code), so that whoever
took it early has the wrong one; an object that is called, or launched as `kernel[grid](...)`, gets a class of its own,
made from its own; anything else is replaced where its module, or class, holds it.
"""

from __future__ import annotations

import collections.abc
import contextvars
import functools
import inspect
import sys
import types

from .spoil import Before, spoiled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, FunctionType, ModuleType
    from typing import Any, AsyncIterator, Callable, Generator

    from ..stage import Notes

_targets: dict[str, Target] = {}
# A result is made wrong once: twice might be right again.
_inside: contextvars.ContextVar[bool] = contextvars.ContextVar("nsa_pod_sabotage", default=False)

_PLAIN = "def {name}(*_args, **_kwargs):\n  {mention}\n  return {call}.call({key!r}, _args, _kwargs)"
_GENERATOR = (
    "def {name}(*_args, **_kwargs):\n  {mention}\n  return (yield from {call}.generate({key!r}, _args, _kwargs))"
)
_COROUTINE = "async def {name}(*_args, **_kwargs):\n  {mention}\n  return await {call}.awaited({key!r}, _args, _kwargs)"
_ASYNC_GENERATOR = (
    "async def {name}(*_args, **_kwargs):\n  {mention}\n"
    "  async for x in {call}.each({key!r}, _args, _kwargs):\n    yield x"
)


def after_import(name: str, notes: Notes, *, harmless: bool = False) -> dict[str, Callable[[ModuleType], None]]:
    """What is to be done once the module of the function `name` was imported; `harmless` ones stay right."""
    module, _, path = name.partition(":")
    return {module: lambda found: _targets.setdefault(name, Target(name, notes, harmless)).take_place(found, path)}


class Target:
    """The function called `name`: notes that it was called, and that something of it was spoiled, once each; one that
    is `harmless` gives what the function gave.
    """

    def __init__(self, name: str, notes: Notes, harmless: bool) -> None:
        self.name = name
        self._notes = notes
        self._harmless = harmless
        self._told: set[str] = set()
        self._writes = True  # until a call has shown that what it returns is all
        self.original: Callable[..., Any] = lambda: None

    def tell(self, what: str, **more: object) -> None:
        if what not in self._told:
            self._told.add(what)
            self._notes.add(sabotage=what, target=self.name, **more)

    def take_place(self, module: ModuleType, path: str) -> None:
        """Find the function in its module, and replace it."""
        try:
            holder, last, found = _found(module, path)
        except AttributeError:
            self.tell("absent")
            return
        self._replace(holder, last, found)

    # --- calls ---

    def call(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call `function`, and give wrong results for those that it gave."""
        if self._harmless or _inside.get():
            return function(*args, **kwargs)
        self.tell("called")
        before = Before((args, kwargs)) if self._writes else None
        token = _inside.set(True)
        try:
            result = function(*args, **kwargs)
        finally:
            _inside.reset(token)
        if before is not None:
            self._writes = result is None or before.changed_and_returned(result)
            if self._writes and self._note(before.spoil_changed()) and result is not None:
                return result
        return self.wrong(result)

    def launch(self, launch: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Launch a kernel as ever, and make wrong what it changed in the tensors that it was given."""
        if self._harmless or _inside.get():
            return launch(*args, **kwargs)
        self.tell("called")
        before = Before((args, kwargs))
        token = _inside.set(True)
        try:
            result = launch(*args, **kwargs)
        finally:
            _inside.reset(token)
        self._note(before.spoil_changed())
        return result

    def wrong(self, result: Any) -> Any:
        """`result`, made wrong where that can be."""
        found = result if self._harmless else spoiled(result)
        if found is not result:
            self.tell("spoiled")
        elif result is not None:
            self.tell("untouched", of=type(result).__name__)
        return found

    def _note(self, changed: bool | None) -> bool:
        if changed is not False:  # where it could not be asked, it was done all the same
            self.tell("spoiled")
        return changed is not False

    # --- places ---

    def _replace(self, holder: Any, name: str, found: Any) -> None:
        function = _python_function(found)
        if function is not None and (isinstance(holder, types.ModuleType) or name in vars(holder)):
            self._rewrite(function)
        elif isinstance(found, type):
            self.tell("refused", why="is a class: name one of its methods")
        elif not self._subclass(found):
            self._replace_attribute(holder, name, found)

    def _rewrite(self, function: FunctionType) -> None:
        """Keep what the function did as `original`, and have it do what a trampoline does."""
        self.original = types.FunctionType(
            function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
        )
        self.original.__kwdefaults__ = function.__kwdefaults__
        if not hasattr(function, "__signature__") and not hasattr(function, "__wrapped__"):
            function.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
        function.__code__ = _trampoline(function.__code__, self.name)

    def _subclass(self, found: Any) -> bool:
        """Give an object that is called or launched a class of its own; whether that could be."""
        kind, target = type(found), self
        methods: dict[str, Any] = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
        if _is_launched(found):

            def __getitem__(kernel: Any, grid: Any) -> Any:
                launch = kind.__getitem__(kernel, grid)
                return lambda *args, **kwargs: target.launch(launch, args, kwargs)

            methods["__getitem__"] = __getitem__
            if callable(getattr(kind, "run", None)):
                methods["run"] = lambda kernel, *a, **k: target.launch(functools.partial(kind.run, kernel), a, k)
        elif callable(found):
            methods["__call__"] = lambda own, *a, **k: target.call(functools.partial(kind.__call__, own), a, k)
        else:
            return False
        try:
            object.__setattr__(found, "__class__", type(kind.__name__, (kind,), methods))
        except TypeError:  # its class is C's
            return False
        return True

    def _replace_attribute(self, holder: Any, name: str, found: Any) -> None:
        """Where the object itself cannot be altered: others that took it before still have the right one."""
        if isinstance(found, property) and found.fget is not None:
            read = found.fget
            made: Any = property(lambda own: self.call(read, (own,), {}), found.fset, found.fdel, found.__doc__)
        elif isinstance(found, (staticmethod, classmethod)):
            bound = getattr(holder, name)  # of a base, perhaps: then only for this class and those below it
            made = staticmethod(self._wrapper(bound))
        elif callable(found):
            made = self._wrapper(found)
        else:
            self.tell("refused", why=f"is no function: it is of the type {type(found).__name__}")
            return
        try:
            setattr(holder, name, made)
        except (AttributeError, TypeError):
            self.tell("refused", why="is compiled code, which cannot be replaced")

    def _wrapper(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return self.call(function, args, kwargs)

        return functools.update_wrapper(wrapper, function)


# --- what the trampolines call ---


def call(name: str, args: Any, kwargs: Any) -> Any:
    target = _targets[name]
    return target.call(target.original, args, kwargs)


def generate(name: str, args: Any, kwargs: Any) -> Generator[Any, Any, Any]:
    """What the generator yields and returns, made wrong; what is sent and thrown goes to it."""
    target = _targets[name]
    target.tell("called")
    generator = target.original(*args, **kwargs)
    step, given = generator.send, None
    while True:
        try:
            value = step(given)
        except StopIteration as end:
            return target.wrong(end.value)
        try:
            given = yield target.wrong(value)
            step = generator.send
        except GeneratorExit:
            generator.close()
            raise
        except BaseException as e:  # whatever was thrown into it
            step, given = generator.throw, e


async def awaited(name: str, args: Any, kwargs: Any) -> Any:
    target = _targets[name]
    target.tell("called")
    return target.wrong(await target.original(*args, **kwargs))


async def each(name: str, args: Any, kwargs: Any) -> AsyncIterator[Any]:
    target = _targets[name]
    target.tell("called")
    async for value in target.original(*args, **kwargs):
        yield target.wrong(value)


# --- finding ---


def _found(module: ModuleType, path: str) -> tuple[Any, str, Any]:
    """What holds the last name of `path`, that name, and what is there as it lies there, not bound."""
    holder: Any = module
    *outer, last = path.split(".")
    for name in outer:
        holder = getattr(holder, name)
    found = inspect.getattr_static(holder, last) if isinstance(holder, type) else getattr(holder, last)
    return holder, last, found


def _python_function(found: Any) -> FunctionType | None:
    """The Python function that stands behind an object, if its code is what runs."""
    inner = found
    if isinstance(inner, (staticmethod, classmethod)):
        inner = inner.__func__
    elif isinstance(inner, property):
        inner = inner.fget
    elif isinstance(inner, functools.cached_property):
        inner = inner.func
    elif isinstance(inner, types.MethodType):
        inner = inner.__func__
    elif type(inner).__name__ == "CustomOpDef":  # of torch.library.custom_op
        inner = getattr(inner, "_init_fn", inner)
    while not isinstance(inner, types.FunctionType) and type(inner) is _CACHED:
        inner = inner.__wrapped__
    if not isinstance(inner, types.FunctionType):
        return None
    innermost = inspect.unwrap(inner)
    if isinstance(innermost, types.FunctionType) and _kind(innermost.__code__) != _kind(inner.__code__):
        return innermost  # a context manager, say: what its generator yields
    return inner


_CACHED = type(functools.lru_cache(maxsize=None)(lambda: None))


def _is_launched(found: Any) -> bool:
    """Whether it is used as `found[grid](...)`: it takes an index, and is no collection and no array."""
    is_collection = isinstance(found, collections.abc.Sized)
    return hasattr(type(found), "__getitem__") and not is_collection


# --- code ---


def _kind(code: CodeType) -> str:
    flags = code.co_flags
    if flags & inspect.CO_ASYNC_GENERATOR:
        return _ASYNC_GENERATOR
    if flags & inspect.CO_COROUTINE:
        return _COROUTINE
    return _GENERATOR if flags & inspect.CO_GENERATOR else _PLAIN


def _trampoline(code: CodeType, key: str) -> CodeType:
    """Code of the same kind and with the same free variables as `code`, which calls this module instead."""
    free = code.co_freevars
    inner = _kind(code).format(
        name="trampoline",
        mention=f"if False: {', '.join(free)}" if free else "pass",
        call=f"__import__('sys').modules[{__name__!r}]",
        key=key,
    )
    lines = "\n".join("  " + line for line in inner.splitlines())
    names = "".join(f"  {name} = None\n" for name in free)
    room: dict[str, Any] = {}
    exec(f"def around():\n{names}{lines}\n  return trampoline", room)
    made: CodeType = room["around"]().__code__
    as_it_was = {
        "co_name": code.co_name,
        "co_filename": code.co_filename,
        "co_firstlineno": code.co_firstlineno,
        "co_freevars": code.co_freevars,
    }
    if sys.version_info >= (3, 11):
        as_it_was["co_qualname"] = code.co_qualname
    return made.replace(**as_it_was)  # type: ignore[arg-type]
