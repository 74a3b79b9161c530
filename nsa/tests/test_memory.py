"""How much memory a call takes at most beyond its inputs, counted from its allocations: no kernel segments.

The same count of an earlier state gave what an H200 had measured of it: for the shapes below 3.23 GB (measured 3.22),
4.07 (4.05), 1.92 (1.92) and 9.95 (9.95).
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from nsa import NSAConfig
from nsa.attention import Call
from nsa.kernels.attention import attention
from nsa.kernels.common.launch import LISTENER
from nsa.kernels.tuning.lookup import COMPILING_FOR
from nsa.operations import OPERATIONS


class Allocated(TorchDispatchMode):
    """The most bytes that tensors made inside held at one time."""

    def __init__(self) -> None:
        super().__init__()
        self.peak = 0
        self._held: dict[int, tuple[StorageWeakRef, int]] = {}
        self._given: set[int] = set()

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        given = (x for x in tree_leaves((arguments, named)) if isinstance(x, Tensor))
        self._given |= {x.untyped_storage().data_ptr() for x in given} - self._held.keys()
        found = function(*arguments, **(named or {}))
        self._held = {at: held for at, held in self._held.items() if not held[0].expired()}
        for x in tree_leaves(found):
            storage = x.untyped_storage() if isinstance(x, Tensor) else None
            if storage is not None and storage.data_ptr() not in self._given:
                self._held[storage.data_ptr()] = StorageWeakRef(storage), storage.nbytes()
        self.peak = max(self.peak, sum(size for _, size in self._held.values()))
        return found


@pytest.mark.parametrize(
    ("heads", "kv_heads", "tokens", "most_gb"),
    [(64, 4, 8192, 1.05), (64, 4, 16384, 2.1), (32, 8, 8192, 0.85), (64, 4, 65536, 6.8)],
)
def test_peak_of_forward_and_backward(heads: int, kv_heads: int, tokens: int, most_gb: float) -> None:
    q, k, v = (torch.empty(1, tokens, n, 128, dtype=torch.bfloat16) for n in (heads, kv_heads, kv_heads))
    gates, do = torch.empty(1, tokens, heads, 3, dtype=torch.bfloat16), torch.empty_like(q)
    leaves = [x.requires_grad_() for x in (q, k, v, gates)]
    target = COMPILING_FOR.set("sm_90")
    listener = LISTENER.set(lambda *launch, **constants: None)
    try:
        with Allocated() as allocated:
            operation = OPERATIONS["nsa_attention"]
            x = operation.bound((q, k, v, gates, NSAConfig()), {})
            (o,) = attention(Call.of(operation.planned(x, False, None), x))
            torch.autograd.grad(o, leaves, do)
    finally:
        LISTENER.reset(listener)
        COMPILING_FOR.reset(target)
    assert q.nbytes < allocated.peak <= most_gb * 1e9
