"""flash-linear-attention's Native Sparse Attention beside ours, where it is installed.

Its interface as of version 0.6: `fla.ops.nsa.parallel_nsa(q, k, v, g_cmp, g_slc, g_swa, block_indices, block_counts,
block_size, window_size)`, q [B,T,Hq,Dk], group sizes that are powers of two from 16 on, a window by flash-attn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec

from torch import Tensor

from nsa.bench.kernels_cases import Case
from nsa.bench.kernels_parts import Part, Tensors, window_of

WHOLE = (
    "fla compresses by the means of whole selection blocks (l = d = l_sel, no overlap), shows a block only when it is "
    "complete, scores a block by its own mean, and always takes the first, the current and the previous block"
)
SELECTED = "fla attends to the same blocks, given to it"
NO_FLASH = "; its window by PyTorch's FlashAttention-2, as flash-attn is not installed"


def absent() -> str | None:
    """Why there are no rows of fla, or None."""
    return None if find_spec("fla") else "flash-linear-attention is not installed"


def parts(case: Case, x: Tensors, ours: list[Part]) -> list[Part]:
    """The whole operation and the selected branch by fla; the work that is named is ours, of which it does less."""
    found = {part.part: part for part in ours}
    flash = find_spec("flash_attn") is not None
    whole = replace(found["whole"], by="fla", call=_whole(case, flash), note=WHOLE + ("" if flash else NO_FLASH))
    return [whole, replace(found["selected"], by="fla", call=_selected(case, x), note=SELECTED)]


def _whole(case: Case, flash: bool) -> Callable[[Tensors], Tensor]:
    config = case.config
    sizes = {"block_counts": config.n_sel, "block_size": config.l_sel, "window_size": config.w if flash else 0}
    window = window_of(config, {"backend": "fa2", "strict": True})

    def call(t: Tensors) -> Tensor:
        from fla.ops.nsa import parallel_nsa

        g_cmp, g_sel, g_win = t["gates"].unbind(-1)
        o = parallel_nsa(t["q"], t["k"], t["v"], g_cmp, g_sel, g_win, **sizes)
        return o if flash else o.addcmul(window(t), g_win[..., None])

    return call


def _selected(case: Case, x: Tensors) -> Callable[[Tensors], Tensor]:
    indices = x["indices"].long()

    def call(t: Tensors) -> Tensor:
        from fla.ops.nsa import parallel_nsa

        sizes = {"block_counts": case.config.n_sel, "block_size": case.config.l_sel}
        return parallel_nsa(t["q"], t["k"], t["v"], block_indices=indices, **sizes)

    return call
