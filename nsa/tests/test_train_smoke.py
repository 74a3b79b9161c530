"""The training showcase: resumes exactly, learns, and says so or fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from nsa.bench import options, text, train
from nsa.models import LMConfig

TINY = ["--dim", "16", "--dk", "8", "--dv", "8", "--heads", "2", "--B", "2", "--length", "48", "--depth", "1"]


def plan(steps: int, **changes: object) -> train.Plan:
    model = LMConfig(dim=16, depth=1, n_heads=2, n_kv_heads=1, dk=8, dv=8, hidden=32, **changes)
    return train.Plan(model, options.Where(torch.device("cpu"), torch.float32, 0), steps, 2, 48, 5e-3, 1.0)


@pytest.mark.parametrize("attention", ["nsa", "dense"])
def test_a_checkpoint_goes_on_exactly(attention: str, tmp_path: Path) -> None:
    chosen = plan(6, attention=attention)
    whole = list(train.Run(chosen).train(6))
    first = train.Run(chosen)
    found = list(first.train(2))
    first.save(tmp_path / "run.pt")
    second = train.Run(chosen)
    second.load(tmp_path / "run.pt")
    assert second.step == 2
    assert found + list(second.train(6)) == whole


def test_a_checkpoint_of_another_schedule_is_refused(tmp_path: Path) -> None:
    train.Run(plan(6)).save(tmp_path / "run.pt")
    with pytest.raises(ValueError, match="of another model or schedule"):
        train.Run(plan(7)).load(tmp_path / "run.pt")


def test_it_learns() -> None:
    run = train.Run(plan(30))
    before = run.held_out()
    list(run.train(30))
    assert run.held_out() < before - 2.0


def test_text_is_made_from_its_seed() -> None:
    assert torch.equal(text.batch(3, 2, 100), text.batch(3, 2, 100))
    assert not torch.equal(text.batch(3, 2, 100), text.batch(4, 2, 100))
    made = bytes(text.batch(0, 1, 400)[0].tolist()).decode()
    assert " hid the " in made and "Where did " in made


def test_the_showcase_says_whether_it_was_reached(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [*TINY, "--steps", "4", "--checkpoint", str(tmp_path / "runs")]
    assert train.main([*arguments, "--target_loss", "9", "--jsonl", str(tmp_path / "log.jsonl")]) == 0
    said = capsys.readouterr().out
    assert "checkpoint written, resumed in a new model" in said and "with and without the cache: the same" in said
    last = json.loads((tmp_path / "log.jsonl").read_text().splitlines()[-1])
    assert last["nsa"] < last["target_loss"] == 9
    assert train.main([*arguments, "--target_loss", "0.1"]) == 1
    said = capsys.readouterr().out
    assert "resumed from nsa.pt" in said and "is ABOVE 0.1" in said
