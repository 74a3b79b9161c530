"""Whether what a fixture has done may reach a test: by its value, by what it sets or is given, or as a failure."""

from __future__ import annotations

import dis
from types import FunctionType, ModuleType
from typing import Any, Iterable

from ..checks.stand_ins import code_behind
from ..frames import codes_in

_PLAIN = (type(None), bool, int, float, str, bytes, tuple)
_SETS = ("STORE_GLOBAL", "STORE_ATTR", "STORE_SUBSCR", "RAISE_VARARGS")


def hands_nothing(function: Any, value: object, given: Iterable[object]) -> bool:
    """Of a fixture with this function, value and arguments. pytest's own stand for what it calls, such as
    `setup_module`, and those of a class keep what they like in it: of them that is not known.
    """
    code, names = code_behind(function), getattr(function, "__globals__", None)
    given = list(given)
    if (
        names is None
        or value is not None
        or code is None
        or code.co_argcount > len(given)
        or not all(map(_is_plain, given))
    ):
        return False
    return not str(function.__module__).startswith("_pytest.") and not _keeps(code, names, set())


def _is_plain(value: object) -> bool:
    return isinstance(value, _PLAIN)


def _keeps(code: Any, names: Any, seen: set[Any]) -> bool:
    """Whether it sets anything but its own names, fails, or names what may keep something; or what it calls beside it
    does.
    """
    seen.add(code)
    for inner in codes_in(code):
        if any(i.opname in _SETS for i in dis.get_instructions(inner)):
            return True
        for value in (names[name] for name in inner.co_names if name in names):
            if isinstance(value, FunctionType) and value.__globals__ is names:
                if value.__code__ not in seen and _keeps(value.__code__, names, seen):
                    return True
            elif not (_is_plain(value) or isinstance(value, ModuleType) or callable(value)):
                return True
    return False
