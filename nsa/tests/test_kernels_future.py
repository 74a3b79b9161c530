"""Values that are no numbers stay where they belong: before them they reach at most the queries of their own tile.

A product with 0 is no 0 where the other factor is NaN, so a mask of probabilities alone would not keep them out.
FlashAttention-2 lets them reach the up to 127 earlier rows of a tile; so may these kernels, and no more, in whichever
sequence of a pack or entry of a batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from nsa import NSAConfig, nsa_attention, reference
from nsa.kernels.ranges.attention import of_compressed, of_window
from nsa.kernels.ranges.forward import ranges_forward
from nsa.kernels.selected.forward import selected_forward
from nsa.tests.kernel_cases import DEVICE, by_descriptor
from nsa.tests.testing import Problem, assert_close

pytestmark = pytest.mark.triton

ROWS = 128 if DEVICE == "cuda" else 64
"""Of the largest tile: the interpreter's have 32, of selected attention 64."""

CONFIG = NSAConfig(l=8, d=4, l_sel=16, n_sel=4, w=20) if DEVICE == "cpu" else NSAConfig()
TOKENS = 90 if DEVICE == "cpu" else 600
SIZES = {"batch": 2, "kv_heads": 1, "group_size": 2, "dk": 16, "dv": 16}
DTYPES = (torch.float32, torch.float16) if DEVICE == "cpu" else (torch.bfloat16, torch.float16)


def _branches(problem: Problem) -> dict[str, Callable[..., Tensor]]:
    x, cu = problem.tensors(), problem.cu_seqlens
    k_cmp = reference.compress(x["k_cmp_in"], problem.config, cu_seqlens=cu)
    blocks = problem.oracle_blocks(x).int()
    q, scale = x["q"], problem.dk**-0.5

    def compressed(v: Tensor) -> Tensor:
        v_cmp = reference.compress(v, problem.config, cu_seqlens=cu)
        return ranges_forward(q, k_cmp, v_cmp, of_compressed(q, k_cmp, problem.config, cu), scale)[0]

    def window(v: Tensor) -> Tensor:
        return ranges_forward(q, x["k_win"], v, of_window(q, x["k_win"], problem.config.w, cu), scale)[0]

    return {
        "window": window,
        "compressed": compressed,
        "selected": lambda v: selected_forward(q, x["k_sel"], v, blocks, problem.config, scale, cu)[0],
    }


def _reach(o: Tensor, entry: int, first: int) -> int:
    """How many rows before row `first` of this entry hold what is no number; none may in other entries."""
    wrong = ~o.isfinite().flatten(2).all(-1)
    assert wrong[entry, first:].any()
    others = [i for i in range(len(o)) if i != entry]
    assert not wrong[others].any()
    rows = wrong[entry, :first].nonzero()
    return first - int(rows.min()) if len(rows) else 0


@pytest.mark.parametrize("descriptors", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("branch", ["window", "compressed", "selected"])
def test_the_future_reaches_no_further_than_a_tile(
    branch: str, dtype: torch.dtype, descriptors: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if descriptors:
        by_descriptor(monkeypatch)
    problem = Problem(CONFIG, tokens=TOKENS, dtype=dtype, device=DEVICE, **SIZES)
    call, first = _branches(problem)[branch], TOKENS - 31
    v = problem.tensors()["v_win"]
    clean = call(v)
    v[1, first:] = float("inf") if dtype == torch.float32 else float("nan")
    o = call(v)
    reach = _reach(o, 1, first)
    assert reach < ROWS // 2  # half as many tokens, of two heads each
    kept = slice(0, first - reach)
    assert_close(o[:, kept], clean[:, kept], dtype)  # computed again, which rounds elsewhere


@pytest.mark.parametrize("descriptors", [False, True])
@pytest.mark.parametrize("branch", ["window", "compressed", "selected"])
def test_the_next_sequence_of_a_pack_reaches_no_further(
    branch: str, descriptors: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if descriptors:
        by_descriptor(monkeypatch)
    lengths = (TOKENS // 2 - 3, TOKENS // 2 + 3)
    problem = Problem(CONFIG, lengths=lengths, dtype=DTYPES[0], device=DEVICE, **{**SIZES, "batch": 1})
    v = problem.tensors()["v_win"]
    v[:, lengths[0] :] = float("nan")
    assert _reach(_branches(problem)[branch](v), 0, lengths[0]) < ROWS // 2


def test_a_value_that_is_read_is_seen_by_all_who_read_it() -> None:
    """What keeps the future out keeps nothing else out."""
    problem = Problem(CONFIG, tokens=TOKENS, dtype=DTYPES[-1], device=DEVICE, **SIZES)
    x = problem.tensors()
    blocks = problem.oracle_blocks(x)
    first = TOKENS - 31
    x["v_win"][:, first] = float("nan")
    o = problem.attention(nsa_attention, block_indices=blocks, backend="triton")(**x)
    assert not o[:, first : first + CONFIG.w].isfinite().any()
    assert o[:, : max(0, first - ROWS // 2)].isfinite().all()


def test_one_token_s_program_reads_nothing_after_it() -> None:
    """Query by query, where a tile is one token, nothing is reached at all."""
    problem = replace(Problem(CONFIG, tokens=TOKENS, dtype=torch.float32, device=DEVICE), group_size=33, dk=16, dv=16)
    v = problem.tensors()["v_sel"]
    v[:, TOKENS - 31 :] = float("nan")
    assert _reach(_branches(problem)["selected"](v), 0, TOKENS - 31) == 0
