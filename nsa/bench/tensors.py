"""Random tensors for the benches that measure operations by themselves."""

from __future__ import annotations

from torch import Tensor

from nsa.bench.kernels_cases import Case, inputs
from nsa.bench.options import Shape, Where


def tensors(shape: Shape, where: Where, length: int) -> dict[str, Tensor]:
    """q, k, v, gates and do as `kernels_cases.inputs` makes them."""
    case = Case("", shape.heads, shape.kv_heads, shape.dk, shape.dv, length, shape.batch, config=shape.config)
    return inputs(case, where.device, where.dtype, where.seed)


def for_sdpa(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """q, k, v as [B,Hq,S,D], each KV head repeated for its group."""
    group_size = q.shape[2] // k.shape[2]
    k, v = (x.repeat_interleave(group_size, dim=2).transpose(1, 2).contiguous() for x in (k, v))
    return q.transpose(1, 2).contiguous(), k, v
