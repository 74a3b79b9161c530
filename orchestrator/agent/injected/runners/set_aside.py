"""Files of tests that were given a name under which nobody looks at them: `test_softmax.py.disabled`."""

from __future__ import annotations

import ast
import os
import re

from ..source.syntax import FUNCTIONS, parsed, walked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Iterator

_NAMED = re.compile(r"(test_.+|.+_test)\.py\.\w+")


def set_aside(items: Iterable[Any], tree: str) -> Iterator[str]:
    """Those beside the files of collected items, in a sentence each; a template is no Python."""
    for folder in sorted({os.path.dirname(str(item.path)) for item in items}):
        for name in sorted(os.listdir(folder)) if f"{folder}{os.sep}".startswith(tree) else ():
            module = parsed(os.path.join(folder, name)) if _NAMED.fullmatch(name) else None
            if module is not None and any(_is_test(node) for node in walked(module)):
                inside = os.path.join(folder, name)[len(tree) :]
                yield f"{inside} holds tests, and nobody looks at it under that name"


def _is_test(node: ast.AST) -> bool:
    return isinstance(node, FUNCTIONS) and node.name.startswith("test")
