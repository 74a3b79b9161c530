"""The search for launch configurations, with a clock that the test sets."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from nsa.bench.__main__ import main as bench
from nsa.bench.autotune import Job, climb, jobs, neighbours, stopwatch
from nsa.bench.timing import Timing
from nsa.kernels.tuning import lookup
from nsa.kernels.tuning.lookup import Tile

START = Tile(64, 64, 4, 2)
BEST = Tile(128, 32, 8, 3)


def _steps_from_best(tile: Tile) -> float:
    pairs = zip((tile.BM, tile.BN, tile.num_warps, 2**tile.num_stages), (128, 32, 8, 8), strict=True)
    return sum(abs(math.log2(one / other)) for one, other in pairs)


def test_it_climbs_to_the_best_tile() -> None:
    timed: list[Tile] = []

    def milliseconds(tile: Tile) -> float:
        timed.append(tile)
        return 1.0 + _steps_from_best(tile)

    found = climb(START, milliseconds)
    assert (found.tile, found.ms, found.before) == (BEST, 1.0, 5.0)
    assert len(timed) == len(set(timed)) == found.timed


def test_it_keeps_the_tile_where_the_gain_is_noise_and_avoids_what_cannot_be_used() -> None:
    assert climb(START, lambda tile: 1.0 if tile == START else 0.99).tile == START
    wide = climb(START, lambda tile: None if tile.num_warps > 4 else 1.0 + _steps_from_best(tile)).tile
    assert wide == Tile(128, 32, 4, 3)
    with pytest.raises(ValueError, match="own tile cannot be timed"):
        climb(START, lambda tile: None)


def test_it_stops_in_time() -> None:
    assert climb(START, lambda tile: 1.0 + _steps_from_best(tile), until=0.0).timed == 1


def test_neighbours_stay_within_what_kernels_take() -> None:
    for tile in (START, Tile(16, 16, 1, 1), Tile(256, 256, 8, 5)):
        for other in neighbours(tile):
            assert 16 <= other.BM <= 512 and 16 <= other.BN <= 256 and other.num_warps <= 8 and other.num_stages <= 5


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (lambda x: x * 1.001, 3.0),
        (lambda x: x * 1.1, None),
        (lambda x: x * torch.nan, None),
        (lambda x: (_ for _ in ()).throw(RuntimeError("PassManager::run failed")), None),
    ],
    ids=["the same", "another result", "NaN", "does not compile"],
)
def test_only_tiles_with_the_right_result_are_timed(result: Callable[[Tensor], Tensor], expected: float | None) -> None:
    x = torch.randn(5)
    job = Job("window forward", "window_forward", "128", 16, lambda: (result(x),))
    assert stopwatch(job, (x,), lambda call: Timing(wall=(9.0, 3.0, 2.0)))(START) == expected


def test_each_kernel_is_tuned_once_by_a_part_that_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    q, v = torch.empty(1, 1, 8, 128, device="meta"), torch.empty(1, 1, 2, 128, device="meta")

    def asking(*kernels: str) -> Callable[[], tuple[Tensor, ...]]:
        return lambda: tuple(torch.empty(lookup.config_for(kernel, q, v).BM) for kernel in kernels)

    calls = {
        "window forward": asking("window_forward"),
        "window backward": asking("window_backward_q", "window_forward"),
        "select": asking("select"),
    }
    token = lookup.COMPILING_FOR.set("sm_90")
    try:
        found = [(job.part, job.kernel, job.own_key) for job in jobs(calls, ["window"])]
    finally:
        lookup.COMPILING_FOR.reset(token)
    assert found == [("window forward", "window_forward", "fp32/4"), ("window backward", "window_backward_q", "fp32/4")]


@pytest.mark.parametrize("architecture", ["sm_89", pytest.param("sm_90", marks=pytest.mark.slow)])
def test_a_dry_run_names_every_kernel_of_the_architecture(architecture: str) -> None:
    """Launches that neither compile nor run need a process without the interpreter."""
    command = [sys.executable, "-m", "nsa.bench", "autotune", "--dry-run", "--architecture", architecture]
    done = subprocess.run(
        [*command, "--shapes", "16/2/128/128"], env={**os.environ, "TRITON_INTERPRET": "0"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    listed = {line.split()[2] for line in done.stdout.splitlines()}
    tma = {name for name in lookup.table() if name.endswith("_tma")}
    replaced = {name.removesuffix("_tma") for name in tma}
    assert listed == set(lookup.table()) - (replaced if architecture == "sm_90" else tma)
    kernel = "window_forward_tma" if architecture == "sm_90" else "window_forward"
    tile = lookup.tile_of(kernel, architecture, 128, 128, 8, torch.bfloat16)
    now = f"{tile.BM}x{tile.BN}w{tile.num_warps}s{tile.num_stages}"
    assert f"{kernel} [{architecture}, 128/8] by window forward: {now}, then " in done.stdout


_AHEAD = """
from nsa.bench.autotune import CompiledAhead, Compilation, Tile
from nsa.bench.cases import case_of

if __name__ == "__main__":
    of = case_of("4/1/64/64", 1024, "random"), "bf16", "sm_89", "window forward"
    with CompiledAhead(1) as ahead:
        ahead.expect([Compilation(*of, "window_forward", tile) for tile in (Tile(64, 32, 4, 2), Tile(64, 33, 4, 2))])
        print(*(ahead.compiled(one) for one in list(ahead._compiled)))
"""


@pytest.mark.slow
def test_other_processes_leave_tiles_in_the_cache_and_pass_by_what_does_not_compile(tmp_path: Path) -> None:
    (tmp_path / "ahead.py").write_text(_AHEAD)
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, tmp_path / "ahead.py"], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True", "True"]
    compiled = [json.loads(path.read_text()) for path in tmp_path.glob("cache/*/_forward.json")]
    assert [(one["num_warps"], one["num_stages"]) for one in compiled] == [(4, 2)]


def test_it_says_what_it_needs(capsys: pytest.CaptureFixture[str]) -> None:
    if not torch.cuda.is_available():
        assert bench(["autotune"]) == 2
        assert "there is none" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        bench(["autotune", "--parts", "windows"])
    assert "--parts: windows: expected some of window" in capsys.readouterr().err
