"""MKL's vector functions, by which PyTorch computes on a CPU: the first call of each has to be one thread's.

MKL looks for the code that fits the machine and the accuracy at a function's first call. When several threads make that
at once, as they do for a tensor of some thousand values, one may compute its part in a lower accuracy: thousands of
units in the last place in fp32, in this call only (pytorch/pytorch#188792, seen with PyTorch 2.10 to 2.13).
"""

from functools import cache

import torch

_USED = (torch.exp, torch.log, torch.cos, torch.sin)


@cache
def call_each_once() -> None:
    """Call, from this thread, each of those that the reference, the PyTorch backend and RoPE use: they do so first."""
    for dtype in (torch.float32, torch.float64):
        one = torch.ones(1, dtype=dtype, device="cpu")
        for function in _USED:
            function(one)
