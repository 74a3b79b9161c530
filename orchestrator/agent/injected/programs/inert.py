"""A program that defines what it would do and does none of it: `if __name__ == "__main_":`, or no guard at all.

What it prints beside that, a banner say, is not what it would do.
"""

from __future__ import annotations

import ast
from typing import Iterator, Sequence

from ..source.syntax import DEFINITIONS, FUNCTIONS, SETS, parsed, within
from .mains import MAINS

_DEFINING = (*DEFINITIONS, ast.Import, ast.ImportFrom, ast.Pass, *SETS, ast.Delete)
_YIELDS = (ast.Yield, ast.YieldFrom)
_NAME, _ITSELF = "__name__", "__main__"
_OF_CHILDREN = "__mp_main__"  # of multiprocessing, whose body is not meant for the program
_NEARLY_MAIN = ("ain", "man", "min", "mai", "mainn", "maiin", "maain", "mmain")


def is_inert(file: str) -> bool:
    """Whether nothing runs in a file but definitions and words, although a guard that never holds, or a `main` that
    nobody calls, says that something is meant to. A guard that is mistyped beyond doubt says so of any file, and so
    does a `main` that its guard only names, or calls and does not run.
    """
    module = parsed(file)
    if module is None:
        return False
    guards = [node for node in ast.walk(module) if isinstance(node, ast.If) and _calls(node.body)]
    names = {guard for guard in map(_guards, guards) if guard not in (None, _ITSELF, _OF_CHILDREN)}
    live = list(_live(module.body))
    stem = file.rpartition("/")[2].partition(".")[0]
    if any(_is_mistyped(guard) for guard in names - {stem}) or any(_leaves_main(node, module) for node in live):
        return True
    acting = [node for node in live if not isinstance(node, _DEFINING)]
    if not all(map(_says, acting)):
        return False
    assigned = [n for n in live if isinstance(n, SETS)]
    return bool(names and not acting) or (_may_call_main(live, module) and not _calls(assigned))


def _may_call_main(live: Sequence[ast.stmt], module: ast.Module) -> bool:
    """Whether a `main` of the program is there that nothing in its file names."""
    mains = [n for n in live if isinstance(n, ast.FunctionDef) and n.name in MAINS]
    if not mains or any(n.decorator_list for n in mains):  # which may call it
        return False
    return not any(isinstance(n, ast.Name) and n.id in MAINS for n in ast.walk(module))


def _is_mistyped(guard: str | None) -> bool:
    """Whether a module is never called so, and `__main__` was meant: all of its letters, or all but one."""
    if guard is None or guard == _NAME:
        return guard is not None
    letters = guard.lower().strip("_ .")
    return guard == "main" or ("_" in guard and (sorted(letters) == sorted("main") or letters in _NEARLY_MAIN))


def _leaves_main(node: ast.stmt, module: ast.Module) -> bool:
    """Whether a statement names a `main` of the file and does not call it, or makes a coroutine or a generator of it
    that nobody runs.
    """
    if not isinstance(node, ast.Expr):
        return False
    name = node.value.func if isinstance(node.value, ast.Call) else node.value
    if not isinstance(name, ast.Name) or name.id not in MAINS:
        return False
    own = [n for n in module.body if isinstance(n, FUNCTIONS) and n.name == name.id]
    if not own or own[-1].decorator_list:
        return False
    generates = any(isinstance(inner, _YIELDS) for inner in within(own[-1].body))
    return name is node.value or isinstance(own[-1], ast.AsyncFunctionDef) or generates


def _says(node: ast.stmt) -> bool:
    """Whether a statement is a `print` of what nothing has to be called for."""
    call = node.value if isinstance(node, ast.Expr) else None
    is_print = isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "print"
    inside = [*call.args, *(k.value for k in call.keywords)] if isinstance(call, ast.Call) else []
    return is_print and not any(isinstance(n, ast.Call) for part in inside for n in ast.walk(part))


def _live(block: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module that may run; not what a guard keeps from the program."""
    for node in block:
        if isinstance(node, ast.If):
            guard = _guards(node)
            yield from _live([*(node.body if guard in (None, _ITSELF) else ()), *node.orelse])
        elif isinstance(node, ast.Try):
            handlers = [statement for handler in node.handlers for statement in handler.body]
            yield from _live([*node.body, *handlers, *node.orelse, *node.finalbody])
        elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            yield node


def _guards(node: ast.If) -> str | None:
    """The name that the module must have for what an `if` holds; None of any other condition."""
    test = node.test
    if not (isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], (ast.Eq, ast.Is))):
        return None
    sides = [test.left, *test.comparators]
    names = [side.value for side in sides if isinstance(side, ast.Constant) and isinstance(side.value, str)]
    if sorted(names) == [_ITSELF, _NAME]:  # in quotes, which are never equal
        return _NAME
    is_of_name = any(isinstance(side, ast.Name) and side.id == _NAME for side in sides)
    return names[0] if is_of_name and names else None


def _calls(block: Sequence[ast.stmt]) -> bool:
    return any(isinstance(node, ast.Call) for statement in block for node in ast.walk(statement))
