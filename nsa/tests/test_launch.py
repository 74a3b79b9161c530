"""Which form of a kernel a launch takes, by the layouts of its tensors."""

from __future__ import annotations

import os
import subprocess
import sys
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


FORMS = """
import torch
from triton.runtime.jit import JITFunction
from nsa.config import NSAConfig
from nsa.kernels.ranges import backward, forward, key_ranges
from nsa.kernels.tuning.ahead_of_time import pretending

def rows(sliced, heads, tokens):
    x = torch.empty(1, tokens, heads, 72, device="meta", dtype=torch.bfloat16)
    return x[..., 1:65] if sliced else x[..., :64].contiguous()

def attend(tokens, q_sliced, k_sliced, packed):
    q, k, v = rows(q_sliced, 16, tokens), rows(k_sliced, 1, tokens), rows(False, 1, tokens)
    borders = torch.empty(3, device="meta", dtype=torch.int32) if packed else None
    ranges = key_ranges.pack(borders, tokens, window=64).window if packed else key_ranges.of_window(q, k, 64, None)
    o, lse = forward.ranges_forward(q, k, v, ranges, 0.125)
    backward.ranges_backward(o, q, k, v, torch.empty(1, tokens, 16, 4, device="meta"), ranges, 0.125)

with pretending("sm_80"):  # where no kernel loads by descriptor
    for given in ((256, False, False, False), (255, False, False, True), (256, True, False, False),
                  (256, False, True, False), (255, True, True, True)):
        seen = []
        JITFunction.run = lambda self, *_, **__: seen.append(self)
        attend(*given)
        of = {x.fn.__name__: getattr(getattr(forward, x.fn.__name__, None) or getattr(backward, x.fn.__name__, None),
                                     "kernel", None) is x for x in seen}
        print(*(int(of[name]) for name in ("_forward", "_backward_q", "_backward_kv")))
"""


def test_the_ranges_of_a_pack_lie_anywhere_and_its_tensors_are_still_aligned() -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "0", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([sys.executable, "-c", FORMS], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split("\n")[:5] == ["1 1 1", "1 1 1", "0 0 0", "0 0 0", "0 0 0"]
