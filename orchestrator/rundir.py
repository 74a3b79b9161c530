"""A run's directory on the laptop: artifacts/runner/<commit>/<run id>/, with `latest` and the short commit as links."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.errors import InputError
from orchestrator.files import sha256, write_atomically
from orchestrator.plan import Plan, read_plan
from orchestrator.report import markdown
from orchestrator.results import Result, State, judge
from orchestrator.text import count

_DERIVED = frozenset({"manifest.json", "result.json", "report.md"})


@dataclass(frozen=True)
class RunDirectory:
    """`path` is the directory itself; `shown` is how results and messages name it."""

    path: Path
    shown: str

    @property
    def plan_file(self) -> Path:
        return self.path / "plan.json"

    @property
    def journal_file(self) -> Path:
        return self.path / "journal.jsonl"

    def plan(self) -> Plan:
        """The laptop's own copy of the plan."""
        return read_plan(self.plan_file.read_text(), str(self.plan_file))

    def settle(self, state: State, refused: Sequence[str] = ()) -> Result:
        """Judge what is here and write result.json, report.md, environment.json, manifest.json and the links."""
        plan = self.plan()
        write_atomically(self.path / "environment.json", _json(_environment(plan)))
        result = judge(self.path, state=state, path=self.shown, refused=refused)
        write_atomically(self.path / "result.json", result.to_json())
        write_atomically(self.path / "report.md", markdown.render(result, self.path))
        manifest = {"run_id": plan.run_id, "state": state, "refused": list(refused), "files": list(self._files())}
        write_atomically(self.path / "manifest.json", _json(manifest))
        self._link()
        return result

    def rejudge(self) -> Result:
        """Judge again from the evidence; the manifest only tells how far the run had come when it was last seen."""
        file = self.path / "manifest.json"
        seen_last: dict[str, Any] = (
            json.loads(file.read_text()) if file.exists() else {"state": "running", "refused": []}
        )
        return judge(self.path, state=seen_last["state"], path=self.shown, refused=seen_last["refused"])

    def _files(self) -> Iterator[dict[str, Any]]:
        for path in sorted(p for p in self.path.rglob("*") if p.is_file() and not p.is_symlink()):
            name = path.relative_to(self.path).as_posix()
            if name not in _DERIVED:
                yield {"path": name, "bytes": path.stat().st_size, "sha256": sha256(path)}

    def _link(self) -> None:
        runner = self.path.parent.parent
        commit = self.path.parent.name
        _point(runner / commit[:7], commit)
        _point(runner / "latest", f"{commit}/{self.path.name}")
        _point(self.path.parent / "latest", self.path.name)


def create(artifacts: Path, repo: Path, plan: Plan) -> RunDirectory:
    """The directory of a new (or re-fetched) run, with the laptop's own copy of its plan."""
    run = locate(artifacts, repo, plan.commit, plan.run_id)
    run.path.mkdir(parents=True, exist_ok=True)
    ignore = artifacts / "runner" / ".gitignore"
    if not ignore.exists():
        write_atomically(ignore, "*\n")
    if not run.plan_file.exists():
        write_atomically(run.plan_file, plan.to_json())
    return run


def locate(artifacts: Path, repo: Path, commit: str, run_id: str) -> RunDirectory:
    """Where the run is kept under `artifacts`; named relative to the repository if inside it."""
    return open_directory(artifacts.absolute() / "runner" / commit / run_id, repo)


def open_directory(path: Path, repo: Path) -> RunDirectory:
    """An existing run directory (or where one will be)."""
    absolute, root = path.resolve(), repo.resolve()
    return RunDirectory(absolute, str(absolute.relative_to(root) if absolute.is_relative_to(root) else absolute))


def find(artifacts: Path, repo: Path, name: str | None) -> RunDirectory:
    """The run called `name` (run id, the beginning of one, or a directory), or the latest one."""
    if name and (Path(name) / "plan.json").is_file():
        return open_directory(Path(name), repo)
    found = [run for run in kept(artifacts, repo) if run.path.name.startswith(name or "")]
    if not found or (name and len(found) > 1):
        raise InputError(
            f"{count(len(found), 'run')} called {name or 'latest'!r} in {artifacts}: "
            "expected a run id or a run's directory"
        )
    return found[0]


def kept(artifacts: Path, repo: Path) -> list[RunDirectory]:
    """The runs kept under `artifacts`, newest first; run ids begin with their time."""
    plans = (artifacts / "runner").glob("*/*/plan.json")
    # The short commit and `latest` are links to directories that are found under their own names.
    found = [p.parent for p in plans if not p.parent.is_symlink() and not p.parent.parent.is_symlink()]
    return [open_directory(path, repo) for path in sorted(found, key=lambda path: path.name, reverse=True)]


def _environment(plan: Plan) -> dict[str, Any]:
    """environment.json: the environment and the host; driver, driver_cuda and torch_cuda are three separate fields."""
    return {**plan.environment, **plan.facts, "cost_per_hour": plan.cost_per_hour}


def _point(link: Path, target: str) -> None:
    aside = link.with_name(f".{link.name}.{os.getpid()}")
    aside.unlink(missing_ok=True)
    aside.symlink_to(target)
    aside.replace(link)


def _json(value: object) -> str:
    return json.dumps(value, indent=1, sort_keys=True) + "\n"
