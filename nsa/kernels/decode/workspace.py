"""What the kernels of a decode step leave for each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from nsa.config import BRANCHES
from nsa.kernels.common.sizes import SMALLEST_DOT, cdiv
from nsa.kernels.decode.plan import Plan, Sizes, keys_of
from nsa.kernels.selection.scores import sums_blocks


class Splits(NamedTuple):
    """Largest logits, sums, weighted values [units,splits,rows] (a [..,Dv]) and int32 counts of keys of splits."""

    m: Tensor
    l: Tensor  # noqa: E741  the sum of a softmax
    a: Tensor
    seen: Tensor


@dataclass(frozen=True)
class Workspace:
    """What the kernels leave for each other, of each pair (query, KV head) or unit (query, part).

    Attributes:
        now: int32 [queries], their positions.
        sums, zero: fp32 [units,numbers,G], [units,tiles,G], what the first leaves for the scores (`scores`).
        summed: fp32 [units,Tc], probabilities summed over heads, where scores are made of these.
        compressed, others: what the splits of compressed attention leave; those of selected blocks and window.
        o_cmp: fp32 [units * G,Dv], compressed attention.
        lists: int64 [pairs,lists,listed], the best blocks.
        tickets: int32 [2,units], programs of the second (of each pair) and third kernel that are done; 0 between steps.
        reads: int64 [queries,Hkv,3].
    """

    now: Tensor
    sums: Tensor
    zero: Tensor
    summed: Tensor
    compressed: Splits
    others: Splits
    o_cmp: Tensor
    lists: Tensor
    tickets: Tensor
    reads: Tensor


def make_workspace(sizes: Sizes, plan: Plan, device: torch.device) -> Workspace:
    """Buffers for one cache on the device."""

    def floats(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=torch.float32, device=device)

    def integers(*shape: int) -> Tensor:
        return torch.zeros(shape, dtype=torch.int32, device=device)

    def splits(count: int) -> Splits:
        each = units, count, sizes.rows
        return Splits(floats(*each), floats(*each), floats(*each, sizes.dv), integers(units, count))

    units = sizes.units
    third = plan.programs(sizes, BRANCHES, sizes.slots, select=True).splits
    numbers, summed = _numbers(sizes)
    tiles = max(1, cdiv(sizes.compressed, keys_of(plan.first, sizes.rows)))
    return Workspace(
        integers(sizes.queries), floats(units, numbers, sizes.group), floats(units, tiles, sizes.group),
        floats(units, summed), splits(plan.splits), splits(third), floats(units * sizes.group, sizes.dv),
        torch.empty(sizes.pairs, plan.lists(sizes), plan.listed(sizes), dtype=torch.int64, device=device),
        integers(2, units),
        torch.zeros(sizes.queries, sizes.kv_heads, 3, dtype=torch.int64, device=device),
    )  # fmt: skip


def _numbers(sizes: Sizes) -> tuple[int, int]:
    """Numbers that the first kernel leaves of each head for the scores, and how many the second keeps between."""
    if not sums_blocks(sizes.config):
        return max(1, sizes.compressed), max(1, sizes.compressed)
    begun = cdiv(sizes.compressed * sizes.config.d, sizes.config.l_sel)
    return 2 * cdiv(begun + 1, SMALLEST_DOT) * SMALLEST_DOT, 0  # halves begin where vectors can be loaded
