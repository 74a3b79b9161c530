"""What is true whatever is in it: an instance of a class that does not say when it is, and what a function returns that
always returns such.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, FunctionType
    from typing import Any
else:  # as in `stand_ins`
    FunctionType = type(lambda: None)

_known: dict[CodeType, str] = {}


def made_by(value: Any) -> str:
    """The name of the class, if calling a class or a function makes nothing else; "" if it may."""
    if isinstance(value, type):
        return value.__name__ if _is_always_true(value) else ""
    if not isinstance(value, FunctionType):
        return ""
    code = value.__code__
    if code not in _known:  # an assertion may run a million times
        _known[code] = _returned_by(value)
    return _known[code]


def _is_always_true(kind: Any) -> bool:
    """Whether it makes instances in the usual way, of which nothing says that they are false."""
    makes: Any = object.__new__
    is_usual = isinstance(kind, type) and type(kind).__call__ is type.__call__ and kind.__new__ is makes
    return is_usual and not any(hasattr(kind, name) for name in ("__bool__", "__len__"))


def _returned_by(function: FunctionType) -> str:
    values = function.__globals__
    if not any(_is_always_true(values.get(name)) for name in function.__code__.co_names):
        return ""
    import ast

    from ..source.syntax import within
    from ..source.uses import program_in

    program = program_in(function.__code__.co_filename)
    found = program.function_at(function.__code__.co_firstlineno) if program is not None else None
    returned = [s.value for s in within(found.body) if isinstance(s, ast.Return)] if found is not None else []
    names = {getattr(getattr(value, "func", None), "id", "") for value in returned}
    name = names.pop() if len(names) == 1 else ""
    ends = found is not None and isinstance(found.body[-1], ast.Return)
    return name if ends and _is_always_true(values.get(name)) else ""
