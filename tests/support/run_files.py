"""A run's directory on the laptop, written by hand: what fetch would have left of a run that no agent ran."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from orchestrator.config.inventory import Pod
from orchestrator.config.runbook import Runbook
from orchestrator.config.yamlfile import loads
from orchestrator.plan.plan import Capabilities, Place, Tree, Work, make_plan
from orchestrator.shared.files import describe
from orchestrator.shared.journal import Journal
from orchestrator.shared.plan import FORMAT, Environment, Machine, Plan, RunbookOrigin
from orchestrator.shared.stage_record import blank
from orchestrator.store.run_directory import RunDirectory, create
from tests.support.files import write_files

STAGE = "{name: %s, run: [tool], required: %s, expect: {artifacts: [{path: %s.txt, from: stdout}]}}"


def make_run(
    tmp_path: Path,
    stages: dict[str, bool],
    extra: str = "",
    sm: int | None = None,
    commit: str = "c" * 40,
    tree_hash: str = "7" * 40,
    partial: bool = False,
) -> tuple[RunDirectory, Plan]:
    lines = "".join(f"  - {STAGE % (name, str(required).lower(), name)}\n" for name, required in stages.items())
    runbook = loads(f"name: r\nstages:\n{lines}{extra}", "r.yaml", Runbook)
    origin = RunbookOrigin(name="r", source="file", path="r.yaml", sha256="0" * 64, committed=False)
    if partial:
        origin["partial"] = True
    tree = Tree(commit, b"", tree_hash, [], False, frozenset())
    pod = Pod(name="p", transport="local", cost_per_hour=2.0)
    environment = Environment(kind="system", packages={"torch": "2.8.0"})
    facts = Machine(hostname="h<b>", cpu_model="c|d")
    place = Place(environment, Capabilities(sm=sm, packages=frozenset()), facts, "/w")
    plan = make_plan(Work(runbook, origin, pod, tree), place)
    return create(tmp_path / "artifacts", tmp_path, plan), plan


def record(run: RunDirectory, name: str, **facts: Any) -> dict[str, Any]:
    """A stage_ended record whose artifact is really there."""
    write_files(run.path, {f"artifacts/{name}.txt": "content\n"})
    return {
        **blank([]), "stage": name, "started": True, "exit_code": 0, "seconds": 1.5, "status": "passed", "reason": "",
        "files": [describe(run.path, f"artifacts/{name}.txt")],
        "artifacts": [{"path": f"{name}.txt", "existed_before": False, "problem": None}], **facts,
    }  # fmt: skip


def write_journal(run: RunDirectory, plan: Plan, records: list[dict[str, Any]], *, end: bool = True) -> None:
    journal = Journal(run.journal_file)
    journal.append({"event": "run_started", "format": FORMAT, "run_id": plan["run_id"]})
    for facts in records:
        journal.append({"event": "stage_ended", **facts})
    if end:
        journal.append({"event": "run_ended", "reason": "done"})
    journal.close()


def ended_run(folder: Path) -> RunDirectory:
    """A run of one stage, which passed."""
    run, plan = make_run(folder, {"one": True})
    write_journal(run, plan, [record(run, "one")])
    return run
