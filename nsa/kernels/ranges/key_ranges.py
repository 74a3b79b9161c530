"""Which keys each query reads, as arrays on the device, without asking the host for anything but sizes.

Query t reads keys lo[t] <= s < hi[t]; key s is read by the tokens q_lo[s] <= t < q_hi[s]. All four never decrease, so
the tile of consecutive tokens reads one range too. Packed sequences, and chunks of queries that begin later than the
keys, are only other numbers in these arrays.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nsa.blocks import cu_seqlens_cmp, num_compressed, packed_compressed
from nsa.config import NSAConfig
from nsa.host import numbers
from nsa.kernels.common.constants import constant

FEWEST_QUERIES = 512
MOST_SPLITS = 16


@dataclass(frozen=True)
class KeyRanges:
    """Which keys each query reads, the same in every batch entry or other ones in each.

    Attributes:
        branch: names the rows of the configuration table.
        lo, hi: int32 [T] or [B,T], contiguous: the keys of each query.
        q_lo, q_hi: int32 [S] or [B,S], contiguous: the queries of each key.
        splits: how many programs share one key tile's queries in the gradient of k and v.
    """

    branch: str
    lo: Tensor
    hi: Tensor
    q_lo: Tensor
    q_hi: Tensor
    splits: int

    @property
    def s_query(self) -> int:
        """From one batch entry to the next in lo and hi."""
        return self.lo.shape[-1] if self.lo.dim() > 1 else 0

    @property
    def s_key(self) -> int:
        """From one batch entry to the next in q_lo and q_hi."""
        return self.q_lo.shape[-1] if self.q_lo.dim() > 1 else 0


@dataclass(frozen=True)
class SequenceBounds:
    """The sequence of every token: int32 [T] or [B,T], the indices of its first token and of the one after its last.

    A chunk's queries count from their first: what comes before them has negative indices.
    """

    start: Tensor
    end: Tensor


def sequence_bounds(
    tokens: int, cu_seqlens: Tensor | None, device: torch.device, q_start: Tensor | None = None
) -> SequenceBounds:
    """Of packed sequences, of one sequence of `tokens` tokens, or of chunks that begin at q_start [B]."""
    if q_start is not None:
        start = -_starts(q_start, device).expand(-1, tokens)
        return SequenceBounds(start.contiguous(), torch.full_like(start, tokens))
    if cu_seqlens is None:
        return _whole_sequence(tokens, device)
    number = sequence_of(cu_seqlens, tokens)
    return SequenceBounds(cu_seqlens[number], cu_seqlens[number + 1])


@constant
def _whole_sequence(tokens: int, device: torch.device) -> SequenceBounds:
    """Depends on sizes alone, as `_whole_window` does, so a layer that is called again finds it made."""
    start = torch.zeros(tokens, dtype=torch.int32, device=device)
    return SequenceBounds(start, start + tokens)


def _starts(q_start: Tensor, device: torch.device) -> Tensor:
    """int32 [B,1]."""
    return q_start.to(device, torch.int32)[:, None]


def sequence_of(borders: Tensor, count: int) -> Tensor:
    """Number of the sequence that holds each of the indices 0 .. count-1, int64 [count]."""
    index = torch.arange(count, device=borders.device, dtype=borders.dtype)
    return torch.searchsorted(borders[1:].contiguous(), index, right=True)


def window_ranges(
    tokens: int,
    window: int,
    cu_seqlens: Tensor | None,
    device: torch.device,
    q_start: Tensor | None = None,
    keys: int | None = None,
) -> KeyRanges:
    """Query t reads (t - window, t] of its own sequence; with q_start [B], of `keys` keys, t counts from there."""
    if q_start is not None:
        return _window_after(tokens, tokens if keys is None else keys, window, _starts(q_start, device))
    if cu_seqlens is None:
        return _whole_window(tokens, window, device)
    return _window(tokens, window, sequence_bounds(tokens, cu_seqlens, device))


@constant
def _whole_window(tokens: int, window: int, device: torch.device) -> KeyRanges:
    return _window(tokens, window, sequence_bounds(tokens, None, device))


def _window(tokens: int, window: int, owner: SequenceBounds) -> KeyRanges:
    t = torch.arange(tokens, device=owner.start.device, dtype=torch.int32)
    reach = min(window, tokens)
    lo, q_hi = torch.maximum(t - reach + 1, owner.start), torch.minimum(t + reach, owner.end)
    return KeyRanges("window", lo, t + 1, t, q_hi, _splits(reach))


def _window_after(tokens: int, keys: int, window: int, start: Tensor) -> KeyRanges:
    """Ranges of a chunk of `tokens` queries, the first at the positions start [B,1]."""
    reach = min(window, keys)
    at = start + torch.arange(tokens, device=start.device, dtype=torch.int32)
    since = torch.arange(keys, device=start.device, dtype=torch.int32) - start
    q_lo, q_hi = since.clamp(0, tokens), (since + reach).clamp(0, tokens)
    return KeyRanges("window", (at - reach + 1).clamp(min=0), at + 1, q_lo, q_hi, _splits(min(reach, tokens)))


def compressed_ranges(
    tokens: int,
    keys: int,
    config: NSAConfig,
    cu_seqlens: Tensor | None,
    device: torch.device,
    q_start: Tensor | None = None,
) -> KeyRanges:
    """Query t reads the compressed tokens i of its own sequence with i*d + l - 1 <= t; `keys` is their number.

    With q_start [B], t counts from there.
    """
    if q_start is not None:
        return _compressed_after(tokens, keys, config, q_start, device)
    if cu_seqlens is None:
        return _whole_compressed(tokens, keys, config, device)
    owner = sequence_bounds(tokens, cu_seqlens, device)
    borders = cu_seqlens_cmp(cu_seqlens, config)
    first = borders[sequence_of(cu_seqlens, tokens)]
    sequence = sequence_of(borders, keys)
    i = torch.arange(keys, device=device, dtype=torch.int32) - borders[sequence]
    q_lo = cu_seqlens[sequence] + i * config.d + config.l - 1
    return KeyRanges(
        "compressed", first, first + _visible(owner, config), q_lo, cu_seqlens[sequence + 1], _splits(tokens)
    )


@constant
def _whole_compressed(tokens: int, keys: int, config: NSAConfig, device: torch.device) -> KeyRanges:
    owner = sequence_bounds(tokens, None, device)
    i = torch.arange(keys, device=device, dtype=torch.int32)
    q_lo, q_hi = i * config.d + config.l - 1, torch.full_like(i, tokens)
    return KeyRanges("compressed", owner.start, _visible(owner, config), q_lo, q_hi, _splits(tokens))


def _compressed_after(tokens: int, keys: int, config: NSAConfig, q_start: Tensor, device: torch.device) -> KeyRanges:
    """Ranges of a chunk of `tokens` queries; the cache may hold more compressed tokens than its last query sees."""
    owner = sequence_bounds(tokens, None, device, q_start)
    i = torch.arange(keys, device=device, dtype=torch.int32)
    q_lo = (i * config.d + config.l - 1 - _starts(q_start, device)).clamp(0, tokens)
    lo, q_hi = torch.zeros_like(owner.start), torch.full_like(q_lo, tokens)
    return KeyRanges("compressed", lo, _visible(owner, config), q_lo, q_hi, _splits(tokens))


def _visible(owner: SequenceBounds, config: NSAConfig) -> Tensor:
    """Number of compressed tokens that each token sees, int32 as `owner.start`."""
    position = torch.arange(owner.start.shape[-1], device=owner.start.device, dtype=torch.int32) - owner.start
    return torch.div(position + 1 - config.l, config.d, rounding_mode="floor").add(1).clamp(min=0)


def _splits(queries: int) -> int:
    """Into how many splits the queries of one key are cut, so that early keys do not become slow programs."""
    return max(1, min(MOST_SPLITS, queries // FEWEST_QUERIES))


def count_compressed(cu_seqlens: Tensor | None, tokens: int, config: NSAConfig) -> int:
    """Compressed tokens of one sequence of `tokens` tokens, or of all packed sequences (see `nsa.host.numbers`)."""
    return num_compressed(tokens, config) if cu_seqlens is None else packed_compressed(numbers(cu_seqlens), config)
