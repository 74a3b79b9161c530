"""The one table of launch configurations, keyed by kernel, architecture and width.

Rows come from measurements made offline; nothing is tuned at a user's first call. A row holds a tile for each width
(the larger head dimension) in half precision, and one for fp32, whose IEEE products take no tensor cores and many
registers.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

WIDTHS = (64, 128, 192, 256)
FP32 = "fp32"
ARCHITECTURES = ("sm_80", "sm_89", "sm_90")

SHARED_MEMORY = {"sm_80": 163 * 1024, "sm_89": 99 * 1024, "sm_90": 227 * 1024}
"""Bytes of shared memory that one block may have."""


@dataclass(frozen=True)
class Tile:
    """BM rows (tokens x heads) against BN keys, in `num_warps` warps, with loads `num_stages` tiles ahead.

    `maxnreg` caps the registers of a thread, so that more blocks are resident; `resident` is how many blocks a kernel
    that shares out its work itself starts on each multiprocessor.
    """

    BM: int
    BN: int
    num_warps: int
    num_stages: int
    maxnreg: int | None = None
    resident: int = 2

    def launch(self, group: int) -> dict[str, int]:
        """The keyword arguments of a launch; a tile holds one token's padded group at least."""
        rows = max(self.BM, group)
        found = {"BM": rows, "BN": self.BN, "num_warps": self.num_warps, "num_stages": self.num_stages}
        return found if self.maxnreg is None else {**found, "maxnreg": self.maxnreg}


Rows = dict[int | str, Tile]
"""Tile for each width of WIDTHS, and for FP32."""


def _rows(*tiles: tuple[int, ...]) -> Rows:
    return {key: Tile(*tile) for key, tile in zip((*WIDTHS, FP32), tiles, strict=True)}


TABLE: dict[str, dict[str, Rows]] = {
    "window_forward": {
        "sm_80": _rows((128, 64, 8, 3), (128, 64, 8, 3), (128, 64, 8, 2), (128, 32, 8, 2), (32, 32, 8, 1)),
        "sm_89": _rows((128, 64, 8, 3), (128, 64, 8, 3), (128, 64, 8, 2), (64, 32, 8, 2), (32, 32, 8, 1)),
        "sm_90": _rows((128, 64, 8, 3), (128, 64, 8, 3), (128, 64, 8, 3), (128, 64, 8, 2), (32, 32, 8, 1)),
    },
    "window_backward_q": {
        "sm_80": _rows((128, 64, 8, 3), (128, 64, 8, 3), (128, 32, 8, 2), (64, 32, 8, 2), (32, 16, 8, 1)),
        "sm_89": _rows((128, 64, 8, 3), (128, 64, 8, 2), (64, 32, 4, 2), (64, 32, 4, 1), (32, 16, 8, 1)),
        "sm_90": _rows((64, 64, 4, 2), (64, 64, 4, 2), (128, 64, 8, 2), (128, 32, 8, 2), (32, 16, 8, 1)),
    },
    "window_backward_kv": {
        "sm_80": _rows((64, 64, 4, 2), (64, 64, 4, 2), (32, 32, 4, 2), (32, 32, 8, 1), (32, 32, 8, 1)),
        "sm_89": _rows((64, 64, 4, 2), (64, 64, 4, 2), (32, 32, 4, 2), (16, 64, 8, 1), (16, 32, 8, 1)),
        "sm_90": _rows((64, 64, 4, 2), (64, 64, 4, 2), (32, 64, 4, 2), (32, 32, 8, 1), (32, 32, 8, 1)),
    },
    "compressed_forward": {
        "sm_80": _rows((128, 64, 8, 3), (128, 64, 8, 3), (128, 64, 8, 2), (128, 32, 8, 2), (32, 32, 8, 1)),
        "sm_89": _rows((128, 64, 8, 3), (128, 64, 8, 3), (128, 64, 8, 2), (64, 32, 8, 2), (32, 32, 8, 1)),
        "sm_90": _rows((128, 64, 8, 3), (128, 64, 8, 3), (128, 64, 8, 3), (128, 64, 8, 2), (32, 32, 8, 1)),
    },
    "compressed_backward_q": {
        "sm_80": _rows((128, 64, 8, 3), (128, 64, 8, 3), (128, 32, 8, 2), (64, 32, 8, 2), (32, 16, 8, 1)),
        "sm_89": _rows((128, 64, 8, 3), (128, 64, 8, 2), (64, 32, 4, 2), (64, 32, 4, 1), (32, 16, 8, 1)),
        "sm_90": _rows((128, 64, 8, 3), (128, 64, 8, 3), (128, 64, 8, 2), (128, 32, 8, 2), (32, 16, 8, 1)),
    },
    "compressed_backward_kv": {
        "sm_80": _rows((64, 64, 4, 2), (64, 64, 4, 2), (32, 32, 4, 2), (32, 32, 8, 1), (32, 32, 8, 1)),
        "sm_89": _rows((64, 64, 4, 2), (64, 64, 4, 2), (32, 32, 4, 2), (16, 64, 8, 1), (16, 32, 8, 1)),
        "sm_90": _rows((64, 64, 4, 2), (64, 64, 4, 2), (32, 64, 4, 2), (32, 32, 8, 1), (32, 32, 8, 1)),
    },
    "selected_token_forward": {
        "sm_80": _rows((16, 64, 2, 3), (16, 64, 2, 3), (16, 64, 2, 2), (16, 32, 2, 2), (16, 16, 4, 1)),
        "sm_89": _rows((16, 64, 2, 3), (16, 64, 2, 2), (16, 32, 2, 2), (16, 32, 2, 2), (16, 16, 4, 1)),
        "sm_90": _rows((16, 64, 2, 3), (16, 64, 2, 3), (16, 64, 2, 2), (16, 64, 2, 2), (16, 32, 4, 1)),
    },
    "selected_tile_forward": {
        "sm_80": _rows((64, 64, 4, 3), (64, 64, 4, 3), (64, 64, 4, 2), (64, 32, 4, 2), (32, 16, 4, 1)),
        "sm_89": _rows((64, 64, 4, 3), (64, 64, 4, 2), (64, 32, 4, 2), (64, 32, 4, 1), (32, 16, 4, 1)),
        "sm_90": _rows((64, 64, 4, 3), (64, 64, 4, 3), (64, 64, 4, 2), (64, 64, 4, 2), (64, 32, 4, 1)),
    },
    "selected_merge_forward": {
        "sm_80": _rows((64, 64, 4, 3), (64, 64, 4, 3), (64, 64, 4, 2), (32, 32, 4, 2), (32, 16, 4, 1)),
        "sm_89": _rows((64, 64, 4, 3), (64, 64, 4, 2), (64, 32, 4, 2), (32, 32, 4, 1), (32, 16, 4, 1)),
        "sm_90": _rows((64, 64, 4, 3), (64, 64, 4, 3), (64, 64, 4, 2), (64, 64, 4, 2), (64, 32, 4, 1)),
    },
    "selected_gather_forward": {
        "sm_80": _rows((64, 64, 4, 2), (64, 64, 4, 2), (64, 64, 4, 2), (64, 64, 4, 1), (16, 64, 4, 1)),
        "sm_89": _rows((64, 64, 4, 2), (64, 64, 4, 2), (32, 64, 4, 2), (16, 64, 4, 1), (16, 64, 4, 1)),
        "sm_90": _rows((64, 64, 4, 2), (64, 64, 4, 2), (64, 64, 4, 2), (64, 64, 4, 1), (32, 64, 4, 1)),
    },
    "selected_token_dq": {
        "sm_80": _rows((16, 64, 2, 3), (16, 64, 2, 2), (16, 32, 2, 2), (16, 32, 2, 2), (16, 16, 4, 1)),
        "sm_89": _rows((16, 64, 2, 2), (16, 64, 2, 2), (16, 32, 2, 2), (16, 32, 2, 1), (16, 16, 4, 1)),
        "sm_90": _rows((16, 64, 2, 3), (16, 64, 2, 2), (16, 64, 2, 2), (16, 64, 2, 2), (16, 32, 4, 1)),
    },
    "selected_tile_dq": {
        "sm_80": _rows((64, 64, 4, 2), (64, 64, 4, 2), (64, 32, 4, 2), (32, 32, 4, 1), (16, 16, 4, 1)),
        "sm_89": _rows((64, 64, 4, 2), (64, 32, 4, 2), (64, 16, 4, 2), (32, 16, 4, 1), (16, 16, 4, 1)),
        "sm_90": _rows((64, 64, 4, 3), (64, 64, 4, 2), (64, 64, 4, 2), (64, 32, 4, 2), (32, 32, 4, 1)),
    },
    "selected_merge_dq": {
        "sm_80": _rows((64, 64, 4, 2), (64, 64, 4, 2), (64, 32, 4, 2), (32, 32, 4, 1), (16, 16, 4, 1)),
        "sm_89": _rows((64, 64, 4, 2), (64, 32, 4, 2), (64, 16, 4, 2), (32, 16, 4, 1), (16, 16, 4, 1)),
        "sm_90": _rows((64, 64, 4, 3), (64, 64, 4, 2), (64, 64, 4, 2), (64, 32, 4, 2), (32, 32, 4, 1)),
    },
    "selected_dkv": {
        "sm_80": _rows((64, 64, 4, 2), (32, 64, 4, 2), (32, 32, 4, 2), (16, 32, 4, 1), (16, 16, 4, 1)),
        "sm_89": _rows((64, 64, 4, 2), (32, 64, 4, 2), (32, 32, 4, 2), (16, 32, 4, 1), (16, 16, 4, 1)),
        "sm_90": _rows((64, 64, 4, 2), (32, 64, 4, 3), (32, 64, 4, 3), (64, 64, 8, 1), (16, 32, 4, 1)),
    },
    "selected_dkv_dq": {
        "sm_80": _rows((32, 64, 4, 2), (32, 64, 4, 2), (16, 64, 4, 2), (16, 64, 8, 1), (16, 64, 4, 1)),
        "sm_89": _rows((32, 64, 4, 2), (16, 64, 4, 2), (16, 64, 4, 1), (16, 64, 8, 1), (16, 64, 4, 1)),
        "sm_90": _rows((32, 64, 4, 3), (32, 64, 4, 3), (32, 64, 4, 2), (32, 64, 8, 2), (16, 64, 4, 1)),
    },
    "selected_token_forward_tma": {
        "sm_90": _rows((16, 64, 1, 2), (16, 64, 1, 2), (16, 64, 2, 2), (16, 64, 2, 2), (16, 32, 4, 1)),
    },
    "selected_tile_forward_tma": {
        "sm_90": _rows((64, 64, 4, 3), (64, 64, 4, 3), (64, 64, 4, 2), (64, 64, 4, 2), (64, 32, 4, 1)),
    },
    "selected_merge_forward_tma": {
        "sm_90": _rows((64, 64, 4, 3), (64, 64, 4, 3), (64, 64, 4, 2), (64, 64, 4, 2), (64, 32, 4, 1)),
    },
    "selected_token_dq_tma": {
        "sm_90": _rows((16, 64, 2, 2), (16, 64, 2, 2), (16, 64, 2, 2), (16, 64, 4, 2), (16, 32, 4, 1)),
    },
    "selected_tile_dq_tma": {
        "sm_90": _rows((64, 64, 4, 3), (64, 64, 4, 2), (64, 64, 4, 2), (64, 32, 4, 2), (32, 32, 4, 1)),
    },
    "selected_merge_dq_tma": {
        "sm_90": _rows((64, 64, 4, 3), (64, 64, 4, 2), (64, 64, 4, 2), (64, 32, 4, 2), (32, 32, 4, 1)),
    },
    "select": {
        "sm_80": _rows((64, 64, 4, 3), (128, 64, 8, 2), (128, 64, 8, 2), (128, 64, 8, 1), (32, 32, 8, 1)),
        "sm_89": _rows((64, 64, 4, 3), (128, 64, 8, 2), (128, 64, 8, 2), (128, 64, 8, 1), (32, 16, 8, 1)),
        "sm_90": _rows(
            (128, 64, 4, 3), (128, 64, 4, 2, 168, 3), (128, 64, 4, 2), (128, 64, 8, 1), (32, 32, 8, 1)
        ),
    },
}  # fmt: skip

INTERPRETED = Tile(BM=32, BN=16, num_warps=1, num_stages=1)
"""Small tiles, so that small shapes of a test still take several of them."""


def row_key(dk: int, dv: int, dtype: torch.dtype) -> int | str:
    """The key of a row for these head dimensions.

    Raises:
        ValueError: wider than every row.
    """
    widest = max(dk, dv)
    if widest > WIDTHS[-1]:
        raise ValueError(f"head dimensions {dk} and {dv} are wider than the kernels' {WIDTHS[-1]}")
    return FP32 if dtype == torch.float32 else next(width for width in WIDTHS if widest <= width)


def lookup(kernel: str, architecture: str, dk: int, dv: int, dtype: torch.dtype) -> Tile:
    """The configuration of `kernel` on one of ARCHITECTURES."""
    return TABLE[kernel][architecture][row_key(dk, dv, dtype)]


def most_heads(architecture: str, dk: int, dv: int, dtype: torch.dtype) -> int:
    """The largest padded group that fits the tiles of window, compressed and select for these head dimensions."""
    key = row_key(dk, dv, dtype)
    shared = ("window", "compressed", "select")
    return min(rows[architecture][key].BM for name, rows in TABLE.items() if name.startswith(shared))


@lru_cache
def architecture_of(device: torch.device) -> str:
    """The entry of ARCHITECTURES whose limits hold on a CUDA device: the shared memory of a block decides."""
    properties = torch.cuda.get_device_properties(device)
    if properties.major == 8:
        return "sm_80" if properties.minor == 0 else "sm_89"
    return "sm_90" if properties.major in (9, 10) else "sm_89"


COMPILING_FOR: ContextVar[str | None] = ContextVar("nsa_kernels_compiling_for", default=None)
"""The architecture that `nsa.kernels.compile` compiles for, whatever this machine has."""


def architecture_for(x: Tensor) -> str | None:
    """The architecture whose kernels run on this tensor: that of its device or the one compiled for; None on a CPU."""
    wanted = COMPILING_FOR.get()
    return architecture_of(x.device) if wanted is None and x.device.type == "cuda" else wanted


def config_for(kernel: str, q: Tensor, v: Tensor) -> Tile:
    """The configuration of `kernel` for these tensors."""
    architecture = architecture_for(q)
    if architecture is None:
        return INTERPRETED
    return lookup(kernel, architecture, q.shape[-1], v.shape[-1], q.dtype)
