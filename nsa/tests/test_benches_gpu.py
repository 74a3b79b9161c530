"""The benches of nsa-validate run on a GPU, a few calls each: by the runbook's arguments, so that their shapes are
compiled here, in several processes, and not while one process is timed.
"""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from nsa.bench.__main__ import main
from nsa.tests.testing import need_cuda

yaml = pytest.importorskip("yaml")
pytestmark = pytest.mark.cuda

RUNBOOK = yaml.safe_load((Path(__file__).parents[2] / "runbooks/nsa-validate.yaml").read_text())


@pytest.fixture(autouse=True)
def gpu() -> None:
    need_cuda(None, "")


def run(stage: str, **changed: object) -> int:
    """The exit code of a stage's `python -m nsa.bench`, with some options changed."""
    [words] = [found["run"] for found in RUNBOOK["stages"] if found["name"] == stage]
    assert words[:3] == ["python", "-m", "nsa.bench"]
    options = dict(zip(words[4::2], words[5::2], strict=True))
    assert {f"--{name}" for name in changed} <= options.keys()
    options.update((f"--{name}", str(value)) for name, value in changed.items())
    return main([words[3], *(word for option in options.items() for word in option)])


@pytest.mark.parametrize("length", [512, 1024, 2048, 4096])
def test_decode(length: int, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    assert run("decode_bench", S_list=length, iters=1, warmup=1, csv=path) == 0
    [row] = csv.DictReader(path.open())
    assert row["S"] == str(length) and row["reads_actual"] == row["reads_expected"]
    assert row["route"].startswith("triton@cuda") and float(row["ms_total"]) > 0


def test_training() -> None:
    assert run("train_showcase", steps=4, target_loss=100) == 0
