"""Where the modules of a process came from: those of a name that the tree holds, and were found elsewhere."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .stage import Config, Notes

_INJECTED = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
_STANDARD_LIBRARY = os.path.dirname(os.path.realpath(os.__file__)) + os.sep


class Imports:
    """Notes a module once, when it is first seen: `{"name": ..., "file": ...}`."""

    def __init__(self, config: Config, notes: Notes) -> None:
        self._notes = notes
        self._tree = config.one("tree")
        self._roots = config.all("root")
        self._names = frozenset(config.all("name"))
        self._seen: set[str] = set()

    def watches(self, name: str) -> bool:
        return name.partition(".")[0] in self._names

    def look_at(self, name: str, file: str | None) -> None:
        """Note the module `name` if it comes from outside the tree, and should not."""
        if name in self._seen or file is None:
            return
        self._seen.add(name)
        path = os.path.realpath(file)
        ours = path.startswith((self._tree + os.sep, _INJECTED + os.sep))
        if not ours and not _is_standard(path) and (self._is_in_tree(file) or self._tree_holds(name)):
            self._notes.add(name=name, file=path)

    def look_at_loaded(self) -> None:
        """Also those that were loaded past the finders, or before the guard was there."""
        for key, module in list(sys.modules.items()):
            own = getattr(module, "__dict__", {})
            # A package may file another one under a name of its own: the module's real name is its spec's.
            name = getattr(own.get("__spec__"), "name", None) or key
            file = own.get("__file__")
            if isinstance(file, str) and (self.watches(name) or self._is_in_tree(file)):
                self.look_at(name, file)
        for script in sys.argv[:1]:  # __main__ has forgotten its file by now
            if self._is_in_tree(script):
                self.look_at("__main__", script)

    def _is_in_tree(self, file: str) -> bool:
        """Whether `file` is named as one of the tree: where it leads is another question."""
        return os.path.abspath(file).startswith(self._tree + os.sep)

    def _tree_holds(self, name: str) -> bool:
        inner = name.replace(".", os.sep)
        bases = [os.path.join(root, inner) for root in self._roots]
        return any(os.path.isfile(b + ".py") or os.path.isfile(os.path.join(b, "__init__.py")) for b in bases)


def _is_standard(path: str) -> bool:
    inside = path[len(_STANDARD_LIBRARY) :]
    is_package = inside.startswith(("site-packages" + os.sep, "dist-packages" + os.sep))
    return path.startswith(_STANDARD_LIBRARY) and not is_package
