"""Which functions of a repository its tests call by the names that they import: what `kills` may be asked for."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import PurePosixPath

from orchestrator.config.pytest_files import TESTS_FOLDER
from orchestrator.config.read import parsed

_MOST = 4
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# What results are compared with: that it is wrong is noticed as well, and shows less.
_REFERENCE = re.compile(
    r"(?:^|[_.:])(?:ref(?:erence)?|naive|oracle|expected|golden|baseline|torch|numpy|eager|slow)(?:[_.:\d]|$)",
    re.IGNORECASE,
)
_MAKING = re.compile(r"(make|create|build|load|read|parse|get|set|is|has|init|check|assert|setup|seed|main)(_|$)")


def functions(
    tests: Iterable[str], files: Iterable[str], layers: Collection[str] = (), silent: Collection[str] = ()
) -> list[str]:
    """Those that are called most in the texts of `tests`, as `module:function`, but for the `silent` ones; of `layers`,
    which they make, the method `forward`. `files` are all of the project.
    """
    modules = set(map(_module, files)) - {""}
    calls = Counter(name for text in tests for name in _called(text, modules))
    named = (f"{name}.forward" if name.partition(":")[2] in layers else name for name, _ in calls.most_common())
    return [name for name in named if _computes(name) and name.partition(":")[2] not in silent][:_MOST]


def layers(text: str) -> set[str]:
    """The classes of a file that have a `forward` of their own, as PyTorch calls it."""
    if "def forward(" not in text:
        return set()
    found = (node for node in parsed(text) if isinstance(node, ast.ClassDef))
    methods = ((each.name, inner) for each in found for inner in each.body if isinstance(inner, ast.FunctionDef))
    return {name for name, method in methods if method.name == "forward"}


def silent(texts: Iterable[str]) -> set[str]:
    """The functions of these files, by their names, that return nothing, and write into nothing that they are given:
    there is no number of theirs that could be wrong.
    """
    written = [node for text in texts for node in parsed(text) if isinstance(node, _FUNCTIONS)]
    return {node.name for node in written} - {node.name for node in written if _gives(node)}


def _gives(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return bool(function.decorator_list) or any(map(_gives_something, ast.walk(function)))


def _gives_something(node: ast.AST) -> bool:
    """A value that is returned; an array that is written to, by an item, in place, as `out`, or by a kernel."""
    if isinstance(node, ast.Return):
        return node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None)
    if isinstance(node, ast.Call):
        in_place = isinstance(node.func, ast.Attribute) and node.func.attr.endswith("_")
        return in_place or isinstance(node.func, ast.Subscript) or any(word.arg == "out" for word in node.keywords)
    is_item = isinstance(node, (ast.Subscript, ast.Attribute)) and isinstance(node.ctx, ast.Store)
    return is_item or isinstance(node, (ast.Yield, ast.YieldFrom, ast.AugAssign))


def _called(text: str, modules: Collection[str]) -> Iterator[str]:
    tree = parsed(text)
    names: dict[str, str] = {}
    for node in (node for statement in tree for node in ast.walk(statement)):
        if isinstance(node, ast.ImportFrom) and not node.level and node.module in modules:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                names[alias.asname or alias.name] = inner if inner in modules else f"{node.module}:{alias.name}"
        elif isinstance(node, ast.Import):
            names.update({a.asname or a.name: a.name for a in node.names if a.name in modules})
    for node in (node for statement in tree for node in ast.walk(statement)):
        if isinstance(node, ast.Call):
            yield from _function(node.func, names)


def _function(called: ast.expr, names: Mapping[str, str]) -> Iterator[str]:
    """A call of `f`, `m.f`, and of a Triton kernel, `k[grid]`."""
    if isinstance(called, ast.Subscript):
        called = called.value
    whole = ast.unparse(called) if isinstance(called, (ast.Name, ast.Attribute)) else ""
    holder, _, own = whole.rpartition(".")
    if ":" in names.get(whole, ""):
        yield names[whole]
    elif holder in names and ":" not in names[holder]:
        yield f"{names[holder]}:{own}"


def _computes(name: str) -> bool:
    module, _, function = name.partition(":")
    is_helper = any(map(TESTS_FOLDER.fullmatch, module.split("."))) or function.startswith("_")
    is_class = function[:1].isupper() and "." not in function
    return not (
        is_helper or is_class or _REFERENCE.search(f"{module.rpartition('.')[2]}:{function}") or _MAKING.match(function)
    )


def _module(file: str) -> str:
    """The name under which a file of the project is imported; blank of what is no module."""
    path = PurePosixPath(file)
    parts = path.with_suffix("").parts
    parts = parts[1:] if parts[0] == "src" and len(parts) > 1 else parts
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    is_module = (
        path.suffix == ".py" and all(map(str.isidentifier, parts)) and not path.name.startswith(("test_", "conf"))
    )
    return ".".join(parts) if is_module else ""
