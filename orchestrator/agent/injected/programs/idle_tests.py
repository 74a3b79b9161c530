"""Whether a file holds tests with assertions in them, and runs nothing that could call one: neither by its name, nor as
those do that look for tests (`unittest.main()`, `globals()`).
"""

from __future__ import annotations

import ast
import re
from typing import Any, Iterable, Iterator

from ..files import read
from ..marks.assertions import mark
from ..source.syntax import DEFINITIONS, FUNCTIONS, first_line, names_in, parsed

_LOOKS_FOR_TESTS = (
    r"main|run\w*|\w*[tT]est\w*|\w*Test|discover|globals|locals|vars|dir|eval|exec|compile|getattr|getmembers|modules"
    r"|__dict__|import_module|Fire"
)
# A decorator of these leaves the test to be called; another one may have called it, or keeps it for someone who does.
_LEAVE_IT = ("pytest", "mark", "unittest", "mock", "patch", "hypothesis", "given", "settings", "parametrize")


def holds_idle_tests(file: str) -> bool:
    """Whether a file holds tests with assertions in them, and runs nothing that could call one."""
    source = read(file)
    module = parsed(file, source)
    if module is None or _may_be_called(module):
        return False
    tests = list(_tests(module.body))
    facts = mark(module, source, file)
    return any(facts.holds(first_line(test)) for test in tests)


def _tests(block: Iterable[ast.stmt]) -> Iterator[Any]:
    for node in block:
        if isinstance(node, ast.ClassDef):
            yield from _tests(node.body)
        elif isinstance(node, FUNCTIONS) and node.name.startswith("test"):
            yield node


def _may_be_called(module: ast.Module) -> bool:
    """Whether what runs when the module does, or what that calls, could call one of its tests."""
    own: dict[str, list[Any]] = {}
    names: list[str] = []
    for node in module.body:
        if isinstance(node, DEFINITIONS):
            own.setdefault(node.name, []).append(node)
            names += [node.name for d in node.decorator_list if not set(_LEAVE_IT).intersection(names_in([d]))]
        else:
            names += names_in([node])
    holding = {name for name, nodes in own.items() if any(True for _ in _tests(nodes))}
    reached: set[str] = set()
    while names:
        name = names.pop()
        if name in reached:
            continue
        reached.add(name)
        if name in holding or (name not in own and re.fullmatch(_LOOKS_FOR_TESTS, name)):
            return True
        names += names_in(own.get(name, ()))
    return False
