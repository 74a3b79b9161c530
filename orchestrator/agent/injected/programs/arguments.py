"""Options that a program of the tree was given, and that its parser did not know and passed over."""

from __future__ import annotations

import os
import sys

from ..frames import outside
from ..hooks import watch
from ..stage import test_around

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType, ModuleType
    from typing import Any, Callable, Sequence

    from ..processes.ends import End
    from ..stage import Notes


class Arguments:
    """Tells of those that no parser of the process takes, of which its program makes nothing: `args, _ =
    parse_known_args()`. A program that another one has started may be given more than it asks for.
    """

    def __init__(self, tree: str, end: End, notes: Notes) -> None:
        self._tree, self._end, self._notes = tree, end, notes
        self._taken: set[str] = set()
        self._left: dict[str, str] = {}
        self.after_import: dict[str, Callable[[ModuleType], None]] = {
            "argparse": lambda module: watch(module.ArgumentParser, "parse_known_args", after=self._look)
        }

    def _look(
        self, frame: FrameType, result: Any, parser: object, args: Sequence[str] | None = None, *_: Any, **__: Any
    ) -> None:
        rest, given = result[1], sys.argv[1:]
        self._taken.update(set(given if args is None else args).difference(rest))
        caller = outside(frame, "argparse") or frame
        file = os.path.realpath(caller.f_code.co_filename)
        options = [word for word in rest if word.startswith("-")]
        is_own = args is None or list(args) == given
        if options and is_own and file.startswith(self._tree) and test_around() is None:
            from ..source.uses import is_used

            if not (is_used(caller, called=True, part=1) or _looks_itself(file)):
                place = f"{file[len(self._tree) :]} line {caller.f_lineno}"
                self._left.update(dict.fromkeys(options, place))

    def tell(self) -> None:
        """At the end of the process: another parser may have taken them."""
        for option, place in self._left.items():
            if option not in self._taken and self._end.is_of_stage():
                self._notes.add(doubt=f"{option} is no option that it knows, and was passed over ({place})")


def _looks_itself(file: str) -> bool:
    """Whether a program makes something of its arguments beside what it gives to parsers, and beside its own name."""
    import ast

    from ..source.syntax import called, name_of, parsed
    from ..source.uses import Program

    module = parsed(file)
    nodes = [] if module is None else list(ast.walk(module))
    parts = (n for n in nodes if called(n).startswith("parse_") or getattr(getattr(n, "slice", None), "value", 1) == 0)
    others = {inner for part in parts for inner in ast.walk(part)}
    own = [n for n in nodes if isinstance(n, ast.expr) and name_of(n) == "argv" and n not in others]
    if module is None or not own:
        return False
    program = Program(module, nodes, is_main=True)
    return any(program.uses(program.statement(node), None, set()) for node in own)
