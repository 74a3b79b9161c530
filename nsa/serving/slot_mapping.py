"""Where new rows of a batch go on an axis that each sequence fills at its own pace."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nsa.host import to_device


@dataclass(frozen=True)
class SlotMapping:
    """New rows on an axis of length `width`: of entry b the first counts[b], from position starts[b] on."""

    starts: list[int]
    counts: list[int]
    width: int

    @property
    def ends(self) -> list[int]:
        """Length of each sequence afterwards."""
        return [start + count for start, count in zip(self.starts, self.counts, strict=True)]

    @property
    def alike(self) -> bool:
        """Whether every entry does the same."""
        return len(set(self.starts)) == 1 and set(self.counts) == {self.width}

    def store(self, new: Tensor, target: Tensor) -> None:
        """Write new [B,width,...] to its places in target [B,R,...]."""
        rows = target.shape[1]
        if not self.alike:
            entry, step, row = (to_device(x, new.device) for x in self.places(rows))
            target[entry, row] = new[entry, step]
            return
        kept = min(self.width, rows)
        first = (self.starts[0] + self.width - kept) % rows
        before_wrap = min(kept, rows - first)
        kept_rows = new[:, self.width - kept :]
        target[:, first : first + before_wrap] = kept_rows[:, :before_wrap]
        target[:, : kept - before_wrap] = kept_rows[:, before_wrap:]

    def places(self, rows: int) -> tuple[Tensor, Tensor, Tensor]:
        """(entry, index on the new axis, row) of every row that stays."""
        counts, starts = (torch.tensor(x, device="cpu") for x in (self.counts, self.starts))
        step = torch.arange(self.width, device="cpu")
        stays = (step < counts[:, None]) & (step >= counts[:, None] - rows)
        entry, step = stays.nonzero(as_tuple=True)
        return entry, step, (starts[entry] + step) % rows

    def fetch(self, old: Tensor, new: Tensor, first: list[int], length: int) -> Tensor:
        """Rows at the positions first[b], first[b]+1, ...: [B,length,...], from old [B,R,...] or new [B,width,...].

        Rows of positions that do not exist hold anything finite.
        """
        if self.alike and len(set(first)) == 1 and 0 <= first[0] - self.starts[0] <= self.width - length:
            return new[:, first[0] - self.starts[0] :][:, :length]
        first_position, start = (torch.tensor(x, device="cpu")[:, None] for x in (first, self.starts))
        position, rows = first_position + torch.arange(length, device="cpu"), old.shape[1]
        arrived = rows + (position - start).clamp(max=self.width - 1)
        index = to_device(torch.where(position < start, position % rows, arrived), new.device)
        entry = torch.arange(len(first), device=new.device)[:, None]
        return torch.cat([old, new], dim=1)[entry, index]
