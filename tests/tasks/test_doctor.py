"""What the doctor finds, over each transport, and what it makes of the facts."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.config.inventory import Pod
from orchestrator.errors import PodError
from orchestrator.pod.facts import PodFacts
from orchestrator.pod.session import PodSession
from orchestrator.tasks.doctor import Finding, doctor, from_facts
from orchestrator.transports.base import Transport
from orchestrator.transports.ssh.transport import SshTransport
from orchestrator.ui import Progress
from tests.support.machines import facts_with
from tests.support.sshd import Sshd


def test_a_driver_that_does_not_answer_is_no_pod_without_a_gpu() -> None:
    pod = Pod(name="x", transport="local")
    checks = {check.name: check for check in from_facts(pod, facts_with(gpu_complaint="NVIDIA-SMI has failed"))}
    assert (checks["GPU"].level, checks["driver"].level) == ("warn", "warn")
    assert checks["GPU"].found == "pod 'x' has no CUDA GPU that works: nvidia-smi: NVIDIA-SMI has failed"
    checks = {check.name: check for check in from_facts(pod, facts_with())}
    assert (checks["GPU"].level, checks["driver"].level) == ("ok", "ok")


def level_of(checks: list[Finding]) -> dict[str, str]:
    return {check.name: check.level for check in checks}


def test_a_healthy_pod(pod_of: Callable[..., Pod], tmp_path: Path) -> None:
    checks = doctor(PodSession(pod_of(workdir=str(tmp_path / "w")), Progress(-1)))
    levels = level_of(checks)
    assert list(levels)[:4] == ["reachable", "host key", "commands", "file copy"]
    assert {"Python", "GPU", "driver", "disk", "installer", "lock"} <= set(levels)
    assert "fail" not in levels.values()
    assert all(set(check.as_dict()) == {"name", "level", "found", "advice"} for check in checks)
    assert [path.name for path in (tmp_path / "w").iterdir() if "doctor" in path.name] == []


def test_a_pod_out_of_reach_and_a_stranger(sshd: Sshd) -> None:
    [check] = doctor(PodSession(sshd.pod(port=1), Progress(-1)))
    assert (check.name, check.level) == ("reachable", "fail") and "refused" in check.found
    [check] = doctor(PodSession(sshd.pod(host_key=None), Progress(-1)))
    assert (check.name, check.level) == ("host key", "fail") and sshd.fingerprint in check.found


def test_a_pod_without_python_says_so_last(sshd: Sshd, tmp_path: Path) -> None:
    checks = doctor(PodSession(sshd.pod(python="/no/such", workdir=str(tmp_path)), Progress(-1)))
    assert level_of(checks) == {"reachable": "ok", "host key": "ok", "commands": "ok", "agent": "fail"}
    assert "or name one as `python`" in checks[-1].found


def test_what_keeps_the_agent_from_beginning_gets_no_advice_for_another_cause(sshd: Sshd) -> None:
    agent = doctor(PodSession(sshd.pod(workdir="/proc/here"), Progress(-1)))[-1]
    assert "its `workdir` cannot be used" in agent.found and agent.advice == ""


DISK = {"path": "/w", "free_bytes": 2**36, "total_bytes": 2**40, "free_inodes": 10**7, "writable": True}


@pytest.mark.parametrize(
    ("pod", "facts", "name", "level"),
    [
        ({"gpu": "RTX 4090"}, facts_with("NVIDIA GeForce RTX 4090"), "GPU", "ok"),
        ({"gpu": "RTX 4090"}, facts_with(), "GPU", "fail"),
        ({"gpu": "RTX 4090"}, facts_with("NVIDIA H100"), "GPU", "fail"),
        ({}, facts_with("NVIDIA H100"), "GPU", "ok"),
        ({"driver": "570.169"}, facts_with("NVIDIA H100"), "driver", "warn"),
        ({"driver": "550.163.01"}, facts_with("NVIDIA H100"), "driver", "ok"),
        ({}, facts_with(disk={**DISK, "free_bytes": 2**30}), "disk", "fail"),
        ({}, facts_with(disk={**DISK, "free_bytes": 2**33}), "disk", "warn"),
        ({}, facts_with(disk={**DISK, "free_inodes": 100}), "disk", "fail"),
        ({}, facts_with(disk={**DISK, "free_inodes": None}), "disk", "ok"),
        ({}, facts_with(disk={**DISK, "writable": False}), "disk", "fail"),
        ({}, facts_with(programs={"rsync": None, "uv": "/bin/uv"}, pythons=[]), "installer", "ok"),
        ({}, facts_with(programs={"rsync": None, "uv": None}), "installer", "ok"),
    ],
)
def test_what_the_facts_mean(pod: dict[str, str], facts: PodFacts, name: str, level: str) -> None:
    checks = list(from_facts(Pod(name="x", transport="local", **pod), facts))
    found = next(check for check in checks if check.name == name)
    assert found.level == level
    assert bool(found.advice) == (level != "ok")


@pytest.mark.parametrize(
    ("use", "level", "found"),
    [
        ({"by": None, "unknown": None}, "ok", "idle: 1 of 24564 MiB, 0 % busy"),
        ({"by": "pid 7 (train) holds 20480 MiB on GPU 0", "unknown": None}, "warn", "pid 7 (train) holds 20480 MiB"),
        ({"by": None, "unknown": "the driver does not tell how much"}, "warn", "the driver does not tell how much"),
    ],
)
def test_who_uses_a_gpu_is_shown_as_the_agent_tells_it(use: Any, level: str, found: str) -> None:
    facts = facts_with("NVIDIA H100", gpu_use=[use])
    check = next(c for c in from_facts(Pod(name="x", transport="local"), facts) if c.name == "GPU 0 in use")
    assert (check.level, check.found[: len(found)]) == (level, found)


def test_a_holder_of_the_lock_is_named(sshd: Sshd, tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    lock.write_text('{"holder": "ann@there", "since": "2026-11-21T00:00:00Z", "run_id": "r1"}')
    holding = subprocess.Popen(["flock", str(lock), "sleep", "60"], start_new_session=True)
    try:
        checks = doctor(PodSession(sshd.pod(workdir=str(tmp_path)), Progress(-1)))
    finally:
        os.killpg(holding.pid, 15)
        holding.wait()
    [held] = [check for check in checks if check.name == "lock"]
    assert held.level == "warn" and "ann@there" in held.found and "r1" in held.found


def test_a_transport_that_only_opens_terminals(sshd: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_commands(self: Transport, argv: list[str], **options: Any) -> Any:
        raise PodError("pod 'loop': the login shell does not run commands (Error: no PTY)")

    monkeypatch.setattr(SshTransport, "run", no_commands)
    checks = doctor(PodSession(sshd.pod(), Progress(-1)))
    assert level_of(checks) == {"reachable": "ok", "host key": "ok", "commands": "fail"}
