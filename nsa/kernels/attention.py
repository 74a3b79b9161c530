"""The whole of Native Sparse Attention as one differentiable function that keeps as little as it can.

Kept for the gradient: the inputs, the chosen blocks, and each branch's output and lse. The gate is a factor of the
probabilities in the branches' gradient kernels and their dq is summed in place, so of the size of q the gradient makes
only dq itself. Of keys and values that all branches share it makes one sum, too.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nsa.config import NSAConfig
from nsa.kernels import combine, compressed, compression, fused, selected, spans, topk, window
from nsa.kernels.geometry import compressed_spans
from nsa.kernels.replay import Replayed, Tensors

HOST_BOUND = 16384
"""Up to so many queries the GPU may wait for the host: calls are replayed, and large kernels go first."""

Triple = tuple[Tensor, Tensor, Tensor]


def attention(
    q: Tensor,
    k: Triple,
    v: Triple,
    gates: Tensor,
    block_indices: Tensor | None,
    config: NSAConfig,
    scale: float,
    cu_seqlens: Tensor | None,
    q_start: Tensor | None,
    compress: bool,
    deterministic: bool = False,
) -> Tensor:
    """Compressed, selected and window attention under gates, differentiable.

    Args:
        q, gates: [B,T,Hq,Dk], [B,T,Hq,3].
        k, v: of the branches (cmp, sel, win), [B,Tk,Hkv,D*].
        block_indices: int32 [B,T,Hkv,n] instead of the selection.
        config, scale, cu_seqlens, q_start: as in `compressed.forward`.
        compress: take the means of the cmp keys and values here; else they are [B,Tc,Hkv,D*].
        deterministic: gradients are the same bit for bit in every run; without it they may take fewer products.

    Returns:
        o [B,T,Hq,Dv].
    """
    shared = compress and all(x is k[0] for x in k) and all(x is v[0] for x in v)
    others = (None,) * 4 if shared else (k[1], v[1], k[2], v[2])
    settings = config, scale, compress
    if torch.is_grad_enabled():
        found: Tensor = _Attention.apply(
            (settings, deterministic), q, k[0], v[0], *others, gates, block_indices, cu_seqlens, q_start
        )
        return found
    tensors = q, k[0], v[0], k[1], v[1], k[2], v[2], gates, block_indices, cu_seqlens, q_start
    return _run(_forward, tensors, (*settings, False))[0]  # type: ignore[return-value]


class _Attention(torch.autograd.Function):
    """Keys and values of the selected and the window branch are None where all branches share theirs: one gradient."""

    @staticmethod
    def forward(ctx: Any, chosen: tuple[tuple[NSAConfig, float, bool], bool], *tensors: Tensor | None) -> Tensor | None:
        settings, deterministic = chosen
        q, k, v, *others, gates, block_indices, cu_seqlens, q_start = tensors
        shared = others[0] is None
        others = [k, v, k, v] if shared else others
        where = gates, block_indices, cu_seqlens, q_start
        o, *kept = _run(_forward, (q, k, v, *others, *where), (*settings, True))
        ctx.save_for_backward(q, *others, gates, cu_seqlens, q_start, *kept)
        ctx.settings = *settings, shared, deterministic
        return o

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, do: Tensor) -> Tensors:
        return None, *_run(_backward, (do, *ctx.saved_tensors), ctx.settings), None, None, None


@Replayed
def _forward(
    q: Tensor, k_cmp: Tensor, v_cmp: Tensor, k_sel: Tensor, v_sel: Tensor, k_win: Tensor, v_win: Tensor, gates: Tensor,
    block_indices: Tensor | None, cu_seqlens: Tensor | None, q_start: Tensor | None,
    config: NSAConfig, scale: float, compress: bool, keep: bool,
) -> Tensors:  # fmt: skip
    """o; if it is to be kept for the gradient also k_cmp, v_cmp, the blocks, and the branches' o and lse."""
    where = cu_seqlens, q_start
    gates = gates.contiguous()
    # The window first: while it runs, the host prepares the launches of the others.
    o_win, lse_win = window.forward(q, k_win, v_win, config.w, scale, *where)
    if compress:
        k_cmp, v_cmp = compression.forward(k_cmp, v_cmp, config, compression.spans_of(k_cmp, config, cu_seqlens))
    o_cmp, lse_cmp = compressed.forward(q, k_cmp, v_cmp, config, scale, *where)
    if block_indices is None:
        block_indices = topk.select(q, k_cmp, config, scale, cu_seqlens, lse_cmp, q_start)
    o = torch.empty_like(o_cmp)
    into = selected.Sum(o_cmp, o_win, gates, o, keep=keep)
    o_sel, lse_sel = selected.forward(q, k_sel, v_sel, block_indices, config, scale, *where, into=into)
    return (o, k_cmp, v_cmp, block_indices, o_cmp, o_sel, o_win, lse_cmp, lse_sel, lse_win) if keep else (o,)


@Replayed
def _backward(
    do: Tensor, q: Tensor, k_sel: Tensor, v_sel: Tensor, k_win: Tensor, v_win: Tensor, gates: Tensor,
    cu_seqlens: Tensor | None, q_start: Tensor | None, k_cmp: Tensor, v_cmp: Tensor, block_indices: Tensor,
    o_cmp: Tensor, o_sel: Tensor, o_win: Tensor, lse_cmp: Tensor, lse_sel: Tensor, lse_win: Tensor,
    config: NSAConfig, scale: float, compress: bool, shared: bool, deterministic: bool,
) -> Tensors:  # fmt: skip
    """Gradients of q, of k and v (cmp, sel, win; `shared`: the sum of all and None), and of the gates."""
    where, do, gates = (cu_seqlens, q_start), do.contiguous(), gates.contiguous()
    fuse = fused.chosen(q, v_win, deterministic)
    kv_heads = k_win.shape[2] if fuse else None
    stats, dgates = combine.stats(do, (o_cmp, o_sel, o_win), (lse_cmp, lse_sel, lse_win), gates, kv_heads)
    of_selected = partial(selected.backward, do, q, k_sel, v_sel, stats[1], block_indices, config, scale, *where)
    of_spans = partial(
        _of_spans, fuse, do, q,
        fused.Branch(k_cmp, v_cmp, stats[0], compressed.spans_of(q, k_cmp, config, *where)),
        fused.Branch(k_win, v_win, stats[2], window.spans_of(q, k_win, config.w, *where)), scale,
    )  # fmt: skip
    if q.shape[:2].numel() <= HOST_BOUND:
        dq, d_cmp, d_win = of_spans()
        dq, *d_sel = of_selected(dq=dq)
    else:  # nothing else is held while the selected branch needs the most memory
        dq, *d_sel = of_selected()
        dq, d_cmp, d_win = of_spans(dq=dq)
    if compress:
        tokens = k_sel.shape[1]
        at = compressed_spans(tokens, k_cmp.shape[1], config, cu_seqlens, k_sel.device)
        d_cmp = compression.backward(*d_cmp, tokens, config, at, cu_seqlens, (d_sel, d_win) if shared else None)
    d_others = (None,) * 4 if shared else (*d_sel, *d_win)
    return dq, *d_cmp, *d_others, dgates


Pair = tuple[Tensor, Tensor]


def _of_spans(
    fuse: bool, do: Tensor, q: Tensor, cmp: fused.Branch, win: fused.Branch, scale: float, dq: Tensor | None = None
) -> tuple[Tensor, Pair, Pair]:
    """dq, and dk and dv of the compressed and of the window branch."""
    if fuse:
        dq, (d_cmp, d_win) = fused.backward(do, q, [cmp, win], scale, dq)
        return dq, d_cmp, d_win
    dq, *d_cmp = spans.backward(do, q, cmp.k, cmp.v, cmp.stats, cmp.where, scale, dq)
    dq, *d_win = spans.backward(do, q, win.k, win.v, win.stats, win.where, scale, dq)
    return dq, tuple(d_cmp), tuple(d_win)


def _run(function: Replayed, tensors: Tensors, settings: tuple[Any, ...]) -> Tensors:
    """Replay where the host is what takes the time; the first tensor is [B,T,...]."""
    if 0 < tensors[0].shape[:2].numel() <= HOST_BOUND:
        return function(tensors, settings)
    return function.function(*tensors, *settings)
