"""What the files of unittests hold: whether an assertion of a test ran, and which tests that are written did not.

A file that Python runs as a program, or whose name is none of a test's, has no marks yet. Its functions are given the
marked code in place, when the first of its tests begins.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, FunctionType
    from typing import Any, Iterator

    from ..checks.records import Checks
    from ..marks.facts import Facts
else:  # `types` and `inspect` would cost more than all the rest
    FunctionType = type(lambda: None)
    CodeType = type((lambda: None).__code__)

_OPTIMIZED = 0x1  # a function's code, and no class's
_BEFORE_IT_RUNS = 0x20 | 0x80 | 0x200  # a generator's, a coroutine's, an asynchronous generator's


class Unittests:
    """Of the tests that run in this process by themselves."""

    def __init__(self, checks: Checks) -> None:
        self._checks = checks
        self._own: dict[str, dict[str, Any]] = {}  # by file, the names of its module
        self._unmarked: set[str] = set()  # files of which some function could not be given marks
        self._ran: set[tuple[str, int]] = set()
        self._unable: set[str] = set()  # classes and modules that could not be set up, which is told of

    def begin(self, test: object, *, is_inside: bool) -> None:
        """Mark the file of a test that begins, if it is the tree's and the test is inside no other."""
        function = _function_of(test)
        if function is None:
            return
        file = function.__code__.co_filename
        self._ran.add((file, function.__code__.co_firstlineno))
        if file.startswith(self._checks.tree) and file not in self._own and not is_inside:
            self._own[file] = function.__globals__
            if file not in self._checks.facts:
                self._mark(file, function.__globals__)

    def cannot_begin(self, name: str) -> None:
        """A class or module, as unittest names what went wrong: `setUpClass (module.Class)`."""
        self._unable.add(name.partition("(")[2].rstrip(")") or name)

    def checked(self, test: object) -> dict[str, object]:
        """Of a test that ends, as pytest's are told."""
        function = _function_of(test)
        if function is None or self._facts_of(function) is None:
            return {}
        return self._checks.found(function.__code__, lambda: (function, type(test)))

    def _facts_of(self, function: Any) -> Facts | None:
        file = function.__code__.co_filename if function is not None else ""
        return None if file in self._unmarked else self._checks.facts.get(file)

    def _mark(self, file: str, names: dict[str, Any]) -> None:
        marked = self._checks.marking.marked(file)
        codes = {(c.co_name, c.co_firstlineno): c for c in _functions_in(marked)} if marked is not None else {}
        for function in _functions_of(names, file):
            code = codes.pop((function.__code__.co_name, function.__code__.co_firstlineno), None)
            if code is not None and code.co_freevars == function.__code__.co_freevars:
                function.__code__ = code
            else:
                self._unmarked.add(file)
        if codes:  # a decorator has put something else in the place of one
            self._unmarked.add(file)

    def not_run(self) -> Iterator[str]:
        """The ids of tests that stand in classes of these files, and did not run, whoever left them out.

        Who names a class of a file on the command line wants no more of that file.
        """
        asked = {part for word in sys.argv[1:] for part in word.split(".")}
        for file, names in self._own.items():
            if not any(_is_case(names.get(name)) for name in asked):
                yield from self._not_run_of(file, names)

    def _not_run_of(self, file: str, names: dict[str, Any]) -> Iterator[str]:
        from ..source.syntax import parsed  # which takes `ast`
        from .misnamed import names_in

        module = parsed(file)
        if module is None:
            return
        named = names_in(module)
        for owner, node in _functions_written(module):
            cls = names.get(owner.name) if owner is not None else None
            if node.decorator_list or (file, node.lineno) in self._ran or (_is_case(cls) and self._is_unable(cls)):
                continue
            is_test = _is_case(cls) and node.name.startswith("test")
            if not is_test and not (self._holds_check(file, node) and _is_lost(node, owner, cls, named)):
                continue
            around = f"{owner.name}." if owner is not None else ""
            again = is_test and sum(n.name == node.name for o, n in _functions_written(module) if o is owner) > 1
            line = f" (line {node.lineno})" if again else ""
            yield f"{names.get('__name__')}.{around}{node.name}{line}"

    def _holds_check(self, file: str, node: Any) -> bool:
        facts = self._checks.facts.get(file)
        return facts is not None and facts.holds(node.lineno)

    def _is_unable(self, cls: Any) -> bool:
        return not self._unable.isdisjoint({cls.__module__, f"{cls.__module__}.{cls.__qualname__}"})


def returned(value: object) -> str | None:
    """Why a method of a test has checked nothing, or not all, by what it has returned; it is a generator, say."""
    if isinstance(value, bool):
        return "a comparison was returned, not asserted"
    code = getattr(value, "gi_code", None) or getattr(value, "cr_code", None) or getattr(value, "ag_code", None)
    if isinstance(code, CodeType) and code.co_flags & _BEFORE_IT_RUNS:
        return f"{code.co_name}() returned a {type(value).__name__}, which nobody ran"
    return None


def _function_of(test: object) -> Any:
    """The function of a test's method, below what it is wrapped in; None if it has none."""
    method: Any = getattr(test, getattr(test, "_testMethodName", ""), None)
    for _ in range(20):
        method = getattr(method, "__func__", method)
        if not hasattr(method, "__wrapped__"):
            break
        method = method.__wrapped__
    return method if isinstance(method, FunctionType) else None


def _functions_in(code: CodeType) -> Iterator[CodeType]:
    """The functions of a module's code, and of its classes'; not those inside them."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType) and not constant.co_name.startswith("<"):
            if constant.co_flags & _OPTIMIZED:
                yield constant
            else:
                yield from _functions_in(constant)


def _functions_of(names: dict[str, Any], file: str) -> Iterator[FunctionType]:
    """The functions of a module that stand in its file, and of its classes; each once."""
    seen: set[int] = set()
    left = list(names.values())
    while left:
        found = left.pop()
        if id(found) in seen:
            continue
        seen.add(id(found))
        if isinstance(found, type) and found.__module__ == names.get("__name__"):
            left += vars(found).values()
        elif isinstance(found, property):
            left += [found.fget, found.fset, found.fdel]
        elif isinstance(found, (staticmethod, classmethod)):
            left.append(found.__func__)
        elif isinstance(found, FunctionType):
            left.append(getattr(found, "__wrapped__", None))
            if found.__code__.co_filename == file and not found.__code__.co_name.startswith("<"):
                yield found


def _functions_written(module: Any) -> Iterator[tuple[Any, Any]]:
    """The functions of a module and of its classes, each with its class; not those of which it has a choice."""
    from ..source.syntax import DEFINITIONS, FUNCTIONS

    for node in module.body:
        if isinstance(node, FUNCTIONS):
            yield None, node
        elif isinstance(node, DEFINITIONS):
            yield from ((node, inner) for inner in node.body if isinstance(inner, FUNCTIONS))


def _is_lost(node: Any, owner: Any, cls: Any, named: set[str]) -> bool:
    """Whether a function with a check in it is meant for a runner, by its name, and nobody calls it: `setup` for
    `setUp`, `tset_x`, a test in no class, or in one that is no TestCase.
    """
    from . import misnamed

    if misnamed.is_named(node.name, named):
        return False
    if owner is None:
        return misnamed.is_nearly_hook(node.name, None, by_pytest=False) or (
            node.name.startswith("test") and not (node.args.args or node.args.posonlyargs)
        )
    if _is_case(cls):
        return misnamed.is_nearly_hook(node.name, owner, by_pytest=False) or misnamed.is_nearly_test(node.name)
    is_alone = isinstance(cls, type) and cls.__bases__ == (object,) and not cls.__subclasses__()
    return is_alone and node.name.startswith("test") and not misnamed.is_named(owner.name, named)


def _is_case(cls: Any) -> bool:
    case = getattr(sys.modules.get("unittest.case"), "TestCase", None)
    return case is not None and isinstance(cls, type) and issubclass(cls, case)
