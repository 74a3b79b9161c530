"""Which tokens share a sequence, as arrays on the device, without asking the host for anything but sizes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from nsa.blocks import cu_seqlens_cmp, num_compressed
from nsa.config import NSAConfig
from nsa.kernels.spans import Spans

FEWEST_QUERIES = 512
MOST_PARTS = 16


@dataclass(frozen=True)
class Segments:
    """The sequence of every token: int32 [T], the indices of its first token and of the one after its last."""

    start: Tensor
    end: Tensor


def segments(tokens: int, cu_seqlens: Tensor | None, device: torch.device) -> Segments:
    """Segments of packed sequences, or of one sequence of `tokens` tokens."""
    if cu_seqlens is None:
        whole = torch.zeros(tokens, dtype=torch.int32, device=device)
        return Segments(whole, whole + tokens)
    number = _segment_of(cu_seqlens, tokens)
    return Segments(cu_seqlens[number], cu_seqlens[number + 1])


def _segment_of(borders: Tensor, count: int) -> Tensor:
    """Number of the segment that holds each of the indices 0 .. count-1, int64 [count]."""
    index = torch.arange(count, device=borders.device, dtype=borders.dtype)
    return torch.searchsorted(borders[1:].contiguous(), index, right=True)


def window_spans(tokens: int, window: int, cu_seqlens: Tensor | None, device: torch.device) -> Spans:
    """Query t reads (t - window, t] of its own sequence."""
    if cu_seqlens is None:
        return _whole_window(tokens, window, device)
    return _window(tokens, window, segments(tokens, cu_seqlens, device))


@lru_cache(maxsize=16)
def _whole_window(tokens: int, window: int, device: torch.device) -> Spans:
    return _window(tokens, window, segments(tokens, None, device))


def _window(tokens: int, window: int, owner: Segments) -> Spans:
    t = torch.arange(tokens, device=owner.start.device, dtype=torch.int32)
    reach = min(window, tokens)
    lo, q_hi = torch.maximum(t - reach + 1, owner.start), torch.minimum(t + reach, owner.end)
    return Spans("window", lo, t + 1, t, q_hi, _parts(reach))


def compressed_spans(
    tokens: int, keys: int, config: NSAConfig, cu_seqlens: Tensor | None, device: torch.device
) -> Spans:
    """Query t reads the compressed tokens i of its own sequence with i*d + l - 1 <= t; `keys` is their number."""
    if cu_seqlens is None:
        return _whole_compressed(tokens, keys, config, device)
    owner = segments(tokens, cu_seqlens, device)
    borders = cu_seqlens_cmp(cu_seqlens, config)
    first = borders[_segment_of(cu_seqlens, tokens)]
    segment = _segment_of(borders, keys)
    i = torch.arange(keys, device=device, dtype=torch.int32) - borders[segment]
    q_lo = cu_seqlens[segment] + i * config.d + config.l - 1
    return Spans("compressed", first, first + _visible(owner, config), q_lo, cu_seqlens[segment + 1], _parts(tokens))


@lru_cache(maxsize=16)
def _whole_compressed(tokens: int, keys: int, config: NSAConfig, device: torch.device) -> Spans:
    owner = segments(tokens, None, device)
    i = torch.arange(keys, device=device, dtype=torch.int32)
    q_lo, q_hi = i * config.d + config.l - 1, torch.full_like(i, tokens)
    return Spans("compressed", owner.start, _visible(owner, config), q_lo, q_hi, _parts(tokens))


def _visible(owner: Segments, config: NSAConfig) -> Tensor:
    """Number of compressed tokens that each token sees, int32 [T]."""
    position = torch.arange(owner.start.numel(), device=owner.start.device, dtype=torch.int32) - owner.start
    return torch.div(position + 1 - config.l, config.d, rounding_mode="floor").add(1).clamp(min=0)


def _parts(queries: int) -> int:
    """Into how many parts the queries of one key are cut, so that early keys do not become slow programs."""
    return max(1, min(MOST_PARTS, queries // FEWEST_QUERIES))


def packed_compressed(cu_seqlens: Tensor | None, tokens: int, config: NSAConfig) -> int:
    """Compressed tokens of one sequence of `tokens` tokens, or of all packed sequences (this waits for the device)."""
    return num_compressed(tokens, config) if cu_seqlens is None else int(cu_seqlens_cmp(cu_seqlens, config)[-1])
