"""The shape of a hardware profile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

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
        sel_triton: whether Triton selection runs without being forced.
        sel_triton_min_L: fewest tokens for Triton selection.
        dense_below: tokens below which dense causal attention is faster, by heads for each KV head; a group
            size that is not listed takes the next smaller one that is.
        kernels_timed: whether the Triton kernels were timed on this architecture, and where.
    """

    name: str
    fa2_min_len_win: Measured[int]
    fa2_min_len_cmp: Measured[int]
    sel_triton: Measured[bool]
    sel_triton_min_L: Measured[int]
    dense_below: Measured[Mapping[int, int]] = field(default=Measured({}, "not measured"))
    kernels_timed: Measured[bool] = field(default=Measured(False, "never timed on this architecture"))

    def dense_crossover(self, group_size: int) -> int:
        """Tokens below which dense attention is faster for this group size; 0 where nothing was measured."""
        smaller = [size for size in self.dense_below.value if size <= group_size]
        return self.dense_below.value[max(smaller)] if smaller else 0
