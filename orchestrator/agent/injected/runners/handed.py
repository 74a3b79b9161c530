"""Whether what a fixture has done may reach a test: by its value, by what it sets or is given, or as a failure."""

from __future__ import annotations

import dis
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Iterable, Mapping

from ..checks.stand_ins import code_behind
from ..frames import codes_in, is_written_there

_PLAIN = (type(None), bool, int, float, str, bytes, tuple)
_TAKES_ANY = 0x08  # `**kwargs`
_READ_ALL = ("locals", "vars", "eval", "exec")
"""By which code may read its arguments without their names; what pytest explains an assertion with is no global."""
_SETS = ("STORE_GLOBAL", "STORE_ATTR", "STORE_SUBSCR", "RAISE_VARARGS")


def is_taken(name: str, items: Iterable[Any]) -> bool:
    """Whether a test of the `items`, or a fixture of theirs, makes anything of the value of the fixture `name`: it is
    an argument of theirs, and is read there, or may be asked of pytest's own `request`.
    """
    for item in items:
        fixtures = getattr(item, "_fixtureinfo", None)
        others = getattr(fixtures, "name2fixturedefs", {})
        if name not in others or not hasattr(item, "obj"):
            return True
        users = [item.obj, *(definition.func for found in others.values() for definition in found)]
        if any(_reads(code_behind(user), asked) for user in users for asked in (name, "request")):
            return True
    return False


def _arguments(code: Any) -> tuple[str, ...]:
    return tuple(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])


def _reads(code: Any, name: str) -> bool:
    """Whether code has an argument of this name, and makes anything of it; one that takes any may be given it."""
    if code is None:
        return False
    if name not in _arguments(code):
        return bool(code.co_flags & _TAKES_ANY)
    return name in code.co_cellvars or any(
        (i.opname.startswith("LOAD_FAST") and name in (i.argval if isinstance(i.argval, tuple) else (i.argval,)))
        or (i.opname == "LOAD_GLOBAL" and i.argval in _READ_ALL)
        for i in dis.get_instructions(code)
    )


def hands_nothing(function: Any, given: Mapping[str, object]) -> bool:
    """Of a fixture with this function and arguments, whose value nobody takes: what else it is given, its class too, it
    does not read. pytest's own stand for what it calls, such as `setup_module`: of them that is not known.
    """
    code, names = code_behind(function), getattr(function, "__globals__", None)
    if names is None or code is None or str(function.__module__).startswith("_pytest."):
        return False
    may_keep = (name for name in _arguments(code) if name not in given or not _is_plain(given[name]))
    return not any(_reads(code, name) for name in may_keep) and not _keeps(code, names, set())


def _is_plain(value: object) -> bool:
    return isinstance(value, _PLAIN)


def _keeps(code: Any, names: Any, seen: set[Any]) -> bool:
    """Whether it sets anything but its own names, fails, or names what may keep something; or what it calls of the
    stage's own code does.
    """
    seen.add(code)
    for inner in codes_in(code):
        if any(i.opname in _SETS for i in dis.get_instructions(inner)):
            return True
        named = [names[name] for name in inner.co_names if name in names]
        modules = [vars(value) for value in named if isinstance(value, ModuleType)]
        inside = (module.get(name) for module in modules for name in inner.co_names)
        for value in (*named, *(each for each in inside if isinstance(each, FunctionType))):
            if isinstance(value, FunctionType):
                own = value.__code__ not in seen and is_written_there(value.__code__.co_filename)
                if own and _keeps(value.__code__, value.__globals__, seen):
                    return True
            elif not (isinstance(value, ModuleType) or _is_plain(value) or _only_works(value)):
                return True
    return False


def _only_works(value: object) -> bool:
    """Whether it is called for what it does: a kernel, a class, what is built in; not an object that may keep it."""
    return isinstance(value, (type, BuiltinFunctionType)) or type(value).__module__.partition(".")[0] == "triton"
