"""Masked attention over tiles of keys, with its gradient: the one softmax of the PyTorch backend.

A tile holds the keys that a chunk of queries reads. A span of consecutive keys serves all queries of the
chunk (window, compressed tokens); gathered keys are each query's own (selected blocks). Forward keeps only o
and lse; backward computes the probabilities again, chunk by chunk.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

from nsa import vector_math
from nsa.blocks import num_blocks
from nsa.config import NSAConfig
from nsa.fallback.chunks import Chunk
from nsa.library import ReverseOnly, differentiable_once
from nsa.plans import capturing

vector_math.call_each_once()

P = ParamSpec("P")
R = TypeVar("R")


def unrounded(function: Callable[P, R]) -> Callable[P, R]:
    """`function`, whose products are of its own dtypes also where autocast would round their factors.

    The gradient needs it too: autocast is as it is where `backward` is called.
    """

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        x = next(x for x in args if isinstance(x, Tensor))
        with torch.autocast(x.device.type, enabled=False):
            return function(*args, **kwargs)

    return called


@dataclass(frozen=True)
class Span:
    """Keys [lo, hi) for all queries of the chunk, n = (b, Hkv), M = c*G; visible: bool [c,K].

    As in every tile, query rows are [*n,M,D], keys [*n,K,D], and the mask broadcasts to [*n,M,K].
    """

    chunk: Chunk
    lo: int
    hi: int
    visible: Tensor
    group_size: int

    @property
    def mask(self) -> Tensor:
        return self.visible.repeat_interleave(self.group_size, dim=0)

    def rows(self, x: Tensor) -> Tensor:
        """The chunk's part of x [B,T,Hq,...] as rows [*n,M,...]."""
        heads = x[self.chunk.batch, self.chunk.rows].unflatten(2, (-1, self.group_size))
        return heads.transpose(1, 2).flatten(2, 3)

    def unrows(self, y: Tensor) -> Tensor:
        """Rows [*n,M,...] as [b,c,Hq,...]."""
        return y.unflatten(2, (-1, self.group_size)).transpose(1, 2).flatten(2, 3)

    def keys(self, x: Tensor) -> Tensor:
        """The keys [*n,K,D] read from x [B,Tk,Hkv,D]."""
        return x[self.chunk.batch, self.lo : self.hi].transpose(1, 2)

    def add(self, total: Tensor, part: Tensor) -> None:
        """Add the gradient of the keys, [*n,K,D], to that of x."""
        total[self.chunk.batch, self.lo : self.hi] += part.transpose(1, 2)


@dataclass(frozen=True)
class Gather:
    """Keys of each query and KV head, n = (b, c, Hkv), M = G; index int64 and visible bool [b,c,Hkv,K]."""

    chunk: Chunk
    index: Tensor
    visible: Tensor

    @property
    def mask(self) -> Tensor:
        return self.visible[:, :, :, None]

    def rows(self, x: Tensor) -> Tensor:
        return x[self.chunk.batch, self.chunk.rows].unflatten(2, (self.index.shape[2], -1))

    def unrows(self, y: Tensor) -> Tensor:
        return y.flatten(2, 3)

    def keys(self, x: Tensor) -> Tensor:
        found = x.flatten(0, 2).index_select(0, self._flat(x).flatten())
        return found.unflatten(0, self.index.shape)

    def add(self, total: Tensor, part: Tensor) -> None:
        flat = self._flat(total).flatten()
        rows, part = total.view(-1, total.shape[-1]), part.flatten(0, 3)
        if total.is_cuda:  # sorts, so the sum's order does not vary between runs
            rows.index_put_((flat,), part, accumulate=True)
        else:
            rows.scatter_add_(0, flat[:, None].expand_as(part), part)

    @classmethod
    def blocks(cls, chunk: Chunk, block_indices: Tensor, t: Tensor, longest: int, config: NSAConfig) -> Gather:
        """The positions <= t of the chunk's blocks [b,c,Hkv,n], in sequences of at most `longest` tokens; t broadcasts
        to [b,c,Hkv,K].
        """
        offsets = torch.arange(min(config.l_sel, longest), device=t.device)  # beyond lies no position <= t
        slots = min(block_indices.shape[-1], num_blocks(longest, config))
        chosen = block_indices.to(torch.int64).sort(dim=-1, descending=True).values[..., :slots]  # padding last, or cut
        position = (chosen[..., None] * config.l_sel + offsets).flatten(3)
        visible = (position >= 0) & (position <= t)
        return cls(chunk, chunk.key0 + position.masked_fill(~visible, 0), visible)

    def _flat(self, x: Tensor) -> Tensor:
        """Index of each key among the rows of x flattened to [B*Tk*Hkv, D]."""
        tokens, heads = x.shape[1:3]
        entry = torch.arange(self.chunk.batch.start, self.chunk.batch.stop, device=x.device)
        head = torch.arange(heads, device=x.device)
        return (entry[:, None, None, None] * tokens + self.index) * heads + head[:, None]


TileOf = Callable[[Chunk], Span | Gather]
"""Which keys a chunk of queries reads."""


def softmax_rows(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Softmax over the last axis and its lse; a row of -inf alone gives zeros and -inf."""
    lse = logits.logsumexp(-1)
    return probabilities(logits, lse), lse


def probabilities(logits: Tensor, lse: Tensor) -> Tensor:
    """exp(logits - lse), 0 where nothing is visible."""
    return torch.exp(logits - lse.masked_fill(lse == -math.inf, 0.0)[..., None])


def masked_logits(q: Tensor, k: Tensor, mask: Tensor, scale: float) -> Tensor:
    """scale * q k^T [*n,M,K], -inf where the mask is False."""
    return (q @ k.transpose(-1, -2)).mul_(scale).masked_fill_(~mask, -math.inf)


def weighted(p: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """p v [*n,M,Dv], where p is 0 outside the mask and v may be no number there: 0 times that is none either."""
    odd = ~v.isfinite()
    seen = mask.to(p.dtype) @ odd.to(p.dtype) > 0
    return torch.where(seen, p @ v, p @ v.masked_fill(odd, 0.0))


def all_finite(x: Tensor) -> bool:
    """Whether all are numbers, as far as anybody can ask: what a CUDA graph will hold, nobody can."""
    return not capturing(x.device) and bool(x.isfinite().all())


class TiledAttention(ReverseOnly):
    """Attention of q [B,T,Hq,Dk] to the tiles' keys in k, v [B,Tk,Hkv,D*] -> o [B,T,Hq,Dv], lse [B,T,Hq].

    Sums are fp32 at least. lse is not differentiable.
    """

    @staticmethod
    @unrounded
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, chunks: list[Chunk], tile_of: TileOf, scale: float
    ) -> tuple[Tensor, Tensor]:
        wide = torch.promote_types(q.dtype, torch.float32)
        o = q.new_zeros(*q.shape[:3], v.shape[-1])
        lse = q.new_full(q.shape[:3], -math.inf, dtype=wide)
        times = (lambda p, v, mask: p @ v) if all_finite(v) else weighted
        for chunk in chunks:
            tile = tile_of(chunk)
            mask = tile.mask
            p, row_lse = softmax_rows(masked_logits(tile.rows(q).to(wide), tile.keys(k).to(wide), mask, scale))
            here = chunk.batch, chunk.rows
            o[here] = tile.unrows(times(p, tile.keys(v).to(wide), mask)).to(o.dtype)
            lse[here] = tile.unrows(row_lse[..., None])[..., 0]
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.chunks, ctx.tile_of, ctx.scale = chunks, tile_of, scale
        ctx.mark_non_differentiable(lse)
        return o, lse

    @staticmethod
    @differentiable_once
    @unrounded
    def backward(ctx: Any, saved: tuple[Tensor, ...], grad_o: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, o, lse = saved
        wide = lse.dtype
        grad_q = torch.zeros_like(q)
        grad_k, grad_v = (torch.zeros(x.shape, dtype=wide, device=x.device) for x in (k, v))
        grad_o = grad_o.masked_fill((lse == -math.inf)[..., None], 0.0)  # 0 times what is no number would be none
        delta = (grad_o.to(wide) * o.to(wide)).sum(-1)
        for chunk in ctx.chunks:
            tile = ctx.tile_of(chunk)
            q_rows, do = tile.rows(q).to(wide), tile.rows(grad_o).to(wide)
            keys = tile.keys(k).to(wide)
            logits = masked_logits(q_rows, keys, tile.mask, ctx.scale)
            p = probabilities(logits, tile.rows(lse[..., None])[..., 0])
            tile.add(grad_v, p.transpose(-1, -2) @ do)
            dp = do @ tile.keys(v).to(wide).transpose(-1, -2)
            ds = p * (dp - tile.rows(delta[..., None])) * ctx.scale
            tile.add(grad_k, ds.transpose(-1, -2) @ q_rows)
            grad_q[chunk.batch, chunk.rows] = tile.unrows(ds @ keys).to(q.dtype)
        return grad_q, grad_k.to(k.dtype), grad_v.to(v.dtype), None, None, None
