"""Keys and values of a cache: each sequence's in one piece, or in pages that a table names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nsa.host import to_device
from nsa.serving.page_table import PageTable
from nsa.serving.slot_mapping import SlotMapping


@dataclass
class Rows:
    """Keys [B,R,Hkv,Dk] and values [B,R,Hkv,Dv]: position p of a sequence is in row p % R."""

    k: Tensor
    v: Tensor

    @property
    def stored(self) -> tuple[Tensor, Tensor]:
        """The memory itself."""
        return self.k, self.v

    @property
    def rows(self) -> int:
        """R."""
        return self.k.shape[1]

    def first(self, rows: int) -> tuple[Tensor, Tensor]:
        """Keys and values [B,R,Hkv,D*] of at least the first `rows` rows."""
        return self.stored

    def reserve(self, rows: int) -> None:
        """Room for that many rows; at least doubles when it grows."""
        if rows > self.k.shape[1]:
            rows = max(rows, 2 * self.k.shape[1])
            self.k, self.v = grown(self.k, rows, 1), grown(self.v, rows, 1)

    def write(self, mapping: SlotMapping, k: Tensor, v: Tensor) -> None:
        """Store new rows [B,T,Hkv,D*]; of more than R the last stay."""
        mapping.store(k, self.k)
        mapping.store(v, self.v)

    def put(self, row: Tensor, real: Tensor, k: Tensor, v: Tensor) -> None:
        """Where `real` [B], store one key and value [B,Hkv,D*] of each sequence in its row [B]; all on the device."""
        entry = torch.arange(len(row), device=row.device)
        row = row.clamp(max=self.rows - 1)
        for x, new in zip(self.stored, (k, v), strict=True):
            x[entry, row] = torch.where(real[:, None, None], new, x[entry, row])

    def reorder(self, entries: Tensor, copies: Sequence[tuple[int, int]]) -> None:
        """Entry i becomes a copy of entry entries[i]."""
        self.map(lambda x: x.index_select(0, entries))

    def map(self, change: Callable[[Tensor], Tensor]) -> None:
        """Replace both buffers."""
        self.k, self.v = change(self.k), change(self.v)


@dataclass
class PagedRows(Rows):
    """Keys and values in pools [pages, R, Hkv, D*], R rows for each page of tokens; the last page is spare."""

    pages: PageTable

    @property
    def rows(self) -> int:
        """Rows of each sequence that the table can name."""
        return self.pages.table.shape[1] * self.k.shape[1]

    def first(self, rows: int) -> tuple[Tensor, Tensor]:
        """As `Rows.first`, gathered from the pages of so many rows; no page holds anything finite."""
        pages = self.pages.table[:, : -(-rows // self.k.shape[1])].clamp(min=0)
        return self.k[pages].flatten(1, 2), self.v[pages].flatten(1, 2)

    def reserve(self, rows: int) -> None:
        """Make the pools as large as the table says, which has reserved the rows."""
        if self.pages.count >= len(self.k):
            self.k, self.v = (grown(x, self.pages.count + 1, 0) for x in self.stored)

    def write(self, mapping: SlotMapping, k: Tensor, v: Tensor) -> None:
        """Store new rows [B,T,Hkv,D*]; their pages exist."""
        entry, step, row = (to_device(x, k.device) for x in mapping.places(self.rows))
        page = self.pages.table[entry, row // self.k.shape[1]]
        for pool, new in zip(self.stored, (k, v), strict=True):
            pool[page, row % pool.shape[1]] = new[entry, step]

    def put(self, row: Tensor, real: Tensor, k: Tensor, v: Tensor) -> None:
        """As `Rows.put`; what is not real, or has no page, goes to the spare page."""
        entry, per_page = torch.arange(len(row), device=row.device), self.k.shape[1]
        row = row.clamp(max=self.rows - 1)
        page = self.pages.table[entry, row // per_page].masked_fill(~real, -1)
        page = torch.where(page < 0, len(self.k) - 1, page)
        for pool, new in zip(self.stored, (k, v), strict=True):
            pool[page, row % per_page] = new

    def reorder(self, entries: Tensor, copies: Sequence[tuple[int, int]]) -> None:
        """Copy the pages that `PageTable.reorder` names; `entries` are in its table already."""
        self.reserve(0)
        if copies:
            old, new = to_device([*zip(*copies, strict=True)], self.k.device)
            for pool in self.stored:
                pool[new] = pool[old]


def grown(x: Tensor, size: int, dim: int) -> Tensor:
    """x with zeros behind it along an axis."""
    return torch.cat([x, x.new_zeros(*x.shape[:dim], size - x.shape[dim], *x.shape[dim + 1 :])], dim)
