"""The files of the tree, and of what is installed from it, that a process has loaded."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

    from ..stage import Config

_PROGRAM = os.path.abspath((getattr(sys, "argv", None) or [""])[0])
"""Where the module has it no more when the program has ended."""


def own_files(config: Config) -> Iterator[tuple[str, str]]:
    """Each with the name of its module."""
    tree, names = config.one("tree") + os.sep, config.all("name")
    for name, module in list(sys.modules.items()):
        file = _PROGRAM if name == "__main__" else getattr(module, "__file__", None)
        is_own = name == "__main__" or name.partition(".")[0] in names
        if isinstance(file, str) and (is_own or file.startswith(tree)):
            yield name, file
