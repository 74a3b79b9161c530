"""The code that a test leads to: its own, and what decorators and generators of tests have wrapped, copied or kept."""

from __future__ import annotations

import builtins
import functools
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType
from typing import Any, Iterator, List, NamedTuple, Tuple

from ..frames import codes_in

# What can call nothing.
_DATA = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))
_MANY: Tuple[Any, ...] = (tuple, list, set, frozenset)
_MOST = 50


class Reached(NamedTuple):
    """`codes` begins with that of the function itself; `others` are objects that may lead to more."""

    codes: List[CodeType]
    others: bool

    @property
    def all_known(self) -> bool:
        """Whether it can lead to no other code of the tree."""
        return bool(self.codes) and not self.others and not any(name for c in self.codes for name in _names_others(c))


def reached(function: object) -> Reached:
    """Through wrappers, bound arguments, closures, defaults and attributes: not by the names that a code looks up."""
    if isinstance(function, FunctionType) and not _leads_on(function):  # as most tests are
        return Reached([function.__code__], others=False)
    codes: List[CodeType] = []
    seen: set[int] = set()
    left, others = [function], False
    while left and len(seen) < _MOST:
        found = left.pop(0)
        try:
            if id(found) in seen or isinstance(found, _DATA):
                continue
            seen.add(id(found))
            others |= _is_other(found)
            codes += [found.__code__] if isinstance(found, FunctionType) else []
            left += _behind(found)
        except Exception:  # a proxy, or what else answers in its own way to be looked at
            others = True
    return Reached(codes, others or bool(left))


def _leads_on(function: FunctionType) -> bool:
    return bool(function.__dict__ or function.__defaults__ or function.__kwdefaults__ or function.__closure__)


def _is_other(found: object) -> bool:
    """Whether it may call what nothing of it shows."""
    return not isinstance(found, (*_MANY, dict, FunctionType, BuiltinFunctionType, MethodType, functools.partial))


def _behind(found: Any) -> List[object]:
    if isinstance(found, dict):
        return [*dict.values(found)]
    for many in _MANY:
        if isinstance(found, many):
            return [*many.__iter__(found)]  # what lies there: a class of one's own may say otherwise, or refuse
    if isinstance(found, functools.partial):
        return [found.func, *found.args, *found.keywords.values()]
    if isinstance(found, MethodType):
        return [found.__func__, found.__self__]
    if isinstance(found, FunctionType):
        return [
            *_kept(found),
            *(found.__defaults__ or ()),
            *(found.__kwdefaults__ or {}).values(),
            *_closed_over(found),
        ]
    return [] if isinstance(found, type) else _kept(found)


def _kept(found: object) -> List[object]:
    """The attributes of an object's own, as they lie there."""
    try:
        return list(vars(found).values())
    except TypeError:
        return []


def _closed_over(function: FunctionType) -> Iterator[object]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # it is empty still
            continue


def _names_others(code: CodeType) -> Iterator[str]:
    """Names that are looked up outside of it, but for Python's own."""
    return (name for inner in codes_in(code) for name in inner.co_names if not hasattr(builtins, name))
