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

    They are of queries: what comes before a sequence's first query, as keys only, has smaller ones, maybe negative.
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
    return pack(cu_seqlens, q.shape[1], k.shape[1], window).window


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
    return pack(cu_seqlens, tokens, config=config, compressed=keys).compressed


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
        borders: int32 [2,N+1], of the queries, rising from 0 to T, and of the keys. Borders that cannot be are taken as
            those of one sequence, and noted (`nsa.host.raise_noted`): nothing reads beyond its tensors whatever they
            hold.
        apart: whether queries and keys have borders of their own: a sequence's queries are its last tokens.
        bounds, window, compressed: of the sequences, for each query.
    """

    borders: Tensor
    apart: bool
    bounds: SequenceBounds
    window: KeyRanges
    compressed: KeyRanges


Borders = Tensor | tuple[Tensor, Tensor] | Packing | None
"""Of packed sequences: of queries and keys alike, of each, or made."""


def borders_of(cu_seqlens: Tensor | None, cu_seqlens_k: Tensor | None) -> Borders:
    """As operations are given them."""
    return cu_seqlens if cu_seqlens is None or cu_seqlens_k is None else (cu_seqlens, cu_seqlens_k)


def is_apart(borders: Borders) -> bool:
    """Whether queries and keys have borders of their own."""
    return borders.apart if isinstance(borders, Packing) else isinstance(borders, tuple)


def pack(
    given: Tensor | tuple[Tensor, Tensor] | Packing, tokens: int, keys: int | None = None, window: int = 0,
    config: NSAConfig | None = None, compressed: int | None = None,
) -> Packing:  # fmt: skip
    """The packing of `tokens` queries by borders int32 or int64 [N+1]; a packing is what it is.

    Args:
        keys: their number, where the window branch or the number of compressed tokens needs it.
        window: of the window branch; 0 where it is not needed.
        config: the sizes, where the compressed branch is needed.
        compressed: compressed tokens; default the upper bound.
    """
    if isinstance(given, Packing):
        return given
    of_queries, of_keys = given if isinstance(given, tuple) else (given, given)
    keys = keys or 0 if is_apart(given) else tokens
    l, d = (1, 1) if config is None else (config.l, config.d)  # noqa: E741  the paper's symbol
    count = 0 if config is None else num_compressed(keys, config) if compressed is None else compressed
    device, sequences, reach = of_queries.device, of_queries.numel() - 1, min(window, keys)
    steps = max(1, math.ceil(math.log2(sequences + 1)))
    borders = torch.empty(3, sequences + 1, dtype=torch.int32, device=device)
    queries = torch.empty(6, tokens, dtype=torch.int32, device=device)
    read, read_compressed = (torch.empty(2, x, dtype=torch.int32, device=device) for x in (keys, count))
    block = min(1024, next_power_of_2(max(2, sequences + 1)))
    _order[(1,)](
        of_queries.contiguous(), of_keys.contiguous(), borders, host.note_of(device), sequences, tokens, keys,
        L=l, D=d, BLOCK=block,
    )  # fmt: skip
    longest = max(tokens, keys, count)
    if longest and sequences:
        _ranges[(cdiv(longest, 1024),)](
            borders, queries, read, read_compressed, tokens, keys, count, sequences, steps, reach,
            L=l, D=d, BLOCK=1024,
        )  # fmt: skip
    start, end, lo, hi, first, last = queries
    return Packing(
        borders[:2], is_apart(given), SequenceBounds(start, end),
        KeyRanges("window", lo, hi, *read, _splits(min(reach, tokens))),
        KeyRanges("compressed", first, last, *read_compressed, _splits(tokens)),
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


@triton.jit
def _border(p_given, o, m, END, good):
    """Borders [BLOCK] as they are to be read: END where they are no good, but 0 at first."""
    b = tl.load(p_given + o, mask=m & good, other=0).to(tl.int64)
    return tl.where(o <= 0, 0, tl.where(good, b, END)).to(tl.int32)


@launched
@triton.jit(do_not_specialize=["N", "T", "TK"])
def _order(
    p_queries, p_keys, p_borders, p_note, N, T, TK, L: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """One program: the borders as they are to be read, int32 p_borders [3,N+1]: of queries, of keys, of the compressed
    tokens. TK is 0 where nothing is read by the keys' number.
    """
    wrong = 0
    for i in range(0, N + 1, BLOCK):
        o = i + tl.arange(0, BLOCK)
        m = o <= N
        b_q, b_k = (
            tl.load(p_queries + o, mask=m, other=0).to(tl.int64),
            tl.load(p_keys + o, mask=m, other=0).to(tl.int64),
        )
        m_later = m & (o > 0)
        b_new = b_q - tl.load(p_queries + o - 1, mask=m_later, other=0).to(tl.int64)
        b_all = b_k - tl.load(p_keys + o - 1, mask=m_later, other=0).to(tl.int64)
        m_wrong = (b_new < 0) | (b_all < b_new) | ((o == 0) & ((b_q != 0) | (b_k != 0)))
        m_wrong = m_wrong | ((o == N) & ((b_q != T) | ((TK > 0) & (b_k != TK))))
        wrong = tl.maximum(wrong, tl.max((m & m_wrong).to(tl.int32), 0))
    if wrong > 0:
        tl.store(p_note, T)
    good = wrong == 0
    count = 0
    for i in range(0, N + 1, BLOCK):
        o = i + tl.arange(0, BLOCK)
        m = o <= N
        b = _border(p_keys, o, m, TK, good)
        b_count = tl.where(m, tl.maximum(b - _border(p_keys, o - 1, m & (o > 0), TK, good) - L + D, 0) // D, 0)
        tl.store(p_borders + o, _border(p_queries, o, m, T, good), mask=m)
        tl.store(p_borders + N + 1 + o, b, mask=m)
        tl.store(p_borders + 2 * (N + 1) + o, count + tl.cumsum(b_count, 0), mask=m)
        count += tl.sum(b_count, 0)


@triton.jit
def _sequence_of(p_borders, x, N, steps, live, OF: tl.constexpr):
    """Of the sequence that x [BLOCK] belongs to by the borders OF queries (0), keys (1) or compressed tokens (2): the
    index that its first token would have among the queries, their first and the one after their last, its first key,
    and its first compressed token.
    """
    i_n = last_at_most(p_borders + OF * (N + 1), x, N, steps, live)
    p = p_borders + i_n
    b_first, b_end = tl.load(p, mask=live, other=0), tl.load(p + 1, mask=live, other=0)
    b_key, b_end_key = tl.load(p + N + 1, mask=live, other=0), tl.load(p + N + 2, mask=live, other=0)
    return b_end - (b_end_key - b_key), b_first, b_end, b_key, tl.load(p + 2 * (N + 1), mask=live, other=0)


@launched
@triton.jit(do_not_specialize=["T", "TK", "S", "N", "steps", "reach"])
def _ranges(
    p_borders, p_queries, p_read, p_read_compressed, T, TK, S, N, steps, reach,
    L: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Of each query, int32 p_queries [6,T]: start and end of its sequence; its window and its compressed tokens. Of
    each key, p_read [2,TK], and of each compressed token, p_read_compressed [2,S]: the queries that read it.
    """
    x = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = x < T
    b_start, b_first, b_end, b_key, b_compressed = _sequence_of(p_borders, x, N, steps, m, 0)
    b_own = x - b_start + b_key
    tl.store(p_queries + x, b_start, mask=m)
    tl.store(p_queries + T + x, b_end, mask=m)
    tl.store(p_queries + 2 * T + x, tl.maximum(b_own - reach + 1, b_key), mask=m)
    tl.store(p_queries + 3 * T + x, b_own + 1, mask=m)
    tl.store(p_queries + 4 * T + x, b_compressed, mask=m)
    tl.store(p_queries + 5 * T + x, b_compressed + tl.maximum(x - b_start + 1 - L + D, 0) // D, mask=m)
    m = x < TK
    b_start, b_first, b_end, b_key, b_compressed = _sequence_of(p_borders, x, N, steps, m, 1)
    b_at = x - b_key + b_start
    tl.store(p_read + x, tl.maximum(b_at, b_first), mask=m)
    tl.store(p_read + TK + x, tl.maximum(tl.minimum(b_at + reach, b_end), b_first), mask=m)
    m = x < S
    m_real = m & (x < tl.load(p_borders + 3 * N + 2))  # the others are no query's
    b_start, b_first, b_end, b_key, b_compressed = _sequence_of(p_borders, x, N, steps, m_real, 2)
    b_at = tl.maximum(tl.minimum(b_start + (x - b_compressed) * D + L - 1, b_end), b_first)
    tl.store(p_read_compressed + x, tl.where(m_real, b_at, T), mask=m)
    tl.store(p_read_compressed + S + x, tl.where(m_real, b_end, T), mask=m)
