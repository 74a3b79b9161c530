"""In which order the sides of a comparison are timed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Literal

from orchestrator.shared.plan import Trial

Side = Literal["a", "b", "control"]
SIDES: tuple[Side, ...] = ("a", "b", "control")


def trials(timed: Sequence[str], blocks: int, order: random.Random) -> Iterator[tuple[Trial, int]]:
    """Each run of the benches `timed`, with its place in its block. In a block each side runs each bench once, in an
    order drawn at random, and in the next block back: what the machine does meanwhile falls out.
    """
    orders: dict[str, list[Side]] = {}
    for block in range(blocks):
        for name in timed:
            orders[name] = orders[name][::-1] if block % 2 else order.sample(SIDES, len(SIDES))
            for place, side in enumerate(orders[name]):
                yield Trial(of=name, block=block, side=side), place
