"""The table of launch configurations: what its file may say, and which entry a launch takes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from nsa.kernels.tuning import lookup
from nsa.kernels.tuning.lookup import Tile

TILE = {"BM": 64, "BN": 64, "num_warps": 4, "num_stages": 2}
ROWS = dict.fromkeys(("64", "128", "192", "256", "fp32"), TILE)


def _read(tmp_path: Path, rows: dict[str, object]) -> lookup.Table:
    path = tmp_path / "table.json"
    path.write_text(json.dumps({"window_forward": {"sm_90": rows}}))
    return lookup.read(path)


def test_the_table_comes_back_as_it_was_written(tmp_path: Path) -> None:
    table = lookup.read()
    measured = {"ms": 1.25, "of": "window 64/4/128/128", "on": "NVIDIA H200"}
    table["select"]["sm_90"]["128/4"] = Tile(32, 16, 2, 1, maxnreg=128).entry() | measured
    lookup.write(table, tmp_path / "table.json")
    assert lookup.read(tmp_path / "table.json") == table
    assert '"128/4": {"BM": 32, "BN": 16, "num_warps": 2' in (tmp_path / "table.json").read_text()


def test_every_kernel_has_every_architecture_it_runs_on() -> None:
    for kernel, architectures in lookup.table().items():
        expected = {"sm_90"} if kernel.endswith("_tma") else set(lookup.ARCHITECTURES)
        assert set(architectures) == expected, kernel


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ({**ROWS, "128": {"BM": 64}}, "sm_90, 128: .*missing"),
        ({**ROWS, "128": {**TILE, "warps": 4}}, "sm_90, 128: unknown warps"),
        ({**ROWS, "128": {**TILE, "ms": 3.0}}, "sm_90, 128: .*missing"),
        ({**ROWS, "96": TILE}, "'96' is neither"),
        ({**ROWS, "128/x": TILE}, "'128/x' is neither"),
        ({"64": TILE}, "no entry for 128"),
    ],
)
def test_a_wrong_table_is_refused_by_place(rows: dict[str, object], words: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=words):
        _read(tmp_path, rows)
    (tmp_path / "table.json").write_text("{")
    with pytest.raises(ValueError, match="not JSON"):
        lookup.read(tmp_path / "table.json")


def test_a_group_size_may_have_its_own_tile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = {**TILE, "BM": 32}
    found = _read(tmp_path, {**ROWS, "128/4": own})
    monkeypatch.setattr(lookup, "table", lambda: found)
    look = lookup.tile_of.__wrapped__
    assert look("window_forward", "sm_90", 80, 96, 4, torch.bfloat16) == Tile(**own)
    assert look("window_forward", "sm_90", 80, 96, 16, torch.bfloat16) == Tile(**TILE)
    assert look("window_forward", "sm_90", 192, 128, 4, torch.float16) == Tile(**TILE)
    with pytest.raises(ValueError, match="wider than"):
        look("window_forward", "sm_90", 320, 64, 4, torch.bfloat16)


def test_a_trial_replaces_a_tile_and_hears_what_is_asked() -> None:
    q, v = torch.empty(1, 8, 8, 128, device="meta"), torch.empty(1, 8, 2, 64, device="meta")
    q, v = q.bfloat16(), v.bfloat16()
    token = lookup.COMPILING_FOR.set("sm_89")
    try:
        usual = lookup.config_for("window_forward", q, v)
        other = replace(usual, BM=16)
        with lookup.trying({"window_forward": other}) as asked:
            assert lookup.config_for("window_forward", q, v) == other
            lookup.config_for("select", q, v)
        assert asked == {("window_forward", "128", 4), ("select", "128", 4)}
        assert lookup.config_for("window_forward", q, v) == usual
    finally:
        lookup.COMPILING_FOR.reset(token)
    assert lookup.config_for("window_forward", torch.empty(1, 2, 8, 16), torch.empty(1, 2, 2, 16)) == lookup.INTERPRETED
