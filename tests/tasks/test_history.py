"""Rows over the commits of kept runs: what changed, on which pods, what is recommended, and how long it takes."""

from __future__ import annotations

import json
import random
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.cli import main
from orchestrator.errors import InputError
from orchestrator.figures.history import Threshold, recommended, trends
from orchestrator.report.history import sparkline
from orchestrator.tasks.history import CACHE, Wish, history, measured_runs
from tests.support.many_runs import many_runs
from tests.support.page import read


def told(artifacts: Path, *arguments: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["history", "--artifacts", str(artifacts), "--repo", str(artifacts.parent), *arguments])
    output = capsys.readouterr()
    assert ended.value.code == 0, output.err
    return output.out


def slower_from(at: int, by: float, runs: int, seed: int = 1) -> Any:
    rng = random.Random(seed)
    rows = [[1 + 0.01 * rng.gauss(0, 1) for _ in range(2)] for _ in range(runs)]
    return lambda n: {(512, "a"): 2 * rows[n][0], (4096, "a"): 8 * rows[n][1] * (1 + by * (n >= at))}


def test_the_commit_that_made_a_row_slower_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    artifacts = many_runs(tmp_path, 40, slower_from(25, 0.065, 40))
    text = told(artifacts, capsys=capsys)
    assert "bench: S=4096 backend=a ms worse by 6" in text and f"at {25:07x} (2026-01-02)" in text
    assert "NVIDIA H200: 2 rows; 1 changed its level" in text
    found = json.loads(told(artifacts, "--json", capsys=capsys))
    by_row = {row["row"]["S"]: row for row in found["rows"]}
    assert not by_row["512"]["changes"] and len(by_row["512"]["points"]) == 40
    (change,) = by_row["4096"]["changes"]
    assert change["commit"] == f"{25:07x}".ljust(40, "0") and change["ratio"] == pytest.approx(1.065, abs=0.01)
    only = json.loads(told(artifacts, "s=512", "--json", capsys=capsys))["rows"]
    assert [row["row"]["S"] for row in only] == ["512"]


def test_the_page_shows_what_changed_and_each_row_as_a_chart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    artifacts = many_runs(tmp_path, 40, slower_from(25, 0.065, 40))
    page = read(told(artifacts, "--html", capsys=capsys))
    first, second = page.all("figure")
    assert "S=4096" in first.all("figcaption")[0].text and "Vertical lines: worse by 6" in first.text
    assert [g for g in first.all("g") if "mark" in g.attributes.get("class", "")] and "S=512" in second.text
    assert re.search(rf"ms at {25:07x}: 8\.\d", first.text), "a point is named by its commit"
    assert "worse by 6" in page.all("header")[0].text and not page.all("script")


def test_runs_on_another_kind_of_pod_are_another_history(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    many_runs(tmp_path, 12, lambda n: {(512, "a"): 9.0}, gpu="RTX 4090")
    artifacts = many_runs(tmp_path, 20, lambda n: {(512, "a"): 2.0 if n > 11 else 3.0})
    found = history(artifacts, tmp_path, Wish(), None)
    assert (found.device, len(found.runs), found.others) == ("NVIDIA H200", 20, {"RTX 4090": 12})
    assert [point.value.median for point in found.trends[0].points].count(9.0) == 0
    assert "not here: 12 runs on RTX 4090" in told(artifacts, capsys=capsys)
    with pytest.raises(InputError, match="there are runs on"):
        history(artifacts, tmp_path, Wish(device="A100"), None)


def test_stages_that_did_not_pass_and_damaged_runs_have_no_part_in_it(tmp_path: Path) -> None:
    artifacts = many_runs(tmp_path, 5, lambda n: {(512, "a"): 1.0}, status="failed")
    assert not measured_runs(artifacts, tmp_path)
    many_runs(tmp_path, 8, lambda n: {(512, "a"): 1.0}, gpu="B200")
    for run in (artifacts / "runner").glob("0000004*/*"):
        (run / "plan.json").write_text("[]")
        (run / "result.json").write_text("{")
    assert len(measured_runs(artifacts, tmp_path)) == 7


def test_a_run_that_is_settled_anew_is_read_anew(tmp_path: Path) -> None:
    artifacts = many_runs(tmp_path, 3, lambda n: {(512, "a"): 1.0})
    assert len(measured_runs(artifacts, tmp_path)) == 3
    (run,) = (artifacts / "runner").glob("0000001*/*")
    (run / "artifacts/bench.csv").write_text("S,backend,ms\n512,a,7.0\n")
    assert {r.values[0].median for r in measured_runs(artifacts, tmp_path)} == {1.0}, "it is remembered"
    (run / "result.json").write_text((run / "result.json").read_text() + " ")
    assert {r.values[0].median for r in measured_runs(artifacts, tmp_path)} == {1.0, 7.0}
    (artifacts / "runner" / CACHE).write_text('{"x": 1')
    assert len(measured_runs(artifacts, tmp_path)) == 3


def test_what_else_changed_at_a_step_is_said(tmp_path: Path) -> None:
    artifacts = many_runs(tmp_path, 24, lambda n: {(512, "a"): 1.0 + 0.2 * (n >= 12)})
    runs = measured_runs(artifacts, tmp_path)
    moved = [run if run.commit < f"{12:07x}" else _with_driver(run) for run in runs]
    (trend,) = trends(moved)
    (step,) = trend.steps
    assert trend.also(step) == ["driver none to 580.1"] and trend.called(step) == "worse"


def _with_driver(run: Any) -> Any:
    return replace(run, where={**run.where, "driver": "580.1"})


# --- thresholds ---

RUNBOOK = """\
name: r
stages:
  - {name: bench, run: [python, -m, bench], expect: {artifacts: [{path: bench.csv, kind: csv}]}}
thresholds:
  fa2_min_len_win: {along: S, faster: {backend: fa2, column: ms}, than: {backend: sdpa}}
  sel_triton_min_L: {stage: bench, along: S, faster: {backend: triton}, than: {backend: sdpa}}
  never: {along: S, faster: {backend: slow}, than: {backend: sdpa}}
  unknown: {along: S, faster: {backend: cuda}, than: {backend: sdpa}}
"""
LENGTHS = (512, 1024, 2048, 4096)


def backends(n: int) -> dict[tuple[int, str], float]:
    """fa2 gains from 2048 on; triton at 512 and from 4096 on; slow never. What runs differ by is a hundredth."""
    wobble = 1 + 0.01 * (n % 3 - 1)
    rows = {(s, "sdpa"): s / 512 for s in LENGTHS}
    rows |= {(s, "fa2"): s / 512 * wobble * (1.2 if s < 2048 else 0.8) for s in LENGTHS}
    rows |= {(s, "triton"): s / 512 * wobble * {512: 0.9, 1024: 1.3, 2048: 0.995, 4096: 0.7}[s] for s in LENGTHS}
    return {**rows, **{(s, "slow"): s / 512 * wobble * 3 for s in LENGTHS}}


def test_thresholds_come_from_rows_and_are_written_only_where_they_are_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    artifacts = many_runs(tmp_path, 6, backends)
    (tmp_path / "r.yaml").write_text(RUNBOOK)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    text = told(artifacts, "--runbook", "./r.yaml", capsys=capsys)
    for line in (
        "fa2_min_len_win: 2048: better at every measured S from 2048 on",
        "sel_triton_min_L: 4096: better at every measured S from 4096 on",
        "never: not better at S=4096, the longest measured, so no threshold",
        "unknown: not measured, so no threshold",
    ):
        assert line in text
    there = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.name != CACHE}
    assert there == before
    told(artifacts, "--runbook", "./r.yaml", "--write", "out.yaml", capsys=capsys)
    written = (tmp_path / "out.yaml").read_text()
    assert yaml.safe_load(written) == {"fa2_min_len_win": 2048, "sel_triton_min_L": 4096}
    assert "#   at 1024: 1.2" in written and "# unknown: not measured, so no threshold" in written
    told(artifacts, "--runbook", "./r.yaml", "--write", "out.yaml", capsys=capsys)  # its own file it writes again


def test_the_seeds_own_figures_recommend_no_length_for_fa2(tmp_path: Path) -> None:
    """Seed 004: FA-2 at 0.01 to 0.20 of SDPA's speed; its bench recommended a threshold whatever it had measured."""
    speedups = {128: 0.01, 256: 0.03, 512: 0.06, 1024: 0.13, 2048: 0.20}
    rows = {(s, "sdpa"): 1.0 for s in speedups} | {(s, "fa2"): 1 / x for s, x in speedups.items()}
    runs = measured_runs(many_runs(tmp_path, 3, lambda n: rows, gpu="RTX 4090"), tmp_path)
    found = recommended(Threshold("fa2_min_len_win", None, "S", {"backend": "fa2"}, {"backend": "sdpa"}), runs)
    assert (found.value, found.why) == (None, "not better at S=2048, the longest measured, so no threshold")
    assert [round(1 / ratio.middle, 2) for ratio in found.rows] == list(speedups.values())


def test_what_was_measured_too_seldom_recommends_nothing(tmp_path: Path) -> None:
    artifacts = many_runs(tmp_path, 2, backends)
    asked = Threshold("t", None, "S", {"backend": "fa2"}, {"backend": "sdpa"})
    found = recommended(asked, measured_runs(artifacts, tmp_path))
    assert found.value is None and "measured fewer than 3 times" in found.why and len(found.rows) == 4


@pytest.mark.parametrize(
    ("existing", "runbook", "why"),
    [
        ("a: 1\n", RUNBOOK, "was not written by nsa-pod history"),
        (None, RUNBOOK.partition("thresholds")[0], "asks for no thresholds"),
        (
            None,
            RUNBOOK.replace("backend: fa2", "backend: x").replace("backend: triton", "backend: x"),
            "nothing is rec",
        ),
    ],
)
def test_no_file_of_another_and_no_empty_recommendation_is_written(
    existing: str | None,
    runbook: str,
    why: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    artifacts = many_runs(tmp_path, 4, backends)
    (tmp_path / "r.yaml").write_text(runbook)
    out = tmp_path / "out.yaml"
    if existing:
        out.write_text(existing)
    with pytest.raises(SystemExit, match="2"):
        main(["history", "--artifacts", str(artifacts), "--runbook", str(tmp_path / "r.yaml"), "--write", str(out)])
    assert why in capsys.readouterr().err
    assert out.read_text() == existing if existing else not out.exists()


# --- the terminal, and how long it takes ---


def test_a_sparkline_shows_the_course() -> None:
    assert sparkline([1, 2, 3, 4, 5, 6, 7, 8]) == "▁▂▃▄▅▆▇█" and sparkline([2.0, 2.0]) == "▁▁"
    assert len(sparkline(list(range(1000)))) <= 32


@pytest.mark.slow
def test_a_thousand_runs_are_a_page_of_little_time_and_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    artifacts = many_runs(tmp_path, 1000, slower_from(700, 0.065, 1000))
    times = []
    for _ in range(2):
        began = time.process_time()
        page = told(artifacts, "--html", capsys=capsys)
        times.append(time.process_time() - began)
    assert times[1] < 2 and times[0] < 4, times
    assert len(page) < 2e6 and "1000 runs of 1000 commits" in page and "worse by 6" in page
