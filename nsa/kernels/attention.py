"""The whole of Native Sparse Attention as one differentiable function that keeps as little as it can.

Kept for the gradient: the inputs, the chosen blocks, and each branch's output and lse. The gate is a factor of the
probabilities in the branches' gradient kernels and their dq is summed in place, so of the size of q the gradient makes
only dq itself. Of keys and values that all branches share it makes one sum, too.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nsa.config import NSAConfig
from nsa.kernels import combine
from nsa.kernels.compression import mean
from nsa.kernels.ranges import fused
from nsa.kernels.ranges.backward import ranges_backward
from nsa.kernels.ranges.forward import ranges_forward
from nsa.kernels.ranges.key_ranges import Packing, borders_of, of_compressed, of_window, pack
from nsa.kernels.recorded import Differentiable, Tensors, beside, in_turn, repeated
from nsa.kernels.selected import fused as fused_selected
from nsa.kernels.selected.backward import selected_backward
from nsa.kernels.selected.forward import Sum, selected_forward
from nsa.kernels.selection.select import select_blocks
from nsa.plans import layout, sharing

if TYPE_CHECKING:
    from nsa.attention import Call, Triple

HOST_BOUND = 16384
"""Up to so many queries the GPU may wait for the host: large kernels go first."""

SMALL = 4096
"""Up to so many queries neither the selected branch's gradient nor that of the others fills the card: they are computed
beside each other, with the memory of both. At most `fused.FEW_QUERIES`."""

LEAST_BESIDE = 2048
"""From so many queries on, up to HOST_BOUND, a second stream gains the forward pass more than it costs the host."""

Pair = tuple[Tensor, Tensor]


def attention(call: Call, lse: bool = False, keep: bool = False) -> list[Tensor]:
    """Compressed, selected and window attention under gates, differentiable.

    Without `compressed` it takes the means of the cmp keys and values, those of the keys turned where `compressed_rope`
    says so. Gradients are the same bit for bit in every run where the request says `deterministic`; else they may take
    fewer products.

    Returns:
        o [B,T,Hq,Dv]; with `lse` or `keep` also lse of each branch [B,T,Hq]; with `keep`, which is for no_grad, o of
        each branch, and the blocks if the call does not give them.
    """
    shared, k, v = _operands(call)
    others = (None,) * 4 if shared else (k[1], v[1], k[2], v[2])  # one gradient where all share theirs
    tensors = call.q, k[0], v[0], *others, call.gates, call.block_indices, *call.where
    settings = *_settings(call, shared), keep or lse or call.request.needs_grad
    if not keep:
        return list((_WITH_LSE if lse else _ATTENTION)(tensors, settings))  # type: ignore[arg-type]
    o, _, _, chosen, *branches = repeated(_ATTENTION.name, _forward, tensors, settings)
    return [o, *branches[3:], *branches[:3], *([] if call.block_indices is not None else [chosen])]  # type: ignore[list-item]


def gradient(do: Tensor, results: list[Tensor], call: Call) -> list[Tensor]:
    """The gradients of q, of the distinct k and v (one or three each), of the gates, and of the given means.

    results: of `attention` with `keep`.
    """
    shared, k, v = _operands(call)
    _, lse_cmp, lse_sel, lse_win, *branches = results[:7]
    _, keys = _packed(*call.where[:2], call.q, k[1], call.config)
    means = call.compressed or mean.forward(k[0], v[0], call.config, keys, rope=call.compressed_rope)
    kept = (
        call.q, k[1], v[1], k[2], v[2], call.gates, *call.where, *means,
        results[7] if call.block_indices is None else call.block_indices, *branches, lse_cmp, lse_sel, lse_win,
    )  # fmt: skip
    kind = *(layout(x) for x in (do, *kept[9:])), sharing((do, *kept))
    found = repeated("attention_backward", _backward, (do, *kept), (*_settings(call, shared), True), kind)
    dq, dk_cmp, dv_cmp, dk_sel, dv_sel, dk_win, dv_win, dgates = found[:8]
    given = [dk_cmp, dv_cmp] if call.compressed is not None else []
    own = (None, None) if given else (dk_cmp, dv_cmp)
    dk = _of_given(call.k, (own[0], dk_sel, dk_win))
    return [dq, *dk, *_of_given(call.v, (own[1], dv_sel, dv_win)), dgates, *given]  # type: ignore[list-item]


def _settings(call: Call, shared: bool) -> tuple[NSAConfig, float, bool, float | None, bool, bool]:
    return call.config, call.scale, call.compressed is None, call.compressed_rope, shared, call.request.deterministic


def _operands(call: Call) -> tuple[bool, Triple, Triple]:
    """Whether all branches share their keys and values; and these, means where they are given."""
    k, v = call.k, call.v
    if call.compressed is None:
        return all(x is k[0] for x in k) and all(x is v[0] for x in v), k, v
    return False, (call.compressed[0], *k[1:]), (call.compressed[1], *v[1:])


def _of_given(branches: Triple, gradients: tuple[Tensor | None, ...]) -> list[Tensor]:
    """One gradient for a tensor that is all branches', else one for each; None counts as 0."""
    if any(x is not branches[0] for x in branches):
        return [torch.zeros_like(x) if d is None else d for x, d in zip(branches, gradients, strict=True)]
    first, *others = [d for d in gradients if d is not None]
    return [sum(others, first)]


def _forward(
    q: Tensor, k_cmp: Tensor, v_cmp: Tensor, k_sel: Tensor | None, v_sel: Tensor | None, k_win: Tensor | None,
    v_win: Tensor | None, gates: Tensor, block_indices: Tensor | None, cu_seqlens: Tensor | None,
    cu_seqlens_k: Tensor | None, q_start: Tensor | None, config: NSAConfig, scale: float, compress: bool,
    rope: float | None, shared: bool, deterministic: bool, keep: bool,
) -> Tensors:  # fmt: skip
    """o; if it is to be kept for the gradient also k_cmp, v_cmp, the blocks, and the branches' o and lse."""
    if shared:
        k_sel, v_sel, k_win, v_win = k_cmp, v_cmp, k_cmp, v_cmp
    packing, keys = _packed(cu_seqlens, cu_seqlens_k, q, k_sel, config)
    where = packing, q_start
    gates = gates.contiguous()

    def window() -> Pair:
        return ranges_forward(q, k_win, v_win, of_window(q, k_win, config.w, *where), scale)

    def others() -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        k, v = mean.forward(k_cmp, v_cmp, config, keys, rope=rope) if compress else (k_cmp, v_cmp)
        o, lse = ranges_forward(q, k, v, of_compressed(q, k, config, *where), scale)
        if block_indices is not None:
            return k, v, o, lse, block_indices
        return k, v, o, lse, select_blocks(q, k, config, scale, packing, lse, q_start)

    # The window first: while it runs, the host prepares the launches of the others; and it needs nothing of them, so it
    # takes what they leave of the card.
    both = beside if LEAST_BESIDE <= q.shape[:2].numel() <= HOST_BOUND else in_turn
    (o_win, lse_win), (k_cmp, v_cmp, o_cmp, lse_cmp, block_indices) = both(window, others)
    o = torch.empty_like(o_cmp)
    into = Sum(o_cmp, o_win, gates, o, keep=keep)
    o_sel, lse_sel = selected_forward(q, k_sel, v_sel, block_indices, config, scale, *where, into=into)
    return (o, k_cmp, v_cmp, block_indices, o_cmp, o_sel, o_win, lse_cmp, lse_sel, lse_win) if keep else (o,)


def _packed(
    cu_seqlens: Tensor | None, cu_seqlens_k: Tensor | None, q: Tensor, k: Tensor, config: NSAConfig
) -> tuple[Packing | None, Packing | None]:
    """What all branches need of packed sequences, and what the means of their keys do."""
    borders = borders_of(cu_seqlens, cu_seqlens_k)
    if borders is None:
        return None, None
    packing = pack(borders, q.shape[1], k.shape[1], config.w, config)
    return packing, packing if cu_seqlens_k is None else pack(cu_seqlens_k, k.shape[1], config=config)


def _kept(tensors: Tensors, results: Tensors) -> Tensors:
    q, k, v, *others = tensors[:7]
    gates, _, *where = tensors[7:]
    return q, *((k, v, k, v) if others[0] is None else others), gates, *where, *results[1:]


def _backward(
    do: Tensor, q: Tensor, k_sel: Tensor, v_sel: Tensor, k_win: Tensor, v_win: Tensor, gates: Tensor,
    cu_seqlens: Tensor | None, cu_seqlens_k: Tensor | None, q_start: Tensor | None, k_cmp: Tensor, v_cmp: Tensor,
    block_indices: Tensor, o_cmp: Tensor, o_sel: Tensor, o_win: Tensor, lse_cmp: Tensor, lse_sel: Tensor,
    lse_win: Tensor, config: NSAConfig, scale: float, compress: bool, rope: float | None, shared: bool,
    deterministic: bool, keep: bool,
) -> Tensors:  # fmt: skip
    """Gradients of q, of k and v (cmp, sel, win; `shared`: the sum of all and None), of the gates, and of no other."""
    packing, keys = _packed(cu_seqlens, cu_seqlens_k, q, k_sel, config)
    where, do, gates = (packing, q_start), do.contiguous(), gates.contiguous()
    fuse = fused.chosen(q, v_win, deterministic)
    kv_heads = k_win.shape[2] if fuse else None
    stats, dgates = combine.stats(do, (o_cmp, o_sel, o_win), (lse_cmp, lse_sel, lse_win), gates, kv_heads)
    of_selected = partial(selected_backward, do, q, k_sel, v_sel, stats[1], block_indices, config, scale, *where)
    branches = [
        fused.Branch(k_cmp, v_cmp, stats[0], of_compressed(q, k_cmp, config, *where)),
        fused.Branch(k_win, v_win, stats[2], of_window(q, k_win, config.w, *where)),
    ]
    queries = q.shape[:2].numel()
    if fused_selected.chosen(q, v_sel, deterministic):
        selected = fused_selected.Branch.of(q, k_sel, v_sel, stats[1], block_indices, config, *where)
        dq, (d_cmp, d_win, d_sel) = fused.backward(do, q.contiguous(), [*branches, selected], scale)
    elif queries > HOST_BOUND:  # nothing else is held while the selected branch needs the most memory
        dq, *d_sel = of_selected()
        dq, d_cmp, d_win = _of_ranges(fuse, do, q, branches, scale, dq)
    elif fuse and 0 < queries <= SMALL:
        gradient = fused.Gradient.of(do, q, branches, scale)
        sums, (dq, *d_sel) = beside(gradient.sums, of_selected)
        fused.narrow(sums, dq, 0, scale, added=True)
        d_cmp, d_win = gradient.results()
    else:
        dq, d_cmp, d_win = _of_ranges(fuse, do, q, branches, scale)
        dq, *d_sel = of_selected(dq=dq)
    if compress:
        others = (d_sel, d_win) if shared else None
        d_cmp = mean.backward(*d_cmp, k_sel.shape[1], config, keys, others, rope=rope)
    d_others = (None,) * 4 if shared else (*d_sel, *d_win)
    return dq, *d_cmp, *d_others, dgates, *(None,) * 4


def _of_ranges(
    fuse: bool, do: Tensor, q: Tensor, branches: list[fused.Branch], scale: float, dq: Tensor | None = None
) -> tuple[Tensor, Pair, Pair]:
    """dq, and dk and dv of the compressed and of the window branch."""
    if fuse:
        dq, (d_cmp, d_win) = fused.backward(do, q, branches, scale, dq)
        return dq, d_cmp, d_win
    pairs = []
    for branch in branches:
        dq, *pair = ranges_backward(do, q, branch.k, branch.v, branch.stats, branch.where, scale, dq)
        pairs.append(tuple(pair))
    return dq, *pairs


_ATTENTION = Differentiable("attention", _forward, _backward, _kept, also=10)
_WITH_LSE = replace(_ATTENTION, also=7)
