"""The choice of blocks in two kernels: one leaves the two numbers of each block (see `scores`) of a chunk of queries in
memory, the other chooses from them.

The first, `sums_gluon`, is bound by products and exponentials, which its warps share as one kernel of both could not;
the second by counting, for which many small programs are best.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import triton
import triton.language as tl
from torch import Tensor

from nsa.config import NSAConfig
from nsa.kernels.common.hopper import HALVES, lacking, launcher_of, target_of, unopposed
from nsa.kernels.common.launch import launched
from nsa.kernels.common.sizes import cdiv, next_power_of_2, pad_group
from nsa.kernels.common.tma import describable
from nsa.kernels.ranges.key_ranges import KeyRanges
from nsa.kernels.selection.scores import LANES, overlap_width, sums_blocks
from nsa.kernels.selection.shares import Share, row_length, shares_of
from nsa.kernels.selection.top_n import choose
from nsa.kernels.tuning.lookup import Tile, multiprocessors

TILES = {64: Tile(128, 64, 4, 8), 128: Tile(128, 64, 4, 6), 192: Tile(128, 64, 4, 4)}
"""By Dk; stages are tiles of keys loaded ahead. It is what the shared memory holds, beside two tiles of queries."""

MOST_HEADS = 32
"""In a group: the queries of a pair of heads are a box, of which TMA writes whole groups of eight rows."""

RESIDENT = 32
"""Programs of the second kernel, a warp each, on a multiprocessor."""

CHUNK_BYTES = 256 * 2**20
"""Of numbers that wait for the second kernel."""


def against(target: str, dtype: torch.dtype, dk: int, group: int, config: NSAConfig, packed: bool) -> str | None:
    """Why blocks are chosen in one kernel: a sentence, or None; facts as of `ranges.forward.against`."""
    if target != "sm_90":
        return f"the first is written for sm_90, not {target}"
    if dtype not in HALVES:
        return f"the first computes in half precision, not {str(dtype).removeprefix('torch.')}"
    if dk not in TILES:
        return f"head dimension {dk} is not among {', '.join(map(str, TILES))}"
    if pad_group(group) > MOST_HEADS:
        return f"the group size is {group}, more than {MOST_HEADS}"
    if not sums_blocks(config):
        return f"with l={config.l}, d={config.d} and l_sel={config.l_sel} a block's score is not made of two numbers"
    return "sequences are packed" if packed else lacking()


def chosen(q: Tensor, k_cmp: Tensor, config: NSAConfig, packed: bool) -> bool:
    """Whether the blocks for q [B,T,Hq,Dk] and k_cmp [B,Tc,Hkv,Dk] are chosen in two kernels."""
    facts = target_of(q.device), q.dtype, q.shape[-1], q.shape[2] // k_cmp.shape[2], config, packed
    return unopposed(against, *facts) and describable(q) and describable(k_cmp)


@launched
@triton.jit(do_not_specialize=["T", "FIRST", "COUNT", "H", "B", "ROOM", "s_range"])
def _choose(
    p_sums, p_kept, p_out, p_all_hi, p_all_start, s_range, T, FIRST, COUNT, H, B, ROOM, LENGTH,
    L: tl.constexpr, D: tl.constexpr, LS: tl.constexpr, WIDTH: tl.constexpr, INIT: tl.constexpr, LOCAL: tl.constexpr,
    SLOTS: tl.constexpr, SP: tl.constexpr, C: tl.constexpr, KEPT: tl.constexpr,
):  # fmt: skip
    """Blocks of COUNT queries from FIRST on, one at a time, int32 p_out [B,T,H,SLOTS]."""
    one = tl.arange(0, 1)
    for x in range(tl.program_id(0), COUNT * H * B, tl.num_programs(0)):
        i_h = x % H
        i_b = (x // H % B).to(tl.int64)
        i_t = FIRST + x // (H * B)
        p_row = p_sums + ((i_b * H + i_h) * ROOM + i_t - FIRST) * LENGTH + 2 * KEPT * LANES
        p_mine_out = p_out + ((i_b * T + i_t) * H + i_h) * SLOTS
        o_range = i_b * s_range + i_t + one
        choose(
            p_row + one, p_kept + tl.program_id(0) * (2 * SP) + one, p_mine_out + one, tl.load(p_all_hi + o_range),
            (i_t - tl.load(p_all_start + o_range)) // LS, one == 0,
            L, D, LS, WIDTH, INIT, LOCAL, SLOTS, SP, 1, C, KEPT, True,
        )  # fmt: skip


def select_by_sums(
    q: Tensor, k_cmp: Tensor, config: NSAConfig, scale: float, where: KeyRanges, lse: Tensor, start: Tensor,
    started: bool, blocks: Tensor,
) -> None:  # fmt: skip
    """Fill `blocks`, int32 [B,T,Hkv,n_sel]. Tensors as in `select_blocks`; start [T] or [B,T]: that of each query's
    sequence.
    """
    batch, tokens, heads, dk = q.shape[0], q.shape[1], k_cmp.shape[2], q.shape[-1]
    at_once = TILES[dk].BM // pad_group(q.shape[2] // heads)
    shares = shares_of(tokens, k_cmp.shape[1], config, at_once, started)
    length = max(row_length(share, k_cmp.shape[1], config, True) for share in shares)
    most = max(at_once, CHUNK_BYTES // (4 * length * heads * batch) // at_once * at_once)
    room = min(most, cdiv(tokens, at_once) * at_once)
    sums = torch.empty(batch, heads, room, length, dtype=torch.float32, device=q.device)
    slots = max(2, next_power_of_2(config.n_sel))
    programs = RESIDENT * multiprocessors(q.device)
    kept = torch.empty(programs, 2, slots, dtype=torch.int32, device=q.device)
    for share in shares:
        for first, count in _chunks(share, most):
            _launcher()(q, k_cmp, config, scale, where, lse, sums, share.before, first, count)
            _choose[(min(count * heads * batch, programs),)](
                sums, kept, blocks, where.hi, start, where.s_query, tokens, first, count, heads,
                batch, room, length,
                L=config.l, D=config.d, LS=config.l_sel, WIDTH=overlap_width(config), INIT=config.init_blocks,
                LOCAL=config.local_blocks, SLOTS=config.n_sel, SP=slots, C=share.rows, KEPT=share.kept, num_warps=1,
            )  # fmt: skip


def _chunks(share: Share, most: int) -> Iterator[tuple[int, int]]:
    """First query and number of each chunk, the last ones first."""
    end = share.first + share.queries
    while end > share.first:
        count = min(most, end - share.first)
        yield end - count, count
        end -= count


_launcher = launcher_of("nsa.kernels.selection.sums_gluon")
