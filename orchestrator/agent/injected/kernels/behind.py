"""The kernels of Triton's to which functions of the tree lead, by what their code names: functions, modules, tables."""

from __future__ import annotations

import sys

from ..frames import codes_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, FunctionType
    from typing import Any, Callable, Iterator
else:  # as in `stand_ins`
    FunctionType = type(lambda: None)

_MODULE, _MOST, _DEEPEST = type(sys), 300, 3
_BOUND = (staticmethod, classmethod, type(codes_in.__get__(0)))
_IDLE = ("CACHE", "PUSH_NULL", "NOP")  # between the steps of a dotted name


class Behind:
    """`is_ours` says of a file whether it is of the tree, `helps` whether it is the tests' own."""

    def __init__(self, is_ours: Callable[[str], bool], helps: Callable[[str], bool]) -> None:
        self._is_ours = is_ours
        self._helps = helps
        self._known: dict[object, frozenset[str]] = {}

    def called_by(self, test: FunctionType) -> Iterator[tuple[str, frozenset[str]]]:
        """The functions under test that it names, itself or in helpers, with the kernels behind each that has any."""
        for helper in self._closure(test, self._is_helper):
            for function in self._functions(helper):
                if not self._is_helper(function) and self._kernels_behind(function):
                    yield f"{function.__module__}.{function.__qualname__}", self._kernels_behind(function)

    def _kernels_behind(self, function: FunctionType) -> frozenset[str]:
        if function.__code__ not in self._known:
            reached = self._closure(function, lambda other: not self._is_helper(other))
            found = (value for each in reached for value in _named(each) if is_kernel(value))
            self._known[function.__code__] = frozenset(kernel_name(each) for each in found if self._is_own(each))
        return self._known[function.__code__]

    def _closure(self, function: FunctionType, follows: Callable[[FunctionType], bool]) -> Iterator[FunctionType]:
        """It, and all those to which it leads."""
        seen, left = {function.__code__}, [function]
        while left and len(seen) < _MOST:
            function = left.pop()
            yield function
            for other in self._functions(function):
                if other.__code__ not in seen and follows(other):
                    seen.add(other.__code__)
                    left.append(other)

    def _functions(self, function: FunctionType) -> Iterator[FunctionType]:
        """Those of the tree that it names, of a class and an object all that its class has."""
        for value in _named(function):
            kind = value if issubclass(type(value), type) else type(value)
            file = getattr(sys.modules.get(kind.__module__), "__file__", None)
            members = vars(kind).values() if isinstance(file, str) and self._is_ours(file) else ()
            for each in (value, *members):
                inner = _unwrapped(each)
                if type(inner) is FunctionType and self._is_ours(inner.__code__.co_filename):
                    yield inner

    def _is_own(self, kernel: object) -> bool:
        code = getattr(_innermost(kernel), "__code__", None)
        return code is not None and self._is_ours(code.co_filename)

    def _is_helper(self, function: FunctionType) -> bool:
        return self._helps(function.__code__.co_filename)


def is_kernel(value: object) -> bool:
    """Whether it is one of Triton's, tuned or not."""
    return type(value).__module__.startswith("triton.runtime") and hasattr(value, "fn")


def kernel_name(kernel: Any) -> str:
    return str(_innermost(kernel).__name__)


def _innermost(kernel: Any) -> Any:
    """The function that it holds, or that what it holds does."""
    while hasattr(kernel, "fn"):
        kernel = kernel.fn
    return kernel


def _unwrapped(value: Any) -> object:
    """Below what binds and wraps it; what else answers in its own way to be looked at is left alone."""
    for _ in range(_DEEPEST):
        if type(value) in _BOUND:
            value = value.__func__
        elif type(value) is FunctionType or type(value).__module__ == "functools":
            value = vars(value).get("__wrapped__", value)
    return value


def _named(function: FunctionType) -> Iterator[object]:
    """What the names in its code stand for, and what it is closed over."""
    for code in codes_in(function.__code__):
        for value in _loaded(code, function.__globals__):
            yield from _held(value, code.co_names)
    for cell in function.__closure__ or ():
        try:
            yield from _held(cell.cell_contents, function.__code__.co_names)
        except ValueError:  # it is empty still
            continue


def _loaded(code: CodeType, known: dict[str, Any]) -> Iterator[object]:
    """The globals that it loads, and of modules what it takes from them."""
    import dis

    imported: dict[str, object] = {}
    value: object = None
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME", "IMPORT_NAME"):
            yield value
            value = sys.modules.get(step.argval) if step.opname == "IMPORT_NAME" else known.get(step.argval)
        elif step.opname in ("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM") and type(value) is _MODULE:
            value = vars(value).get(step.argval)
        elif step.opname == "STORE_FAST":
            imported[step.argval] = value
        elif step.opname.startswith("LOAD_FAST") and step.argval in imported:
            yield value
            value = imported[step.argval]
        elif step.opname not in _IDLE:
            yield value
            value = None
    yield value


def _held(value: Any, names: tuple[str, ...], depth: int = _DEEPEST) -> Iterator[object]:
    """It; of a table all that it holds, and of modules there what is named."""
    if type(value) in (dict, list, tuple):
        inside = list(value.values() if type(value) is dict else value)[:_MOST]
    elif type(value) is _MODULE:
        inside = [vars(value)[name] for name in names if name in vars(value)] if depth < _DEEPEST else []
    else:
        yield value
        return
    for each in inside if depth else ():
        yield from _held(each, names, depth - 1)
