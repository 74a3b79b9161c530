"""Which keys each query reads, as arrays on the device, without asking the host for anything but sizes.

Query t reads keys lo[t] <= s < hi[t]; key s is read by the tokens q_lo[s] <= t < q_hi[s]. All four never decrease, so
the tile of consecutive tokens reads one range too. Packed sequences, and chunks of queries that begin later than the
keys, are only other numbers in these arrays.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from nsa import host
from nsa.blocks import num_compressed, packed_compressed
from nsa.config import NSAConfig
from nsa.kernels.common.launch import launched
from nsa.kernels.common.sizes import cdiv, next_power_of_2
from nsa.plans import constant

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
    tokens: int, cu_seqlens: Borders, device: torch.device, q_start: Tensor | None = None
) -> SequenceBounds:
    """Of packed sequences, of one sequence of `tokens` tokens, or of chunks that begin at q_start [B]."""
    if q_start is not None:
        start = -_starts(q_start, device).expand(-1, tokens)
        return SequenceBounds(start.contiguous(), torch.full_like(start, tokens))
    return _whole_sequence(tokens, device) if cu_seqlens is None else pack(cu_seqlens, tokens).bounds


@constant
def _whole_sequence(tokens: int, device: torch.device) -> SequenceBounds:
    """Depends on sizes alone, as `_from_0` does, so a layer that is called again finds it made."""
    start = torch.zeros(tokens, dtype=torch.int32, device=device)
    return SequenceBounds(start, start + tokens)


def _starts(q_start: Tensor, device: torch.device) -> Tensor:
    """int32 [B,1]."""
    return q_start.to(device, torch.int32)[:, None]


@constant
def _from_0(made: Callable[..., KeyRanges], *sizes: Any) -> KeyRanges:
    """`_window` or `_compressed` of these sizes and, last, a device, where every batch entry starts at 0."""
    *given, device = sizes
    return made(*given, torch.zeros((), dtype=torch.int32, device=device))


def of_window(q: Tensor, k: Tensor, window: int, cu_seqlens: Borders, q_start: Tensor | None = None) -> KeyRanges:
    """Query t of q [B,T,Hq,D] reads (t - window, t] of its own sequence in k [B,Tk,Hkv,D].

    With q_start [B], t counts from there; without, T = Tk.
    """
    if q_start is not None:
        return _window(q.shape[1], k.shape[1], window, _starts(q_start, q.device))
    if cu_seqlens is None:
        return _from_0(_window, q.shape[1], q.shape[1], window, q.device)
    return pack(cu_seqlens, q.shape[1], window).window


def _window(tokens: int, keys: int, window: int, start: Tensor) -> KeyRanges:
    """Ranges of `tokens` queries, the first at the position start [] or, of each batch entry, [B,1]."""
    reach = min(window, keys)
    at = start + torch.arange(tokens, device=start.device, dtype=torch.int32)
    since = torch.arange(keys, device=start.device, dtype=torch.int32) - start
    q_lo, q_hi = since.clamp(0, tokens), (since + reach).clamp(0, tokens)
    return KeyRanges("window", (at - reach + 1).clamp(min=0), at + 1, q_lo, q_hi, _splits(min(reach, tokens)))


def of_compressed(
    q: Tensor, k_cmp: Tensor, config: NSAConfig, cu_seqlens: Borders, q_start: Tensor | None = None
) -> KeyRanges:
    """Which compressed tokens of k_cmp [B,Tc,Hkv,D] the queries of q [B,T,Hq,D] read; see `compressed_ranges`."""
    return compressed_ranges(q.shape[1], k_cmp.shape[1], config, cu_seqlens, q.device, q_start)


def compressed_ranges(
    tokens: int, keys: int, config: NSAConfig, cu_seqlens: Borders, device: torch.device,
    q_start: Tensor | None = None,
) -> KeyRanges:  # fmt: skip
    """Query t reads the compressed tokens i of its own sequence with i*d + l - 1 <= t; `keys` is their number.

    With q_start [B], t counts from there, and there may be more compressed tokens than the last query sees.
    """
    if q_start is not None:
        return _compressed(tokens, keys, config, _starts(q_start, device))
    if cu_seqlens is None:
        return _from_0(_compressed, tokens, keys, config, device)
    return pack(cu_seqlens, tokens, 0, config, keys).compressed


def _compressed(tokens: int, keys: int, config: NSAConfig, start: Tensor) -> KeyRanges:
    """As `_window`, of the compressed branch."""
    at = start + torch.arange(tokens, device=start.device, dtype=torch.int32)
    last = torch.arange(keys, device=start.device, dtype=torch.int32) * config.d + config.l - 1
    seen = torch.div(at + 1 - config.l, config.d, rounding_mode="floor").add(1).clamp(min=0)
    q_lo = (last - start).clamp(0, tokens)
    return KeyRanges("compressed", torch.zeros_like(at), seen, q_lo, torch.full_like(q_lo, tokens), _splits(tokens))


def _splits(queries: int) -> int:
    """Into how many splits the queries of one key are cut, so that early keys do not become slow programs."""
    return max(1, min(MOST_SPLITS, queries // FEWEST_QUERIES))


def count_compressed(cu_seqlens: Tensor | None, tokens: int, config: NSAConfig) -> int:
    """Compressed tokens of one sequence of `tokens` tokens, or of all packed sequences (see `nsa.host.numbers`)."""
    if cu_seqlens is None:
        return num_compressed(tokens, config)
    return packed_compressed(host.numbers(cu_seqlens), config)


# --- packed sequences ---


@dataclass(frozen=True)
class Packing:
    """Packed sequences, as launches need them, made on the device without asking it what the borders hold.

    What depends on that has the size of its upper bound: of compressed tokens there are as many as of one sequence, of
    which the last ones are no query's; their means are zeros.

    Attributes:
        borders: int32 [N+1], rising from 0 to T. Borders that do not are taken as those of one sequence, and noted
            (`nsa.host.raise_noted`): nothing reads beyond its tensors whatever they hold.
        bounds, window, compressed: of the sequences.
    """

    borders: Tensor
    bounds: SequenceBounds
    window: KeyRanges
    compressed: KeyRanges


Borders = Tensor | Packing | None
"""Of packed sequences, given or made."""


def pack(
    cu_seqlens: Tensor | Packing, tokens: int, window: int = 0, config: NSAConfig | None = None, keys: int | None = None
) -> Packing:
    """The packing of `tokens` tokens by borders int32 or int64 [N+1]; a packing is what it is.

    Args:
        window: of the window branch; 0 where it is not needed.
        config: the sizes, where the compressed branch is needed.
        keys: compressed tokens; default the upper bound.
    """
    if isinstance(cu_seqlens, Packing):
        return cu_seqlens
    l, d = (1, 1) if config is None else (config.l, config.d)  # noqa: E741  the paper's symbol
    count = 0 if config is None else num_compressed(tokens, config) if keys is None else keys
    device, sequences, reach = cu_seqlens.device, cu_seqlens.numel() - 1, min(window, tokens)
    steps = max(1, math.ceil(math.log2(sequences + 1)))
    borders = torch.empty(2, sequences + 1, dtype=torch.int32, device=device)
    of_tokens = torch.empty(8, tokens, dtype=torch.int32, device=device)
    of_keys = torch.empty(2, count, dtype=torch.int32, device=device)
    block = min(1024, next_power_of_2(max(2, sequences + 1)))
    _order[(1,)](cu_seqlens.contiguous(), borders, host.note_of(device), sequences, tokens, L=l, D=d, BLOCK=block)
    if tokens and sequences:
        _ranges[(cdiv(max(tokens, count), 1024),)](
            borders, of_tokens, of_keys, tokens, count, sequences, steps, reach, L=l, D=d, BLOCK=1024
        )
    start, end, t, after, lo, q_hi, first, last = of_tokens
    return Packing(
        borders[0], SequenceBounds(start, end), KeyRanges("window", lo, after, t, q_hi, _splits(reach)),
        KeyRanges("compressed", first, last, of_keys[0], of_keys[1], _splits(tokens)),
    )  # fmt: skip


@triton.jit
def last_at_most(borders, x, sequences, steps, live):
    """The last s < sequences with borders[s] <= x: binary search, [BLOCK]."""
    low = tl.zeros_like(x)
    high = low + sequences - 1
    for _ in range(steps):
        middle = (low + high + 1) // 2
        reached = tl.load(borders + middle, mask=live, other=0) <= x
        low = tl.where(reached, middle, low)
        high = tl.where(reached, high, middle - 1)
    return low


@launched
@triton.jit(do_not_specialize=["N", "T"])
def _order(p_given, p_borders, p_note, N, T, L: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr):
    """One program: the borders [N+1] as they are to be read, and N + 1 further on those of the compressed tokens."""
    wrong = 0
    for i in range(0, N + 1, BLOCK):
        o = i + tl.arange(0, BLOCK)
        m = o <= N
        b = tl.load(p_given + o, mask=m, other=0).to(tl.int64)
        b_before = tl.load(p_given + o - 1, mask=m & (o > 0), other=0).to(tl.int64)
        m_wrong = (b < b_before) | ((o == 0) & (b != 0)) | ((o == N) & (b != T))
        wrong = tl.maximum(wrong, tl.max((m & m_wrong).to(tl.int32), 0))
    if wrong > 0:
        tl.store(p_note, T)
    count = 0
    for i in range(0, N + 1, BLOCK):
        o = i + tl.arange(0, BLOCK)
        m = o <= N
        b = tl.load(p_given + o, mask=m & (wrong == 0), other=T).to(tl.int32)
        b_before = tl.load(p_given + o - 1, mask=m & (o > 0) & (wrong == 0), other=T).to(tl.int32)
        b = tl.where((o == 0), 0, b)
        b_before = tl.where(o <= 1, 0, b_before)
        b_count = tl.where(m, tl.maximum(b - b_before - L + D, 0) // D, 0)
        tl.store(p_borders + o, b, mask=m)
        tl.store(p_borders + N + 1 + o, count + tl.cumsum(b_count, 0), mask=m)
        count += tl.sum(b_count, 0)


@launched
@triton.jit(do_not_specialize=["T", "S", "N", "steps", "reach"])
def _ranges(
    p_borders, p_tokens, p_keys, T, S, N, steps, reach, L: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Of each token, int32 p_tokens [8,T]: start and end of its sequence; its own index and the next; where its window
    begins; up to which query it is read; its compressed tokens. Of each compressed token, p_keys [2,S]: its queries.
    """
    t = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m_t = t < T
    i_n = last_at_most(p_borders, t, N, steps, m_t)
    b_start, b_end = tl.load(p_borders + i_n, mask=m_t, other=0), tl.load(p_borders + i_n + 1, mask=m_t, other=0)
    b_first = tl.load(p_borders + N + 1 + i_n, mask=m_t, other=0)
    tl.store(p_tokens + t, b_start, mask=m_t)
    tl.store(p_tokens + T + t, b_end, mask=m_t)
    tl.store(p_tokens + 2 * T + t, t, mask=m_t)
    tl.store(p_tokens + 3 * T + t, t + 1, mask=m_t)
    tl.store(p_tokens + 4 * T + t, tl.maximum(t - reach + 1, b_start), mask=m_t)
    tl.store(p_tokens + 5 * T + t, tl.minimum(t + reach, b_end), mask=m_t)
    tl.store(p_tokens + 6 * T + t, b_first, mask=m_t)
    tl.store(p_tokens + 7 * T + t, b_first + tl.maximum(t - b_start + 1 - L + D, 0) // D, mask=m_t)
    m_s = t < S
    i_n = last_at_most(p_borders + N + 1, t, N, steps, m_s)
    b_i = t - tl.load(p_borders + N + 1 + i_n, mask=m_s, other=0)
    m_real = m_s & (t < tl.load(p_borders + 2 * N + 1))  # the others are no query's
    b_lo = tl.load(p_borders + i_n, mask=m_real, other=0) + b_i * D + L - 1
    tl.store(p_keys + t, tl.where(m_real, b_lo, T), mask=m_s)
    tl.store(p_keys + S + t, tl.load(p_borders + i_n + 1, mask=m_real, other=T), mask=m_s)
