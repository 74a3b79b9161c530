"""What a process imported and had to compile, for the agent to keep: no process of a stage keeps bytecode itself."""

from __future__ import annotations

import os
import sys

from ..stage import FOLDER, Notes
from .provenance import own_dict, own_folders

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

    from ..stage import Config

_MANY = 1000  # compiling so many takes seconds, each time
_INJECTED = FOLDER + os.sep


class Uncompiled:
    """Tells the agent of modules that are to be compiled into the folder `bytecode`, in the file `uncompiled`.

    A Python for which the agent keeps bytecode looks for it nowhere else: of one for which it keeps none yet all that
    was imported is told, if that is much and most of it has none where it lies.
    """

    def __init__(self, config: Config) -> None:
        self._kept, self._report = config.one("bytecode"), config.one("uncompiled")
        self._home = tuple(path + os.sep for path in (*config.all("home"), *own_folders()))

    def tell(self) -> None:
        """Of what was imported so far: the process ends."""
        is_kept = sys.pycache_prefix == self._kept
        if not sys.dont_write_bytecode or not (is_kept or len(sys.modules) >= _MANY):
            return
        sources = list(self._sources())
        missing = [file for file, bytecode in sources if not os.path.exists(bytecode)]
        files = missing if is_kept else [file for file, _ in sources if 2 * len(missing) > len(sources)]
        if files:
            try:
                Notes(self._report).add(files=files)
            except OSError:  # the process may run as another user
                return

    def _sources(self) -> Iterator[tuple[str, str]]:
        """The modules that are at home, each with where this process looks for its bytecode."""
        for module in list(sys.modules.values()):
            own = own_dict(module) if issubclass(type(module), type(sys)) else None
            spec = (own or {}).get("__spec__")
            if type(spec) is type(os.__spec__):
                file, bytecode = spec.origin, spec.cached
                if isinstance(file, str) and bytecode and file.startswith((*self._home, _INJECTED)):
                    yield file, bytecode
