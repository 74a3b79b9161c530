"""The runs of a pod as their directories and the lock show them, whether their agents are alive or not."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Iterator

from orchestrator.agent import lock
from orchestrator.agent.host import processes
from orchestrator.shared import journal
from orchestrator.shared import plan as plans
from orchestrator.shared.failure import Failure
from orchestrator.shared.plan import RUN_ID
from orchestrator.shared.run_ids import order

_PIECE = 64 << 10
_MOST_TOLD = 1000


def state_of(run_dir: Path) -> dict[str, Any]:
    """{"run_id", "state", "head", "bytes", "reason"}: running, ended, or lost (its agent died before its end).

    `head` is the hash of the journal's last whole line, `bytes` the journal's size, `reason` that of the end.
    """
    if not run_dir.is_dir():
        raise Failure(f"there is no run directory {run_dir}")
    # The lock first: an agent writes its last line before it lets the lock go.
    alive = living_agent(run_dir) is not None
    data = _end_of_journal(run_dir / "journal.jsonl")
    last = _last_event(data)
    ended = last.get("event") == "run_ended"
    return {
        "run_id": run_dir.name,
        "state": "ended" if ended else "running" if alive else "lost",
        "head": journal.head(data),
        "bytes": _size(run_dir / "journal.jsonl"),
        "reason": last.get("reason") if ended else None,
    }


def living_agent(run_dir: Path) -> int | None:
    """The pid of the agent that runs `run_dir`, verified by the lock that it holds; None if there is none."""
    holder = lock.holder(run_dir.parent.parent)
    if holder is None or holder.get("run_id") != run_dir.name:
        return None
    pid = holder.get("pid")
    return pid if isinstance(pid, int) and processes.is_alive(pid) else None


def list_runs(workdir: Path, begin: str = "") -> tuple[list[dict[str, Any]], int]:
    """The newest runs below `workdir` whose ids begin with `begin`, newest first, each with its state and what its plan
    says of it; and how many more there are, which are not looked at.
    """
    found = []
    known = sorted(
        (d for d in _run_dirs(workdir) if d.name.startswith(begin)), key=lambda d: order(d.name), reverse=True
    )
    for run_dir in known[:_MOST_TOLD]:
        try:
            found.append({**state_of(run_dir), **_summary(run_dir)})
        except (Failure, FileNotFoundError):  # its launch has just been refused
            continue
    return found, len(known[_MOST_TOLD:])


def newest(workdir: Path) -> str | None:
    """The run id of the last launch, by the time in it; None without one."""
    return max((d.name for d in _run_dirs(workdir) if RUN_ID.fullmatch(d.name)), key=order, default=None)


def _run_dirs(workdir: Path) -> Iterator[Path]:
    runs = workdir / "runs"
    found = runs.iterdir() if runs.is_dir() else iter(())
    return (d for d in found if not d.name.startswith(".") and (d / "plan.json").is_file())


def _summary(run_dir: Path) -> dict[str, Any]:
    try:
        plan = json.loads((run_dir / "plan.json").read_bytes())
        told = {key: plan[key] for key in ("commit", "pod", "who", "created")}
        return {**told, "runbook": plan["runbook"]["name"], "command": plans.has_no_verdict(plan)}
    except (ValueError, LookupError, TypeError):
        return {"commit": None, "pod": None, "who": None, "created": None, "runbook": None}


def _end_of_journal(path: Path) -> bytes:
    """The end of the file that holds its last whole line; empty if there is none."""
    try:
        f = path.open("rb")
    except FileNotFoundError:
        return b""
    with f:
        position = f.seek(0, os.SEEK_END)
        data = b""
        # From the line feed before the last whole line, or from the beginning.
        while position > 0 and data.count(b"\n") < 2:
            step = min(_PIECE, position)
            position -= step
            f.seek(position)
            data = f.read(step) + data
    return data if position == 0 or data.count(b"\n") < 2 else data[data.index(b"\n") + 1 :]


def _last_event(data: bytes) -> dict[str, Any]:
    lines = data.split(b"\n")
    try:
        event = json.loads(lines[-2]) if len(lines) > 1 else {}
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
