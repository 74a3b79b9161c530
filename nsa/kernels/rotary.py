"""Rotary position embedding and its gradient, in one pass over memory; halves are paired (`nsa.rope`).

The columns of a half are held as two tiles where their number is no power of two, as head dimensions are elsewhere, so
that both of a pair are loaded once, side by side: of 192 dimensions columns 0 to 63 with 96 to 159, then 64 to 95 with
160 to 191. Sines are computed once for the heads that a program takes in turn.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from nsa import rope
from nsa.kernels.common.launch import launched
from nsa.kernels.common.sizes import cdiv, rows_last, widths
from nsa.kernels.common.tiles import load_tile, store_tile
from nsa.kernels.recorded import Differentiable
from nsa.plans import constant

ROWS = 32
"""Tokens of one program."""

HEADS = 8
"""Heads that one program takes in turn: so often a sine is used."""


@triton.jit
def sines(b_position, p_frequency, START: tl.constexpr, W: tl.constexpr, HALF: tl.constexpr):
    """Cosines and sines [R, W] by which columns [START, START + W) of each half turn at the positions [R]."""
    o_col = START + tl.arange(0, W)
    b_frequency = tl.load(p_frequency + o_col, mask=o_col < HALF, other=0.0)
    b_angle = b_position.to(tl.float32)[:, None] * b_frequency[None, :]
    return tl.cos(b_angle), tl.sin(b_angle)


@triton.jit
def _rotate_tile(
    p_x, p_out, p_frequency, b_position, o_x, o_out, m_row, s_xh, H, i_first, BACK: tl.constexpr, BH: tl.constexpr,
    START: tl.constexpr, W: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    b_cos, b_sin = sines(b_position, p_frequency, START, W, HALF)
    if BACK:
        b_sin = -b_sin
    for i in range(BH):
        i_h = i_first + i
        m_head = m_row & (i_h < H)
        o_xh, o_oh = o_x + i_h.to(tl.int64) * s_xh, o_out + i_h * 2 * HALF
        b_a = load_tile(p_x, o_xh, m_head, START, W, HALF, True).to(tl.float32)
        b_b = load_tile(p_x + HALF, o_xh, m_head, START, W, HALF, True).to(tl.float32)
        store_tile(p_out, o_oh, m_head, b_a * b_cos - b_b * b_sin, START, W, HALF, False)
        store_tile(p_out + HALF, o_oh, m_head, b_b * b_cos + b_a * b_sin, START, W, HALF, False)


@launched
@triton.jit(do_not_specialize=["T", "H"])
def _rotate(
    p_x, p_out, p_position, p_frequency, T, H, s_xb, s_xt, s_xh, s_position, BACK: tl.constexpr, BH: tl.constexpr,
    HALF: tl.constexpr, HALF0: tl.constexpr, HALF1: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """BM tokens of BH heads; BACK turns the other way."""
    i_b = tl.program_id(2).to(tl.int64)
    i_first = tl.program_id(1) * BH
    o_t = tl.program_id(0) * BM + tl.arange(0, BM)  # [BM]
    m_row = o_t < T
    b_position = tl.load(p_position + i_b * s_position + o_t, mask=m_row, other=0)
    o_x = i_b * s_xb + o_t.to(tl.int64) * s_xt
    o_out = (i_b * T + o_t) * H * (2 * HALF)
    for j in tl.static_range(2 if HALF1 > 0 else 1):
        _rotate_tile(
            p_x, p_out, p_frequency, b_position, o_x, o_out, m_row, s_xh, H, i_first, BACK, BH, j * HALF0,
            HALF1 if j else HALF0, HALF,
        )  # fmt: skip


frequencies = constant(torch.inference_mode(False)(rope.frequencies))
"""`nsa.rope.frequencies`, made once."""


def forward(x: Tensor, positions: Tensor, base: float, *, back: bool = False) -> Tensor:
    """x [B,T,H,D] turned by its positions, integers [B,T] or [1,T], contiguous; `back`: by their negatives."""
    x = rows_last(x)
    batch, tokens, heads, dim = x.shape
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if out.numel():
        positions = rows_last(positions)
        s_position = 0 if len(positions) == 1 else positions.stride(0)
        grid = cdiv(tokens, ROWS), cdiv(heads, HEADS), batch
        _rotate[grid](
            x, out, positions, frequencies(dim, base, x.device), tokens, heads, *x.stride()[:3], s_position, BACK=back,
            BH=min(heads, HEADS), **widths(HALF=dim // 2), BM=ROWS, num_warps=4,
        )  # fmt: skip
    return out


def _forward(x: Tensor, positions: Tensor, base: float) -> tuple[Tensor]:
    return (forward(x, positions, base),)


def _backward(do: Tensor, positions: Tensor, base: float) -> tuple[Tensor, None]:
    return forward(do, positions, base, back=True), None


rotate = Differentiable("rotate", _forward, _backward, keep=lambda tensors, results: tensors[1:])
"""`forward`, whose gradient turns back."""
