"""The failures of a pytest session while it runs: an event each for the journal, of the first ones."""

from __future__ import annotations

import contextlib
import json
from typing import Callable, Dict, Set

from orchestrator.shared.events import TestFailed
from orchestrator.shared.text import plain
from orchestrator.verdict.failures import key
from orchestrator.verdict.raised import as_told, sentence

_MOST = 20
_LONGEST = 200
_MOST_BYTES = 1 << 20  # of a line; the end of one that is longer is none of the plugin's
_MARK = b'"why": {'
"""What stands in a line that tells of a failure, and in few others."""


class LiveFailures:
    """Tells of the failures in the plugin's lines, which come in pieces; of several with one cause of the first."""

    def __init__(self, stage: str, tell: Callable[[TestFailed], None]) -> None:
        self._stage = stage
        self._tell = tell
        self._rest = b""
        self._told: Set[object] = set()

    def see(self, piece: bytes) -> None:
        """The next piece of the plugin's lines."""
        if len(self._told) >= _MOST:
            return
        *lines, rest = (self._rest + piece).split(b"\n")
        self._rest = rest[-_MOST_BYTES:]
        for line in lines:
            if _MARK in line:
                with contextlib.suppress(ValueError, LookupError, TypeError, AttributeError, RecursionError):
                    self._see_failure(json.loads(line))

    def _see_failure(self, event: Dict[str, object]) -> None:
        why = as_told(event["why"])  # type: ignore[arg-type]
        what: object = key(why) or event["id"]
        if what not in self._told and len(self._told) < _MOST:
            self._told.add(what)
            id_, reason = plain(event["id"], _LONGEST), plain(sentence(why), _LONGEST)
            self._tell(TestFailed(event="test_failed", stage=self._stage, id=id_, reason=reason))
