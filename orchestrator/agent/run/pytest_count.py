"""How far a pytest session is, by the plugin's lines as they come."""

from __future__ import annotations

import json
from typing import Optional, Set

from orchestrator.shared.events import Tested


class PytestCount:
    """Counts tests done, of those collected."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._done: Set[str] = set()
        self._collected = 0

    @property
    def told(self) -> Optional[Tested]:
        """None before any was collected."""
        return Tested(done=len(self._done), collected=self._collected) if self._collected else None

    def see(self, piece: bytes) -> None:
        """The next piece of the plugin's lines."""
        *ends, rest = piece.split(b"\n")
        for end in ends:
            self._note(bytes(self._rest + end))
            self._rest.clear()
        self._rest += rest

    def _note(self, line: bytes) -> None:
        try:
            event = json.loads(line)
            if event["event"] in ("selected", "scheduled"):  # by pytest, before that by xdist
                self._collected = len(event["ids"])
            elif event["event"] == "phase" and event["when"] == "teardown":
                self._done.add(event["id"])
        except (ValueError, LookupError, TypeError, RecursionError):  # whoever wrote it: the verdict says so
            return
