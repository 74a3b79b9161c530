"""Which machine a pod is: recorded, and said when it is another one; and runs of different pods side by side."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from orchestrator.config.inventory import Pod
from orchestrator.store import machines
from orchestrator.store.run_directory import find
from tests.support.nvidia_smi import SAMPLE, Smi
from tests.support.project import Project, local_pod

RUNBOOK = """\
name: r
environment: {python: system}
stages:
  - name: bench
    when: [cuda]
    exclusive: gpu
    run: [python, -c, "import time; time.sleep(0.3); print(1)"]
    expect: {device: any, artifacts: [{path: out.txt, from: stdout}]}
"""
FACTS = {
    "hostname": "a", "boot_id": "b1", "driver": "550.90.07", "host_key": "SHA256:x",
    "gpus": [{"name": "NVIDIA H200", "uuid": "GPU-0"}], "cpus": 8,
}  # fmt: skip
P = Pod(name="p", host="h")


def test_changes_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NSA_POD_HOME", str(tmp_path))
    assert machines.changes(P, FACTS) == []
    machines.remember(P, "run-1", FACTS)
    assert machines.changes(P, {**FACTS, "cpus": 4}) == [] and machines.last_run(P) == "run-1"
    assert machines.changes(Pod(name="another", host="h"), {**FACTS, "hostname": "z"}) == []
    other = {**FACTS, "gpus": [{"name": "NVIDIA H200", "uuid": "GPU-7\x1b[2J"}], "driver": "570.1", "boot_id": "b2"}
    assert machines.changes(P, other) == [
        "GPU NVIDIA H200 GPU-0 -> NVIDIA H200 GPU-7", "driver 550.90.07 -> 570.1", "the machine was started again",
    ]  # fmt: skip
    assert machines.changes(P, {**FACTS, "gpus": [], "driver": None}) == [
        "GPU NVIDIA H200 GPU-0 -> none", "driver 550.90.07 -> none",
    ]  # fmt: skip
    (tmp_path / "machines" / "p.json").write_text("{damaged")
    assert machines.changes(P, FACTS) == []


def test_a_record_of_an_older_store_holds_until_each_pod_of_its_name_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NSA_POD_HOME", str(tmp_path))
    machines.remember(P, "run-1", FACTS)
    one, other = (Pod(name="p", host="h", inventory=f"/{n}/pods.yaml") for n in (1, 2))
    assert machines.last_run(one) == machines.last_run(other) == "run-1"
    machines.remember(one, "run-2", {**FACTS, "hostname": "z"})
    assert (machines.last_run(one), machines.last_run(other)) == ("run-2", "run-1")
    assert machines.changes(other, FACTS) == [] and machines.changes(one, FACTS) == ["host name z -> a"]


@pytest.mark.slow
def test_another_gpu_is_said_in_the_terminal_and_in_the_report(project: Project, tmp_path: Path) -> None:
    """By the real pipeline, over an nvidia-smi that is a script; its telemetry is in the report too."""
    project.commit({"runbooks/r.yaml": RUNBOOK})
    smi = Smi(tmp_path / "smi")
    smi.show(samples=SAMPLE.format(0, 1755, 60, 650.0, 99, 4))
    path = f"{smi.folder}:{os.environ['PATH']}"
    first = project.validate("--runbook", "r", PATH=path)
    assert first.exit_code == 0, first.stderr
    assert "is not as at its last run" not in first.stderr
    report = (project.root / first.json["path"] / "report.md").read_text()
    assert "- Machine: GPU GPU-0, boot " in report and "Since the last run" not in report
    assert "SM clock median 1755 MHz" in report and "throttled in" in report and "power cap" in report

    gpus = smi.folder / "gpus"
    gpus.write_text(gpus.read_text().replace("GPU-0", "GPU-1").replace("550.90.07", "570.10"))
    second = project.validate("--runbook", "r", PATH=path)
    said = "GPU NVIDIA H200 GPU-0 -> NVIDIA H200 GPU-1; driver 550.90.07 -> 570.10"
    assert f"pod 'local' is not as at its last run, {first.json['run_id']}: {said}" in " ".join(second.stderr.split())
    directory = project.root / second.json["path"]
    assert (
        f"- Since the last run there: {said.replace('>', chr(92) + '>')} (run {first.json['run_id']})"
        in (directory / "report.md").read_text()
    )
    recorded = json.loads((directory / "environment.json").read_text())
    assert (recorded["gpus"][0]["uuid"], recorded["driver"]) == ("GPU-1", "570.10") and recorded["boot_id"]
    started = next(json.loads(x) for x in (directory / "journal.jsonl").read_text().splitlines() if "run_started" in x)
    assert started["gpus"][0]["uuid"] == "GPU-1" and started["boot_id"] == recorded["boot_id"]


@pytest.mark.slow
def test_runs_of_two_pods_stay_apart(project: Project, tmp_path: Path) -> None:
    """The same commit and runbook on two pods: each fetches its own; `latest` is the newest, not the last fetched."""
    project.commit({"runbooks/r.yaml": RUNBOOK.replace("    when: [cuda]\n", "")})
    pods = {"a": local_pod(tmp_path / "a"), "b": local_pod(tmp_path / "b")}
    project.inventory.write_text(json.dumps({"pods": pods}))
    first = project.validate("--runbook", "r", pod="a").json
    second = project.validate("--runbook", "r", pod="b").json
    assert (first["pod"], second["pod"]) == ("a", "b") and first["path"] != second["path"]
    latest = project.root / "artifacts" / "runner" / "latest"
    assert latest.resolve() == (project.root / second["path"]).resolve()
    assert project.here("fetch", "--pod", "a", "--json").json == first
    assert latest.resolve() == (project.root / second["path"]).resolve()
    assert (latest.parent / first["commit"] / "latest").resolve() == latest.resolve()
    assert find(project.root / "artifacts", project.root, None).path == latest.resolve()
    stranger = project.here("fetch", "--pod", "a", "--json", second["run_id"])
    assert stranger.exit_code == 4 and "knows 0 runs" in stranger.json["error"]
