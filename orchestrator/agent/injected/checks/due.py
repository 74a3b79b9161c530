"""Which assertions stand in tests that passed, and which of these ran in any test.

A test that checks shapes and leaves its numbers out (`if cuda:`, a decorator that drops RuntimeErrors) has checked
something; that the rest never ran shows only when all tests are through, for others may reach it by other parameters.
"""

from __future__ import annotations

from os import getpid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType
    from typing import Iterable, Iterator

    from ..marks.facts import Facts


class Due:
    """The assertions of this process, by their keys."""

    def __init__(self, tree: str) -> None:
        self._tree = tree
        self._passed: dict[int, tuple[Facts, CodeType]] = {}  # by ids, for to compare codes takes longer
        self._reached: set[str] = set()
        self._pid = getpid()

    @property
    def is_forked(self) -> bool:
        """Whether this process is one of those that a session starts for a test, and ends before the session's end."""
        return getpid() != self._pid

    def passed(self, facts: Facts, code: CodeType) -> None:
        """What stands in a test, and in what it names, is due."""
        self._passed[id(code)] = facts, code

    def reached(self, *keys: Iterable[str]) -> None:
        """Those that ran in a test, whatever became of it."""
        self._reached.update(*keys)

    def told(self) -> dict[str, list[str]]:
        """What is left `due` here, and all that was `reached`, for another process may leave that due."""
        found = {"due": self._due(), "reached": self._reached}
        return {name: [*self._places(keys)] for name, keys in found.items()} if any(found.values()) else {}

    def _due(self) -> set[str]:
        """Few files have an assertion that never ran: of all others nobody asks what their tests name."""
        files = {facts.path: facts for facts, _ in self._passed.values()}
        left = {path: facts.all_assertions() - self._reached for path, facts in files.items()}
        found: set[str] = set()
        for facts, code in self._passed.values():
            if left[facts.path]:
                found.update(left[facts.path].intersection(facts.assertions_of(code)))
        return found

    def _places(self, keys: Iterable[str]) -> Iterator[str]:
        """File and line of each, whose key holds the line of its function, too; other keys are of whole functions."""
        for key in keys:
            path, *lines = key.rsplit(":", 2)
            if len(lines) == 2 and lines[0].isdigit():
                yield f"{path[len(self._tree) :]}:{lines[1]}"
