"""One decode step in PyTorch: the last token of every sequence in a cache, whatever their lengths, at once."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nsa import blocks
from nsa.config import BRANCHES
from nsa.fallback.chunks import Chunk
from nsa.fallback.scoring import best_blocks
from nsa.fallback.tiles import Gather, masked_logits, softmax_rows, unrounded

if TYPE_CHECKING:
    from nsa.cache import NSACache, Triple


def step(
    q: Tensor, k: Triple, v: Triple, gates: Tensor, cache: NSACache, *, counts: Sequence[int], scale: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Append one token of each sequence, then `decode`."""
    cache.append(k, v, counts=counts)
    return decode(q, gates, cache, scale=scale, branches=BRANCHES, block_indices=None)


@unrounded
def decode(
    q: Tensor, gates: Tensor, cache: NSACache, *, scale: float, branches: Collection[str],
    block_indices: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Attention of the last token of each sequence; arguments and results as in `nsa.ops.cached_attention`."""
    step = _Step(q, cache, scale)
    if "cmp" in branches or block_indices is None:
        p = step.compressed()
        block_indices = step.select(p) if block_indices is None else block_indices
    if "sel" in branches:
        step.selected(block_indices)
    if "win" in branches:
        step.window()
    weighted = [gates[..., BRANCHES.index(x), None].to(step.wide) * step.outputs[x] for x in BRANCHES if x in branches]
    return torch.stack(weighted).sum(0).to(q.dtype), step.reads, block_indices


class _Step:
    """The branches of one step; each leaves its output [B,1,Hq,Dv] and counts the key rows in its softmax."""

    def __init__(self, q: Tensor, cache: NSACache, scale: float) -> None:
        self.wide = torch.promote_types(q.dtype, torch.float32)
        kv_heads = cache.window.k.shape[2]
        self.rows = q[:, 0].unflatten(1, (kv_heads, -1)).to(self.wide)  # [B,Hkv,G,Dk]
        self.cache, self.scale, self.config = cache, scale, cache.config
        self.t = cache.lengths - 1
        self.outputs: dict[str, Tensor] = {}
        self.reads = torch.zeros(len(q), kv_heads, 3, dtype=torch.int64, device=q.device)

    def compressed(self) -> Tensor:
        """The visible compressed tokens; gives their probabilities [B,Hkv,G,Tc]."""
        count = blocks.num_compressed(self.cache.longest, self.config)
        k, v = self.cache.compressed.first(count)
        last = torch.arange(count, device=self.t.device) * self.config.d + self.config.l - 1
        visible = (last <= self.t[:, None])[:, None]
        return self._attend("cmp", k[:, :count].transpose(1, 2), v[:, :count].transpose(1, 2), visible)

    def select(self, p: Tensor) -> Tensor:
        """The blocks, int32 [B,1,Hkv,n_sel], from the probabilities of the compressed tokens."""
        return best_blocks(p.transpose(0, 1), self.t, self.cache.longest, self.config).transpose(0, 1)[:, None]

    def selected(self, block_indices: Tensor) -> None:
        """The positions <= t of the blocks."""
        here, t, longest = Chunk(slice(0, len(self.t)), slice(0, 1)), self.t[:, None, None, None], self.cache.longest
        gather = Gather.blocks(here, block_indices, t, longest, self.config)
        k, v = self.cache.selected.first(longest)
        self._attend("sel", gather.keys(k)[:, 0], gather.keys(v)[:, 0], gather.visible[:, 0])

    def window(self) -> None:
        """The last w positions: all that the ring holds."""
        store = self.cache.window
        count = min(self.cache.longest, self.config.w)
        visible = (torch.arange(count, device=self.t.device) <= self.t[:, None])[:, None]
        self._attend("win", store.k[:, :count].transpose(1, 2), store.v[:, :count].transpose(1, 2), visible)

    def _attend(self, name: str, k: Tensor, v: Tensor, visible: Tensor) -> Tensor:
        """Attention to the visible keys k, v [B,Hkv,K,D*], visible bool [B,Hkv or 1,K]; gives p."""
        logits = masked_logits(self.rows, k.to(self.wide), visible[:, :, None], self.scale)
        p, _ = softmax_rows(logits)
        v = v.to(self.wide).masked_fill(~visible[..., None], 0.0)  # what a row held before, or no number times 0
        self.outputs[name] = (p @ v).flatten(1, 2)[:, None]
        self.reads[:, :, BRANCHES.index(name)] = visible.sum(-1)
        return p
