"""What a pod may take of this machine, whatever it says: the limits of every answer, in seconds and bytes.

docs/limits.md has them in one table, with what is told when one is reached.
"""

from __future__ import annotations

from orchestrator import told
from orchestrator.errors import CommandTimeout

COMMAND_LIMIT_S = 60.0
"""An answer, from the question to its last byte, unless the question itself says otherwise."""
SILENCE_LIMIT_S = 60.0
"""Bulk, either way, without a byte."""
SLOWEST = 1 << 10
"""Bytes a second of bulk, over a minute of waiting for it."""
FIRST_LINE_LIMIT_S = 150.0
"""What takes bulk, until it says that it is ready: somebody else who brings the same is waited for there."""
SUPPLIED_LIMIT_S = 900.0
"""The answer to bulk that was sent, once all of it is."""
OUTPUT_LIMIT = told.MOST_BYTES
"""What a command may print, as it is held in memory; bulk goes through `stream`."""
FEED_LIMIT = 4 << 20
"""What of a run's journal is held until it is read; what comes beyond is asked for again."""
GREETING_LIMIT = 1 << 18
"""What a login script may print before the command's own output."""
UNASKED_LIMIT = 16 << 20
"""What may follow the bulk that was asked for."""
STDERR_KEPT = 1 << 16
"""The end of a command's stderr; what came before is dropped."""

_MINUTE_S = 60.0


class Pace:
    """Of bulk that `what` sends or takes: CommandTimeout once it is slower than SLOWEST."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._waited = 0.0
        self._moved = 0

    def moved(self, size: int, waited: float) -> None:
        """So many bytes were moved after so many seconds of waiting for that."""
        self._moved += size
        self._waited += waited
        if self._waited >= _MINUTE_S:
            if self._moved < SLOWEST * _MINUTE_S:
                raise CommandTimeout(f"{self._what} moved {self._moved} bytes in {self._waited:.0f} s")
            self._waited, self._moved = 0.0, 0
