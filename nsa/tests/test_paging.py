"""Pages cost what moves: tables are written where they change, reorders copy what will change."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from nsa import NSACache, NSAConfig
from nsa.tests.decoding import SMALL, Inputs

PAGE = 16


class Moved(TorchDispatchMode):
    """Counts the bytes of all that is written in the block."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if "index_put" in func._schema.name:  # what it gives is all that it wrote into
            written = [args[2]]
        else:
            written = [] if func.is_view or "empty" in func._schema.name else tree_leaves(found)
        self.bytes += sum(x.numel() * x.element_size() for x in written if isinstance(x, Tensor))
        return found


def filled(inputs: Inputs, tokens: int, *, capacity: int = 5, page_size: int | None = PAGE) -> NSACache:
    cache = inputs.cache(SMALL, capacity=capacity, page_size=page_size)
    inputs.between(0, tokens).decode(cache)
    return cache


def test_a_page_more_writes_one_place_of_the_table() -> None:
    cache = NSACache(SMALL, 64, 1, 8, 8, capacity=2**17, page_size=PAGE)
    assert cache.pages is not None
    cache.pages.reserve([PAGE] * 64, 2**17)
    table, before = cache.pages.table, cache.pages.table.clone()
    with Moved() as moved:
        cache.pages.reserve([2 * PAGE] + [PAGE] * 63, 2**17)
    assert cache.pages.table is table and (table != before).sum() == 1
    assert moved.bytes < 1000 < table.numel()


def test_one_reorder_shares_what_nothing_will_change() -> None:
    """The beams of one prompt: 4 times 10 pages before and, at most one each beside those of the first, after."""
    inputs, plain = Inputs.random(200, batch=4), filled(Inputs.random(200, batch=4), 150, page_size=None)
    cache = filled(inputs, 150)
    assert cache.pages is not None and cache.pages.count == 40
    order = [2, 2, 2, 1]
    with Moved() as moved:
        cache.reorder(order)
    pages, pool = cache.pages.table, sum(x.numel() * x.element_size() for x in cache.selected.stored)
    assert cache.pages.count == 40 and len(pages[pages >= 0].unique()) == 10 + 1 + 1 + 10
    rings = sum(x.numel() * x.element_size() for rows in (cache.window, cache.pending) for x in rows.stored)
    assert moved.bytes - rings < pool / 4
    plain.reorder(order)
    again = torch.tensor(order)
    after = Inputs(*(pick(x, again) for x in (inputs.q, inputs.k, inputs.v, inputs.gates)))
    for start, end in ((150, 151), (151, 170), (170, 171)):  # each beam goes on by itself
        piece = after.between(start, end)
        apart = Inputs(*(apart_from(x) for x in (piece.q, piece.k, piece.v, piece.gates)))
        torch.testing.assert_close(apart.decode(cache), apart.decode(plain), rtol=0, atol=1e-12)


def pick(x: Tensor | tuple[Tensor, ...], order: Tensor) -> Tensor | tuple[Tensor, ...]:
    return x[order] if isinstance(x, Tensor) else tuple(y[order] for y in x)


def apart_from(x: Tensor | tuple[Tensor, ...]) -> Tensor | tuple[Tensor, ...]:
    """The same, with another factor for each sequence."""
    if not isinstance(x, Tensor):
        return tuple(map(apart_from, x))
    return x * torch.linspace(0.5, 1.0, len(x), dtype=x.dtype)[:, None, None, None]


@pytest.mark.parametrize("config", [SMALL, NSAConfig(l=32, d=4, l_sel=8, n_sel=4, w=13)])
def test_pages_that_no_one_holds_are_used_again(config: NSAConfig) -> None:
    """Spans that end in the next pages are written into the pages before: those are copied, too."""
    inputs = Inputs.random(150, batch=3)
    plain, paged = (NSACache(config, 3, 2, 8, 6, capacity=5, dtype=torch.float64, page_size=size) for size in (None, 8))
    held, lengths = [], [30, 9, 21]
    for cache in (plain, paged):
        inputs.rows([0, 0, 0], lengths).decode(cache, lengths)
    for step, order in enumerate(([0, 0, 1], [1, 1, 1], [2, 0, 1], [0, 0, 0]) * 4):
        for cache in (plain, paged):
            cache.reorder(order)
        lengths = [lengths[entry] for entry in order]
        counts = [1, 1, 1] if step % 2 else [3, 0, 5]
        piece = inputs.rows([(7 * step + b) % 140 for b in range(3)], counts)
        found = [piece.decode(cache, counts) for cache in (plain, paged)]
        torch.testing.assert_close(*found, rtol=0, atol=1e-12)
        lengths = [length + count for length, count in zip(lengths, counts, strict=True)]
        assert paged.pages is not None
        held.append(paged.pages.count)
    assert held[-1] <= 3 * (max(lengths) // 8 + 2) * 2
    paged.reset()
    assert paged.pages is not None and (paged.pages.table == -1).all()
    inputs.rows([0, 0, 0], [40, 40, 40]).decode(paged)
    assert paged.pages.count == held[-1]


def test_a_chunk_reads_what_is_held_whatever_could_be() -> None:
    inputs, moved = Inputs.random(60), []
    for capacity in (64, 2**15):
        cache = filled(inputs, 40, capacity=capacity)
        piece = inputs.between(40, 60)
        with Moved() as found:
            piece.decode(cache)
        moved.append(found.bytes)
    assert moved[1] <= moved[0]


def test_moving_it_keeps_its_pages() -> None:
    inputs = Inputs.random(60)
    cache = filled(inputs, 40, capacity=2**12)
    assert cache.pages is not None
    table, pool = cache.pages.table.clone(), cache.selected.stored[0].shape
    cache.to(dtype=torch.float32)
    assert torch.equal(cache.pages.table, table) and cache.selected.stored[0].shape == pool
    last = Inputs.random(60, dtype=torch.float32).between(40, 60)
    torch.testing.assert_close(last.decode(cache), inputs.whole(SMALL)[:, 40:].float(), rtol=1e-4, atol=1e-4)
