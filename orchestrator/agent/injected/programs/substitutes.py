"""What takes the place of a module of the tree that cannot be imported: `except ImportError: from slow import f`."""

from __future__ import annotations

import os

from ..frames import IMPORTING, outside

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ast
    from types import FrameType, ModuleType
    from typing import Iterator

    from ..checks.records import Checks


class Substitutes:
    """Tells of each as a doubt: a program may be meant to go on without what this machine lacks."""

    def __init__(self, checks: Checks) -> None:
        self._checks = checks

    def has_ended(self, module: ModuleType, error: BaseException | None, frame: FrameType) -> None:
        """A module of the tree was run, which `frame` imports."""
        asking = outside(frame, *IMPORTING) if isinstance(error, Exception) else None
        if asking is None or self._checks.now.test is not None:
            return
        file = os.path.abspath(asking.f_code.co_filename)
        names = _other_names(file, asking.f_lineno) if self._checks.is_ours(file) else ""
        if names:
            place = f"{file[len(self._checks.tree) :]} line {asking.f_lineno}"
            why = f"{type(error).__name__}: {error}"[:200]
            self._checks.notes.add(
                doubt=f"{module.__name__} cannot be imported ({why}), and {names} is another one then ({place})"
            )


def _other_names(file: str, line: int) -> str:
    """The names that an import in a `try` would give, and that its `except` gives to something else."""
    import ast

    from ..source.syntax import parsed

    module = parsed(file)
    tries = [node for node in ast.walk(module) if isinstance(node, ast.Try)] if module is not None else []
    around = [node for node in tries if node.body[0].lineno <= line <= (node.body[-1].end_lineno or 0)]
    if not around:
        return ""
    handlers = [statement for handler in around[-1].handlers for statement in handler.body]
    return ", ".join(sorted(set(given_in(around[-1].body)).intersection(given_in(handlers))))


def given_in(block: list[ast.stmt]) -> Iterator[str]:
    """The names that statements give to what is no constant."""
    import ast

    for node in block:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from (alias.asname or alias.name for alias in node.names)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.Assign) and not isinstance(node.value, ast.Constant):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))
