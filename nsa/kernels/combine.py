"""The gated sum of the branches (Eq. 5) and its gradient, each in one pass over memory."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from nsa.kernels.common.backward_preprocess import ROWS, places, room_by_head, store_stats
from nsa.kernels.common.launch import launched
from nsa.kernels.common.sizes import cdiv, widths
from nsa.kernels.common.tiles import load_tile, store_tile
from nsa.kernels.recorded import Differentiable


@triton.jit
def _gate(p_gates, o_row, m_row, BRANCH: tl.constexpr):
    return tl.load(p_gates + o_row * 3 + BRANCH, mask=m_row, other=0.0).to(tl.float32)


@triton.jit
def gated_sum(
    p_cmp, b_sel, p_win, p_gates, p_o, o_row, m_row, START: tl.constexpr, W: tl.constexpr, D: tl.constexpr
):  # fmt: skip
    """The gated sum of columns [START, START + W) of o_cmp, b_sel [BM, W] fp32 and o_win, to p_o."""
    b_o = b_sel * _gate(p_gates, o_row, m_row, 1)[:, None]
    b_o += (
        load_tile(p_cmp, o_row * D, m_row, START, W, D, True).to(tl.float32) * _gate(p_gates, o_row, m_row, 0)[:, None]
    )
    b_o += (
        load_tile(p_win, o_row * D, m_row, START, W, D, True).to(tl.float32) * _gate(p_gates, o_row, m_row, 2)[:, None]
    )
    store_tile(p_o, o_row * D, m_row, b_o, START, W, D, False)


@launched
@triton.jit(do_not_specialize=["N"])
def _forward(
    p_cmp, p_sel, p_win, p_gates, p_o, N, D: tl.constexpr, D0: tl.constexpr, D1: tl.constexpr, BM: tl.constexpr
):
    o_row = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    m_row = o_row < N
    for j in tl.static_range(2 if D1 > 0 else 1):
        b_sel = load_tile(p_sel, o_row * D, m_row, j * D0, D1 if j else D0, D, True).to(tl.float32)
        gated_sum(p_cmp, b_sel, p_win, p_gates, p_o, o_row, m_row, j * D0, D1 if j else D0, D)


@triton.jit
def _branch_gradient(
    p_o, p_do, p_gates, p_dgates, p_lse, p_stats, p_out, o_row, m_row, T, H, S, N,
    BRANCH: tl.constexpr, D: tl.constexpr, D0: tl.constexpr, D1: tl.constexpr, SPREAD: tl.constexpr,
    G: tl.constexpr, GP: tl.constexpr, BY_HEAD: tl.constexpr,
):  # fmt: skip
    """Rowsum(do * o) of one branch, which is its gate's gradient; with SPREAD also gate * do, else its row stats."""
    b_do = load_tile(p_do, o_row * D, m_row, 0, D0, D, True).to(tl.float32)  # [BM, D0]
    b_delta = tl.sum(b_do * load_tile(p_o, o_row * D, m_row, 0, D0, D, True).to(tl.float32), 1)
    b_gate = _gate(p_gates, o_row, m_row, BRANCH)
    if SPREAD:
        store_tile(p_out, o_row * D, m_row, b_do * b_gate[:, None], 0, D0, D, False)
    if D1 > 0:
        b_do1 = load_tile(p_do, o_row * D, m_row, D0, D1, D, True).to(tl.float32)  # [BM, D1]
        b_delta += tl.sum(b_do1 * load_tile(p_o, o_row * D, m_row, D0, D1, D, True).to(tl.float32), 1)
        if SPREAD:
            store_tile(p_out, o_row * D, m_row, b_do1 * b_gate[:, None], D0, D1, D, False)
    tl.store(p_dgates + o_row * 3 + BRANCH, b_delta.to(p_dgates.dtype.element_ty), mask=m_row)
    if not SPREAD:
        b_lse = tl.load(p_lse + o_row, mask=m_row, other=float("-inf"))
        store_stats(p_stats, o_row, m_row, b_lse, b_delta, b_gate, T, H, S, N, G, GP, BY_HEAD)


@launched
@triton.jit(do_not_specialize=["R", "T", "H", "S", "N"])
def _backward(
    p_cmp, p_sel, p_win, p_do, p_gates, p_dgates, p_lse_cmp, p_lse_sel, p_lse_win, p_scmp, p_ssel, p_swin,
    p_dcmp, p_dsel, p_dwin, R, T, H, S, N,
    D: tl.constexpr, D0: tl.constexpr, D1: tl.constexpr, SPREAD: tl.constexpr, BM: tl.constexpr,
    G: tl.constexpr, GP: tl.constexpr, BY_HEAD: tl.constexpr,
):  # fmt: skip
    """R rows. BY_HEAD: the stats of the compressed and the window branch, but not of the selected one."""
    o_row = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    m_row = o_row < R
    _branch_gradient(
        p_cmp, p_do, p_gates, p_dgates, p_lse_cmp, p_scmp, p_dcmp, o_row, m_row, T, H, S, N,
        0, D, D0, D1, SPREAD, G, GP, BY_HEAD,
    )  # fmt: skip
    _branch_gradient(
        p_sel, p_do, p_gates, p_dgates, p_lse_sel, p_ssel, p_dsel, o_row, m_row, T, H, S, N,
        1, D, D0, D1, SPREAD, G, GP, False,
    )  # fmt: skip
    _branch_gradient(
        p_win, p_do, p_gates, p_dgates, p_lse_win, p_swin, p_dwin, o_row, m_row, T, H, S, N,
        2, D, D0, D1, SPREAD, G, GP, BY_HEAD,
    )  # fmt: skip


Branches = tuple[Tensor, Tensor, Tensor]


def forward(o_cmp: Tensor, o_sel: Tensor, o_win: Tensor, gates: Tensor, out: Tensor | None = None) -> Tensor:
    """Sum of contiguous branches [B,T,Hq,Dv], each times its column of contiguous gates [B,T,Hq,3], in `out`."""
    o, rows = torch.empty_like(o_cmp) if out is None else out, gates.numel() // 3
    if o.numel():
        _forward[(cdiv(rows, ROWS),)](
            o_cmp, o_sel, o_win, gates, o, rows, **widths(D=o.shape[-1]), BM=ROWS, num_warps=4
        )
    return o


def stats(
    do: Tensor, branches: Branches, lses: Branches, gates: Tensor, kv_heads: int | None = None
) -> tuple[Branches, Tensor]:
    """What the gradients of the branches, with lse [B,T,Hq] each, and of the gates need of the gradient of the sum.

    Returns:
        what `backward_preprocess` gives, of each branch under its gate, int64 [B,T,Hq] (with `kv_heads`, of the
        compressed and of the window branch as the fused gradient reads it); the gates' gradient [B,T,Hq,3].
    """
    plain = torch.empty(3 if kv_heads is None else 1, *lses[0].shape, dtype=torch.int64, device=do.device)
    found = (plain[0], plain[1], plain[2]) if kv_heads is None else (
        room_by_head(lses[0], kv_heads), plain[0], room_by_head(lses[2], kv_heads)
    )  # fmt: skip
    return found, _launch_backward(do, branches, gates, lses, found, branches, SPREAD=False, kv_heads=kv_heads)


def _launch_backward(
    do: Tensor, branches: Sequence[Tensor], gates: Tensor, lses: Sequence[Tensor], stats: Sequence[Tensor],
    out: Sequence[Tensor], SPREAD: bool, kv_heads: int | None = None,
) -> Tensor:  # fmt: skip
    """The gates' gradient; of `lses` and `stats`, or of `out`, what is not used stands in."""
    rows = gates.numel() // 3
    dgates = torch.empty_like(gates, memory_format=torch.contiguous_format)
    if do.numel():
        at = places(gates[..., 0], kv_heads, stats[0])
        _backward[(cdiv(rows, ROWS),)](
            *branches, do, gates, dgates, *lses, *stats, *out, rows, at["T"], at["H"], at["S"], at["N"],
            **widths(D=do.shape[-1]), SPREAD=SPREAD, BM=ROWS, G=at["G"], GP=at["GP"], BY_HEAD=kv_heads is not None,
            num_warps=4,
        )  # fmt: skip
    return dgates


def _combine(o_cmp: Tensor, o_sel: Tensor, o_win: Tensor, gates: Tensor) -> tuple[Tensor]:
    return (forward(o_cmp.contiguous(), o_sel.contiguous(), o_win.contiguous(), gates.contiguous()),)


def _gradients(do: Tensor, o_cmp: Tensor, o_sel: Tensor, o_win: Tensor, gates: Tensor) -> tuple[Tensor, ...]:
    """Gradients of the branches, gate * do, and of the gates."""
    do, gates, *branches = (x.contiguous() for x in (do, gates, o_cmp, o_sel, o_win))
    found = [torch.empty_like(x) for x in branches]
    return *found, _launch_backward(do, branches, gates, branches, branches, found, SPREAD=True)


gated_combine = Differentiable("combine", _combine, _gradients, keep=lambda tensors, results: tensors)
"""`forward`, differentiable."""
