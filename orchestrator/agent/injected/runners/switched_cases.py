"""Cases of tests that an environment variable chooses which is not set: `[1] if not os.environ.get("FULL") else ALL`.

Read in the source, of what stands in `parametrize`, and of the names of the module there. Nothing is said where it can
be seen that what is left out is no more than what is taken.
"""

from __future__ import annotations

import ast
import os

from ..files import read
from ..source.syntax import FUNCTIONS, SETS, called, name_of, names_in, parsed, targets_of, walked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Iterator

    Choice = tuple[ast.expr, Any, Any]  # the condition, and what is taken if it holds, and if not


def switched_cases(items: Iterable[Any], tree: str) -> Iterator[str]:
    """Of pytest's items, those functions of the tree, in a sentence each."""
    tests: dict[str, dict[str, str]] = {}
    for item in items:
        code = getattr(getattr(item, "function", None), "__code__", None)
        if hasattr(item, "callspec") and code is not None and code.co_filename.startswith(tree):
            tests.setdefault(code.co_filename, {}).setdefault(code.co_name, item.nodeid.partition("[")[0])
    for file, names in tests.items():
        source = read(file)
        module = parsed(file, source) if b"environ" in source or b"getenv" in source else None
        if module is not None:
            yield from _of_module(module, names, file[len(tree) :])


def _of_module(module: ast.Module, tests: dict[str, str], file: str) -> Iterator[str]:
    for function in walked(module):
        if isinstance(function, FUNCTIONS) and function.name in tests:
            marks = [d for d in function.decorator_list if called(d) == "parametrize"]
            for variable, line in dict.fromkeys(_switches(module, marks)):
                yield f"the cases of {tests[function.name]} depend on {variable}, which is not set ({file} line {line})"


def _switches(module: ast.Module, nodes: Iterable[ast.AST]) -> Iterator[tuple[str, int]]:
    """Variables that are not set and take cases away, by the conditions in the nodes and of what they name."""
    found = walked(*nodes)
    known = set(names_in(found))
    for statement in module.body:
        if isinstance(statement, SETS) and known.intersection(map(name_of, targets_of(statement))):
            found += walked(statement.value) if statement.value is not None else []
        elif isinstance(statement, ast.If):
            set_inside = [t for s in walked(statement) if isinstance(s, SETS) for t in targets_of(s)]
            found += [statement] if known.intersection(map(name_of, set_inside)) else []
    for condition, taken, left in (choice for node in found for choice in _choices(node)):
        variable, holds = _asked(condition)
        if variable and variable not in os.environ:
            if not holds:
                taken, left = left, taken
            if _length(left) is None or _length(taken) is None or _length(left) > _length(taken):
                yield variable, condition.lineno


def _choices(node: ast.AST) -> Iterator[Choice]:
    if isinstance(node, (ast.IfExp, ast.If)):
        yield node.test, node.body, node.orelse
    elif isinstance(node, ast.comprehension):
        yield from ((condition, None, ast.List([])) for condition in node.ifs)


def _asked(condition: ast.expr) -> tuple[str, bool]:
    """The variable that a condition asks for, and whether it holds where that is not set; blank if it is none."""
    if isinstance(condition, ast.UnaryOp) and isinstance(condition.op, ast.Not):
        variable, holds = _asked(condition.operand)
        return variable, not holds
    if isinstance(condition, ast.Call) and called(condition) in ("bool", "int"):
        return _asked(condition.args[0]) if condition.args else ("", False)
    asks = {"get": ("environ",), "getenv": ("os", "getenv")}
    if isinstance(condition, ast.Call) and called(condition) in asks:
        of = name_of(getattr(condition.func, "value", condition.func))
        default = condition.args[1:] or [k.value for k in condition.keywords]
        is_false = all(isinstance(d, ast.Constant) and d.value in (None, "", "0", 0, False) for d in default)
        name = getattr(condition.args[0], "value", "") if condition.args else ""
        return (str(name), False) if of in asks[called(condition)] and is_false else ("", False)
    if isinstance(condition, ast.Compare) and isinstance(condition.ops[0], (ast.In, ast.Eq)):
        if isinstance(condition.ops[0], ast.Eq):
            return _asked(condition.left)
        is_there = name_of(condition.comparators[0]) == "environ"
        return (str(getattr(condition.left, "value", "")), False) if is_there else ("", False)
    return "", False


def _length(value: object) -> Any:
    return len(value.elts) if isinstance(value, (ast.List, ast.Tuple, ast.Set)) else None
