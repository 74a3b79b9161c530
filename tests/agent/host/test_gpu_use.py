"""A bench has the GPU to itself, or does not run; what the GPU did meanwhile. nvidia-smi is a script on the pod."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent import probe
from orchestrator.agent.host import gpu_use
from orchestrator.results.notes import of_record
from orchestrator.shared import telemetry
from tests.support import proc
from tests.support.agent_pod import Pod, Run, said, script
from tests.support.nvidia_smi import SAMPLE, Smi

WRITE = "import os, pathlib, time; smi = pathlib.Path(os.environ['SMI']); "


@pytest.fixture
def smi(tmp_path: Path, pod: Pod, monkeypatch: pytest.MonkeyPatch) -> Smi:
    found = Smi(tmp_path / "smi")
    pod.env["PATH"] = f"{found.folder}:{os.environ['PATH']}"
    monkeypatch.setenv("PATH", pod.env["PATH"])
    monkeypatch.setattr(gpu_use, "_PAUSE_S", 0.01)
    return found


def bench(pod: Pod, code: str, **over: Any) -> Run:
    """A run of one stage that wants the GPU for itself."""
    env = {"SMI": str(pod.workdir.parent / "smi"), **over.pop("env", {})}
    stage = said("bench", script(WRITE + code), exclusive="gpu", env=env, **over)
    return pod.run({}, stage, promises={"cuda": True})


def test_an_idle_gpu_is_used(pod: Pod, smi: Smi) -> None:
    run = bench(pod, "print(1)")
    assert run.only().status == "passed" and run.records["bench"]["gpu"] == {"unknown": None, "disturbed": None}


@pytest.mark.parametrize(
    ("shown", "reason"),
    [
        ({"apps": "GPU-0, 4242, 20480, /usr/bin/python3\n"}, "pid 4242 (python3) holds 20480 MiB on GPU 0"),
        (
            {"apps": "GPU-0, 4242, [N/A], [Not Found]\n"},
            "pid 4242 ([Not Found]) holds memory that is not told on GPU 0",
        ),
        ({"memory": 20480, "load": 97}, "20480 MiB of GPU 0 are taken and it is 97 % busy, by a process that is not"),
        ({"load": 40}, "it is 40 % busy"),
    ],
)
def test_someone_elses_use_is_seen(smi: Smi, shown: Any, reason: str) -> None:
    smi.show(**shown)
    assert reason in (gpu_use.use_by_others({}).by or "")


@pytest.mark.parametrize(
    ("shown", "by", "unknown"),
    [
        ({"memory": 300}, None, None),
        ({"memory": 1024, "load": 10}, None, None),
        ({"memory": 1025}, "1025 MiB of GPU 0 are taken", None),
        ({"load": 11}, "it is 11 % busy", None),
        ({"apps": "GPU-0, 4242, 512, /usr/bin/python3\n"}, "pid 4242 (python3) holds 512 MiB on GPU 0", None),
        ({"memory": "[N/A]", "load": "[N/A]"}, None, "does not tell how much memory of GPU 0 is taken"),
        ({"memory": "[N/A]", "load": 50}, "it is 50 % busy", None),
    ],
)
def test_the_probe_tells_by_the_same_rule(smi: Smi, shown: Any, by: str | None, unknown: str | None) -> None:
    smi.show(cards=2, **shown)
    facts = probe.probe(str(smi.folder))
    for use in (facts["gpu_use"][0], gpu_use.use_by_others({})._asdict()):
        assert by in use["by"] if by else use["by"] is None
        assert unknown in use["unknown"] if unknown else use["unknown"] is None
    assert facts["gpu_use"][1] == {"by": None, "unknown": None} and len(facts["gpu_use"]) == 2


def test_a_gpu_that_someone_else_uses_blocks_the_stage(pod: Pod, smi: Smi) -> None:
    smi.show(apps="GPU-0, 4242, 20480, /usr/bin/python3\n")
    run = bench(pod, "print(1)")
    reason = "the GPU is used by someone else: pid 4242 (python3) holds 20480 MiB on GPU 0"
    assert (run.only().status, run.only().reason) == ("blocked", reason)
    assert not (run.path / "stages" / "bench").exists()


def test_what_a_stage_before_used_takes_a_moment_to_be_given_back(smi: Smi, monkeypatch: pytest.MonkeyPatch) -> None:
    smi.show(memory=9000, load=80)
    monkeypatch.setattr(time, "sleep", lambda _: smi.show())
    assert gpu_use.use_by_others({}) == gpu_use.Use()


def test_only_the_gpus_that_the_stage_sees_count(smi: Smi) -> None:
    smi.show(memory=20480, cards=2)
    assert gpu_use.use_by_others({"CUDA_VISIBLE_DEVICES": "1"}).by is None
    assert gpu_use.use_by_others({"CUDA_VISIBLE_DEVICES": "GPU-1"}).by is None
    for visible in ("0", "0,1", "GPU-0", "MIG-x", "all"):
        assert gpu_use.use_by_others({"CUDA_VISIBLE_DEVICES": visible}).by


def test_a_stage_that_is_no_bench_does_not_ask(pod: Pod, smi: Smi) -> None:
    smi.show(memory=20480, load=97)
    assert pod.run({}, said("s", script("print(1)")), promises={"cuda": True}).only().status == "passed"
    assert bench_without_gpu(pod).only().status == "passed"


def bench_without_gpu(pod: Pod) -> Run:
    return pod.run({}, said("bench", script("print(2)"), exclusive="gpu"))


def test_that_nobody_could_look_is_said(pod: Pod, smi: Smi) -> None:
    (smi.folder / "nvidia-smi").write_text("#!/bin/sh\nexit 9\n")
    run = bench(pod, "print(1)")
    assert run.only().status == "passed" and run.records["bench"]["gpu"]["unknown"] == "nvidia-smi does not answer"
    assert "could not be checked: nvidia-smi does not answer" in notes(run)
    (smi.folder / "nvidia-smi").unlink()
    assert gpu_use.use_by_others({}).unknown == "there is no nvidia-smi"


def test_the_processes_of_the_stage_itself_do_not_count(pod: Pod, smi: Smi) -> None:
    """While it runs it is listed; it ends, and so does what it leaves behind, which is named with its memory."""
    run = bench(
        pod,
        "import subprocess, sys; "
        "left = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], stdout=subprocess.DEVNULL); "
        "(smi / 'apps').write_text(f'GPU-0, {left.pid}, 512, python\\n'); print(1)",
    )
    (left,) = run.records["bench"]["leftovers"]
    assert left["gpu_mib"] == 512
    assert "processes that outlived it were ended: (with 512 MiB of a GPU) " in notes(run)
    assert not proc.is_alive(left["pid"])


def test_who_came_during_a_bench_makes_it_invalid(pod: Pod, smi: Smi) -> None:
    run = bench(pod, "(smi / 'apps').write_text('GPU-0, 4242, 20480, train\\n'); print(1)")
    assert run.only().status == "invalid"
    assert "someone else used the GPU while it ran, or just after: pid 4242 (train)" in run.only().reason


def test_clocks_and_throttling_are_summed_up(pod: Pod, smi: Smi) -> None:
    rows = [
        (0, 345, 30, 77.5, 0, 1),
        (0, 1980, 60, 650.0, 99, 0),
        (0, 1200, 82, 700.25, 100, 0x24),
        (0, 1755, 70, 600, 90, 4),
    ]
    smi.show(samples="".join(SAMPLE.format(*row) for row in rows) + "garbage\n2026, 0, [N/A], 1\n")
    run = bench(pod, "time.sleep(0.5); print(1)")
    assert run.only().status == "passed"
    text = run.text("stages/bench/telemetry.csv")
    assert "stages/bench/telemetry.csv" in {file["path"] for file in run.records["bench"]["files"]}
    seen = len([line for line in text.splitlines() if ", 0, 1980, " in line])
    (sentence,) = telemetry.summaries(telemetry.read(run.path / "stages/bench/telemetry.csv"))
    assert sentence.startswith(
        "GPU 0 at work: SM clock median 1755 MHz, lowest 1200, highest 1980; at most 82 degrees and 700 W"
    )
    assert seen > 2 and "throttled in " in sentence and sentence.endswith("samples (power cap, heat, by software)")
    assert samplers(smi) == []


def test_telemetry_is_bounded_and_its_sampler_dies_with_the_agent(pod: Pod, smi: Smi) -> None:
    """A flood of samples ends at the file's limit; an agent that is killed leaves no sampler behind."""
    smi.show(samples=SAMPLE.format(0, 1980, 60, 650.0, 99, 0) * 20000)
    stage = said("bench", script("import time; print(1, flush=True); time.sleep(60)"), exclusive="gpu")
    run = pod.launch({}, [stage], promises={"cuda": True})
    run.wait_for("output", stage="bench")
    file = run.path / "stages" / "bench" / "telemetry.csv"
    end = time.monotonic() + 20
    while file.stat().st_size < 4 << 20 and time.monotonic() < end:
        time.sleep(0.05)
    time.sleep(0.2)
    assert file.stat().st_size == 4 << 20
    smi.show(samples=SAMPLE.format(0, 1980, 60, 650.0, 99, 0))
    os.kill(next(e["pid"] for e in run.events if e["event"] == "run_started"), 9)
    end = time.monotonic() + 20
    while samplers(smi) and time.monotonic() < end:
        time.sleep(0.05)
    assert samplers(smi) == []


def samplers(smi: Smi) -> list[int]:
    """Pids of the fake nvidia-smi that go on sampling."""
    return proc.saying(str(smi.folder), "-lms")


def notes(run: Run) -> str:
    """What the laptop notes of the run's one stage."""
    return "\n".join(of_record(run.records["bench"]))
