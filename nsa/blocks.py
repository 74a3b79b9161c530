"""Geometry of compressed tokens and selection blocks.

Positions are 0-based and relative to the token's own sequence. Every fast path takes its geometry from here;
the oracle (`nsa.reference`) states its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from nsa.config import NSAConfig


def num_compressed(tokens: int, config: NSAConfig) -> int:
    """Compressed tokens of a sequence of `tokens` tokens, which its last query sees: only complete spans count."""
    return 0 if tokens < config.l else (tokens - config.l) // config.d + 1


def num_blocks(tokens: int, config: NSAConfig) -> int:
    """Selection blocks that a sequence of `tokens` tokens touches, the last possibly partial: its last query may select
    any of them.
    """
    return -(-tokens // config.l_sel)


def overlap_band(blocks: int, config: NSAConfig) -> tuple[Tensor, Tensor]:
    """Tokens that compressed tokens share with the first `blocks` blocks (the weights in Eq. 9), without zeros.

    Returns:
        first: int64 [blocks], the first compressed token that overlaps each block.
        weights: int64 [blocks, W]; weights[j, k] is the overlap of compressed token first[j] + k with
            block j.
    """
    start = torch.arange(blocks, dtype=torch.int64, device="cpu") * config.l_sel
    first = torch.div(start - config.l, config.d, rounding_mode="floor").add(1).clamp(min=0)
    width = (config.l_sel + config.l - 1 + config.d - math.gcd(config.l_sel, config.d)) // config.d
    span = (first[:, None] + torch.arange(width, device="cpu")) * config.d
    start = start[:, None]
    shared = torch.minimum(span + config.l, start + config.l_sel) - torch.maximum(span, start)
    return first, shared.clamp(min=0)


def reads_expected(t: int, config: NSAConfig, selected: Sequence[int] | None = None) -> int:
    """Key rows that query `t` reads in all three branches.

    Args:
        t: the query's position.
        config: the sizes.
        selected: the query's blocks (-1 ignored). Without them the current block must be a forced one, so
            that the count does not depend on the scores.

    Raises:
        ValueError: `selected` is needed and missing.
    """
    return num_compressed(t + 1, config) + _selected_reads(t, config, selected) + min(config.w, t + 1)


def _selected_reads(t: int, config: NSAConfig, selected: Sequence[int] | None) -> int:
    if selected is not None:
        return sum(min((b + 1) * config.l_sel, t + 1) - b * config.l_sel for b in selected if b >= 0)
    if num_blocks(t + 1, config) <= config.n_sel:
        return t + 1
    if config.local_blocks == 0:
        raise ValueError(
            f"reads_expected: with local_blocks=0 the reads of query {t} depend on its blocks; pass selected="
        )
    return (config.n_sel - 1) * config.l_sel + t % config.l_sel + 1


def cu_seqlens_cmp(cu_seqlens: Tensor, config: NSAConfig) -> Tensor:
    """Borders of the packed compressed tokens, int32 [N+1], from those of the tokens, int32 [N+1]."""
    lengths = cu_seqlens.diff().to(torch.int64)
    counts = torch.div(lengths - config.l, config.d, rounding_mode="floor").add(1).clamp(min=0)
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)]).to(torch.int32)


def packed_compressed(borders: Sequence[int], config: NSAConfig) -> int:
    """Compressed tokens of all packed sequences together, from the borders of their tokens."""
    return sum(num_compressed(end - start, config) for start, end in pairwise(borders))


def token_positions(
    batch: int, tokens: int, *, cu_seqlens: Tensor | None = None, cu_seqlens_k: Tensor | None = None,
    q_start: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Position of every query in its own sequence, int64 [B,T], on the given tensor's device (else the CPU).

    Args:
        batch, tokens: B and T of the queries.
        cu_seqlens: borders of packed sequences, int32 [N+1]; B must be 1.
        cu_seqlens_k: those of their keys, of which the queries are the last ones; default the same.
        q_start: int [B], position of each batch entry's first query; excludes `cu_seqlens`.
    """
    if cu_seqlens is not None:
        index = torch.arange(tokens, device=cu_seqlens.device)
        borders = cu_seqlens.to(torch.int64)
        segment = torch.searchsorted(borders[1:].contiguous(), index, right=True)
        lengths = (borders if cu_seqlens_k is None else cu_seqlens_k.to(borders)).diff()
        return (index - borders[1:][segment] + lengths[segment])[None]
    if q_start is not None:
        return q_start.to(torch.int64)[:, None] + torch.arange(tokens, device=q_start.device)
    return torch.arange(tokens, device="cpu").expand(batch, tokens)


def compressed_positions(count: int, config: NSAConfig, cu_seqlens: Tensor | None, device: torch.device) -> Tensor:
    """First position of each compressed token's span in its own sequence, int64 [1,count]."""
    if cu_seqlens is None:
        return torch.arange(count, device=device)[None] * config.d
    return token_positions(1, count, cu_seqlens=cu_seqlens_cmp(cu_seqlens, config)) * config.d


def check_block_indices(block_indices: Tensor, positions: Tensor, config: NSAConfig) -> None:
    """Refuse block indices that no query may select.

    Args:
        block_indices: int [B,T,Hkv,n]; -1 anywhere is padding.
        positions: int64 [B,T], each query's position in its own sequence.

    Raises:
        ValueError: the first duplicate, future or otherwise impossible block.
    """
    last = torch.div(positions.to(block_indices.device), config.l_sel, rounding_mode="floor")
    _refuse(block_indices < -1, block_indices, "is negative (padding is -1)")
    _refuse(block_indices > last[:, :, None, None], block_indices, "begins after its query")
    ordered = block_indices.sort(dim=-1).values
    repeated = (ordered[..., 1:] == ordered[..., :-1]) & (ordered[..., 1:] >= 0)
    _refuse(repeated, ordered[..., 1:], "is selected twice")


def _refuse(bad: Tensor, block_indices: Tensor, fault: str) -> None:
    if bad.any():
        b, t, h, slot = bad.nonzero()[0].tolist()
        block = int(block_indices[b, t, h, slot])
        raise ValueError(f"block_indices: block {block} of batch {b}, token {t}, KV head {h} {fault}")


def indices_to_ranges(block_indices: Tensor, positions: Tensor, config: NSAConfig) -> Tensor:
    """Block indices as token ranges.

    Args:
        block_indices: int [B,S,G,n], G the KV heads; -1 is padding.
        positions: int64 [B,S], each query's position in its own sequence.

    Returns:
        int32 [B,S,G,n,2], half-open, end at most t+1; padding is [0,0].
    """
    index = block_indices.to(torch.int64)
    start = index * config.l_sel
    limit = positions.to(index.device)[:, :, None, None] + 1
    end = torch.minimum(start + config.l_sel, limit)
    ranges = torch.stack([start, end], dim=-1)
    return ranges.masked_fill((index < 0)[..., None], 0).to(torch.int32)
