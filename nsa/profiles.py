"""Hardware profiles: thresholds by device, each with the measurement it came from.

They replace the runtime section of the seeds' `configs/base.yaml`, under the same keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import torch

from nsa.device import capability

Value = TypeVar("Value")


@dataclass(frozen=True)
class Measured(Generic[Value]):
    """A value and the measurement that it came from."""

    value: Value
    source: str


UNMEASURED = "not measured on this architecture: the seeds' default (seed 002)"


@dataclass(frozen=True)
class Profile:
    """Thresholds of one architecture.

    Attributes:
        fa2_min_len_win, fa2_min_len_cmp: fewest tokens for FlashAttention-2 in the window and compressed branch.
        sel_triton_min_L: fewest tokens for Triton selection; None where it runs only by force.
        dense_below: tokens below which dense causal attention is faster, by heads for each KV head; a group
            size that is not listed takes the next smaller one that is.
        dense_below_grad: the same of forward and backward.
        kernels_timed: where the Triton kernels were timed on this architecture, or that they were not.
    """

    name: str
    sel_triton_min_L: Measured[int | None]
    fa2_min_len_win: Measured[int] = field(default=Measured(16, UNMEASURED))
    fa2_min_len_cmp: Measured[int] = field(default=Measured(16, UNMEASURED))
    dense_below: Measured[Mapping[int, int]] = field(default=Measured({}, "not measured"))
    dense_below_grad: Measured[Mapping[int, int]] = field(default=Measured({}, "not measured"))
    kernels_timed: str = "never timed on this architecture"

    def dense_crossover(self, group_size: int, grad: bool = False) -> int:
        """Tokens below which dense attention is faster for this group size, forward or, with `grad`, forward and
        backward; 0 where nothing was measured.
        """
        measured = (self.dense_below_grad if grad else self.dense_below).value
        smaller = [size for size in measured if size <= group_size]
        return measured[max(smaller)] if smaller else 0


# --- what was measured, and what was not ---

_ON_A_CPU = "runs only when asked for, in Triton's interpreter"
_NO_FLASH = "does not apply: FlashAttention-2 and compiled Triton have no CPU path"
_NVIDIA = "does not apply: the Triton kernels are written for NVIDIA GPUs"
_RTX_4090 = "seed 004, RTX 4090, torch 2.4.1: FA-2 0.01x to 0.20x the speed of SDPA up to 2048 tokens"
_FITS_ADA = (
    "not measured with these kernels: the default of what fits 99 KiB of shared memory "
    "(seed 004's 2x to 25x slower than SDPA on an RTX 4090 was of other kernels)"
)
_MADE_FOR = "not measured against PyTorch: the kernels were made for this architecture and are its default"
_DENSE = (
    "H200, torch 2.11, Triton 3.6, bf16, forward, random inputs, against cuDNN: group size 16 slower at 7,872 tokens, "
    "faster from 8,192 on (artifacts/bench/h200-library, crossings.csv), group size 4 slower at 8k (1.42 ms, 0.96) and "
    "faster at 16k (2.89, 3.68), interpolated in between (artifacts/bench/h200-kernels, table.json)"
)
_DENSE_GRAD = (
    "the same, forward and backward: group size 16 slower at 5,184 tokens, faster from 5,312 on; group size 4 slower "
    "at 4k (1.68 ms, 1.16) and faster at 8k (3.68, 3.72), interpolated in between"
)
_FITS_BLACKWELL = "not measured on this architecture: the default of the kernels that fit its shared memory"

PROFILES = {
    profile.name: profile
    for profile in (
        Profile(  # any CPU: PyTorch only, unless a backend is asked for (Triton's interpreter in tests)
            "cpu",
            fa2_min_len_win=Measured(0, _NO_FLASH),
            fa2_min_len_cmp=Measured(0, _NO_FLASH),
            sel_triton_min_L=Measured(0, _ON_A_CPU),
            kernels_timed="interpreted on a CPU, which is for tests",
        ),
        Profile(  # AMD's GPUs: PyTorch, and FlashAttention-2 where it is asked for and installed
            "rocm",
            sel_triton_min_L=Measured(0, _NVIDIA),
            kernels_timed="do not run on AMD's GPUs",
        ),
        Profile(  # Ampere, data centre and consumer (SM 8.0 to 8.8): A100, RTX 3090
            "sm80",
            sel_triton_min_L=Measured(4096, UNMEASURED),
            kernels_timed="compiled for sm_80, never timed there",
        ),
        Profile(  # Ada (SM 8.9): RTX 4090
            "sm89",
            fa2_min_len_win=Measured(999999, _RTX_4090),
            fa2_min_len_cmp=Measured(999999, _RTX_4090),
            sel_triton_min_L=Measured(0, _FITS_ADA),
            kernels_timed="compiled for sm_89, under Triton 3.0 too, never timed there",
        ),
        Profile(  # Hopper (SM 9.0 and newer): H100, H200
            "sm90",
            sel_triton_min_L=Measured(0, _MADE_FOR),
            dense_below=Measured({4: 12500, 16: 8200}, _DENSE),
            dense_below_grad=Measured({4: 8100, 16: 5300}, _DENSE_GRAD),
            kernels_timed="timed on an H200 (docs/kernels.md)",
        ),
        Profile(  # consumer Blackwell (SM 12.0 and 12.1): RTX 5090; it takes the tiles of sm_89
            "sm120",
            sel_triton_min_L=Measured(0, _FITS_BLACKWELL),
            kernels_timed="compiled for sm_120 in the tiles of sm_89, never timed there",
        ),
    )
}
NAMES = tuple(PROFILES)


# --- which one ---


def load(name: str) -> Profile:
    """The profile of that name.

    Raises:
        ValueError: no such profile.
    """
    if name not in PROFILES:
        raise ValueError(f"unknown hardware profile {name!r}; expected one of {', '.join(NAMES)}")
    return PROFILES[name]


def for_device(device: torch.device) -> Profile:
    """The profile of a device: its own, else that of the nearest older architecture, else the oldest."""
    found = capability(device)
    if found is None:
        return load("rocm" if device.type == "cuda" else "cpu")
    major, minor = found
    known = sorted(int(name[2:]) for name in NAMES if name.startswith("sm"))
    older = [sm for sm in known if sm <= major * 10 + minor]
    return load(f"sm{older[-1] if older else known[0]}")
