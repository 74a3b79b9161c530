"""How often what a broken connection ended is begun again: for as long as it comes further, and a few times besides."""

from __future__ import annotations

import time

PAUSES_S = (0.5, 1.0, 2.0, 5.0, 10.0)
"""Before the next connection, by how many in a row have brought nothing."""
_MOST_VAIN = 5


class Patience:
    """Of one piece of work whose progress is a number that only grows."""

    def __init__(self) -> None:
        self._best = self._vain = 0

    def reached(self, amount: int) -> None:
        """So much of it is done now."""
        if amount > self._best:
            self._best, self._vain = amount, 0

    def lost(self, error: Exception) -> None:
        """Wait a while after `error`, or raise it once enough connections in a row have brought nothing."""
        self._vain += 1
        if self._vain > _MOST_VAIN:
            raise error
        time.sleep(PAUSES_S[self._vain - 1])
