"""Every operation in vectorised PyTorch: any device and dtype, gradients, memory never near T*T.

The functions here are the backend interface (see `nsa.routing.registry`): arguments are checked, `scale` is resolved.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from nsa import blocks
from nsa.config import NSAConfig
from nsa.fallback.chunks import Chunk, chunks_of, sequences
from nsa.fallback.decoding import decode, step
from nsa.fallback.scoring import best_blocks
from nsa.fallback.tiles import Gather, Span, TiledAttention, TileOf, masked_logits, probabilities, unrounded
from nsa.host import numbers
from nsa.phi import MlpPhi, Phi, WeightedPhi
from nsa.rope import rotate
from nsa.routing.request import How

__all__ = [
    "combine", "compress", "compressed", "decode", "rotate", "rotate_gradient", "select", "selected", "step",
    "window",
]  # fmt: skip


def rotate_gradient(do: Tensor, o: Tensor, x: Tensor, positions: Tensor, base: float) -> list[Tensor]:
    """To turn back is to turn by the negative positions."""
    return [rotate(do, -positions, base)]


# --- compression ---


def compress(x: Tensor, config: NSAConfig, phi: Phi | None, cu_seqlens: Tensor | None) -> Tensor:
    """Compressed tokens [B,Tc,Hkv,D] of x [B,T,Hkv,D]."""
    if cu_seqlens is None:
        return _compress(x, config, phi)
    segments = [_compress(x[:, first:end], config, phi) for first, end in pairwise(numbers(cu_seqlens))]
    return torch.cat(segments, dim=1) if segments else x[:, :0]


def _compress(x: Tensor, config: NSAConfig, phi: Phi | None) -> Tensor:
    few = x.shape[1] < config.l  # no span: what learns still has its gradient of 0
    spans = (
        x[:, :0, ..., None].expand(*[-1] * 4, config.l) if few else x.unfold(1, config.l, config.d)
    )  # [B,Tc,Hkv,D,l]
    if phi is None:
        return spans.mean(-1)
    if isinstance(phi, WeightedPhi):
        return torch.einsum("bihdl,hl->bihd", spans, phi.weight)
    return _mlp(spans, phi)


def _mlp(spans: Tensor, phi: MlpPhi) -> Tensor:
    flat = (spans.transpose(-1, -2) + phi.position).flatten(3)  # [B,Tc,Hkv,l*D]
    hidden = F.gelu(torch.einsum("bihx,hxm->bihm", flat, phi.w_in) + phi.b_in)
    return torch.einsum("bihm,hmd->bihd", hidden, phi.w_out) + phi.b_out


# --- which keys each branch reads ---


def _compressed_tiles(config: NSAConfig, group_size: int, device: torch.device) -> Callable[[Chunk], Span]:
    """The visible compressed tokens: i*d + l - 1 <= t."""

    def tile(chunk: Chunk) -> Span:
        count = blocks.num_compressed(chunk.end, config)
        t = torch.arange(chunk.t0, chunk.end, device=device)[:, None]
        last = torch.arange(count, device=device) * config.d + config.l - 1
        return Span(chunk, chunk.cmp0, chunk.cmp0 + count, last <= t, group_size)

    return tile


def _window_tiles(window: int, group_size: int, device: torch.device) -> TileOf:
    """The last `window` positions, the query's own included."""

    def tile(chunk: Chunk) -> Span:
        first = max(0, chunk.t0 - window + 1)
        t = torch.arange(chunk.t0, chunk.end, device=device)[:, None]
        position = torch.arange(first, chunk.end, device=device)
        visible = (position <= t) & (position > t - window)
        return Span(chunk, chunk.key0 + first, chunk.key0 + chunk.end, visible, group_size)

    return tile


def _selected_tiles(block_indices: Tensor, config: NSAConfig) -> TileOf:
    """The positions <= t of each query's blocks."""

    def tile(chunk: Chunk) -> Gather:
        t = torch.arange(chunk.t0, chunk.end, device=block_indices.device)[:, None, None]
        return Gather.blocks(chunk, block_indices[chunk.batch, chunk.rows], t, chunk.end, config)

    return tile


def _item(x: Tensor) -> int:
    """Bytes of one number in a temporary."""
    return torch.promote_types(x.dtype, torch.float32).itemsize


# --- attention ---


def compressed(q: Tensor, k_cmp: Tensor, v_cmp: Tensor, config: NSAConfig, how: How) -> tuple[Tensor, Tensor]:
    """Attention to the visible compressed tokens: o [B,T,Hq,Dv], lse [B,T,Hq]."""
    chunks = _compressed_chunks(q, k_cmp, config, how)
    tiles = _compressed_tiles(config, q.shape[2] // k_cmp.shape[2], q.device)
    return TiledAttention.apply(q, k_cmp, v_cmp, chunks, tiles, how.scale)


def _compressed_chunks(q: Tensor, k_cmp: Tensor, config: NSAConfig, how: How) -> list[Chunk]:
    return chunks_of(sequences(q, config, how), q.shape[0] * q.shape[2] * k_cmp.shape[1] * _item(q))


def selected(
    q: Tensor, k: Tensor, v: Tensor, block_indices: Tensor, config: NSAConfig, how: How
) -> tuple[Tensor, Tensor]:
    """Attention to the positions <= t of the chosen blocks: o [B,T,Hq,Dv], lse [B,T,Hq]."""
    keys = min(block_indices.shape[-1] * config.l_sel, k.shape[1])
    row = q.shape[0] * keys * (k.shape[2] * (k.shape[3] + v.shape[3]) + q.shape[2])
    chunks, tiles = chunks_of(sequences(q, None, how), row * _item(q)), _selected_tiles(block_indices, config)
    return TiledAttention.apply(q, k, v, chunks, tiles, how.scale)


def window(q: Tensor, k: Tensor, v: Tensor, window: int, how: How) -> tuple[Tensor, Tensor]:
    """Attention to the last `window` positions, the query's own included: o [B,T,Hq,Dv], lse [B,T,Hq]."""
    most = max(64, window // 2)  # a chunk of c queries reads c + window - 1 keys: keep the unused part small
    chunks = chunks_of(sequences(q, None, how), q.shape[0] * q.shape[2] * (window + most) * _item(q), most)
    tiles = _window_tiles(window, q.shape[2] // k.shape[2], q.device)
    return TiledAttention.apply(q, k, v, chunks, tiles, how.scale)


def combine(o_cmp: Tensor, o_sel: Tensor, o_win: Tensor, gates: Tensor) -> Tensor:
    """Gated sum of the branches [B,T,Hq,Dv], gates [B,T,Hq,3]; the sum is fp32 at least."""
    wide = torch.promote_types(o_cmp.dtype, torch.float32)
    branches = zip((o_cmp, o_sel, o_win), gates.to(wide).unbind(-1), strict=True)
    terms = [gate[..., None] * o.to(wide) for o, gate in branches]
    return (terms[0] + terms[1] + terms[2]).to(o_cmp.dtype)


# --- selection ---


@torch.no_grad()
@unrounded
def select(q: Tensor, k_cmp: Tensor, config: NSAConfig, lse: Tensor | None, how: How) -> Tensor:
    """Chosen blocks, int32 [B,T,Hkv,n_sel], ascending, -1 padded. lse: that of `compressed`, if known."""
    tile_of = _compressed_tiles(config, q.shape[2] // k_cmp.shape[2], q.device)
    out = q.new_full((*q.shape[:2], k_cmp.shape[2], config.n_sel), -1, dtype=torch.int32)
    wide = torch.promote_types(q.dtype, torch.float32)
    for chunk in _compressed_chunks(q, k_cmp, config, how):
        tile = tile_of(chunk)
        logits = masked_logits(tile.rows(q).to(wide), tile.keys(k_cmp).to(wide), tile.mask, how.scale)
        of_rows = logits.logsumexp(-1) if lse is None else tile.rows(lse[..., None])[..., 0].to(wide)
        p = probabilities(logits, of_rows).unflatten(2, (-1, tile.group_size))  # [b,Hkv,c,G,Tc]
        t = torch.arange(chunk.t0, chunk.end, device=q.device)
        out[chunk.batch, chunk.rows] = best_blocks(p, t, chunk.end, config).transpose(1, 2)
    return out
