"""A program of the tree that holds tests and calls none of them: `python tests/test_x.py`, where nothing runs them; and
`python -m doctest` of files without an example that ran.

Said only where nothing that runs in the file could have called one: neither by its name, nor as those do that look for
tests (`unittest.main()`, `globals()`).
"""

from __future__ import annotations

import os
import sys

from .stage import test_around

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ast
    from typing import Any, Iterable, Iterator

    from .stage import Notes

_LOOKS_FOR_TESTS = (
    r"main|run\w*|\w*[tT]est\w*|\w*Test|discover|globals|locals|vars|dir|eval|exec|compile|getattr|getmembers|modules"
    r"|__dict__|import_module|Fire"
)
# A decorator of these leaves the test to be called; another one may have called it, or keeps it for someone who does.
_LEAVE_IT = ("pytest", "mark", "unittest", "mock", "patch", "hypothesis", "given", "settings", "parametrize")


class IdleTests:
    """Tells at the end of a process, as `{"idle": FILE}`, of its program's tests; as `inert`, that it only defines."""

    def __init__(self, tree: str, notes: Notes) -> None:
        self._tree = tree
        self._notes = notes
        # Where the module has it no more when the program has ended.
        self._program = os.path.abspath((getattr(sys, "argv", None) or [""])[0])

    def tell(self) -> None:
        """Look at the program, which has ended."""
        main = sys.modules.get("__main__")
        if getattr(getattr(main, "__spec__", None), "name", "") == "doctest":
            runner = getattr(sys.modules["doctest"], "master", None)  # of all files
            ran = getattr(runner, "tries", 1) - getattr(runner, "skips", 0)
            self._tell_of_doctest([word for word in sys.argv[1:] if os.path.isfile(word)], ran)
            return
        file = os.path.abspath(getattr(main, "__file__", None) or self._program)
        if test_around() is not None or not file.startswith(self._tree):
            return
        if _may_hold_tests(vars(main)) and holds_idle_tests(file):
            self._notes.add(idle=file[len(self._tree) :])
        elif _may_be_inert(vars(main)):
            from .inert import is_inert

            if is_inert(file):
                self._notes.add(inert=file[len(self._tree) :])

    def _tell_of_doctest(self, files: list[str], ran: int) -> None:
        if test_around() is None and files and (ran == 0 or not any(map(_holds_examples, files))):
            self._notes.add(idle=os.path.relpath(os.path.realpath(files[0]), self._tree))


def _holds_examples(file: str) -> bool:
    with open(file, "rb") as f:
        return b">>>" in f.read()


def _may_hold_tests(names: dict[str, Any]) -> bool:
    own = [v for v in names.values() if isinstance(v, (type, type(_may_hold_tests))) and v.__module__ == "__main__"]
    inside = [name for value in own if isinstance(value, type) for name in vars(value)]
    return any(name.startswith("test") for name in [*(value.__name__ for value in own), *inside])


def _may_be_inert(names: dict[str, Any]) -> bool:
    """Whether it has functions of its own to call; most programs say something, and are read no further."""
    return any(isinstance(v, type(_may_be_inert)) and v.__module__ == "__main__" for v in names.values())


def holds_idle_tests(file: str) -> bool:
    """Whether a file holds tests with assertions in them, and runs nothing that could call one."""
    import ast

    from .assertions import first_line, mark

    try:
        with open(file, "rb") as f:
            source = f.read()
        module = ast.parse(source, file)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return False
    tests = list(_tests(module.body))
    called = _may_be_called(module)
    facts = mark(module, source, file)
    return not called and any(facts.holds(first_line(test)) for test in tests)


def _tests(block: Iterable[ast.stmt]) -> Iterator[Any]:
    import ast

    for node in block:
        if isinstance(node, ast.ClassDef):
            yield from _tests(node.body)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test"):
            yield node


def _may_be_called(module: ast.Module) -> bool:
    """Whether what runs when the module does, or what that calls, could call one of its tests."""
    import ast
    import re

    definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    own: dict[str, list[Any]] = {}
    names: list[str] = []
    for node in module.body:
        if isinstance(node, definitions):
            own.setdefault(node.name, []).append(node)
            names += [node.name for d in node.decorator_list if not set(_LEAVE_IT).intersection(_names([d]))]
        else:
            names += _names([node])
    holding = {name for name, nodes in own.items() if any(True for _ in _tests(nodes))}
    reached: set[str] = set()
    while names:
        name = names.pop()
        if name in reached:
            continue
        reached.add(name)
        if name in holding or (name not in own and re.fullmatch(_LOOKS_FOR_TESTS, name)):
            return True
        names += _names(own.get(name, ()))
    return False


def _names(nodes: Iterable[ast.AST]) -> list[str]:
    """What is named in `nodes`, at any depth."""
    import ast

    found = []
    for node in (inner for outer in nodes for inner in ast.walk(outer)):
        if isinstance(node, ast.Attribute):
            found.append(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            found.append(node.id)
    return found
