"""Which form of a kernel a launch takes, by the layouts of its tensors."""

from __future__ import annotations

from itertools import product

import torch
import triton.language as tl
from triton.runtime.jit import JITFunction

from nsa.kernels.common.launch import launched, launched_in_two_forms

STORAGE = torch.zeros(4096)
ALIGNED, APART = STORAGE[:64], STORAGE[1:65]


def _kernel(p_x, p_y, p_none, n, s_x, s_y, scale, BLOCK: tl.constexpr):
    """Of a signature like those of the library."""


KERNEL = JITFunction(_kernel, do_not_specialize=["n"])


def test_any_mixture_of_layouts_takes_one_of_two_forms() -> None:
    kernel = launched_in_two_forms(KERNEL)
    assert kernel.of((ALIGNED, ALIGNED, None, 3, 64, 32, 0.5, 16)) is KERNEL, "n is not asked about"
    mixtures = [
        (x, y, None, 3, s_x, s_y, 0.5, 16)
        for x, y, s_x, s_y in product((ALIGNED, APART), (ALIGNED, APART), (64, 65), (32, 1))
        if x is APART or y is APART or s_x == 65 or s_y == 1
    ]
    (other,) = {kernel.of(arguments) for arguments in mixtures}
    assert other is not KERNEL and other.fn is KERNEL.fn
    assert all(x.do_not_specialize or x.is_constexpr for x in other.params)


def test_the_others_are_as_triton_has_them() -> None:
    assert launched(KERNEL).of((APART, ALIGNED, None, 3, 65, 1, 0.5, 16)) is KERNEL
