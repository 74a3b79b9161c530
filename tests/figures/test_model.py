"""A run's directory -> every number once, with its context."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from orchestrator import figures
from orchestrator.shared.plan import Plan
from orchestrator.shared.telemetry import FILE
from tests.support.agent_pod import COMMIT, artifact, stage
from tests.support.files import write_files

MEASURES = {"measures": {"ms": {"unit": "ms", "better": "lower"}}}


def a_plan(*stages: dict[str, Any]) -> Plan:
    return cast(
        Plan,
        {
            "run_id": "20261123-101500-4106f1b-0a1b2c3d",
            "pod": "pi-4090",
            "commit": COMMIT,
            "dirty": False,
            "runbook": {"name": "nightly"},
            "environment": {"python_version": "3.12.1", "packages": {"torch": "2.8.0"}, "torch_cuda": "12.8"},
            "facts": {"driver": "550.163", "gpus": [{"name": "RTX 4090", "uuid": "GPU-1"}], "hostname": "box"},
            "stages": list(stages),
        },
    )


def bench(path: str, **over: Any) -> dict[str, Any]:
    return stage("bench", ["bench"], expect={"artifacts": [artifact(path, kind="csv", figures={**MEASURES, **over})]})


def test_a_figure_has_its_row_its_unit_its_samples_and_its_context(tmp_path: Path) -> None:
    write_files(tmp_path, {"artifacts/decode_4106f1b.csv": "S,ms\n512,1.5\n512,1.25\n1024,3\n"})
    found = figures.of_run(tmp_path, a_plan(bench("decode_4106f1b.csv", keys=["S"])), {"bench": "passed"})
    first, second = found.figures
    assert first.identity == figures.Identity("bench", "decode_{commit7}.csv", (("S", "512"),), "ms")
    assert (str(first.identity), first.unit, first.better) == ("bench: S=512 ms", "ms", "lower")
    assert (first.samples, first.median, second.samples) == ((1.5, 1.25), 1.375, (3.0,))
    assert found.by_identity[second.identity] is second and found.passed(first)
    assert (found.context.device, found.context.driver, found.context.commit) == ("RTX 4090", "550.163", COMMIT)
    assert found.context.packages == {"torch": "2.8.0"}


def test_what_cannot_be_read_has_no_figures_and_what_did_not_pass_says_so(tmp_path: Path) -> None:
    write_files(tmp_path, {"artifacts/a.csv": "S,ms\n512\n"})
    plan = a_plan(bench("a.csv", keys=["S"]), {**bench("b.csv"), "name": "absent"})
    assert not figures.of_run(tmp_path, plan, {}).figures
    write_files(tmp_path, {"artifacts/a.csv": "S,us\n512,1\n"})
    assert not figures.of_run(tmp_path, plan, {}).figures, "a column that is absent is for the verdict to say"
    write_files(tmp_path, {"artifacts/a.csv": "S,ms\n512,1\n"})
    found = figures.of_run(tmp_path, plan, {"bench": "failed"})
    assert [found.passed(figure) for figure in found.figures] == [False]


def test_flags_come_from_the_bench_the_samples_and_the_clocks(tmp_path: Path) -> None:
    values = "\n".join(f"{ms},host_bound" for ms in (22.5, 22.51, 22.49, 22.52, 25.5, 25.51, 25.49, 25.52))
    write_files(tmp_path, {"artifacts/a.csv": f"ms,flags\n{values}\n"})
    plan = a_plan(bench("a.csv", flags="flags"))
    found = figures.of_run(tmp_path, plan, {})
    assert found.figures[0].flags == ("host_bound", "noisy", "bimodal")
    assert not found.context.clocks
    moment = "2026/11/23 10:15:00.000, 0, {clock}, 9501, 60, 300.00, {busy}, 1000, 0x{reasons:016x}\n"
    told = [(2520, 90, 0), (2500, 90, 4), (1200, 90, 0x40), (210, 0, 1)]
    write_files(
        tmp_path, {f"stages/bench/{FILE}": "".join(moment.format(clock=c, busy=b, reasons=r) for c, b, r in told)}
    )
    found = figures.of_run(tmp_path, plan, {})
    clocks = found.context.clocks["bench"]
    assert (clocks.median, clocks.lowest, clocks.highest) == (2500, 1200, 2520)
    assert round(clocks.throttled, 2) == round(clocks.capped, 2) == 0.33
    assert "throttled" in found.figures[0].flags
