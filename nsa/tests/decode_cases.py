"""Random problems for the decode kernels' tests, their caches, single steps, and the oracle of a step."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from nsa import NSACache, NSAConfig, ops, reference
from nsa.tests.decoding import Inputs
from nsa.tests.kernel_cases import DEVICE

ON_TRITON = {"backend": "triton", "strict": True}


def drawn(
    tokens: int, *, batch: int = 1, heads: int = 4, kv_heads: int = 2, dk: int = 16, dv: int = 16, dtype: torch.dtype
) -> Inputs:
    source = torch.Generator().manual_seed(tokens)

    def normal(count: int, dim: int) -> Tensor:
        x = torch.randn(batch, tokens, count, dim, generator=source, dtype=torch.float64)
        return x.to(DEVICE, dtype)

    def triple(dim: int) -> tuple[Tensor, Tensor, Tensor]:
        return normal(kv_heads, dim), normal(kv_heads, dim), normal(kv_heads, dim)

    return Inputs(normal(heads, dk), triple(dk), triple(dv), normal(heads, 3).sigmoid())


def cache_for(inputs: Inputs, config: NSAConfig, *, capacity: int = 5, page_size: int | None = None) -> NSACache:
    (batch, _, kv_heads, dk), dv = inputs.k[0].shape, inputs.v[0].shape[-1]
    like = {"dtype": inputs.q.dtype, "device": inputs.q.device}
    return NSACache(config, batch, kv_heads, dk, dv, capacity=capacity, page_size=page_size, **like)


def mapped(change: Callable[[Tensor], Tensor], inputs: Inputs) -> Inputs:
    k, v = (tuple(change(x) for x in triple) for triple in (inputs.k, inputs.v))
    return Inputs(change(inputs.q), k, v, change(inputs.gates))


def tensors(inputs: Inputs) -> tuple[Tensor, ...]:
    return inputs.q, *inputs.k, *inputs.v, inputs.gates


def stepped(inputs: Inputs, cache: NSACache, t: int, counts: list[int] | None = None, **how: object) -> Tensor:
    one = inputs.between(t, t + 1)
    return ops.nsa_decode(one.q, one.k, one.v, one.gates, cache, counts=counts, **(how or ON_TRITON))


def oracle(inputs: Inputs, config: NSAConfig, rows: list[int]) -> Tensor:
    wide = mapped(Tensor.double, inputs)
    return reference.nsa_attention(wide.q, wide.k, wide.v, wide.gates, config, rows=rows)
