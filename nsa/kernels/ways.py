"""Which kernels a request takes where there are several, in words; nothing is launched."""

from __future__ import annotations

from nsa import blocks
from nsa.kernels.common import hopper
from nsa.kernels.ranges import forward as ranges_forward
from nsa.kernels.ranges import fused
from nsa.kernels.selected import fused as fused_selected
from nsa.kernels.selection import sums
from nsa.routing import Request

ONE_KERNEL = "one kernel for dq, dk and dv"
SHARED_KEYS = "warps that share keys"


def forward(request: Request) -> str:
    """How the forward pass is computed."""
    if request.operation in ("window", "compressed"):
        return _ranges(request, request.keys)
    if request.operation == "select":
        return _select(request)
    if request.operation != "attention" or request.config is None:
        return ""
    spans = blocks.num_compressed(request.keys, request.config)
    ways = {"window": _ranges(request, request.keys), "compressed": _ranges(request, spans), "select": _select(request)}
    return "; ".join(f"{branch}: {way}" for branch, way in ways.items())


def gradient(request: Request) -> str:
    """How the gradient of the branches is computed."""
    if request.operation not in ("compressed", "selected", "window", "attention"):
        return ""
    facts = _target(request), request.dtype, request.dk, request.dv, request.group_size, request.deterministic
    reason = (fused_selected if request.operation == "selected" else fused).against(*facts)
    if reason is not None:
        return f"dq apart from dk and dv: {reason}"
    apart = fused_selected.against(*facts) if request.operation == "attention" else None
    return ONE_KERNEL + (f"; of the selected branch dq apart from dk and dv: {apart}" if apart else "")


def _target(request: Request) -> str:
    major, minor = request.capability or (0, 0)
    return f"sm_{major}{minor}" if request.capability else hopper.INTERPRETER


def _ranges(request: Request, keys: int) -> str:
    shape = request.dk, request.dv, request.group_size, request.batch * request.tokens * request.heads, keys
    reason = ranges_forward.against(_target(request), request.dtype, *shape)
    return SHARED_KEYS if reason is None else f"each warp its own keys: {reason}"


def _select(request: Request) -> str:
    facts = _target(request), request.dtype, request.dk, request.group_size
    reason = None if request.config is None else sums.against(*facts, request.config, request.packed)
    return "two kernels" if reason is None else f"one kernel: {reason}"
