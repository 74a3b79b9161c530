"""Into how many programs a decode step is split: sizes and capacities decide, never what the device holds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from nsa.config import NSAConfig
from nsa.kernels.common import cdiv, next_power_of_2
from nsa.kernels.configs import Tile, architecture_for, config_for

MOST_PARTS = 64
SCORED = {32: 32, 64: 62, 128: 124, 256: 248}
"""Lanes of a program of the second kernel, and its blocks: by default sizes, their compressed tokens and one more, from
an aligned one on, fill TOKENS once or twice at most."""
AMONG = 32
"""Lanes that are compared with each other: their best are a list."""
SCORERS = 3
"""Its programs on each multiprocessor."""
FEW = 128
"""If all lists together hold no more keys, it compares all of them instead of looking for the best lists first."""
GATHERERS = 3
"""Programs of the third kernel on each multiprocessor."""
SUMMED = 8192
"""Numbers that the third kernel adds up at once; half as many where it must fit several times on a multiprocessor, and
where rows are wider than WIDE bytes: their sums need the registers."""
WIDE = 256
MOST_KEYS = 512


@dataclass(frozen=True)
class Sizes:
    """What the buffers between the kernels depend on."""

    batch: int
    kv_heads: int
    group: int
    dk: int
    dv: int
    compressed: int
    blocks: int
    slots: int
    config: NSAConfig
    dtype: torch.dtype

    @property
    def pairs(self) -> int:
        """(sequence, KV head) pairs: programs, if nothing were split."""
        return self.batch * self.kv_heads

    @property
    def free(self) -> int:
        """Blocks that scores choose."""
        return self.config.n_sel - self.config.init_blocks - self.config.local_blocks

    @property
    def candidates(self) -> int:
        """The most blocks that they choose from."""
        return self.blocks - self.config.init_blocks - self.config.local_blocks


@dataclass(frozen=True)
class Plan:
    """Into how many programs each pair is split.

    Attributes:
        parts: of the compressed tokens.
        scored, lanes, among: blocks that a program of the second kernel scores, the power of two that holds them,
            and how many of these make a list of the best.
        few: keys in all lists of a pair up to which these are compared without looking for the best lists first.
        keys: that one program of the third kernel takes.
        summed: numbers that it adds up at once.
        first, third: tiles of the first and third kernel.
    """

    parts: int
    scored: int
    lanes: int
    among: int
    few: int
    keys: int
    summed: int
    first: Tile
    third: Tile

    def scorers(self, sizes: Sizes) -> int:
        """Programs of the second kernel that score the blocks of a pair."""
        return max(1, cdiv(sizes.candidates, self.scored))

    def lists(self, sizes: Sizes) -> int:
        """Lists of the best blocks that these leave for a pair."""
        return self.scorers(sizes) * self.lanes // self.among

    def listed(self, sizes: Sizes) -> int:
        """Blocks of a list."""
        return max(1, min(sizes.free, self.among))

    def selected_parts(self, config: NSAConfig, slots: int) -> int:
        """Programs of the third kernel for the selected blocks of a pair."""
        return cdiv(slots * config.l_sel, self.keys)

    def window_parts(self, config: NSAConfig) -> int:
        """Programs of the third kernel for the window of a pair."""
        return cdiv(config.w, self.keys)


def plan_for(sizes: Sizes, q: Tensor, v: Tensor) -> Plan:
    """Enough programs to fill the device, and no more."""
    first, third = config_for("decode_compressed", q, v), config_for("decode_gather", q, v)
    if architecture_for(q) is None:
        # several of everything, even for the small shapes of a test
        return Plan(3, 7, 8, 4, few=16, keys=2 * third.BN, summed=SUMMED, first=first, third=third)
    multiprocessors, config = _multiprocessors(q.device), sizes.config
    parts = first.resident * multiprocessors // sizes.pairs
    parts = max(1, min(MOST_PARTS, parts, cdiv(sizes.compressed, first.BN)))
    read = sizes.pairs * (sizes.slots * config.l_sel + config.w)
    keys = next_power_of_2(cdiv(read, GATHERERS * multiprocessors))
    keys = max(2 * third.BN, min(MOST_KEYS, keys))
    roomy = read <= keys * multiprocessors and max(sizes.dk, sizes.dv) * q.element_size() <= WIDE
    summed = SUMMED if roomy else SUMMED // 2
    lanes = next(
        (lanes for lanes, scored in SCORED.items()
         if sizes.pairs * cdiv(sizes.candidates, scored) <= SCORERS * multiprocessors), max(SCORED),
    )  # fmt: skip
    return Plan(parts, SCORED[lanes], lanes, AMONG, FEW, keys, summed, first, third)


@lru_cache
def _multiprocessors(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).multi_processor_count
    return 128  # of a GPU that is only compiled for
