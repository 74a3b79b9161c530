"""Shapes for property tests: every edge of the semantics, small enough to run by the dozen."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import configuration
from hypothesis import strategies as st

from nsa.config import NSAConfig
from nsa.tests.testing import Problem

# A run must leave nothing behind in the tree that it validates.
configuration.set_hypothesis_home_dir(Path(tempfile.gettempdir()) / "nsa-hypothesis")

CONFIGS = (
    NSAConfig(l=8, d=4, l_sel=16, n_sel=4, w=20),
    NSAConfig(l=4, d=2, l_sel=8, n_sel=3, w=5, init_blocks=1, local_blocks=1),
    NSAConfig(l=4, d=4, l_sel=4, n_sel=6, w=9, init_blocks=3, local_blocks=3),  # forced blocks overlap
    NSAConfig(l=6, d=3, l_sel=8, n_sel=2, w=1, init_blocks=0, local_blocks=0),  # d does not divide l_sel
    NSAConfig(l=8, d=2, l_sel=5, n_sel=16, w=64, init_blocks=2, local_blocks=1),  # fewer candidates than n_sel
)


def edge_lengths(config: NSAConfig) -> list[int]:
    """0, 1, around l, around l_sel, above w, and a length that is a multiple of nothing."""
    around_span = {config.l + step for step in (-2, -1, 0, 1)}
    around_block = {config.l_sel + step for step in (-1, 0, 1)}
    return sorted({0, 1, *around_span, *around_block, config.w + 3, 37})


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Any configuration with an edge length, or packed edge lengths with empty and one-token sequences among them, and
    maybe keys before their queries.
    """
    config = draw(st.sampled_from(CONFIGS))
    length = st.sampled_from(edge_lengths(config))
    packed = draw(st.booleans())
    lengths = tuple(draw(st.lists(length, min_size=1, max_size=4))) if packed else None
    before = tuple(draw(st.sampled_from((0, 1, 30))) for _ in lengths) if lengths and draw(st.booleans()) else None
    return Problem(
        config,
        tokens=0 if packed else draw(length),
        batch=1 if packed else draw(st.sampled_from((1, 2))),
        kv_heads=draw(st.sampled_from((1, 2))),
        group_size=draw(st.sampled_from((1, 2, 4, 6, 16))),
        dk=draw(st.sampled_from((4, 8))),
        dv=draw(st.sampled_from((3, 8))),
        lengths=lengths,
        before=before,
        seed=draw(st.integers(0, 9)),
    )
