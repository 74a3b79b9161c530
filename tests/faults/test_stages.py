"""What a stage does to the machines around it: floods, escape codes, memory; seen from the command line.

Daemons, SIGTERM ignored, closed streams, signals and what is left behind are in tests/agent/run/test_processes.py.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import proc
from tests.support.faults import runs, world
from tests.support.project import Project
from tests.support.waiting import wait_for

LAST = runs.said("last", "print('still here')")
_LIMIT_KB = 100_000
_CGROUP = Path("/sys/fs/cgroup/memory")


@dataclass
class Watched:
    """The largest memory of a command and of the agent, in kB, and the longest time that the copy was behind, in s."""

    laptop: int = 0
    agent: int = 0
    behind: float = 0.0


def watch(project: Project, workdir: Path) -> tuple[runs.Outcome, Watched]:
    """Validate, and look at both processes and both journals all the time."""
    validate = runs.start(project)
    seen = Watched()
    since: float | None = None
    while validate.poll() is None:
        seen.laptop = max(seen.laptop, proc.peak_kib(validate.pid))
        seen.agent = max([seen.agent, *(proc.peak_kib(pid) for pid in world.agents(workdir))])
        is_behind = _size(workdir.glob("runs/*/journal.jsonl")) > _size(
            p for p in project.root.glob("artifacts/runner/*/*/journal.jsonl") if not p.parent.parent.is_symlink()
        )
        since = (since or time.monotonic()) if is_behind else None
        seen.behind = max(seen.behind, time.monotonic() - since if since else 0.0)
        time.sleep(0.05)
    return runs.end(validate), seen


def _size(files: Iterator[Path]) -> int:
    return max((file.stat().st_size for file in files if not file.parent.is_symlink()), default=0)


@pytest.mark.parametrize("megabytes", [pytest.param(n, marks=pytest.mark.slow) for n in (64, 1000)])
def test_a_flood_of_output(project: Project, tmp_path: Path, megabytes: int) -> None:
    """Memory of agent and laptop below 100 MB each, the log bounded with a note, the laptop's copy never far behind."""
    flood = f"echo begin; yes 'a line of output, one of very many' | head -c {megabytes}000000; echo; echo the end"
    kept = {"run": ["sh", "-c", flood + '; echo kept > "$NSA_POD_ARTIFACTS/kept.txt"']}
    stage = {
        **runs.said("flood", ""),
        **kept,
        "limits": {"log_bytes": 1 << 20},
        "expect": {"artifacts": [{"path": "kept.txt"}]},
    }
    project.commit(runs.files(stage, LAST))
    outcome, seen = watch(project, tmp_path / "workdir")
    runs.check(project, tmp_path / "workdir", outcome, "passed", "passed", "passed")
    log = (project.root / outcome.json["path"] / "stages/flood/stdout").read_text()
    cut = megabytes * 10**6 + len("begin\n\nthe end\n") - (1 << 20)
    assert f"\n[nsa-pod: {cut} bytes are cut here]\n" in log and len(log) < (1 << 20) + 100
    assert log.startswith("begin\n") and log.endswith("\nthe end\n")
    print(f"flood of {megabytes} MB: {seen}")
    assert 0 < seen.agent < _LIMIT_KB and 0 < seen.laptop < _LIMIT_KB, seen
    assert seen.behind < 5, seen


@pytest.mark.slow
def test_escape_codes_and_invalid_text_reach_no_terminal(project: Project, tmp_path: Path) -> None:
    """They stay in the stage's own log as they were written, and nowhere else."""
    nasty = r"\x1b]0;owned\x07\x1b[31m\xff\xfe\x9b2J \xe2\x80\xae | [bold]markup[/bold] `code` <b>\r\n"
    code = f"import sys, time; sys.stdout.buffer.write(b'{nasty}'); sys.stdout.flush(); time.sleep(1.2); sys.exit(3)"
    project.commit(runs.files(runs.said("nasty", code), LAST))
    loud = runs.end(project.popen("validate", "--pod", "p", "--runbook", "r", "-v"))
    assert loud.exit_code == 1
    report = runs.end(project.popen("report", "--markdown"))
    for shown in (loud.stdout, loud.stderr, report.stdout, report.stderr):
        assert "\x1b" not in shown and "\x07" not in shown and "\u202e" not in shown
    outcome = runs.run(project, "fetch", "--pod", "p")
    runs.check(project, tmp_path / "workdir", outcome, "failed", "failed", "passed")
    assert b"\x1b]0;owned" in (project.root / outcome.json["path"] / "stages/nasty/stdout").read_bytes()


@pytest.mark.slow
def test_a_stage_that_uses_up_its_own_memory(project: Project, tmp_path: Path) -> None:
    code = "import resource; resource.setrlimit(resource.RLIMIT_AS, (200 << 20,) * 2); print(len(bytearray(1 << 30)))"
    project.commit(runs.files(runs.said("hungry", code), LAST))
    outcome = runs.run(project, "validate", "--pod", "p", "--runbook", "r")
    runs.check(project, tmp_path / "workdir", outcome, "failed", "failed", "passed")
    assert outcome.stage("hungry")["reason"].startswith("exit code 1: MemoryError")
    assert "MemoryError" in (project.root / outcome.json["path"] / "stages/hungry/stderr").read_text()


@pytest.fixture
def small_memory() -> Iterator[Path]:
    """A control group of 64 MB, to which a process that writes its id into cgroup.procs belongs."""
    if os.geteuid() != 0 or not (_CGROUP / "cgroup.procs").exists():
        pytest.skip("only root can limit the machine's memory for a stage (memory control group)")
    group = _CGROUP / f"nsa-pod-{os.getpid()}"
    group.mkdir()
    (group / "memory.limit_in_bytes").write_text("64M")
    yield group
    wait_for(lambda: not (group / "cgroup.procs").read_text(), "an empty control group")
    group.rmdir()


def test_a_stage_that_the_kernel_kills_for_memory(project: Project, small_memory: Path, tmp_path: Path) -> None:
    hungry = f"echo $$ > {small_memory}/cgroup.procs; exec python -c 'print(len(bytearray(300 << 20)))'"
    project.commit(runs.files({**runs.said("hungry", ""), "run": ["sh", "-c", hungry]}, LAST))
    outcome = runs.run(project, "validate", "--pod", "p", "--runbook", "r")
    runs.check(project, tmp_path / "workdir", outcome, "failed", "crashed", "passed")
    assert outcome.stage("hungry")["reason"] == "ended by SIGKILL"
