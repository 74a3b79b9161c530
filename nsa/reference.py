"""The oracle: Native Sparse Attention written from the paper's equations, one short function for each.

Every query's keys are an explicit set of positions; attention is a softmax over exactly that set. Nothing
here is shared with a fast path, nothing masks, nothing is fused. It computes in the dtype it is given (fp64
to judge others), autograd differentiates it, and it never records a route.

Queries can be sampled: `rows=` names the query rows (indices into the T axis) to compute, and outputs then
have [B,R,...] for R rows in that order. The query-side inputs stay whole, so gradients stay exact for the
sampled rows. Memory is that of the rows' own keys: 256 rows fit at T=64k.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import TYPE_CHECKING, TypedDict

import torch
import torch.nn.functional as F
from torch import Tensor

from nsa import vector_math
from nsa.config import NSAConfig
from nsa.phi import MlpPhi, Phi, WeightedPhi

vector_math.call_each_once()

if TYPE_CHECKING:
    from nsa.cache import NSACache

Branches = Tensor | tuple[Tensor, Tensor, Tensor]
Rows = Sequence[int] | Tensor | None


class Where(TypedDict):
    """Arguments that say where the queries stand, the same for every operation."""

    scale: float | None
    cu_seqlens: Tensor | None
    cu_seqlens_k: Tensor | None
    q_start: Tensor | None
    rows: Rows


@dataclass(frozen=True)
class Query:
    """Where one query stands: batch entry `b`, index `row` on the T axis, position `t` in its own sequence.

    That sequence's first token has index `key0`, its first compressed token `cmp0`.
    """

    b: int
    row: int
    t: int
    key0: int = 0
    cmp0: int = 0


# --- index sets ---


def compressed_count(tokens: int, config: NSAConfig) -> int:
    """Tc = 0 if T < l else (T-l)//d + 1: spans [i*d, i*d+l) that end inside the sequence."""
    return 0 if tokens < config.l else (tokens - config.l) // config.d + 1


def visible_set(t: int, config: NSAConfig) -> list[int]:
    """Compressed tokens that query `t` sees: i*d + l - 1 <= t."""
    return list(range(compressed_count(t + 1, config)))


def window_set(t: int, window: int) -> list[int]:
    """Positions (t-w, t]."""
    return list(range(max(0, t - window + 1), t + 1))


def selected_set(t: int, blocks: Iterable[int], config: NSAConfig) -> list[int]:
    """Positions <= t inside the selected blocks; -1 is no block."""
    spans = (range(b * config.l_sel, min((b + 1) * config.l_sel, t + 1)) for b in blocks if b >= 0)
    return [position for span in spans for position in span]


def forced_blocks(t: int, config: NSAConfig) -> set[int]:
    """The first `init_blocks` candidates and the `local_blocks` ending at the query's own, counted once."""
    current = t // config.l_sel
    first = range(min(config.init_blocks, current + 1))
    local = range(max(0, current - config.local_blocks + 1), current + 1)
    return set(first) | set(local)


def chosen_blocks(t: int, scores: Sequence[float], config: NSAConfig) -> list[int]:
    """Forced blocks, then the candidates j*l_sel <= t by falling score, ties to the lower index (Eq. 11)."""
    candidates = range(t // config.l_sel + 1)
    forced = forced_blocks(t, config)
    rest = sorted((j for j in candidates if j not in forced), key=lambda j: (-scores[j], j))
    return sorted([*forced, *rest[: config.n_sel - len(forced)]])


def _queries(
    q: Tensor, config: NSAConfig | None, rows: Rows, cu_seqlens: Tensor | None, cu_seqlens_k: Tensor | None,
    q_start: Tensor | None,
) -> list[Query]:  # fmt: skip
    """The queries to compute, one batch entry after another."""
    batch, tokens = q.shape[:2]
    wanted = range(tokens) if rows is None else [int(row) for row in rows]
    if cu_seqlens is not None:
        borders = [int(border) for border in cu_seqlens]
        of_keys = borders if cu_seqlens_k is None else [int(border) for border in cu_seqlens_k]
        return [_packed_query(row, borders, of_keys, config) for row in wanted]
    starts = [0] * batch if q_start is None else [int(start) for start in q_start]
    return [Query(b, row, starts[b] + row) for b in range(batch) for row in wanted]


def _packed_query(row: int, borders: list[int], of_keys: list[int], config: NSAConfig | None) -> Query:
    """The queries of a sequence are the last of its tokens."""
    segment = next(s for s in range(len(borders) - 1) if borders[s] <= row < borders[s + 1])
    lengths = [of_keys[s + 1] - of_keys[s] for s in range(segment + 1)]
    cmp0 = 0 if config is None else sum(compressed_count(length, config) for length in lengths[:-1])
    return Query(0, row, lengths[-1] - (borders[segment + 1] - row), of_keys[segment], cmp0)


# --- attention to explicit sets ---


def attend(q: Tensor, k: Tensor, v: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Eq. 1 and 2 for one query.

    q [Hkv,G,Dk] and its keys k [K,Hkv,Dk], v [K,Hkv,Dv] -> o [Hkv,G,Dv], lse [Hkv,G].
    Without keys (K = 0) the sums are empty: o is exactly 0, lse is -inf, and gradients are 0.
    """
    logits = scale * torch.einsum("hgd,khd->hgk", q, k)
    return torch.einsum("hgk,khd->hgd", logits.softmax(-1), v), logits.detach().logsumexp(-1)


def _attend_sets(
    q: Tensor, k: Tensor, v: Tensor, queries: list[Query], sets: list[list[int]], scale: float | None
) -> tuple[Tensor, Tensor]:
    """`attend` for every query with its set of indices into the key axis: o [B,R,Hq,Dv], lse [B,R,Hq]."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    rows = torch.tensor([query.b * q.shape[1] + query.row for query in queries], dtype=torch.int64, device=q.device)
    heads = q.flatten(0, 1).index_select(0, rows).unflatten(1, (k.shape[2], -1)).unbind(0)
    keys, values = (_gather(x, queries, sets) for x in (k, v))
    results = [attend(*triple, scale) for triple in zip(heads, keys, values, strict=True)]
    if not results:
        none = q[:, : 0 if len(q) else None, :, :1] + (k.sum() + v.sum())  # so that each has a gradient, which is 0
        return none.expand(*none.shape[:3], v.shape[-1]), q.new_zeros(none.shape[:3])
    outputs, lses = (torch.stack(x).flatten(1, 2).unflatten(0, (len(q), -1)) for x in zip(*results, strict=True))
    return outputs, lses


def _gather(x: Tensor, queries: list[Query], sets: list[list[int]]) -> tuple[Tensor, ...]:
    """The rows of x [B,T,...] named by each query's set. One index for all sets, so that autograd scatters once."""
    firsts = [query.b * x.shape[1] for query in queries]
    places = [first + index for first, one in zip(firsts, sets, strict=True) for index in one]
    flat = torch.tensor(places, dtype=torch.int64, device=x.device)
    return torch.split(x.flatten(0, 1).index_select(0, flat), [len(one) for one in sets])


# --- compression and scores ---


def mean_phi(block: Tensor) -> Tensor:
    """phi of blocks [...,l,Hkv,D]: the mean over the span."""
    return block.mean(-3)


def weighted_phi(block: Tensor, phi: WeightedPhi) -> Tensor:
    """phi of blocks [...,l,Hkv,D]: learned weights [Hkv,l]."""
    return torch.einsum("...lhd,hl->...hd", block, phi.weight)


def mlp_phi(block: Tensor, phi: MlpPhi) -> Tensor:
    """phi of blocks [...,l,Hkv,D]: an MLP of the block with intra-block position embedding (Eq. 7)."""
    flat = (block.transpose(-3, -2) + phi.position).flatten(-2)
    hidden = F.gelu(torch.einsum("...hi,him->...hm", flat, phi.w_in) + phi.b_in)
    return torch.einsum("...hm,hmd->...hd", hidden, phi.w_out) + phi.b_out


def overlaps(t: int, config: NSAConfig, like: Tensor) -> tuple[Tensor, Tensor]:
    """Which compressed tokens overlap each candidate block of query `t`, and by how many tokens (Eq. 9's weights).

    Returns:
        index int64 [candidates,W] and weight [candidates,W]: W consecutive compressed tokens from the first whose
        span ends inside or after the block, general in l, d, l_sel. Weight 0 where spans do not meet.
    """
    j = torch.arange(t // config.l_sel + 1, device=like.device)[:, None] * config.l_sel
    first = torch.clamp((j - config.l + config.d) // config.d, min=0)
    i = first + torch.arange((config.l + config.l_sel) // config.d + 1, device=like.device)
    start = i * config.d
    shared = torch.minimum(start + config.l, j + config.l_sel) - torch.maximum(start, j)
    return i, shared.clamp(min=0).to(like.dtype)


def block_score(p_cmp: Tensor, index: Tensor, weight: Tensor) -> Tensor:
    """Eq. 9: [...,candidates] from p_cmp [...,visible]. Every block is summed in the same order, so ties stay ties."""
    p_cmp = F.pad(p_cmp, (0, max(0, int(index.max()) + 1 - p_cmp.shape[-1])))
    return (p_cmp[..., index] * weight).sum(-1)


# --- the operations, with the names and shapes of nsa.ops ---


def rotate(x: Tensor, positions: Tensor, base: float) -> Tensor:
    """Rotary embedding of x [B,T,H,D] at integers [B,T] or [1,T]: (x_i, x_{i+D/2}) turns by position * base^(-2i/D).

    The angle is rounded to fp32, its cosine and sine and what follows are not.
    """
    half = x.shape[-1] // 2
    wide = torch.promote_types(x.dtype, torch.float32)
    turns = base ** (-torch.arange(half, dtype=torch.float32, device=x.device) / half)
    angle = (positions.to(x.device, torch.float32)[:, :, None, None] * turns).to(wide)
    turned = torch.polar(torch.ones_like(angle), angle) * torch.complex(x[..., :half].to(wide), x[..., half:].to(wide))
    return torch.cat([turned.real, turned.imag], -1).to(x.dtype)


def compress(
    x: Tensor, config: NSAConfig = NSAConfig(), *, phi: Phi | None = None, cu_seqlens: Tensor | None = None
) -> Tensor:
    """Compressed tokens [B,Tc,Hkv,D] of x [B,T,Hkv,D] (Eq. 7)."""
    borders = [0, x.shape[1]] if cu_seqlens is None else [int(c) for c in cu_seqlens]
    starts = [
        first + i * config.d for first, end in pairwise(borders) for i in range(compressed_count(end - first, config))
    ]
    spans = torch.tensor([list(range(s, s + config.l)) for s in starts], dtype=torch.int64, device=x.device)
    blocks = x[:, spans.reshape(len(starts), config.l)]
    if phi is None:
        return mean_phi(blocks)
    return weighted_phi(blocks, phi) if isinstance(phi, WeightedPhi) else mlp_phi(blocks, phi)


def compressed_attention(
    q: Tensor, k_cmp: Tensor, v_cmp: Tensor, config: NSAConfig = NSAConfig(), *, scale: float | None = None,
    cu_seqlens: Tensor | None = None, cu_seqlens_k: Tensor | None = None, q_start: Tensor | None = None,
    rows: Rows = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Attention to the visible compressed tokens: o [B,T,Hq,Dv], lse [B,T,Hq] (not differentiable)."""
    queries = _queries(q, config, rows, cu_seqlens, cu_seqlens_k, q_start)
    sets = [[query.cmp0 + i for i in visible_set(query.t, config)] for query in queries]
    return _attend_sets(q, k_cmp, v_cmp, queries, sets, scale)


def block_scores(
    q: Tensor, k_cmp: Tensor, config: NSAConfig = NSAConfig(), *, scale: float | None = None,
    cu_seqlens: Tensor | None = None, cu_seqlens_k: Tensor | None = None, q_start: Tensor | None = None,
    rows: Rows = None,
) -> list[list[Tensor]]:  # fmt: skip
    """Scores of each query's candidate blocks, summed over its group (Eq. 8 to 10).

    Returns:
        one list for each batch entry, holding for each query a tensor [Hkv, candidates], at least fp32.
    """
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    queries = _queries(q, config, rows, cu_seqlens, cu_seqlens_k, q_start)
    last = max((query.t for query in queries), default=0)
    band = overlaps(last, config, q.new_empty(0, dtype=torch.promote_types(q.dtype, torch.float32)))
    with torch.no_grad():
        found = [_scores(q, k_cmp, query, *band, config, scale) for query in queries]
    return [[score for query, score in zip(queries, found, strict=True) if query.b == b] for b in range(len(q))]


def _scores(
    q: Tensor, k_cmp: Tensor, query: Query, index: Tensor, weight: Tensor, config: NSAConfig, scale: float
) -> Tensor:
    visible, blocks = compressed_count(query.t + 1, config), query.t // config.l_sel + 1
    heads = q[query.b, query.row].unflatten(0, (k_cmp.shape[2], -1)).to(weight.dtype)
    keys = k_cmp[query.b, query.cmp0 : query.cmp0 + visible].to(weight.dtype)
    p_cmp = torch.softmax(scale * torch.einsum("hgd,khd->hgk", heads, keys), -1)
    # One head after the other: torch.sum adds up some columns in another order than others, and ties would not be ties.
    return functools.reduce(torch.add, block_score(p_cmp, index[:blocks], weight[:blocks]).unbind(1))


def select_blocks(
    q: Tensor, k_cmp: Tensor, config: NSAConfig = NSAConfig(), *, scale: float | None = None,
    cu_seqlens: Tensor | None = None, cu_seqlens_k: Tensor | None = None, q_start: Tensor | None = None,
    rows: Rows = None,
) -> Tensor:  # fmt: skip
    """Chosen blocks int32 [B,T,Hkv,n_sel], ascending, -1 padded at the end (Eq. 11)."""
    queries = _queries(q, config, rows, cu_seqlens, cu_seqlens_k, q_start)
    scores = block_scores(
        q, k_cmp, config, scale=scale, cu_seqlens=cu_seqlens, cu_seqlens_k=cu_seqlens_k, q_start=q_start, rows=rows
    )
    chosen = [
        _padded(chosen_blocks(query.t, head, config), config.n_sel)
        for query, score in zip(queries, chain.from_iterable(scores), strict=True)
        for head in score.tolist()
    ]
    shape = (q.shape[0], q.shape[1] if rows is None else len(rows), k_cmp.shape[2], config.n_sel)
    return torch.tensor(chosen, dtype=torch.int32, device=q.device).reshape(shape)


def _padded(blocks: list[int], slots: int) -> list[int]:
    return blocks + [-1] * (slots - len(blocks))


def selected_attention(
    q: Tensor, k: Tensor, v: Tensor, block_indices: Tensor, config: NSAConfig = NSAConfig(), *,
    scale: float | None = None, cu_seqlens: Tensor | None = None, cu_seqlens_k: Tensor | None = None,
    q_start: Tensor | None = None, rows: Rows = None,
) -> Tensor:  # fmt: skip
    """Attention to the positions <= t of the blocks [B,T,Hkv,n] (Eq. 12): o [B,T,Hq,Dv]."""
    chosen = block_indices if rows is None else block_indices[:, _row_index(rows, q)]
    return _attend_blocks(q, k, v, chosen, _queries(q, config, rows, cu_seqlens, cu_seqlens_k, q_start), config, scale)


def _attend_blocks(
    q: Tensor, k: Tensor, v: Tensor, chosen: Tensor, queries: list[Query], config: NSAConfig, scale: float | None
) -> Tensor:
    """Selected attention with the blocks of exactly these queries, int [B,R,Hkv,n]."""
    outputs = []
    for h in range(k.shape[2]):
        blocks_of = zip(queries, chosen[:, :, h].flatten(0, 1).tolist(), strict=True)
        sets = [[query.key0 + p for p in selected_set(query.t, blocks, config)] for query, blocks in blocks_of]
        group = q.unflatten(2, (k.shape[2], -1))[:, :, h]
        outputs.append(_attend_sets(group, k[:, :, h : h + 1], v[:, :, h : h + 1], queries, sets, scale)[0])
    return torch.cat(outputs, dim=2)


def _row_index(rows: Sequence[int] | Tensor, q: Tensor) -> Tensor:
    return torch.as_tensor([int(row) for row in rows], dtype=torch.int64, device=q.device)


def sliding_window_attention(
    q: Tensor, k: Tensor, v: Tensor, window: int, *, scale: float | None = None, cu_seqlens: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None, q_start: Tensor | None = None, rows: Rows = None,
) -> Tensor:  # fmt: skip
    """Attention to the last `window` positions, the query's own included: o [B,T,Hq,Dv]."""
    queries = _queries(q, None, rows, cu_seqlens, cu_seqlens_k, q_start)
    sets = [[query.key0 + p for p in window_set(query.t, window)] for query in queries]
    return _attend_sets(q, k, v, queries, sets, scale)[0]


def gated_combine(o_cmp: Tensor, o_sel: Tensor, o_win: Tensor, gates: Tensor) -> Tensor:
    """Sum of the branches' outputs [B,T,Hq,Dv], each times its gate [B,T,Hq,3] (Eq. 5)."""
    g_cmp, g_sel, g_win = gates.unbind(-1)
    return g_cmp[..., None] * o_cmp + g_sel[..., None] * o_sel + g_win[..., None] * o_win


def nsa_attention(
    q: Tensor, k: Branches, v: Branches, gates: Tensor, config: NSAConfig = NSAConfig(), *,
    compressed: tuple[Tensor, Tensor] | None = None, compressed_rope: float | None = None, scale: float | None = None,
    cu_seqlens: Tensor | None = None, cu_seqlens_k: Tensor | None = None, q_start: Tensor | None = None,
    block_indices: Tensor | None = None, rows: Rows = None,
) -> Tensor:  # fmt: skip
    """The whole of Native Sparse Attention: o [B,T,Hq,Dv]; arguments as in `nsa.nsa_attention`."""
    k_cmp, k_sel, k_win = (k, k, k) if isinstance(k, Tensor) else k
    v_cmp, v_sel, v_win = (v, v, v) if isinstance(v, Tensor) else v
    if compressed is None:
        of_keys = cu_seqlens if cu_seqlens_k is None else cu_seqlens_k
        kc, vc = (compress(x, config, cu_seqlens=of_keys) for x in (k_cmp, v_cmp))
        if compressed_rope is not None:
            kc = rotate(kc, _first_positions(k_cmp.shape[1], config, of_keys), compressed_rope)
        compressed = kc, vc
    where: Where = {
        "scale": scale,
        "cu_seqlens": cu_seqlens,
        "cu_seqlens_k": cu_seqlens_k,
        "q_start": q_start,
        "rows": rows,
    }
    if block_indices is None:
        chosen = select_blocks(q, compressed[0], config, **where)
    else:
        chosen = block_indices if rows is None else block_indices[:, _row_index(rows, q)]
    queries = _queries(q, config, rows, cu_seqlens, cu_seqlens_k, q_start)
    o_cmp, _ = compressed_attention(q, *compressed, config, **where)
    o_sel = _attend_blocks(q, k_sel, v_sel, chosen, queries, config, scale)
    o_win = sliding_window_attention(q, k_win, v_win, config.w, **where)
    return gated_combine(o_cmp, o_sel, o_win, gates if rows is None else gates[:, _row_index(rows, q)])


def _first_positions(tokens: int, config: NSAConfig, cu_seqlens: Tensor | None) -> Tensor:
    """Where each compressed token's span begins in its own sequence: int64 [1,Tc]."""
    borders = [0, tokens] if cu_seqlens is None else [int(c) for c in cu_seqlens]
    counts = [compressed_count(end - first, config) for first, end in pairwise(borders)]
    return torch.tensor([[i * config.d for count in counts for i in range(count)]], dtype=torch.int64)


# --- through a cache ---


@torch.no_grad()
def nsa_decode(
    q: Tensor, k: Branches, v: Branches, gates: Tensor, cache: NSACache, *,
    counts: Sequence[int] | Tensor | None = None, scale: float | None = None,
) -> Tensor:  # fmt: skip
    """Append a token to the cache, then attend, one token after the other; as `nsa.nsa_decode`, reads not counted."""
    keys, values = ((x, x, x) if isinstance(x, Tensor) else x for x in (k, v))
    real = [q.shape[1]] * q.shape[0] if counts is None else [int(count) for count in counts]
    o = q.new_zeros(*q.shape[:3], values[0].shape[-1])
    for t in range(max(real)):
        there = [t < count for count in real]
        cache.append(*(tuple(x[:, t : t + 1] for x in each) for each in (keys, values)), counts=list(map(int, there)))
        found, _ = cached_attention(q[:, t : t + 1], gates[:, t : t + 1], cache, scale=scale)
        o[there, t] = found[there, 0]
    return o


def cached_attention(
    q: Tensor, gates: Tensor, cache: NSACache, *, block_indices: Tensor | None = None, scale: float | None = None
) -> tuple[Tensor, Tensor]:
    """Attention of the last token of each sequence to what the cache holds, 0 for one without any; then the blocks.

    Returns:
        o [B,1,Hq,Dv] in q's dtype, and int32 [B,1,Hkv,n_sel], or the blocks that were given.
    """
    config, t = cache.config, (cache.lengths - 1).clamp(min=0)
    count = max(1, compressed_count(cache.longest, config))
    read = cache.compressed.first(count), cache.selected.first(cache.longest), cache.window.stored
    compressed, selected, window = ((k.to(q.dtype), v.to(q.dtype)) for k, v in read)
    where: Where = {"scale": scale, "cu_seqlens": None, "cu_seqlens_k": None, "q_start": t, "rows": None}
    chosen = select_blocks(q, compressed[0], config, **where) if block_indices is None else block_indices
    o_cmp, _ = compressed_attention(q, *compressed, config, **where)
    o_sel = selected_attention(q, *selected, chosen, config, **where)
    where["q_start"] = t.clamp(max=config.w - 1)  # the ring, from its first row: softmax does not mind the order
    o_win = sliding_window_attention(q, *window, config.w, **where)
    o = gated_combine(o_cmp, o_sel, o_win, gates)
    return o.masked_fill((cache.lengths == 0)[:, None, None, None], 0.0), chosen


# --- judging another selection ---


def selection_regret(block_indices: Tensor, scores: list[list[Tensor]], positions: Tensor, config: NSAConfig) -> float:
    """The largest `row_regret` of a selection int [B,R,Hkv,n_sel].

    Args:
        block_indices: the selection under judgement.
        scores: `block_scores` of the same queries.
        positions: int [B,R], where the queries stand.
        config: the sizes.
    """
    rows = (
        row_regret(block_indices[b, r, h].tolist(), int(positions[b, r]), head, config)
        for b, entry in enumerate(scores)
        for r, heads in enumerate(entry)
        for h, head in enumerate(heads.tolist())
    )
    return max(rows, default=0.0)


def row_regret(chosen: Sequence[int], t: int, scores: Sequence[float], config: NSAConfig) -> float:
    """How much less than the oracle's choice these blocks score, relative; near-ties cost nearly nothing.

    Infinite where they are no choice at all: not ascending with -1 at the end, not as many distinct candidates as
    there should be, or without the forced ones.
    """
    best = chosen_blocks(t, scores, config)
    blocks = [block for block in chosen if block >= 0]
    lawful = (
        list(chosen) == _padded(sorted(set(blocks)), config.n_sel)
        and len(blocks) == len(best)
        and forced_blocks(t, config) <= set(blocks) <= set(range(len(scores)))
    )
    if not lawful:
        return math.inf
    got, most = (sum(scores[block] for block in found) for found in (blocks, best))
    return (most - got) / most if most > 0 else 0.0
