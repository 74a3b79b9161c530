"""A dictionary that does not grow for ever."""

from __future__ import annotations

from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Bounded(dict[Key, Value]):
    """The last `most` entries: a new one takes the place of the oldest.

    For what is remembered of calls by what they have in common, where `functools.lru_cache` would hold the tensors.
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def __setitem__(self, key: Key, value: Value) -> None:
        if key not in self:
            for oldest in list(self)[: len(self) + 1 - self.most]:
                self.pop(oldest, None)  # None: another thread may have done so
        super().__setitem__(key, value)
