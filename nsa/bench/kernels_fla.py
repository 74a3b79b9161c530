"""flash-linear-attention's Native Sparse Attention beside ours, where it is installed.

Its interface as of version 0.6: `fla.ops.nsa.parallel_nsa(q, k, v, g_cmp, g_slc, g_swa, block_indices, block_counts,
block_size, window_size)`, q [B,T,Hq,Dk], group sizes that are powers of two from 16 on, a window by flash-attn.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import Any

from torch import Tensor

from nsa.bench.cases import Case
from nsa.bench.kernels_parts import Part, Tensors, window_of
from nsa.config import NSAConfig

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
    whole = replace(found["whole"], call=partial(_whole, case.config, flash), note=WHOLE + ("" if flash else NO_FLASH))
    call = partial(_parallel_nsa, case.config, block_indices=x["indices"].long())
    return [replace(part, by="fla") for part in (whole, replace(found["selected"], call=call, note=SELECTED))]


def _whole(config: NSAConfig, flash: bool, t: Tensors) -> Tensor:
    g_cmp, g_sel, g_win = t["gates"].unbind(-1)
    o = _parallel_nsa(config, t, g_cmp, g_sel, g_win, window_size=config.w if flash else 0)
    if flash:
        return o
    return o.addcmul(window_of(config, {"backend": "fa2", "strict": True})(t), g_win[..., None])


def _parallel_nsa(config: NSAConfig, t: Tensors, *gates: Tensor, **how: Any) -> Tensor:
    from fla.ops.nsa import parallel_nsa

    how |= {"block_counts": config.n_sel, "block_size": config.l_sel}
    return parallel_nsa(t["q"], t["k"], t["v"], *gates, **how)
