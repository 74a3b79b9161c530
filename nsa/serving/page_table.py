"""Pages of a cache: sequences of different lengths share one pool."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import torch
import torch.nn.functional as F

from nsa.host import to_device


class PageTable:
    """Which pages hold the tokens of each sequence. Pages that nothing will change may be several sequences'.

    Attributes:
        size: tokens of a page.
        table: int32 [B, most], the pages of each sequence in order; -1 where it has none yet.
        count: pages of the pool.
    """

    def __init__(self, batch: int, size: int, capacity: int, device: torch.device | str | None) -> None:
        """No pages yet; `capacity` tokens of each sequence fit before the table is replaced by a wider one."""
        self.size, self.count = size, 0
        self._owned: list[list[int]] = [[] for _ in range(batch)]
        self._free: list[int] = []
        self._holders: list[int] = []
        self.table = torch.full((batch, -(-capacity // size)), -1, dtype=torch.int32, device=device)

    def holds(self, tokens: Sequence[int]) -> bool:
        """Whether each sequence has the pages for that many tokens."""
        return all(len(own) * self.size >= count for own, count in zip(self._owned, tokens, strict=True))

    def reserve(self, tokens: Sequence[int], capacity: int) -> None:
        """Give each sequence the pages for that many tokens, and the table room for `capacity` of each.

        `count` and the table at least double when they grow. What is written is what is new.
        """
        wanted = [max(0, self._pages(count) - len(own)) for own, count in zip(self._owned, tokens, strict=True)]
        fresh, new = iter(self._take(sum(wanted))), []
        for entry, (own, more) in enumerate(zip(self._owned, wanted, strict=True)):
            for page in islice(fresh, more):
                new.append((entry, len(own), page))
                own.append(page)
        width, most = self.table.shape[1], self._pages(capacity)
        if most > width:
            self.table = F.pad(self.table, (0, max(most, 2 * width) - width), value=-1)
        self._name(new)

    def clear(self) -> None:
        """Take all pages back."""
        for own in self._owned:
            self._give_back(own)
        self._owned = [[] for _ in self._owned]
        self.table.fill_(-1)

    def reorder(self, chosen: Sequence[int], lengths: Sequence[int], pending: int) -> list[tuple[int, int]]:
        """Entry i becomes entry chosen[i]: its pages that nothing will change are shared, the others are to be copied.

        Args:
            chosen: entries.
            lengths: tokens of the entries now.
            pending: a page still changes while that many tokens, at most, have come after it.

        Returns:
            (from, to), pages to copy.
        """
        for entry in set(range(len(self._owned))).difference(chosen):
            self._give_back(self._owned[entry])
        owned: list[list[int]] = []
        taken, copies, new = set(), [], []
        for entry in chosen:
            own = self._owned[entry]
            if entry not in taken:
                taken.add(entry)
                owned.append(own)
                continue
            held = self._pages(lengths[entry])
            settled = min(held, max(0, lengths[entry] - pending) // self.size)
            fresh = self._take(held - settled)
            for page in own[:settled]:
                self._holders[page] += 1
            copies += zip(own[settled:held], fresh, strict=True)
            named = fresh + [-1] * (len(own) - held)
            new += [(len(owned), settled + i, page) for i, page in enumerate(named)]
            owned.append(own[:settled] + fresh)
        self._owned = owned
        moved = self.table.index_select(0, to_device(chosen, self.table.device))
        self.table = self.table.copy_(moved) if moved.shape == self.table.shape else moved
        self._name(new)
        return copies

    def to(self, device: torch.device | str | None) -> None:
        self.table = self.table.to(device)

    def _pages(self, tokens: int) -> int:
        return -(-tokens // self.size)

    def _take(self, pages: int) -> list[int]:
        """So many pages that nobody holds; the pool at least doubles if it grows."""
        lacking = pages - len(self._free)
        if lacking > 0:
            grown = max(self.count + lacking, 2 * self.count)
            self._free.extend(range(grown - 1, self.count - 1, -1))
            self._holders.extend([0] * (grown - self.count))
            self.count = grown
        taken = [self._free.pop() for _ in range(pages)]
        for page in taken:
            self._holders[page] = 1
        return taken

    def _give_back(self, pages: Sequence[int]) -> None:
        for page in pages:
            self._holders[page] -= 1
        self._free.extend(page for page in pages if not self._holders[page])

    def _name(self, new: Sequence[tuple[int, int, int]]) -> None:
        """Write (entry, place, page) into the device's table."""
        if new:
            entry, place, page = to_device([*zip(*new, strict=True)], self.table.device)
            self.table[entry, place] = page.to(torch.int32)
