"""Rows of a cache in pages: sequences of different lengths share one pool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from nsa.arrivals import Arrivals
from nsa.transfer import to_device


class PageTable:
    """Which pages hold the tokens of each sequence.

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
        self.table = torch.full((batch, -(-capacity // size)), -1, dtype=torch.int32, device=device)

    @property
    def capacity(self) -> int:
        """Tokens of a sequence that the table can name."""
        return self.table.shape[1] * self.size

    def holds(self, tokens: Sequence[int]) -> bool:
        """Whether each sequence has the pages for that many tokens."""
        return all(len(own) * self.size >= count for own, count in zip(self._owned, tokens, strict=True))

    def reserve(self, tokens: Sequence[int], capacity: int) -> None:
        """Give each sequence the pages for that many tokens, and the table room for `capacity` of each.

        `count` and the table at least double when they grow.
        """
        wanted = [max(0, -(-count // self.size) - len(own)) for own, count in zip(self._owned, tokens, strict=True)]
        fresh = sum(wanted) - len(self._free)
        if fresh > 0:
            grown = max(self.count + fresh, 2 * self.count)
            self._free.extend(range(grown - 1, self.count - 1, -1))
            self.count = grown
        for own, more in zip(self._owned, wanted, strict=True):
            own.extend(self._free.pop() for _ in range(more))
        width, most = self.table.shape[1], -(-capacity // self.size)
        self._write(width if most <= width else max(most, 2 * width))

    def clear(self) -> None:
        """Take all pages back."""
        self._free.extend(page for own in self._owned for page in own)
        self._owned = [[] for _ in self._owned]
        self._write(self.table.shape[1])

    def lay_out(self, batch: int, device: torch.device) -> None:
        """Begin anew: every sequence of a batch owns a full row of the table, in order."""
        width = self.table.shape[1]
        self._owned = [list(range(b * width, (b + 1) * width)) for b in range(batch)]
        self._free, self.count = [], batch * width
        self.table = self.table.new_empty((batch, width), device=device)
        self._write(width)

    def _write(self, width: int) -> None:
        """Bring the device's table up to date, in place where its width stays."""
        rows = torch.tensor([own + [-1] * (width - len(own)) for own in self._owned], dtype=torch.int32)
        fresh = to_device(rows, self.table.device)
        if fresh.shape == self.table.shape:
            self.table.copy_(fresh)
        else:
            self.table = fresh


@dataclass
class PagedRows:
    """Keys and values in pools [pages, R, Hkv, D*], R rows for each page of tokens; the last page is spare."""

    pool_k: Tensor
    pool_v: Tensor
    pages: PageTable

    @property
    def k(self) -> Tensor:
        """The keys as one tensor [B,rows,Hkv,Dk], gathered; rows that no page holds are anything finite."""
        return self._dense(self.pool_k)

    @property
    def v(self) -> Tensor:
        """The values, as `k`."""
        return self._dense(self.pool_v)

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

    def _dense(self, pool: Tensor) -> Tensor:
        return pool[self.pages.table.clamp(min=0)].flatten(1, 2)

    def reserve(self, rows: int) -> None:
        """Make the pools as large as the table says, which has reserved the rows."""
        if self.pages.count >= len(self.pool_k):
            self.pool_k, self.pool_v = (_grown(x, self.pages.count + 1) for x in self.stored)

    def write(self, arrivals: Arrivals, k: Tensor, v: Tensor) -> None:
        """Store new rows [B,T,Hkv,D*]; their pages exist."""
        entry, step, row = (to_device(x, k.device) for x in arrivals.places(self.rows))
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

    def map(self, change: Callable[[Tensor], Tensor]) -> None:
        """Replace the pools by those of the changed rows, as `PageTable.lay_out` will name them."""
        per_page = self.pool_k.shape[1]
        self.pool_k, self.pool_v = (
            F.pad(change(x).unflatten(1, (-1, per_page)).flatten(0, 1), (0,) * 7 + (1,)) for x in (self.k, self.v)
        )


def _grown(x: Tensor, count: int) -> Tensor:
    larger = x.new_zeros(count, *x.shape[1:])
    larger[: len(x)] = x
    return larger
