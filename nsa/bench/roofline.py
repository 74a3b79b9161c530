"""What a GPU can do at most, and how near to it a measurement comes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch

from nsa import blocks
from nsa.bench.cases import Case, Where
from nsa.bench.rows import Row, card
from nsa.bench.timing import Timing, measure
from nsa.config import NSAConfig

DATA_SHEETS = {
    # part of the name: (GB/s, TFLOP/s in half precision with fp32 sums, TFLOP/s in TF32), without sparsity
    "H200": (4800, 989, 495),
    "H100 PCIe": (2039, 756, 378),
    "H100 NVL": (3938, 835, 418),
    "H100": (3352, 989, 495),
    "A100-SXM4-80GB": (2039, 312, 156),
    "A100 80GB PCIe": (1935, 312, 156),
    "A100": (1555, 312, 156),
    "RTX 4090": (1008, 165, 83),
    "RTX 3090 Ti": (1008, 80, 40),
    "RTX 3090": (936, 71, 36),
}
"""From the vendor's data sheets; the first match counts."""


@dataclass(frozen=True)
class Work:
    """What a call must do at least: bytes between GPU memory and chip, floating-point operations."""

    bytes: float
    flops: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(self.bytes + other.bytes, self.flops + other.flops)


@dataclass(frozen=True)
class Peak:
    """Bytes and floating-point operations in a second at most, and how that is known."""

    bytes_per_s: float
    flops: float
    source: str

    def least_ms(self, work: Work) -> float:
        """The least time that the work can take, in milliseconds."""
        return max(work.bytes / self.bytes_per_s, work.flops / self.flops) * 1e3


CEILINGS = {"NVIDIA H200": Peak(4.28e12, 800e12, "measured")}
"""What copies and bf16 products of the kernel benches reached on a card (docs/kernels.md), below its data sheet."""


def floor_ms(device: torch.device, work: Work) -> float | None:
    """The least milliseconds of the work by the card's ceilings; None where these are not known."""
    ceiling = CEILINGS.get(card(device))
    return ceiling.least_ms(work) if ceiling else None


@lru_cache
def peak(device: torch.device, dtype: torch.dtype) -> Peak | None:
    """The peak of a GPU for a dtype: the data sheet's, or measured where the card is not listed; None for a CPU."""
    if device.type != "cuda":
        return None
    name = card(device)
    for part, (gigabytes, half, tf32) in DATA_SHEETS.items():
        if part in name:
            return Peak(gigabytes * 1e9, (tf32 if dtype == torch.float32 else half) * 1e12, "data sheet")
    return _measured(device, dtype)


def _measured(device: torch.device, dtype: torch.dtype) -> Peak:
    """By a copy of 512 MiB and a product of 8192 x 8192 matrices."""
    source = torch.zeros(2**29, dtype=torch.int8, device=device)
    target = torch.empty_like(source)
    copy = measure(lambda: target.copy_(source), device, iters=10, warmup=3)
    factor = torch.zeros(8192, 8192, dtype=dtype, device=device)
    product = measure(lambda: factor @ factor, device, iters=10, warmup=3)
    return Peak(2 * source.numel() / min(copy.gpu) * 1e3, 2 * 8192**3 / min(product.gpu) * 1e3, "measured")


def clocks(timing: Timing, where: Where, work: Work) -> Row:
    """The wall clock's columns; on a GPU its own time, whether it waited for the host, and the roofline's share."""
    found: Row = {"wall_ms": timing.wall_ms}
    limit = peak(where.device, where.dtype)
    if limit is not None:
        found |= {
            "gpu_ms": timing.ms,
            "host_bound": int(timing.host_bound),
            "roofline_frac": limit.least_ms(work) / timing.ms,  # above 1 the measurement is wrong
            "roofline_source": limit.source,
        }
    return found


def pairs(length: int, config: NSAConfig) -> dict[str, int]:
    """Pairs of a query and a key in each branch of one head, over a sequence of that length, and of dense attention."""
    compressed = sum(blocks.num_compressed(t, config) for t in range(1, length + 1))
    window = sum(min(config.w, t + 1) for t in range(length))
    whole = sum(blocks.reads_expected(t, config) for t in range(length))
    dense = length * (length + 1) // 2
    return {"compressed": compressed, "selected": whole - compressed - window, "window": window, "dense": dense}


def attention_work(pairs: float, of: Case, read: float, written: float) -> tuple[Work, Work]:
    """Forward and backward of attention over `pairs` (query, key) pairs of each query head.

    Two products forward; five backward: the logits again, dp, dv, dq, dk. Backward reads o and do beside the inputs
    and writes their gradients: `read` bytes are inputs, `written` bytes are o.
    """
    products = 2.0 * pairs * of.heads
    forward = Work(read + written, products * (of.dk + of.dv))
    return forward, Work(2 * read + 2 * written, products * (3 * of.dk + 2 * of.dv))
