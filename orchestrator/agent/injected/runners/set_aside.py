"""Files of tests that were given a name under which nobody looks at them: `test_softmax.py.disabled`."""

from __future__ import annotations

import os
import re

from ..source.syntax import FUNCTIONS, parsed, walked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Iterator

_NAMED = re.compile(r"((test_.+|.+_test)\.py)\.\w+")


def set_aside(items: Iterable[Any], tree: str) -> Iterator[str]:
    """Those beside the files of collected items, in a sentence each; a template is no Python. Nothing is said of one
    whose tests the file has that it is a copy of, or what that is made of.
    """
    for folder in sorted({os.path.dirname(file) for file in map(str, {item.path for item in items})}):
        for name in sorted(os.listdir(folder)) if f"{folder}{os.sep}".startswith(tree) else ():
            named = _NAMED.fullmatch(name)
            if named and not _tests_in(os.path.join(folder, name)) <= _tests_in(os.path.join(folder, named[1])):
                inside = os.path.join(folder, name)[len(tree) :]
                yield f"{inside} holds tests, and nobody looks at it under that name"


def _tests_in(file: str) -> set[str]:
    module = parsed(file)
    nodes = walked(module) if module is not None else ()
    return {node.name for node in nodes if isinstance(node, FUNCTIONS) and node.name.startswith("test")}
