"""The sizes of Native Sparse Attention, checked once, where they are made."""

from __future__ import annotations

from dataclasses import dataclass, fields

BRANCHES = ("cmp", "sel", "win")
"""The branches, in the order of their gates."""

LARGEST = 1 << 30
"""Of a size: kernels count in 32 bits, which hold a position and a size beyond it."""


@dataclass(frozen=True)
class NSAConfig:
    """Sizes of the three branches, in tokens or in blocks (arXiv 2502.11089, section 3).

    Attributes:
        l: tokens summarised by one compressed token.
        d: distance between the starts of neighbouring compressed tokens; divides `l`.
        l_sel: tokens in one selection block (the paper's l').
        n_sel: blocks that a query selects, the forced ones counted in.
        w: keys in the sliding window, the query's own included.
        init_blocks: first blocks of the sequence, always selected.
        local_blocks: blocks ending at the query's own, always selected.

    Raises:
        ValueError: a size that has no meaning; the sentence names it.
    """

    l: int = 32  # noqa: E741  the paper's symbol
    d: int = 16
    l_sel: int = 64
    n_sel: int = 16
    w: int = 512
    init_blocks: int = 1
    local_blocks: int = 2

    def __post_init__(self) -> None:
        for field in fields(self):
            least, value = 0 if field.name in ("init_blocks", "local_blocks") else 1, getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"NSAConfig: {field.name} must be an integer of at least {least}, got {value!r}")
            if value > LARGEST:
                raise ValueError(f"NSAConfig: {field.name} must be at most {LARGEST}, got {value}")
        if self.d > self.l:
            raise ValueError(f"NSAConfig: d must not exceed l, got d={self.d} and l={self.l}")
        if self.l % self.d:
            raise ValueError(f"NSAConfig: l must be a multiple of d, got l={self.l} and d={self.d}")
        forced = self.init_blocks + self.local_blocks
        if self.n_sel < forced:
            raise ValueError(
                f"NSAConfig: n_sel must be at least init_blocks + local_blocks = {forced}, got {self.n_sel}"
            )
