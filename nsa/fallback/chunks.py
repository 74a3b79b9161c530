"""How the PyTorch backend walks over queries: in chunks, so that memory never grows with T*T."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from torch import Tensor

from nsa.blocks import num_compressed
from nsa.config import NSAConfig
from nsa.host import numbers
from nsa.routing.request import How

TILE_BYTES = 128 * 2**20
"""Aim for the largest temporary of one chunk."""


@dataclass(frozen=True)
class Chunk:
    """Consecutive queries `rows` of the T axis, the first at position `t0` of its sequence, alike in every batch entry
    of `batch`.

    `key0` and `cmp0` are the indices of the sequence's first token and first compressed token on their axes.
    """

    batch: slice
    rows: slice
    t0: int = 0
    key0: int = 0
    cmp0: int = 0

    @property
    def end(self) -> int:
        """The position after the last query's."""
        return self.t0 + self.rows.stop - self.rows.start

    def split(self, size: int) -> Iterator[Chunk]:
        """Its queries, at most `size` at a time."""
        for row in range(self.rows.start, self.rows.stop, size):
            rows = slice(row, min(row + size, self.rows.stop))
            yield replace(self, rows=rows, t0=self.t0 + row - self.rows.start)


def sequences(q: Tensor, config: NSAConfig | None, how: How) -> list[Chunk]:
    """What is walked over: the batch at once, or each packed segment, or each entry with its own start.

    `config` is needed for `cmp0` of packed sequences only.
    """
    batch, tokens = q.shape[:2]
    if how.cu_seqlens is not None:
        return _packed(*(numbers(x) for x in (how.cu_seqlens, how.cu_seqlens_k) if x is not None), config=config)
    starts = [0] if how.q_start is None else numbers(how.q_start)
    if len(set(starts)) <= 1:
        return [Chunk(slice(0, batch), slice(0, tokens), *starts[:1])]
    return [Chunk(slice(b, b + 1), slice(0, tokens), start) for b, start in enumerate(starts)]


def _packed(borders: list[int], of_keys: list[int] | None = None, *, config: NSAConfig | None) -> list[Chunk]:
    found, cmp0 = [], 0
    for (first, end), (key0, key_end) in zip(pairwise(borders), pairwise(of_keys or borders), strict=True):
        found.append(Chunk(slice(0, 1), slice(first, end), key_end - key0 - (end - first), key0, cmp0))
        cmp0 += 0 if config is None else num_compressed(key_end - key0, config)
    return found


def chunks_of(found: list[Chunk], bytes_per_row: int, most: int = 4096) -> list[Chunk]:
    """Parts of these, of so many queries that the largest temporary of one stays near TILE_BYTES, and of `most`."""
    size = max(1, min(most, TILE_BYTES // max(1, bytes_per_row)))
    return [chunk for sequence in found for chunk in sequence.split(size)]
