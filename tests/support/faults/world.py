"""What must hold on pod and laptop after any fault, read from their disks and from the kernel, not from the tool."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from orchestrator.agent import lock
from orchestrator.agent.host import processes
from orchestrator.shared import journal, stage_record
from tests.support import proc
from tests.support.waiting import wait_for


def runs_of(workdir: Path) -> list[Path]:
    """The runs' directories on the pod, the oldest first."""
    return sorted(p.parent for p in workdir.glob("runs/*/plan.json"))


def events_of(run: Path) -> list[dict[str, Any]]:
    """The events of a run's journal, here or on the pod, its chain checked; empty without one."""
    file = run / "journal.jsonl"
    return journal.read(file.read_bytes()) if file.exists() else []


def wait_for_event(workdir: Path, event: str, seconds: float = 40, **fields: Any) -> dict[str, Any]:
    """The first such event in a journal on the pod."""

    def found() -> dict[str, Any] | None:
        fitting = (
            e
            for run in runs_of(workdir)
            for e in events_of(run)
            if e["event"] == event and all(e.get(key) == value for key, value in fields.items())
        )
        return next(fitting, None)

    return wait_for(found, f"{event} {fields}", seconds)


def agents(workdir: Path) -> list[int]:
    """The agent that runs the pod's run, its helper (the reaper), and what of their launch is still there."""
    return proc.saying(b"\0launch\0", bytes(workdir))


def agent(workdir: Path) -> int | None:
    """The agent that holds the pod's lock, seen from here; None if there is none, or none that lives."""
    holder = lock.holder(workdir) or {}
    return next((pid for pid in agents(workdir) if _pid_inside(pid) == holder.get("pid")), None)


def wait_for_agent(workdir: Path) -> int:
    return wait_for(lambda: agent(workdir), "an agent that holds the pod")


def _pid_inside(pid: int) -> int | None:
    """What the process is called in its own namespace."""
    named = proc.status(pid, "NSpid")
    return int(named[-1]) if named else None


def is_at_rest(workdir: Path) -> bool:
    """Whether nobody holds the pod's lock and no process of any of its runs is left."""
    return lock.holder(workdir) is None and not any(processes.marked(run.name) for run in runs_of(workdir))


def check_rest(workdir: Path) -> None:
    """No stale lock, no orphan: within the time that a reaper needs."""
    wait_for(lambda: is_at_rest(workdir), "a pod at rest: no lock held, no process of a run", 15)


def check_home(run: Path, home: Path) -> None:
    """All that the pod's journal records of `run` is in `home` as it was written: the journal itself, every file."""
    there = (run / "journal.jsonl").read_bytes() if (run / "journal.jsonl").exists() else b""
    whole = there[: there.rfind(b"\n") + 1]
    here = (home / "journal.jsonl").read_bytes() if (home / "journal.jsonl").exists() else b""
    assert here == whole, f"{home}: {len(here)} bytes of the journal are here, {len(whole)} there"
    for file in _files(journal.read(whole)):
        path = home / file["path"]
        assert path.is_file(), f"{path} was not brought home"
        assert hashlib.sha256(path.read_bytes()).hexdigest() == file["sha256"], f"{path} is not as it was recorded"


def _files(events: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for told in stage_record.by_stage(events).values():
        yield from told["files"]


def home_of(artifacts: Path, run_id: str) -> Path:
    """The run's directory on the laptop."""
    [found] = [p for p in artifacts.glob(f"runner/*/{run_id}") if not p.parent.is_symlink()]
    return found
