"""cuDNN's front end beside ours: attention to an interval of keys for each query, and to selected blocks.

Its interface (`nvidia-cudnn-frontend` 1.32): `cudnn.create_mask_plan(mask, q, k, v, build_backward)` and
`cudnn.flex_attn_func(q, k, v, mask_plan)` with q [B,T,Hq,D] and, in mask int32 [1,n,B*T], the ends F of each query's
intervals [0,F0), [F1,F2), ...; `cudnn.NSA.selection_attention_wrapper`, forward only, of packed sequences, at most 16
heads a group. Its sparse attention by blocks of queries (`cudnn.BSA`) answers another question: all queries of a block
attend to the same keys.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from nsa.bench.cases import Case
from nsa.bench.kernels_parts import Part, Tensors

PLANNED = "its plan of which keys each query reads is made before, and is not timed"


def parts(by: str, case: Case, x: Tensors, ours: dict[str, Part]) -> list[Part]:
    """The window, the compressed and the selected branch under the name `by`; x comes from `kernels_parts.prepare`."""
    of_keys = {"window": (("q", "k", "v"), _window), "compressed": (("q", "k_cmp", "v_cmp"), _compressed)}
    found = [
        replace(ours[name], by=by, note=PLANNED, call=partial(_intervals, names, cache(partial(ends, case, x))))
        for name, (names, ends) in of_keys.items()
    ]
    return [*found, replace(ours["selected"], by=by, leaves=(), call=_selected(case, x))]


def _intervals(names: tuple[str, str, str], plan: Callable[[], Any], t: Tensors) -> Tensor:
    from cudnn import flex_attn_func

    return flex_attn_func(*(t[name] for name in names), mask_plan=plan())  # type: ignore[no-any-return]


def _window(case: Case, x: Tensors) -> Any:
    from nsa.kernels.ranges.key_ranges import of_window

    ranges = of_window(x["q"], x["k"], case.config.w, None)
    return _plan(case, [torch.zeros_like(ranges.lo), ranges.lo, ranges.hi], x["q"], x["k"], x["v"])


def _compressed(case: Case, x: Tensors) -> Any:
    from nsa.kernels.ranges.key_ranges import of_compressed

    ranges = of_compressed(x["q"], x["k_cmp"], case.config, None)
    return _plan(case, [ranges.hi], x["q"], x["k_cmp"], x["v_cmp"])


def _plan(case: Case, ends: list[Tensor], q: Tensor, k: Tensor, v: Tensor) -> Any:
    from cudnn import create_mask_plan

    mask = torch.stack(ends).repeat(1, case.batch)[None].contiguous()
    return create_mask_plan(mask, q, k, v, build_backward=True)


def _selected(case: Case, x: Tensors) -> Callable[[Tensors], Tensor]:
    """Its forward of one packed sequence for each batch entry."""
    indices = x["indices"].flatten(0, 1).int().sort(-1, descending=True).values  # blocks before holes
    borders = torch.arange(case.batch + 1, dtype=torch.int32, device=indices.device) * case.tokens
    how = {
        "block_indices_tensor": indices.contiguous(), "block_counts_tensor": (indices >= 0).sum(-1, dtype=torch.int32),
        "cum_seqlen_q_tensor": borders, "cum_seqlen_k_tensor": borders, "block_size": case.config.l_sel,
        "max_s_q": case.tokens, "max_s_k": case.tokens, "is_causal": True,
    }  # fmt: skip

    def call(t: Tensors) -> Tensor:
        from cudnn import NSA

        found = NSA.selection_attention_wrapper(*(t[name].flatten(0, 1) for name in ("q", "k", "v")), **how)
        return found["o_tensor"].unflatten(0, t["q"].shape[:2])  # type: ignore[no-any-return]

    return call
