"""Compression by an MLP of each span (`nsa.phi.MlpPhi`), without unfolding the spans: implicit products.

Forward, a product of the spans with w_in, whose rows are read where they lie, and one with w_out. The positions inside
a span add the same to each: pos @ w_in goes into the bias, and their gradients follow from that of the bias.

Gradients: token t = q*d + r of a sequence is row r + k*d of span q - k, for k < l/d, so for each residue r
dx[q*d + r] = sum over k of dh[q - k] @ w_in[r + k*d]^T, one product over l/d shifted rows of dh. dw_in[j] is the
product of all spans' rows j with dh, in fp32 parts of which each has its spans, added in a fixed order. Bits repeat.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from nsa.blocks import cu_seqlens_cmp
from nsa.config import NSAConfig
from nsa.host import numbers
from nsa.kernels.common.launch import launched
from nsa.kernels.common.sizes import cdiv, dot_precision, next_power_of_2, rows_last
from nsa.kernels.common.tiles import LOADS_CHAIN
from nsa.kernels.compression import mean
from nsa.kernels.recorded import Differentiable
from nsa.kernels.tuning.lookup import architecture_for
from nsa.plans import constant

EACH = 2048
MOST_SPLITS = 8
"""Spans of one part of the gradient of weights, at least; and parts."""

PLAIN, ACTIVATED, GRADIENT = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
"""What becomes of a product: it is written; and its GELU beside it; or it times the slope of the GELU there."""


@triton.jit
def _half_erf(b_h):
    """The normal distribution's function: GELU(h) = h * this."""
    return 0.5 + 0.5 * tl.erf(b_h * 0.7071067811865476)


@launched
@triton.jit(do_not_specialize=["S", "H"])
def _product(
    p_x, p_w, p_bias, p_out, p_gelu, p_qlo, S, H, s_xb, s_xt, s_xh, s_wh, s_wk, s_wn,
    N: tl.constexpr, L: tl.constexpr, D: tl.constexpr, SPANS: tl.constexpr, END: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """BM x BN of the product of rows of L * D numbers, the L rows of x from a span's first on (or, not SPANS, from its
    own number on), with w [L * D, N] of their head, and then what END says.
    """
    i_h = tl.program_id(2) % H
    i_b = (tl.program_id(2) // H).to(tl.int64)
    o_s = tl.program_id(0) * BM + tl.arange(0, BM)  # [BM]
    m_s = o_s < S
    o_n = tl.program_id(1) * BN + tl.arange(0, BN)  # [BN]
    m_n = o_n < N
    o_k = tl.arange(0, BK)
    o_first = o_s
    if SPANS:
        o_first = tl.load(p_qlo + o_s, mask=m_s, other=L - 1) - (L - 1)
    p_x += i_b * s_xb + i_h.to(tl.int64) * s_xh
    p_w += i_h.to(tl.int64) * s_wh
    o_x = o_first.to(tl.int64) * s_xt
    STEPS: tl.constexpr = (D + BK - 1) // BK
    b_acc = tl.zeros([BM, BN], tl.float32)
    for i in range(0, L * STEPS):
        j = i // STEPS
        o_c = (i % STEPS) * BK + o_k  # [BK]
        m_c = o_c < D
        p_tile = p_x + o_x[:, None] + j.to(tl.int64) * s_xt + o_c[None, :]
        b_x = tl.load(p_tile, mask=m_s[:, None] & m_c[None, :], other=0.0)
        p_tile = p_w + (j * D + o_c)[:, None].to(tl.int64) * s_wk + o_n[None, :] * s_wn
        b_w = tl.load(p_tile, mask=m_c[:, None] & m_n[None, :], other=0.0)
        b_acc = tl.dot(b_x, b_w, b_acc, input_precision=PREC)
    o_out = (((i_b * S + o_s) * H + i_h) * N)[:, None] + o_n[None, :]
    m_out = m_s[:, None] & m_n[None, :]
    if END == GRADIENT:
        b_h = tl.load(p_gelu + o_out, mask=m_out, other=0.0)
        b_acc *= _half_erf(b_h) + b_h * tl.exp(-0.5 * b_h * b_h) * 0.3989422804014327
    else:
        b_acc += tl.load(p_bias + i_h * N + o_n, mask=m_n, other=0.0).to(tl.float32)[None, :]
    tl.store(p_out + o_out, b_acc.to(p_out.dtype.element_ty), mask=m_out)
    if END == ACTIVATED:
        b_gelu = b_acc * _half_erf(b_acc)
        tl.store(p_gelu + o_out, b_gelu.to(p_gelu.dtype.element_ty), mask=m_out)


@launched
@triton.jit(do_not_specialize=["T", "S", "H", "Q"])
def _token_gradient(
    p_dh, p_w, p_dx, p_groups, T, S, H, Q, M: tl.constexpr, D: tl.constexpr, L: tl.constexpr, STRIDE: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """BN columns of dx for the same residue of BM strides of tokens; p_groups is what `strides` gives."""
    i_h = tl.program_id(2) % H
    i_b = (tl.program_id(2) // H).to(tl.int64)
    i_r = tl.program_id(1) % STRIDE
    o_c = tl.program_id(1) // STRIDE * BN + tl.arange(0, BN)  # [BN]
    m_c = o_c < D
    o_q = tl.program_id(0) * BM + tl.arange(0, BM)  # [BM]
    m_q = o_q < Q
    o_t = tl.load(p_groups + o_q, mask=m_q, other=0) + i_r
    o_last = tl.load(p_groups + Q + o_q, mask=m_q, other=0)
    o_lo = tl.load(p_groups + 2 * Q + o_q, mask=m_q, other=0)
    o_hi = tl.load(p_groups + 3 * Q + o_q, mask=m_q, other=0)
    m_t = m_q & (o_t < tl.load(p_groups + 4 * Q + o_q, mask=m_q, other=0))
    o_k = tl.arange(0, BK)
    p_w += i_h.to(tl.int64) * (L * D * M)
    STEPS: tl.constexpr = (M + BK - 1) // BK
    b_acc = tl.zeros([BM, BN], tl.float32)
    for i in range(0, L // STRIDE * STEPS):
        k = i // STEPS
        o_m = (i % STEPS) * BK + o_k  # [BK]
        m_m = o_m < M
        o_s = o_last - k
        m_s = m_t & (o_s >= o_lo) & (o_s < o_hi)
        p_tile = p_dh + (((i_b * S + o_s) * H + i_h) * M)[:, None] + o_m[None, :]
        b_dh = tl.load(p_tile, mask=m_s[:, None] & m_m[None, :], other=0.0)
        p_tile = p_w + ((i_r + k * STRIDE) * D + o_c)[None, :].to(tl.int64) * M + o_m[:, None]
        b_w = tl.load(p_tile, mask=m_m[:, None] & m_c[None, :], other=0.0)
        b_acc = tl.dot(b_dh, b_w, b_acc, input_precision=PREC)
    p_tile = p_dx + (((i_b * T + o_t) * H + i_h) * D)[:, None] + o_c[None, :]
    tl.store(p_tile, b_acc.to(p_dx.dtype.element_ty), mask=m_t[:, None] & m_c[None, :])


@launched
@triton.jit(do_not_specialize=["ALL", "S", "H", "EACH"])
def _weight_gradient(
    p_x, p_dout, p_out, p_qlo, ALL, S, H, EACH, s_xb, s_xt, s_xh, N: tl.constexpr, L: tl.constexpr, D: tl.constexpr,
    SPANS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """The share of EACH of ALL spans of the batch in BM x BN of row j's part of the gradient of w [L * D, N], fp32."""
    TILES: tl.constexpr = (N + BN - 1) // BN
    i_h = tl.program_id(2)
    j = tl.program_id(1) % L
    i_split = tl.program_id(1) // L
    o_c = tl.program_id(0) // TILES * BM + tl.arange(0, BM)  # [BM]
    m_c = o_c < D
    o_n = tl.program_id(0) % TILES * BN + tl.arange(0, BN)  # [BN]
    m_n = o_n < N
    p_x += i_h.to(tl.int64) * s_xh
    b_acc = tl.zeros([BM, BN], tl.float32)
    i_end = tl.minimum((i_split + 1) * EACH, ALL)
    for i in tl.range(i_split * EACH, i_end, BK, num_stages=None if LOADS_CHAIN else 1):
        o_i = i + tl.arange(0, BK)  # [BK], spans of all batch entries
        m_i = o_i < i_end
        o_s = o_i % S
        o_row = o_s
        if SPANS:
            o_row = tl.load(p_qlo + o_s, mask=m_i, other=L - 1) - (L - 1)
        o_x = (o_i // S).to(tl.int64) * s_xb + (o_row + j).to(tl.int64) * s_xt
        b_x = tl.load(p_x + o_x[:, None] + o_c[None, :], mask=m_i[:, None] & m_c[None, :], other=0.0)
        p_tile = p_dout + ((o_i.to(tl.int64) * H + i_h) * N)[:, None] + o_n[None, :]
        b_dout = tl.load(p_tile, mask=m_i[:, None] & m_n[None, :], other=0.0)
        b_acc = tl.dot(tl.trans(b_x), b_dout, b_acc, input_precision=PREC)
    o_out = (((i_split * H + i_h).to(tl.int64) * L + j) * D + o_c)[:, None] * N + o_n[None, :]
    tl.store(p_out + o_out, b_acc, mask=m_c[:, None] & m_n[None, :])


# --- which tokens a stride holds, and which spans hold them ---


def strides(tokens: int, count: int, config: NSAConfig, cu_seqlens: Tensor | None, device: torch.device) -> Tensor:
    """Runs of d tokens from a span's beginning to the next one's, of one sequence with `count` spans or of packed ones;
    the last run of a sequence may be shorter.

    Returns:
        int32 [5,Q]: of each its first token, the span that begins there (if there is one), the first span of its
        sequence, and the ends of that sequence's spans and tokens.
    """
    if cu_seqlens is None:
        return _of_one(tokens, count, config.d, device)
    borders, spans = cu_seqlens.to(torch.int64), cu_seqlens_cmp(cu_seqlens, config).to(torch.int64)
    each = torch.div(borders.diff() + config.d - 1, config.d, rounding_mode="floor")
    ends = torch.cat([each.new_zeros(1), each.cumsum(0)])
    known = numbers(cu_seqlens)
    total = sum(cdiv(end - first, config.d) for first, end in pairwise(known))
    owner = torch.searchsorted(ends[1:].contiguous(), torch.arange(total, device=device), right=True)
    at = torch.arange(total, device=device) - ends[owner]
    found = borders[owner] + at * config.d, spans[owner] + at, spans[owner], spans[owner + 1], borders[owner + 1]
    return torch.stack(found).to(torch.int32)


@constant
def _of_one(tokens: int, count: int, stride: int, device: torch.device) -> Tensor:
    at = torch.arange(cdiv(tokens, stride), device=device, dtype=torch.int32)
    zero = torch.zeros_like(at)
    return torch.stack([at * stride, at, zero, zero + count, zero + tokens])


# --- launches ---


def _tile(x: Tensor, inner: int) -> dict[str, Any]:
    """Launch arguments for products with `inner` numbers in a row, which fit on every architecture."""
    half, interpreted = x.dtype != torch.float32, architecture_for(x) is None
    most = (16, 16, 16) if interpreted else (64, 64, 64) if half else (64, 32, 32)
    found = {"BM": most[0], "BN": most[1], "BK": max(16, min(most[2], next_power_of_2(inner)))}
    return {**found, "PREC": dot_precision(x.dtype), "num_warps": 4, "num_stages": 3 if half else 2}


def _multiply(
    x: Tensor, w: Tensor, bias: Tensor, out: Tensor, gelu: Tensor, q_lo: Tensor | None, rows: int, end: Any
) -> None:
    """rows of x [B,T,Hkv,D], in spans if q_lo says where they end, times w [Hkv,L*D,N], into out [B,rows,Hkv,N]."""
    batch, count, heads, width = out.shape
    tile = _tile(x, x.shape[-1])
    if out.numel():
        _product[(cdiv(count, tile["BM"]), cdiv(width, tile["BN"]), batch * heads)](
            x, w, bias, out, gelu, out if q_lo is None else q_lo, count, heads, *x.stride()[:3], *w.stride(),
            N=width, L=rows, D=x.shape[-1], SPANS=q_lo is not None, END=end.value, **tile,
        )  # fmt: skip


def _of_weights(x: Tensor, dout: Tensor, q_lo: Tensor | None, rows: int) -> Tensor:
    """fp32 [Hkv,rows*D,N]: the gradient of w, for x [B,T,Hkv,D] and dout [B,S,Hkv,N] as in `_multiply`."""
    batch, count, heads, width = dout.shape
    dim, every = x.shape[-1], batch * count
    splits = max(1, min(MOST_SPLITS, every // EACH))
    parts = dout.new_empty(splits, heads, rows * dim, width, dtype=torch.float32)
    tile = _tile(x, next_power_of_2(max(16, every)))
    _weight_gradient[(cdiv(dim, tile["BM"]) * cdiv(width, tile["BN"]), rows * splits, heads)](
        x, dout, parts, dout if q_lo is None else q_lo, every, count, heads, cdiv(every, splits), *x.stride()[:3],
        N=width, L=rows, D=dim, SPANS=q_lo is not None, **tile,
    )  # fmt: skip
    return parts[0] if splits == 1 else parts.sum(0)


def _forward(
    x: Tensor, cu_seqlens: Tensor | None, position: Tensor, w_in: Tensor, b_in: Tensor, w_out: Tensor, b_out: Tensor,
    config: NSAConfig,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Compressed tokens [B,S,Hkv,D], the hidden units fp32 [B,S,Hkv,M], and their GELU."""
    position, w_in, b_in, w_out, b_out = (y.contiguous() for y in (position, w_in, b_in, w_out, b_out))
    x, q_lo = rows_last(x), mean.ranges_of(x, config, cu_seqlens).q_lo
    batch, _, heads, dim = x.shape
    hidden, count = w_in.shape[-1], q_lo.numel()
    bias = b_in + (w_in * position.flatten(1)[..., None].float()).sum(1)
    units = x.new_empty(batch, count, heads, hidden, dtype=torch.float32)
    gelu, out = units.new_empty(units.shape, dtype=x.dtype), x.new_empty(batch, count, heads, dim)
    _multiply(x, w_in, bias, units, gelu, q_lo, config.l, ACTIVATED)
    _multiply(gelu, w_out, b_out, out, out, None, 1, PLAIN)
    return out, units, gelu


def _backward(
    dout: Tensor, x: Tensor, cu_seqlens: Tensor | None, position: Tensor, w_in: Tensor, b_in: Tensor, w_out: Tensor,
    b_out: Tensor, units: Tensor, gelu: Tensor, config: NSAConfig, wanted: tuple[bool, ...],
) -> tuple[Tensor | None, ...]:  # fmt: skip
    parameters = position, w_in, b_in, w_out, b_out
    x, dout, position, w_in, w_out = rows_last(x), *(y.contiguous() for y in (dout, position, w_in, w_out))
    q_lo = mean.ranges_of(x, config, cu_seqlens).q_lo
    if not dout.numel():
        return torch.zeros_like(x), None, *(torch.zeros_like(y) for y in parameters)
    dh = torch.empty_like(gelu)
    _multiply(dout, w_out.transpose(1, 2), units, dh, units, None, 1, GRADIENT)
    dx = None
    if wanted[0]:
        dx = _of_tokens(dh, w_in, x, strides(x.shape[1], q_lo.numel(), config, cu_seqlens, x.device), config)
    db_in = dh.sum((0, 1), dtype=torch.float32)
    dw_in = _of_weights(x, dh, q_lo, config.l)
    dw_in.addcmul_(position.flatten(1)[..., None].float(), db_in[:, None])
    dposition = (w_in * db_in[:, None]).sum(-1).view_as(position)
    found = dposition, dw_in, db_in, _of_weights(gelu, dout, None, 1), dout.sum((0, 1), dtype=torch.float32)
    return dx, None, *(y.to(x.dtype) for y in found)


mlp_of_spans = Differentiable(
    "compress", _forward, _backward, lambda tensors, results: (*tensors, *results[1:]), also=3, selective=True
)
"""With the gradients of x and of all five parameters."""


def _of_tokens(dh: Tensor, w_in: Tensor, x: Tensor, where: Tensor, config: NSAConfig) -> Tensor:
    """dx [B,T,Hkv,D] of x from the gradient of the hidden units [B,S,Hkv,M]."""
    batch, tokens, heads, dim = x.shape
    dx = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    runs, tile = where.shape[1], _tile(x, dh.shape[-1])
    _token_gradient[(cdiv(runs, tile["BM"]), cdiv(dim, tile["BN"]) * config.d, batch * heads)](
        dh, w_in, dx, where, tokens, dh.shape[1], heads, runs, M=dh.shape[-1], D=dim, L=config.l,
        STRIDE=config.d, **tile,
    )  # fmt: skip
    return dx
