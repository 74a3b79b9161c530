"""Which assertions stand in tests that passed, and which of these ran in any test: each is told once.

A test that checks shapes and leaves its numbers out (`if cuda:`, a decorator that drops RuntimeErrors) has checked
something; that the rest never ran shows only when all tests are through, for others may reach it by other parameters.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable


class Due:
    """The assertions of this process, by their keys: `due` are those of tests that passed, `reached` those that ran."""

    def __init__(self, tree: str) -> None:
        self._tree = tree
        self._due: set[str] = set()
        self._reached: set[str] = set()

    def of_test(self, stand: Iterable[str], reached: Iterable[str]) -> dict[str, list[str]]:
        """What a test adds: of the assertions that `stand` in it, and of those that ran, the ones not told before."""
        due = [key for key in stand if key not in self._due]
        ran = [key for key in reached if key not in self._reached]
        self._due.update(due)
        told = [key for key in ran if key in self._due] + [key for key in due if key in self._reached]
        self._reached.update(ran)
        found = {"due": due, "reached": told}
        return {name: [self._place(key) for key in keys] for name, keys in found.items() if keys}

    def _place(self, key: str) -> str:
        """File and line, of a key that holds the function's line too."""
        path, _, line = key.rsplit(":", 2)
        return f"{path[len(self._tree) :]}:{line}"
