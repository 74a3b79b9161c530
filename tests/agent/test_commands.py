"""The commands that the laptop calls, and the zipapp that they come in."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from orchestrator.agent.host import gpu
from orchestrator.plan.plan import to_json
from orchestrator.pod import bundle
from orchestrator.shared import plan as plans
from tests.support.agent_pod import Pod, said
from tests.support.run_files import make_run


def test_the_zipapp_is_deterministic() -> None:
    data, digest = bundle.build()
    assert bundle.build() == (data, digest) and len(digest) == 64
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_usage(pod: Pod) -> None:
    done = pod.call("no-such-command", check=False)
    assert done.returncode == 2 and b"usage" in done.stderr and not done.stdout


@pytest.mark.parametrize("command", ["launch", "status", "cancel", "tail", "send"])
def test_a_directory_that_is_not_there(pod: Pod, command: str) -> None:
    done = pod.call(command, "/nowhere/run", check=False)
    assert done.returncode == 1 and "/nowhere/run" in json.loads(done.stdout)["error"]


def test_tail_waits_for_more_and_gives_up(pod: Pod) -> None:
    run = pod.run({}, said("s", ["echo", "1"]))
    whole = (run.path / "journal.jsonl").read_bytes()
    assert pod.call("tail", str(run.path)).stdout == whole
    assert pod.call("tail", str(run.path), "--offset", "10", "--limit", "7").stdout == whole[10:17]
    start = time.monotonic()
    assert pod.call("tail", str(run.path), "--offset", str(len(whole)), "--wait", "0.4").stdout == b""
    assert time.monotonic() - start >= 0.4


def test_tail_returns_as_soon_as_there_is_more(pod: Pod) -> None:
    run = pod.prepare({}, [said("s", ["echo", "1"])])
    argv = [sys.executable, str(pod.agent), "tail", str(run.path), "--wait", "30"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as waiting:
        time.sleep(0.3)
        pod.ask("launch", str(run.path))
        assert waiting.communicate(timeout=10)[0].startswith(b'{"seq":0')
    run.wait()


def test_send(pod: Pod) -> None:
    run = pod.run({}, said("s", ["echo", "hello"]))
    os.symlink("/etc/passwd", run.path / "artifacts" / "out")
    os.mkfifo(run.path / "artifacts" / "pipe")
    (run.path / "artifacts" / "empty").touch()
    names = ["stages/s/stdout", "artifacts/empty", "artifacts/out", "../../lock", "gone", "artifacts/pipe", "a\0b"]
    asked = [[name, 6, 0] for name in names] + [["artifacts/empty", 0, 0], ["artifacts/s.txt", 6, 2]]
    sent = pod.call("send", str(run.path), input=json.dumps(asked).encode()).stdout
    assert sent == (
        b"+\nhello\n-has 0 bytes now, 6 were recorded\n-is a symbolic link or below one\n"
        b"-would lie outside its directory\n-is missing\n-is not a regular file\n-would lie outside its directory\n"
        b"+\n+\nllo\n"
    )


def test_runs(pod: Pod) -> None:
    older = pod.run({}, said("s", ["echo", "1"]))
    (pod.workdir / "runs" / "rubbish").mkdir()
    (pod.workdir / "runs" / "rubbish" / "plan.json").write_text("{")
    listed = {r["run_id"]: r for r in pod.ask("runs", str(pod.workdir))["runs"]}
    assert listed[older.run_id]["state"] == "ended" and listed[older.run_id]["runbook"] == "tiny"
    assert listed["rubbish"]["state"] == "lost" and listed["rubbish"]["commit"] is None
    assert pod.ask("runs", str(pod.workdir / "nothing")) == {"runs": [], "more": 0, "holder": None}


def test_the_plans_hash_is_the_laptops(tmp_path: Path) -> None:
    _, plan = make_run(tmp_path, {"s": True})
    assert plan["run_id"].endswith("-" + plans.plan_hash(json.loads(to_json(plan)))[:8])


def test_probe(pod: Pod) -> None:
    facts = pod.ask("probe", "--workdir", "~/no/such/place")
    assert facts["workdir"] == str(Path.home() / "no/such/place") and not Path(facts["workdir"]).exists()
    assert facts["disk"]["free_bytes"] > 0 and facts["cpus"] >= 1 and facts["memory_bytes"] > 1 << 28
    assert any(p["version"] == ".".join(map(str, sys.version_info[:3])) for p in facts["pythons"])
    assert len({(os.path.realpath(p["executable"]), p["prefix"]) for p in facts["pythons"]}) == len(facts["pythons"])
    assert facts["programs"]["git"] and facts["boot_id"] and facts["holder"] is None


SMI = """#!/bin/sh
case "$*" in
*compute_cap*) [ -n "$OLD" ] && exit 2; echo "0, GPU-1, NVIDIA H200, 550.90.07, 143771, 4, 0, 9.0" ;;
*query-gpu*) echo "0, GPU-1, Tesla V100, 470.1, 16384, [N/A], 0" ;;
*) echo "| NVIDIA-SMI 550.90.07    Driver Version: 550.90.07    CUDA Version: 12.4     |" ;;
esac
"""


@pytest.mark.process
def test_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "nvidia-smi").write_text(SMI)
    (tmp_path / "nvidia-smi").chmod(0o755)
    (card,) = gpu.list_gpus()
    assert (card["name"], card["driver"], card["compute_cap"], card["memory_total_mib"]) == (
        "NVIDIA H200", "550.90.07", "9.0", 143771,
    )  # fmt: skip
    assert gpu.driver_cuda() == "12.4"
    monkeypatch.setenv("OLD", "1")
    (old,) = gpu.list_gpus()
    assert old["compute_cap"] is None and old["memory_used_mib"] is None and old["uuid"] == "GPU-1"


@pytest.mark.process
@pytest.mark.parametrize(
    ("body", "says"),
    [
        (
            "echo 'NVIDIA-SMI has failed because of the driver.'; echo more; exit 9",
            "NVIDIA-SMI has failed because of the",
        ),
        ("echo 'No devices were found'; exit 6", "No devices were found"),
        ("exit 1", "it says nothing"),
        ("printf '\\377\\000\\n'", "\ufffd"),
        ("exec sleep 60", "it does not answer within 0 s"),
    ],
)
def test_an_nvidia_smi_that_lists_no_gpu_is_heard(
    body: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "TIMEOUT_S", 0.3)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpu.complaint() is None
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{body}\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    assert says in str(gpu.complaint())
