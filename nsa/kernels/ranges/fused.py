"""The gradient of attention in one kernel for a branch: dq, dk and dv from five products instead of seven.

Here is that of attention to ranges of keys, and what sums the branches; `selected.fused` is another branch.

A program takes a tile of keys, which gives their dk and dv as in `backward`, and adds its share of dq to memory in
fp32, where all key tiles that a query reads add up. So no logits are computed twice; but the order of the additions is
that of the moment: results differ in their last bits from run to run. `deterministic=True` asks for the two kernels.

The fp32 sums of dq take twice the room of dq. For many queries they are made for a quarter of the KV heads after the
other, all branches of the whole operation into the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
import triton
import triton.language as tl
from torch import Tensor

from nsa.kernels.common.backward_preprocess import backward_preprocess
from nsa.kernels.common.hopper import HALVES, lacking, launcher_of, target_of, unopposed
from nsa.kernels.common.launch import launched
from nsa.kernels.common.sizes import cdiv, pad_group
from nsa.kernels.common.split_reduce import reduce_splits
from nsa.kernels.common.tma import describable
from nsa.kernels.ranges.backward import ranges_backward
from nsa.kernels.ranges.key_ranges import KeyRanges
from nsa.kernels.recorded import beside
from nsa.kernels.tuning.lookup import Tile

TILES = {64: Tile(64, 128, 8, 3), 128: Tile(64, 128, 8, 2), 192: Tile(32, 128, 8, 2)}
"""By Dk, of the two warpgroups that compute; stages are tiles of queries loaded ahead. It is what the registers and the
shared memory hold: no wider heads than that, nothing to tune."""

VALUES = (64, 128)
"""Dv."""

FEW_QUERIES = 16384
"""Up to so many the fp32 sums of dq are made for all heads at once."""

PROGRAMS = 1024
"""Of one launch, at least, where the queries suffice: a few for each multiprocessor, so that none waits for long."""

FEWEST_TILES, MOST_TILES = 32, 512
"""Of queries, for one program: enough to load keys for, and few enough that the programs on the card stay near the
same queries, whose sums then are in the level-2 cache."""


Pair = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Share:
    """A branch's part of a gradient on its way: what all of its launches have.

    Attributes:
        branch: its tensors, k and v as TMA takes them.
        tile: the kernel's.
        dk, dv: [B,S,Hkv,D*], written, or in fp32 and added to.
    """

    branch: Any
    tile: Tile
    dk: Tensor
    dv: Tensor

    def launch(self, q: Tensor, do: Tensor, sums: Tensor, scale: float, first_head: int, run_heads: int) -> None:
        """Add dq / scale of `run_heads` KV heads from `first_head` on to sums, fp32 [B,T,run_heads * G,Dk], and make or
        sum up dk and dv of these; q [B,T,Hq,Dk] and do [B,T,Hq,Dv] as `tma.describable` wants them.
        """
        raise NotImplementedError

    def results(self) -> Pair:
        """dk and dv of all heads in the dtype of k, after the last launch."""
        if self.dk.dtype == self.branch.k.dtype:
            return self.dk, self.dv
        return reduce_splits(self.dk[None], self.dv[None], self.branch.k.dtype)


class Shares(Protocol):
    """A branch: its keys and values, and whose they are."""

    @property
    def k(self) -> Tensor: ...

    def share(self, q: Tensor, heads: int) -> Share:
        """Its part of the gradient for q, of which `heads` KV heads are summed at once."""


# --- where it can run ---


def against(target: str, dtype: torch.dtype, dk: int, dv: int, group: int, deterministic: bool) -> str | None:
    """Why the gradient takes two kernels instead: a sentence, or None.

    Args:
        target: as `target_of` says it.
        dtype, dk, dv, group: of q and k, the head dimensions, query heads of a KV head.
        deterministic: as asked for.
    """
    if deterministic:
        return "deterministic=True: it adds in the order of the moment"
    if target != "sm_90":
        return f"it is written for sm_90, not {target}"
    if dtype not in HALVES:
        return f"it computes in half precision, not {str(dtype).removeprefix('torch.')}"
    if dk not in TILES or dv not in VALUES:
        return f"head dimensions {dk} and {dv} are not among {', '.join(map(str, TILES))} and {VALUES[0]}, {VALUES[1]}"
    if pad_group(group) > TILES[dk].BM:
        return f"{group} query heads share a KV head, more than a tile's {TILES[dk].BM}"
    return lacking()


Facts = tuple[str, torch.dtype, int, int, int, bool]


def facts_of(q: Tensor, v: Tensor, deterministic: bool) -> Facts:
    """What `against` asks of the gradient for q [B,T,Hq,Dk] and v [B,S,Hkv,Dv]."""
    return target_of(q.device), q.dtype, q.shape[-1], v.shape[-1], q.shape[2] // v.shape[2], deterministic


def chosen(q: Tensor, v: Tensor, deterministic: bool) -> bool:
    """Whether the gradient for q [B,T,Hq,Dk] and v [B,S,Hkv,Dv] is made in one kernel: `against` finds nothing."""
    return unopposed(against, *facts_of(q, v, deterministic))


# --- the gradient ---


def gradients(
    do: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, where: KeyRanges, scale: float,
    deterministic: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of q, k and v of one branch alone, in one kernel or in two; tensors as in `ranges_backward`."""
    if not chosen(q, v, deterministic):
        return ranges_backward(do, q, k, v, backward_preprocess(do, o, lse), where, scale)
    dq, ((dk, dv),) = backward(do, q, [Branch(k, v, backward_preprocess(do, o, lse, k.shape[2]), where)], scale)
    return dq, dk, dv


def backward(
    do: Tensor, q: Tensor, branches: Sequence[Shares], scale: float, dq: Tensor | None = None
) -> tuple[Tensor, list[Pair]]:
    """The gradient of q, summed over the branches, and those of each branch's k and v.

    Args:
        do: gradient of the branches' sum, [B,T,Hq,Dv].
        q, scale: as in `ranges_forward`.
        dq: contiguous [B,T,Hq,Dk]; given, the gradient is added to it instead of a new tensor.
    """
    added, dq = dq is not None, torch.empty_like(q, memory_format=torch.contiguous_format) if dq is None else dq
    gradient = Gradient.of(do, q, branches, scale)
    for first in range(0, gradient.kv_heads if q.numel() else 0, gradient.at_once):
        narrow(gradient.sums(first), dq, first * gradient.group, scale, added)
    return dq, gradient.results()


@dataclass(frozen=True)
class Gradient:
    """The gradient of several branches on its way.

    Attributes:
        do, q: as TMA takes them.
        shares: of the branches, the one that takes longest last.
        scale: of the logits.
        wide: fp32 room for dq of `at_once` KV heads.
        kv_heads, at_once: KV heads; those whose dq is summed at once.
    """

    do: Tensor
    q: Tensor
    shares: list[Share]
    scale: float
    wide: Tensor
    kv_heads: int
    at_once: int

    @classmethod
    def of(cls, do: Tensor, q: Tensor, branches: Sequence[Shares], scale: float) -> Gradient:
        q, do = made_describable(q), made_describable(do)
        kv_heads = branches[0].k.shape[2]
        at_once = kv_heads if q.shape[:2].numel() <= FEW_QUERIES else cdiv(kv_heads, 4)
        shares = [branch.share(q, at_once) for branch in branches]
        wide = torch.empty(q.numel() // kv_heads * at_once, dtype=torch.float32, device=q.device)
        return cls(do, q, shares, scale, wide, kv_heads, at_once)

    @property
    def group(self) -> int:
        return self.q.shape[2] // self.kv_heads

    def sums(self, first: int = 0) -> Tensor:
        """dq / scale of `at_once` KV heads, or of those that are left, from `first` on: fp32 [B,T,H',Dk] in `wide`."""
        batch, tokens, _, size = self.q.shape
        count = min(self.at_once, self.kv_heads - first)
        shape = batch, tokens, count * self.group, size
        sums = cleared(self.wide[: math.prod(shape)].view(shape))
        *others, last = self.shares
        if len(others) > 1 and self.at_once == self.kv_heads:  # what one leaves of the card at its end, others take
            beside(partial(self._launch, [last], sums, first, count), partial(self._launch, others, sums, first, count))
        else:
            self._launch(self.shares, sums, first, count)
        return sums

    def _launch(self, shares: list[Share], sums: Tensor, first: int, count: int) -> None:
        for share in shares:
            share.launch(self.q, self.do, sums, self.scale, first, count)

    def results(self) -> list[Pair]:
        """dk and dv of each branch."""
        return [share.results() for share in self.shares]


def made_describable(x: Tensor) -> Tensor:
    """x, copied where TMA could not load tiles of it."""
    return x if describable(x) else x.clone(memory_format=torch.contiguous_format)


def sums_for(k: Tensor, v: Tensor) -> Pair:
    """Zeros in fp32 for dk and dv."""
    sums = cleared(torch.empty(k.numel() + v.numel(), dtype=torch.float32, device=k.device))
    return sums[: k.numel()].view(k.shape), sums[k.numel() :].view(v.shape)


# --- attention to ranges of keys ---


@dataclass(frozen=True)
class Branch:
    """What one branch attends to: k [B,S,Hkv,Dk], v [B,S,Hkv,Dv], the stats of its rows by head, and its key ranges."""

    k: Tensor
    v: Tensor
    stats: Tensor
    where: KeyRanges

    def share(self, q: Tensor, heads: int) -> Run:
        """See `Shares`."""
        k, v = made_describable(self.k), made_describable(self.v)
        tile = _tile(q)
        split = _split(q, k, self.where, tile, heads)
        splits = max(1, cdiv(q.shape[1], split))
        if splits > 1 or not q.numel():
            dk, dv = sums_for(k, v)
        else:
            dk, dv = (torch.empty_like(x, memory_format=torch.contiguous_format) for x in (k, v))
        return Run(Branch(k, v, self.stats, self.where), tile, dk, dv, splits, split)


@dataclass(frozen=True)
class Run(Share):
    """Of such a branch.

    Attributes:
        splits, split: of the queries, which are programs of their own; tokens of one. Several add to dk and dv.
    """

    splits: int
    split: int

    @property
    def adds(self) -> bool:
        """Whether dk and dv are added to."""
        return self.splits > 1

    def launch(self, q: Tensor, do: Tensor, sums: Tensor, scale: float, first_head: int, run_heads: int) -> None:
        if self.branch.k.numel():
            _launcher()(self, q, do, sums, scale, first_head, run_heads)


def _tile(q: Tensor) -> Tile:
    return TILES[q.shape[-1]]


def _split(q: Tensor, k: Tensor, where: KeyRanges, tile: Tile, heads: int) -> int:
    """How many tokens' queries one program takes of those that read its keys."""
    tokens = tile.BM // pad_group(q.shape[2] // k.shape[2])
    if where.splits == 1:
        return max(1, cdiv(q.shape[1], tokens)) * tokens
    tiles = cdiv(q.shape[1], tokens)
    programs = heads * k.shape[0] * cdiv(k.shape[1], tile.BN)
    return tokens * min(MOST_TILES, max(FEWEST_TILES, tiles * programs // (2 * PROGRAMS)))  # half of them see no key


_launcher = launcher_of("nsa.kernels.ranges.fused_gluon")


# --- sums, from zeros to the gradient ---

CLEARED = 4096
"""Numbers of one program that clears."""

ROWS, COLUMNS = 4, 1024
"""Of one program that narrows."""


@launched
@triton.jit
def _clear_kernel(p_x, N, BLOCK: tl.constexpr):
    """Where 16 divides N no mask parts the 16 bytes of a store."""
    o_x = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(p_x + o_x, tl.zeros([BLOCK], p_x.dtype.element_ty), mask=o_x < N)


def cleared(x: Tensor) -> Tensor:
    """A contiguous tensor, with zeros in all of it: in a recorded call this launch takes the host a third of what
    PyTorch's takes.
    """
    if x.numel():
        _clear_kernel[(cdiv(x.numel(), CLEARED),)](x, x.numel(), BLOCK=CLEARED, num_warps=8)
    return x


@launched
@triton.jit(do_not_specialize=["N"])
def _narrow(p_wide, p_dq, N, W, s_dq, o_first, scale, ADD: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Columns of N rows: p_dq [N, s_dq] from o_first on takes scale * p_wide [N, W]."""
    o_row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    o_column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    m_tile = (o_row < N) & (o_column < W)
    b_x = tl.load(p_wide + o_row * W + o_column, mask=m_tile, other=0.0) * scale
    p_tile = p_dq + o_row * s_dq + o_first + o_column
    if ADD:
        b_x += tl.load(p_tile, mask=m_tile, other=0.0).to(tl.float32)
    tl.store(p_tile, b_x.to(p_dq.dtype.element_ty), mask=m_tile)


def narrow(sums: Tensor, dq: Tensor, first: int, scale: float, added: bool) -> None:
    """Write scale * sums, fp32 [B,T,H',Dk], to the heads [first, first + H') of dq [B,T,Hq,Dk], or add it to them."""
    batch, tokens, heads, size = dq.shape
    width = sums.shape[2] * size
    _narrow[(cdiv(batch * tokens, ROWS), cdiv(width, COLUMNS))](
        sums, dq, batch * tokens, width, heads * size, first * size, scale, ADD=added, ROWS=ROWS, COLUMNS=COLUMNS,
        num_warps=4,
    )  # fmt: skip
