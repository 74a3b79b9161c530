"""What one process has made of a source is kept for all others of the stage, and for its repetitions: a file for each.

Whatever runs in a stage can write there what it likes, for it is the user that the agent is. So no stage takes what
another one has left: the agent empties the folder before each, and nothing is kept beyond the run.
"""

from __future__ import annotations

import os
import sys
from _frozen_importlib_external import MAGIC_NUMBER
from _imp import source_hash  # as Python's own cache has it
from _thread import get_ident
from io import open as open_file  # bound here: a test may have replaced them when it imports a helper
from marshal import dumps, loads
from os import getpid, makedirs, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_FORM = f"{sys.implementation.cache_tag}\0".encode() + MAGIC_NUMBER
"""In which this Python writes code down; a stage may have several."""


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
        of = b"\0".join((_FORM, key.encode("utf-8", "surrogateescape"), source))
        return os.path.join(self._folder, source_hash(0, of).hex())
