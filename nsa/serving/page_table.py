"""Rows of a cache in pages: sequences of different lengths share one pool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

import torch
import torch.nn.functional as F
from torch import Tensor

from nsa.host import to_device
from nsa.serving.slot_mapping import SlotMapping


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


@dataclass
class PagedRows:
    """Keys and values in pools [pages, R, Hkv, D*], R rows for each page of tokens; the last page is spare."""

    pool_k: Tensor
    pool_v: Tensor
    pages: PageTable

    @property
    def stored(self) -> tuple[Tensor, Tensor]:
        """The memory itself."""
        return self.pool_k, self.pool_v

    @property
    def shaped(self) -> tuple[Tensor, Tensor]:
        """Tensors of the shape, dtype and device of `k` and `v`, whose contents mean nothing."""
        batch, rows = self.pages.table.shape[0], self.rows
        return tuple(x[:1, :1].expand(batch, rows, -1, -1) for x in self.stored)  # type: ignore[return-value]

    @property
    def rows(self) -> int:
        """Rows of each sequence that the table can name."""
        return self.pages.table.shape[1] * self.pool_k.shape[1]

    def first(self, rows: int) -> tuple[Tensor, Tensor]:
        """As `nsa.cache.Rows.first`, gathered from the pages of so many rows; no page holds anything finite."""
        pages = self.pages.table[:, : -(-rows // self.pool_k.shape[1])].clamp(min=0)
        return self.pool_k[pages].flatten(1, 2), self.pool_v[pages].flatten(1, 2)

    def reserve(self, rows: int) -> None:
        """Make the pools as large as the table says, which has reserved the rows."""
        if self.pages.count >= len(self.pool_k):
            self.pool_k, self.pool_v = (grown(x, self.pages.count + 1, 0) for x in self.stored)

    def write(self, mapping: SlotMapping, k: Tensor, v: Tensor) -> None:
        """Store new rows [B,T,Hkv,D*]; their pages exist."""
        entry, step, row = (to_device(x, k.device) for x in mapping.places(self.rows))
        page = self.pages.table[entry, row // self.pool_k.shape[1]]
        for pool, new in zip(self.stored, (k, v), strict=True):
            pool[page, row % pool.shape[1]] = new[entry, step]

    def put(self, row: Tensor, real: Tensor, k: Tensor, v: Tensor) -> None:
        """As `nsa.cache.Rows.put`; what is not real, or has no page, goes to the spare page."""
        entry, per_page = torch.arange(len(row), device=row.device), self.pool_k.shape[1]
        row = row.clamp(max=self.rows - 1)
        page = self.pages.table[entry, row // per_page].masked_fill(~real, -1)
        page = torch.where(page < 0, len(self.pool_k) - 1, page)
        for pool, new in zip(self.stored, (k, v), strict=True):
            pool[page, row % per_page] = new

    def reorder(self, entries: Tensor, copies: Sequence[tuple[int, int]]) -> None:
        """Copy the pages that `PageTable.reorder` names; `entries` are in its table already."""
        self.reserve(0)
        if copies:
            old, new = to_device([*zip(*copies, strict=True)], self.pool_k.device)
            for pool in self.stored:
                pool[new] = pool[old]

    def map(self, change: Callable[[Tensor], Tensor]) -> None:
        """Replace both pools."""
        self.pool_k, self.pool_v = change(self.pool_k), change(self.pool_v)


def grown(x: Tensor, size: int, dim: int) -> Tensor:
    """x with zeros behind it along an axis."""
    return torch.cat([x, x.new_zeros(*x.shape[:dim], size - x.shape[dim], *x.shape[dim + 1 :])], dim)
