"""What the bytecode of a function says of it: whether it checks anything, and what it may return."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType
    from typing import Any

_TELLS = {"print", "log", "debug", "info", "warning", "warn", "write", "format"}
_BUILDS = ("BUILD_TUPLE", "BUILD_LIST", "BUILD_MAP", "BUILD_CONST_KEY_MAP")
_constant: dict[CodeType, bool] = {}
_filled: dict[CodeType, bool] = {}


def checks_nothing(code: CodeType) -> bool:
    """Whether it raises nothing, and calls nothing that might."""
    names = _operations(code)
    calls = any(name.startswith("CALL") and not name.startswith("CALL_INTRINSIC") for name in names)
    return "RAISE_VARARGS" not in names and (not calls or (set(code.co_names) <= _TELLS and bool(code.co_names)))


def is_constant(code: CodeType) -> bool:
    """Whether it calculates nothing: what it returns is the same each time."""
    if code not in _constant:  # an assertion may run a million times
        _constant[code] = all(map(_is_harmless, _operations(code)))
    return _constant[code]


def returns_filled(code: CodeType) -> bool:
    """Whether each `return` is of a tuple, a list or a dict that is written there with something in it."""
    if code not in _filled:
        _filled[code] = _all_filled(code)
    return _filled[code]


def _all_filled(code: CodeType) -> bool:
    import dis

    last: Any = None
    found = []
    for this in dis.get_instructions(code):
        if this.opname.startswith("RETURN_"):
            made = this if this.opname == "RETURN_CONST" else last
            is_built = made.opname.startswith(_BUILDS) and bool(made.arg)
            is_known = made.opname.endswith("_CONST") and isinstance(made.argval, tuple) and bool(made.argval)
            found.append((is_built or is_known) and not this.is_jump_target)
        last = this
    return bool(found) and all(found)


def _is_harmless(operation: str) -> bool:
    harmless = ("RESUME", "LOAD_CONST", "RETURN_", "NOP", "CACHE", "COPY_FREE_VARS", "MAKE_CELL", "LOAD_SMALL_INT")
    return operation.startswith(harmless)


def _operations(code: CodeType) -> set[str]:
    import dis

    return {instruction.opname for instruction in dis.get_instructions(code)}
