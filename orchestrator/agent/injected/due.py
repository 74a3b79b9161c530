"""Which assertions stand in tests that passed, and which of these ran in any test.

A test that checks shapes and leaves its numbers out (`if cuda:`, a decorator that drops RuntimeErrors) has checked
something; that the rest never ran shows only when all tests are through, for others may reach it by other parameters.
"""

from __future__ import annotations

from os import getpid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, Iterator


class Due:
    """The assertions of this process, by their keys."""

    def __init__(self, tree: str) -> None:
        self._tree = tree
        self._due: set[str] = set()
        self._reached: set[str] = set()
        self._pid = getpid()

    @property
    def is_forked(self) -> bool:
        """Whether this process is one of those that a session starts for a test, and ends before the session's end."""
        return getpid() != self._pid

    def add(self, due: Iterable[str], *reached: Iterable[str]) -> None:
        """A test's: those that stand in it, if it passed, and those that ran."""
        self._due.update(due)
        self._reached.update(*reached)

    def told(self) -> dict[str, list[str]]:
        """What is left `due` here, and all that was `reached`, for another process may leave that due."""
        found = {"due": self._due - self._reached, "reached": self._reached}
        return {name: [*self._places(keys)] for name, keys in found.items()} if self._due or self._reached else {}

    def _places(self, keys: Iterable[str]) -> Iterator[str]:
        """File and line of each, whose key holds the line of its function, too; other keys are of whole functions."""
        for key in keys:
            path, *lines = key.rsplit(":", 2)
            if len(lines) == 2 and lines[0].isdigit():
                yield f"{path[len(self._tree) :]}:{lines[1]}"
