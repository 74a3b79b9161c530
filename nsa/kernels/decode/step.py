"""One decode step in three kernels: `append_compressed`, `select`, `combine`; several new tokens take two before them.

Nothing here asks the device anything, and the grids depend on capacities only, so a step can be captured in a CUDA
graph: lengths are read, and counted on, by the kernels.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from nsa import blocks
from nsa.config import BRANCHES
from nsa.kernels.common.sizes import SMALLEST_DOT, dot_precision, next_power_of_2, rows_last
from nsa.kernels.common.tiles import LOG2E
from nsa.kernels.decode.append_compressed import append_compressed_kernel
from nsa.kernels.decode.combine import combine_kernel
from nsa.kernels.decode.plan import Plan, Programs, Sizes, at_least_two, keys_of, parts_of, plan_for
from nsa.kernels.decode.select import select_kernel
from nsa.kernels.decode.several import append_kernel, window_kernel
from nsa.kernels.decode.workspace import Workspace, make_workspace
from nsa.kernels.recorded import repeated
from nsa.kernels.rotary import frequencies
from nsa.kernels.selection.scores import overlap_width, sums_blocks
from nsa.kernels.tuning.lookup import Tile
from nsa.plans import capturing

if TYPE_CHECKING:
    from nsa.cache import NSACache, Triple

TOKENS = 512
"""Compressed tokens that a program of the second kernel takes at once, where it adds up tokens instead of blocks."""
RANKED = 128
"""Candidates that it compares with each other at once."""
UNROLLED = 8
FEWEST_COLUMNS = 8


class NewTokens(NamedTuple):
    """New tokens of each sequence: keys and values [B,T,Hkv,D*] of the branches (cmp, sel, win); and int32 [B], how
    many of them are real, or None: all.
    """

    k: Triple
    v: Triple
    counts: Tensor | None


@dataclass(frozen=True)
class _Step:
    """The launches of a step.

    Attributes:
        q, gates: of all queries, [B*T,1,Hq,Dk] with a contiguous last dimension, [B*T,1,Hq,3].
        cache: its memory is read as rows [.., D]: position p of sequence b is row b * rows + p, or is in a page.
        sizes, plan, workspace: of the cache; after the step `workspace.reads` holds what was read.
        scale: of the logits.
        new: tokens to append first; None attends to the last token that is there. The kernels make compressed tokens
            of them where these are means (`NSACache.mean`); otherwise they are there already.
    """

    q: Tensor
    gates: Tensor
    cache: NSACache
    sizes: Sizes
    plan: Plan
    workspace: Workspace
    scale: float
    new: NewTokens | None

    def run(self, branches: Collection[str], block_indices: Tensor | None) -> tuple[Tensor, Tensor]:
        """o [B*T,1,Hq,Dv] and the blocks int32 [B*T,1,Hkv,slots].

        Args:
            branches, block_indices: as in `nsa.ops.cached_attention`; given blocks exclude `new`.
        """
        sizes, chosen, select = self.sizes, block_indices, block_indices is None
        if chosen is None:
            chosen = torch.empty(sizes.queries, 1, sizes.kv_heads, sizes.slots, dtype=torch.int32, device=self.q.device)
        chosen = chosen.contiguous()
        # Made before anything is launched: a step that is repeated cannot run out of memory once it has appended.
        o = torch.empty(sizes.queries, 1, self.q.shape[2], sizes.dv, dtype=self.q.dtype, device=self.q.device)
        programs = self.plan.programs(sizes, branches, chosen.shape[-1], select)
        if self.new is not None and sizes.tokens > 1:
            self._window(self.new, programs)
            self._append(self.new)
        if programs.heads:
            self._compressed(self.new if sizes.tokens == 1 else None)
        if programs.second:
            self._select(chosen, programs)
        self._combine(o, chosen, "cmp" in branches, programs)
        return o, chosen

    @property
    def _dimensions(self) -> dict[str, int]:
        """Compile-time sizes of heads, keys and values."""
        sizes = self.sizes
        return {
            "TOKENS": sizes.tokens,
            "PARTS": sizes.parts,
            "G": sizes.group,
            "GP": sizes.rows,
            "DK": sizes.dk,
            "DV": sizes.dv,
        }

    @property
    def _pages(self) -> tuple[Tensor, int, int]:
        """The page table, its pages for each sequence, tokens of a page; without pages lengths stand in."""
        pages = self.cache.pages
        return (self.cache.lengths, 0, 0) if pages is None else (pages.table, pages.table.shape[1], pages.size)

    @property
    def _left(self) -> tuple[int, int, int]:
        """Strides of what the first kernel leaves for the scores, and where its second half begins."""
        sums, zero = self.workspace.sums, self.workspace.zero
        return sums.stride(0), zero.stride(0), sums.stride(0) // 2

    def _grid(self, splits: int) -> tuple[int, int, int]:
        return self.sizes.kv_heads * self.sizes.parts, splits, self.sizes.queries

    @property
    def _frequency(self) -> Tensor | None:
        """By which the compressed tokens that a kernel makes are turned."""
        mean = self.cache.mean
        return None if mean is None or mean.base is None else frequencies(self.q.shape[-1], mean.base, self.q.device)

    @property
    def _widths(self) -> dict[str, int]:
        """Of a key and a value, as tensors of a kernel."""
        return {
            "WK": max(SMALLEST_DOT, next_power_of_2(self.sizes.dk)),
            "WV": max(SMALLEST_DOT, next_power_of_2(self.sizes.dv)),
        }

    def _window(self, new: NewTokens, programs: Programs) -> None:
        """Attend to the ring, as it is before these tokens are appended, and to those of them that each query sees."""
        cache, sizes, (table, pages, page) = self.cache, self.sizes, self._pages
        window_kernel[self._grid(programs.window)](
            self.q, cache.lengths, cache.lengths if new.counts is None else new.counts, table, *cache.window.stored,
            new.k[2].contiguous(), new.v[2].contiguous(), *self.workspace.others,
            sizes.kv_heads, programs.selected, programs.splits, cache.capacity, pages, *_heads(self.q),
            self.scale * LOG2E.value, **self._dimensions, W=sizes.config.w, PAGE=page, COUNTED=new.counts is not None,
            KEYS=self.plan.keys, **_tile(self.plan.third, sizes.rows, self.q),
        )  # fmt: skip

    def _append(self, new: NewTokens) -> None:
        """Append several tokens of each sequence, one after the other, and emit; leave their positions."""
        cache, config, frequency = self.cache, self.sizes.config, self._frequency
        keys, values, (table, pages, page) = _alike(new.k), _alike(new.v), self._pages
        append_kernel[self.sizes.kv_heads, self.sizes.queries // self.sizes.tokens](
            cache.lengths, cache.lengths if new.counts is None else new.counts, self.workspace.now, table,
            *keys, *values, self.workspace.sums if frequency is None else frequency,
            *cache.compressed.stored, *cache.selected.stored, *cache.window.stored, *cache.pending.stored,
            self.sizes.kv_heads, cache.selected.rows, cache.compressed.rows, cache.capacity, pages,
            *keys[0].stride()[:3], *values[0].stride()[:3], TOKENS=self.sizes.tokens, DK=self.sizes.dk,
            DV=self.sizes.dv, **self._widths, L=config.l, D=config.d, W=config.w, PAGE=page, CMP_PAGE=page // config.d,
            COUNTED=new.counts is not None, ROTATED=frequency is not None, num_warps=4,
        )  # fmt: skip

    def _compressed(self, new: NewTokens | None) -> None:
        """Append, emit, and attend to the compressed tokens in splits."""
        cache, workspace, config = self.cache, self.workspace, self.sizes.config
        keys = values = (self.q,) * 3
        counts = mean = frequency = None
        if new is not None:
            keys, values, counts, mean, frequency = (
                _alike(new.k), _alike(new.v), new.counts, cache.mean, self._frequency
            )  # fmt: skip
        table, pages, page = self._pages
        append_compressed_kernel[self._grid(self.plan.splits)](
            self.q, cache.lengths, cache.lengths if counts is None else counts, workspace.now, table,
            *keys, *values, workspace.sums if frequency is None else frequency,
            *cache.compressed.stored, *cache.selected.stored, *cache.window.stored, *cache.pending.stored,
            workspace.sums, workspace.zero, *workspace.compressed,
            self.sizes.kv_heads, self.plan.splits, cache.selected.rows, cache.compressed.rows, cache.capacity, pages,
            *_heads(self.q), *_heads(keys[0]), *_heads(values[0]), *self._left, self.scale * LOG2E.value,
            **self._dimensions, **self._widths, L=config.l, D=config.d, LS=config.l_sel, W=config.w,
            PAGE=page, CMP_PAGE=page // config.d, APPEND=new is not None, COUNTED=counts is not None,
            EMIT=mean is not None, ROTATED=frequency is not None, BLOCKS=sums_blocks(config),
            **_tile(self.plan.first, self.sizes.rows, self.q),
        )  # fmt: skip

    def _select(self, chosen: Tensor, programs: Programs) -> None:
        """Finish compressed attention; the best blocks go to `chosen`; the window."""
        cache, workspace, sizes, config, plan = self.cache, self.workspace, self.sizes, self.sizes.config, self.plan
        width, free = overlap_width(config), max(1, sizes.free)
        lists, listed = plan.lists(sizes), plan.listed(sizes)
        few = lists * listed <= plan.few
        candidates = lists * listed if few else free * (free + 1) // 2
        select_kernel[sizes.kv_heads, sizes.queries, programs.second](
            self.q, cache.lengths, workspace.now, *cache.window.stored, workspace.sums, workspace.zero,
            workspace.summed, *workspace.compressed[:3], workspace.o_cmp, workspace.lists, workspace.tickets[0], chosen,
            *workspace.others,
            sizes.kv_heads, plan.splits, programs.scorers, programs.beside, programs.selected, programs.splits,
            *_heads(self.q), *self._left, workspace.summed.shape[1], self.scale * LOG2E.value,
            **self._dimensions, L=config.l, D=config.d, LS=config.l_sel, W=config.w, WIDTH=width,
            INIT=config.init_blocks, LOCAL=config.local_blocks, SLOTS=config.n_sel, SP=at_least_two(config.n_sel),
            FP=at_least_two(free), HEADS=plan.heads(sizes), SPLITS=at_least_two(plan.splits), BJ=plan.lanes,
            AMONG=plan.among, CP=at_least_two(lists), LISTED=listed, CANDIDATES=candidates,
            AT_ONCE=at_least_two(candidates) if few else RANKED, FEW=few, BLOCKS=sums_blocks(config),
            TILE=keys_of(plan.first, sizes.rows), STEP=min(width, UNROLLED), BT=TOKENS * SMALLEST_DOT // sizes.rows,
            APPEND=self.new is not None, KEYS=plan.keys, **_tile(plan.third, sizes.rows, self.q),
        )  # fmt: skip

    def _combine(self, o: Tensor, chosen: Tensor, cmp: bool, programs: Programs) -> None:
        """The selected blocks, and in o the sum of the branches, compressed attention's with `cmp`."""
        cache, workspace, sizes, config, plan = self.cache, self.workspace, self.sizes, self.sizes.config, self.plan
        splits, (table, pages, page) = at_least_two(programs.splits), self._pages
        columns = min(next_power_of_2(sizes.dv), plan.summed // (splits * sizes.rows))
        combine_kernel[self._grid(max(1, programs.selected))](
            self.q, cache.lengths, workspace.now, table, *cache.selected.stored, chosen, self.gates,
            workspace.o_cmp, workspace.compressed.seen, *workspace.others, workspace.tickets[1], o, workspace.reads,
            sizes.kv_heads, plan.splits, programs.selected, programs.splits,
            chosen.shape[-1], cache.selected.rows, pages,
            *_heads(self.q), *_heads(self.gates), self.gates.stride(3), self.scale * LOG2E.value,
            **self._dimensions, LS=config.l_sel, PAGE=page, KEYS=plan.keys, SPLITS=splits,
            CMP_SPLITS=at_least_two(plan.splits), COLUMNS=max(FEWEST_COLUMNS, columns),
            APPEND=self.new is not None, CMP=cmp, CMP_READ=programs.heads > 0,
            **_tile(plan.third, sizes.rows, self.q),
        )  # fmt: skip


def _heads(x: Tensor) -> tuple[int, int]:
    """Strides of x [B,1,H,D] between sequences and between heads."""
    return x.stride(0), x.stride(2)


def _alike(triple: Triple) -> Triple:
    """The triple with the same strides in all three."""
    if all(x.stride() == triple[0].stride() and x.stride(-1) == 1 for x in triple):
        return triple
    return triple[0].contiguous(), triple[1].contiguous(), triple[2].contiguous()


def _tile(tile: Tile, rows: int, q: Tensor) -> dict[str, Any]:
    """The keyword arguments of a launch with so many rows: wide groups take more warps."""
    return {
        "BN": keys_of(tile, rows),
        "num_warps": tile.num_warps if rows <= tile.BM else 8,
        "num_stages": tile.num_stages,
        "PREC": dot_precision(q.dtype),
    }


# --- with a cache ---


def decode_step(
    q: Tensor, keys: Triple, values: Triple, gates: Tensor, cache: NSACache, *, scale: float, counts: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Append T new tokens of each sequence and attend. The cache has room; its host side is the caller's.

    Args:
        q, keys, values, gates: as in `nsa.ops.nsa_decode`, T at most w and the keys of a tile, 16.
        cache: the cache; a learned compressor has emitted already (`NSACache.emit`), of one token.
        scale: of the logits.
        counts: int32 [B] on the device, 0 to T; None is T everywhere. What o holds of the others means nothing.

    Returns:
        o [B,T,Hq,Dv], reads int64 [B*T,Hkv,3], blocks int32 [B,T,Hkv,n_sel].
    """
    return repeated("step", partial(_decode, cache), (q, *keys, *values, gates, counts), (scale,))  # type: ignore[return-value]


def _decode(
    cache: NSACache, q: Tensor, k_cmp: Tensor, k_sel: Tensor, k_win: Tensor, v_cmp: Tensor, v_sel: Tensor,
    v_win: Tensor, gates: Tensor, counts: Tensor | None, scale: float,
) -> Triple:  # fmt: skip
    new, tokens = NewTokens((k_cmp, k_sel, k_win), (v_cmp, v_sel, v_win), counts), q.shape[1]
    if tokens == 1:
        return _attend(cache, q, gates, None, scale, BRANCHES, new)
    flat = (x.reshape(-1, 1, *x.shape[2:]) for x in (q, gates))
    o, reads, chosen = _attend(cache, *flat, None, scale, BRANCHES, new)
    return o.view(-1, tokens, *o.shape[2:]), reads, chosen.view(-1, tokens, *chosen.shape[2:])


def cached_attention(
    q: Tensor, gates: Tensor, cache: NSACache, *, scale: float, branches: Collection[str],
    block_indices: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Attention of the last token of each sequence; arguments and results as `decode` in `nsa.routing.registry`."""
    return repeated("cached", partial(_attend, cache), (q, gates, block_indices), (scale, branches))  # type: ignore[return-value]


def _attend(
    cache: NSACache, q: Tensor, gates: Tensor, block_indices: Tensor | None, scale: float, branches: Collection[str],
    new: NewTokens | None = None,
) -> Triple:  # fmt: skip
    (k, v), config = cache.selected.stored, cache.config
    kv_heads, slots = k.shape[-2], config.n_sel if block_indices is None else block_indices.shape[-1]
    most = blocks.num_compressed(cache.capacity, config), blocks.num_blocks(cache.capacity, config)
    parts = parts_of(q.shape[2] // kv_heads)
    heads = kv_heads, parts, q.shape[2] // (kv_heads * parts)
    sizes = Sizes(len(q), len(q) // cache.batch, *heads, q.shape[3], v.shape[-1], *most, slots, config, q.dtype)
    plan = plan_for(sizes, q, v)
    workspace = _kept_workspace(cache, sizes, plan, q.device)
    step = _Step(rows_last(q), gates, cache, sizes, plan, workspace, scale, new)
    o, chosen = step.run(branches, block_indices)
    return o, workspace.reads, chosen


def _kept_workspace(cache: NSACache, sizes: Sizes, plan: Plan, device: torch.device) -> Workspace:
    """The cache's workspace for these sizes. A capture that makes its own keeps it inside its graph."""
    kept = cache.workspaces.get((sizes, plan))
    if kept is None:
        kept = make_workspace(sizes, plan, device)
        if not capturing(device):  # never replaced: a graph may use it as long as the cache's buffers stay
            cache.workspaces[sizes, plan] = kept
    return kept
