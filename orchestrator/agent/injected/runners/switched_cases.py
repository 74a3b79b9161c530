"""Cases of tests that an environment variable chooses which is not set: `[1] if not os.environ.get("FULL") else ALL`.

Read in the source, of what stands in `parametrize`, and of the names of the module there. Nothing is said where it can
be seen that what is left out is no more than what is taken, as where the variable is one that takes cases away.
"""

from __future__ import annotations

import ast
import contextlib
import os

from ..files import read
from ..source.syntax import FUNCTIONS, SETS, called, name_of, names_in, parsed, targets_of, walked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Iterator, Sequence

    Choice = tuple[ast.expr, object, object]  # the condition, and what is taken if it holds, and if not

_NO_CASES = ("marks", "ids", "id")  # what else is given to `parametrize`, and to `param`
_CONVERTS = {"bool": bool, "int": int, "str": str}
_UNKNOWN = ("", None)


def switched_cases(items: Iterable[Any], tree: str) -> Iterator[str]:
    """Of pytest's items, those functions of the tree, in a sentence each."""
    tests: dict[str, dict[str, str]] = {}
    for item in items:
        code = getattr(getattr(item, "function", None), "__code__", None) if hasattr(item, "callspec") else None
        if code is not None and code.co_filename.startswith(tree):
            tests.setdefault(code.co_filename, {}).setdefault(code.co_name, item.nodeid.partition("[")[0])
    for file, names in tests.items():
        source = read(file)
        module = parsed(file, source) if b"environ" in source or b"getenv" in source else None
        if module is not None:
            yield from _of_module(module, names, file[len(tree) :])


def _of_module(module: ast.Module, tests: dict[str, str], file: str) -> Iterator[str]:
    names = _Names(module)
    for function in walked(module):
        if isinstance(function, FUNCTIONS) and function.name in tests:
            marks = [d for d in function.decorator_list if called(d) == "parametrize"]
            for variable, line in dict.fromkeys(names.switches(marks)):
                yield f"the cases of {tests[function.name]} depend on {variable}, which is not set ({file} line {line})"


class _Names:
    """What a module's names are bound to, by the statements that stand in no other."""

    def __init__(self, module: ast.Module) -> None:
        self._statements = module.body
        self._values: dict[str, ast.expr | None] = {}
        for statement in module.body:
            for target in targets_of(statement) if isinstance(statement, SETS) else ():
                value = getattr(statement, "value", None)
                if value is None or name_of(target) not in names_in([value]):  # else of what it was: `X = bool(X)`
                    self._values[name_of(target)] = value

    def switches(self, marks: Sequence[ast.expr]) -> Iterator[tuple[str, int]]:
        """Variables that are not set and take cases away, by the conditions in the marks and of what they name."""
        found = [node for mark in marks for node in _of_cases(mark)]
        known = set(names_in(found))
        for statement in self._statements:
            if isinstance(statement, SETS) and known.intersection(map(name_of, targets_of(statement))):
                found += _of_cases(statement.value) if statement.value is not None else []
        choices = [choice for node in found for choice in _choices(node)]
        choices += (choice for s in self._statements if isinstance(s, ast.If) for choice in self._chosen(s, known))
        for choice in choices:
            with contextlib.suppress(ValueError, TypeError, OverflowError, RecursionError):  # it would fail, if it ran
                yield from self._switch(*choice)

    def _switch(self, condition: ast.expr, taken: object, left: object) -> Iterator[tuple[str, int]]:
        variable, value = self._unset(condition)
        if variable and variable not in os.environ:
            if not value:
                taken, left = left, taken
            if not self._is_less(left, taken):
                yield variable, condition.lineno

    def _chosen(self, statement: ast.If, known: set[str]) -> Iterator[Choice]:
        """Of the names that an `if` sets, or adds to: what they are either way."""
        ways = dict(_given(statement.body)), dict(_given(statement.orelse))
        for name in known.intersection({*ways[0], *ways[1]}):
            taken, left = (_after(way.get(name), self._values.get(name)) for way in ways)
            yield statement.test, taken, left

    def _unset(self, node: ast.expr) -> tuple[str, Any]:
        """The variable of the environment that an expression asks for, and what it comes to where that is not set."""
        if isinstance(node, ast.Name):
            value = self._values.get(node.id)
            return self._unset(value) if value is not None and not isinstance(value, ast.Name) else _UNKNOWN
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            variable, value = self._unset(node.operand)
            return variable, not value
        if isinstance(node, ast.Compare):
            return self._compared(node)
        if not isinstance(node, ast.Call):
            return _UNKNOWN
        if called(node) in _CONVERTS and node.args:
            variable, value = self._unset(node.args[0])
            return (variable, _CONVERTS[called(node)](value)) if variable else _UNKNOWN
        of = name_of(getattr(node.func, "value", node.func))
        if of not in {"get": ("environ",), "getenv": ("os", "getenv")}.get(called(node), ()):
            return _UNKNOWN
        first, default = [*node.args, *(k.value for k in node.keywords), ast.Constant(None)][:2]
        are_plain = isinstance(first, ast.Constant) and isinstance(default, ast.Constant)
        return (str(first.value), default.value) if are_plain else _UNKNOWN  # type: ignore[attr-defined]

    def _compared(self, node: ast.Compare) -> tuple[str, Any]:
        side, way = node.comparators[0], node.ops[0]
        if name_of(side) == "environ":
            return str(getattr(node.left, "value", "")), isinstance(way, ast.NotIn)
        variable, value = self._unset(node.left)
        others = ast.literal_eval(side)
        holds = value in others if isinstance(way, (ast.In, ast.NotIn)) else value == others
        is_equality = isinstance(way, (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn))
        return (variable, holds != isinstance(way, (ast.NotEq, ast.IsNot, ast.NotIn))) if is_equality else _UNKNOWN

    def _is_less(self, left: object, taken: object) -> bool:
        """Whether it can be seen that what is left out is no more than what is taken."""
        left, taken = self._value(left), self._value(taken)
        if isinstance(left, ast.Subscript) and isinstance(left.slice, ast.Slice):
            return self._value(left.value) is taken
        if isinstance(taken, ast.List) and any(getattr(e, "value", None) is left for e in taken.elts):
            return True
        size, other = self._size(left), self._size(taken)
        return size is not None and (other is None or size <= other)

    def _value(self, node: object) -> object:
        return self._values.get(node.id, node) if isinstance(node, ast.Name) else node

    def _size(self, node: object) -> int | None:
        value = self._value(node)
        if isinstance(value, (ast.List, ast.Tuple, ast.Set)):
            return None if any(isinstance(e, ast.Starred) for e in value.elts) else len(value.elts)
        if isinstance(value, ast.Constant):
            return value.value if type(value.value) is int else 1
        if called(value) == "range" and all(isinstance(a, ast.Constant) for a in value.args):  # type: ignore[attr-defined]
            return len(range(*(a.value for a in value.args)))  # type: ignore[attr-defined]
        return None


def _of_cases(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that say which cases there are."""
    if not isinstance(node, ast.Lambda) and getattr(node, "arg", "") not in _NO_CASES:
        yield node
        for inner in ast.iter_child_nodes(node):
            yield from _of_cases(inner)


def _choices(node: ast.AST) -> Iterator[Choice]:
    if isinstance(node, ast.IfExp):
        yield node.test, node.body, node.orelse
    elif isinstance(node, ast.comprehension):
        yield from ((condition, node.iter, ast.List([], ast.Load())) for condition in node.ifs)


def _given(block: Iterable[ast.stmt]) -> Iterator[tuple[str, ast.stmt]]:
    """The names that statements set, or to which they add."""
    for node in walked(*block):
        if isinstance(node, SETS):
            yield from ((name_of(target), node) for target in targets_of(node))
        elif isinstance(node, ast.Expr) and called(node.value) in ("append", "extend", "insert", "add", "update"):
            yield name_of(getattr(node.value.func, "value", None)), node  # type: ignore[attr-defined]


def _after(statement: ast.stmt | None, before: object) -> object:
    """What a name is after the statement, if there is one, that was bound to `before`."""
    if isinstance(statement, (ast.Assign, ast.AnnAssign)):
        return statement.value
    return before if statement is None else ast.List([ast.Starred(before, ast.Load())], ast.Load())  # type: ignore[arg-type]
