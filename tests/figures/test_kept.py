"""Two runs that are kept: what differs is listed, and what forbids a comparison is told from what does not."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from orchestrator.figures import Clocks, Context, Figure, Figures, Identity
from orchestrator.figures.kept import differing

NAME = Identity("bench", "a.csv", (("S", "1"),), "ms")
CONTEXT = Context(
    run_id="r",
    pod="pi",
    commit="c" * 40,
    harness="c" * 40,
    dirty=False,
    runbook="nightly",
    hostname="box",
    boot_id="1",
    gpus=("H200",),
    gpu_ids=("GPU-1",),
    cpu="EPYC",
    driver="570",
    python="3.12",
    torch_cuda="12.8",
    packages={"torch": "2.8", "numpy": "2.0"},
    clocks={"bench": Clocks(1980, 1900, 1980, 0, 0)},
    statuses={"bench": "passed"},
)


def figures(ms: float, **over: Any) -> Figures:
    return Figures(dataclasses.replace(CONTEXT, **over), [Figure(NAME, "ms", "lower", (ms,))])


@pytest.mark.parametrize(
    ("over", "clause"),
    [
        ({"pod": "other"}, "pod: pi and other"),
        ({"gpu_ids": ("GPU-2",)}, "GPU id: GPU-1 and GPU-2"),
        ({"driver": None}, "driver: 570 and none"),
        ({"packages": {"torch": "2.9", "numpy": "2.0"}}, "torch: 2.8 and 2.9"),
        ({"packages": {"torch": "2.8"}}, "numpy: 2.0 and none"),
        ({"clocks": {"bench": Clocks(1755, 1700, 1800, 0, 0)}}, "clocks in bench: 1980 and 1755 MHz"),
    ],
)
def test_another_pod_environment_or_clock_forbids_it(over: dict[str, Any], clause: str) -> None:
    found = differing(figures(1.0), figures(2.0, **over))
    assert found.why_not == [clause] == found.differences


def test_another_commit_or_session_is_told_and_forbids_nothing() -> None:
    found = differing(figures(1.0), figures(1.5, harness="d" * 40, boot_id="2"))
    assert found.why_not == [] and [clause.split(":")[0] for clause in found.differences] == ["boot", "bench files"]
    assert found.rows[0].ratio == 1.5
    near = Clocks(1950, 1900, 1980, 0, 0)
    assert differing(figures(1.0), figures(1.0, clocks={"bench": near})).differences == []


def test_what_did_not_pass_is_not_shown() -> None:
    found = differing(figures(1.0), figures(1.0, statuses={"bench": "failed"}))
    assert found.rows[0].b is None and found.rows[0].ratio is None
