"""The gated sum of the branches (Eq. 5)."""

from __future__ import annotations

from torch import Tensor

from nsa import library, routing
from nsa.ops import checks

NAME = "gated_combine"


def _shapes(x: library.Arguments, keep: bool) -> list[Tensor]:
    return [x["o_cmp"].new_empty(x["o_cmp"].shape)]


@library.operator(_shapes)
def gated_combine(
    o_cmp: Tensor,
    o_sel: Tensor,
    o_win: Tensor,
    gates: Tensor,
    *,
    backend: routing.BackendChoice = None,
    strict: bool = False,
) -> Tensor:
    """Each branch's output times its gate, summed.

    Args:
        o_cmp, o_sel, o_win: [B,T,Hq,Dv].
        gates: [B,T,Hq,3] in (cmp, sel, win) order, already activated.
        backend, strict: see `nsa.nsa_attention`.

    Returns:
        o [B,T,Hq,Dv].
    """
    checks.shape(NAME, "o_cmp", o_cmp, "[B,T,Hq,Dv]")
    checks.alike(NAME, o_cmp=o_cmp, o_sel=o_sel, o_win=o_win, gates=gates)
    if not o_cmp.shape == o_sel.shape == o_win.shape:
        shapes = ", ".join(str(list(o.shape)) for o in (o_cmp, o_sel, o_win))
        raise ValueError(f"{NAME}: the branches must have one shape, got {shapes}")
    checks.gates(NAME, gates, o_cmp)
    batch, tokens, heads, dv = o_cmp.shape
    inputs = (o_cmp, o_sel, o_win, gates)
    request = routing.Request(
        "combine", o_cmp.device, o_cmp.dtype, batch, tokens, 0, heads, heads, 0, dv,
        needs_grad=library.needs_grad(inputs),
    )  # fmt: skip
    return routing.run(request, lambda module: module.combine(*inputs), backend=backend, strict=strict)
