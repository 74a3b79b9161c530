"""What one process has made of a source is kept for all others of the run: a file for each."""

from __future__ import annotations

import os
from _imp import source_hash  # as Python's own cache has it
from _thread import get_ident
from io import open as open_file  # bound here: a test may have replaced them when it imports a helper
from marshal import dumps, loads
from os import getpid, makedirs, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_KEY = 0x6E7361


class Kept:
    """In a folder; nothing where that is another user's."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def get(self, key: str, source: bytes) -> Any:
        """What was `put` for the same source and key; None if nothing was."""
        try:
            with open_file(self._path(key, source), "rb") as f:
                return loads(f.read())
        except (OSError, EOFError, ValueError, TypeError):
            return None

    def put(self, key: str, source: bytes, value: Any) -> None:
        """Keep what `marshal` can write down."""
        path = self._path(key, source)
        part = f"{path}.{getpid()}.{get_ident()}"
        try:
            makedirs(self._folder, exist_ok=True)
            with open_file(part, "wb") as f:
                f.write(dumps(value))
            replace(part, path)
        except OSError:  # half a file of a full disk is nobody's
            return

    def _path(self, key: str, source: bytes) -> str:
        return os.path.join(self._folder, source_hash(_KEY, key.encode("utf-8", "surrogateescape") + source).hex())
