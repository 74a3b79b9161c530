"""The training bench: learns, and says so or fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from nsa.bench import text, train
from nsa.bench.cases import Where
from nsa.models import ByteLM, LMConfig

TINY = ["--dim", "16", "--dk", "8", "--dv", "8", "--heads", "2", "--B", "2", "--length", "48", "--depth", "1"]


def test_it_learns() -> None:
    model = LMConfig(dim=16, depth=1, n_heads=2, n_kv_heads=1, dk=8, dv=8, hidden=32)
    run = train.Run(model, Where(torch.device("cpu"), torch.float32, 0), 30, 2, 48, 5e-3)
    before = run.held_out()
    list(run.train(30))
    assert run.held_out() < before - 2.0


def test_text_is_made_from_its_seed() -> None:
    assert torch.equal(text.batch(3, 2, 100), text.batch(3, 2, 100))
    assert not torch.equal(text.batch(3, 2, 100), text.batch(4, 2, 100))
    made = bytes(text.batch(0, 1, 400)[0].tolist()).decode()
    assert " hid the " in made and "Where did " in made


def test_it_says_whether_the_target_was_reached(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "log.jsonl"
    assert train.main([*TINY, "--steps", "4", "--target_loss", "9", "--jsonl", str(path)]) == 0
    assert "with and without the cache: the same" in capsys.readouterr().out
    sparse, dense = map(json.loads, path.read_text().splitlines())
    assert sparse["held_out"] < sparse["target_loss"] == 9 and sparse["same_text"] and dense["held_out"] < 9
    assert train.main([*TINY, "--steps", "4", "--target_loss", "0.1"]) == 1
    assert ", ABOVE 0.1" in capsys.readouterr().out


def test_another_text_with_the_cache_is_no_success(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(train, "generate", lambda *_, use_cache: torch.full((2, 4), 65 + use_cache))
    assert train.main([*TINY, "--steps", "2", "--target_loss", "9", "--attention", "nsa"]) == 1
    assert "with and without the cache: DIFFERENT" in capsys.readouterr().out


# --- long sequences ---

LONG = [*"--preset 100m --dim 16 --depth 1 --hidden 32 --heads 2 --dk 8 --dv 8 --device cpu".split()]
SIZES = "--l 8 --d 4 --l_sel 8 --n_sel 4 --w 16".split()


def test_a_preset_is_about_as_large_as_its_name() -> None:
    sparse, dense = train._models(train._parse(["--preset", "100m", "--device", "cpu", "--S_list", "8192"]))
    with torch.device("meta"):
        sizes = [sum(p.numel() for p in ByteLM(model).parameters()) for model in (sparse, dense)]
    assert sizes[0] == pytest.approx(1e8, rel=0.05) and sizes[1] == pytest.approx(sizes[0], rel=0.05)
    assert sparse.n_heads // sparse.n_kv_heads == 16 and sparse.phi == "mean"


@pytest.mark.parametrize("more", [[], ["--dtype", "bf16"]])
def test_long_sequences_leave_a_line_for_each_run(
    more: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "long.jsonl"
    arguments = [*LONG, *SIZES, *more, "--S_list", "24,40", "--steps", "12", "--rate", "0.02", "--jsonl", str(path)]
    assert train.main(arguments) == 0
    found = [json.loads(text) for text in path.read_text().splitlines()]
    assert [(one["attention"], one["length"]) for one in found] == [
        (attention, length) for length in (24, 40) for attention in ("nsa", "dense")
    ]
    for one in found:
        assert one["steps"] == 12 and one["loss"] < one["loss_first"] and one["tokens_per_s"] > 0
        assert one["routes"]["rotate"] == ["torch@cpu"] and ("selected" in one["routes"]) == (one["attention"] == "nsa")
        assert "held_out" not in one, "there is no target"
    assert capsys.readouterr().out.count("12 steps, loss") == 4


def test_a_long_run_ends_in_time_and_one_that_fails_is_a_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    arguments = [*LONG, *SIZES, "--S_list", "24", "--steps", "500", "--jsonl", str(path), "--attention"]
    assert train.main([*arguments, "dense", "--seconds", "0"]) == 0
    assert json.loads(path.read_text())["steps"] == train.WARMUP + 1
    monkeypatch.setattr(train.Run, "loss", lambda run, seed: torch.empty(1 << 62))
    assert train.main([*arguments, "nsa"]) == 1
    assert "RuntimeError" in json.loads(path.read_text())["failed"]
