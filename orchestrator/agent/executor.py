"""Runs a plan's stages in order, each in the run's own tree, and writes down what happened to each of them."""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
from pathlib import Path
from typing import Any, Dict, List, Mapping

from . import guard, prepare, tree
from .collect import GUARD_REPORT, Artifacts, describe_files, read_guard_report
from .evidence import judge_stage
from .files import walk
from .interpreter import Interpreter
from .journal import Journal
from .layout import Layout
from .logs import Log
from .record import blank
from .supervise import CannotStart, Command, Ending, Limits, Supervisor
from .variables import inherited, stage_variables

FD_VARIABLE = "NSA_POD_PYTEST_FD"
# A journal line stays well below what a reader takes at once: long lists of files go ahead in lines of their own.
_FILES_PER_LINE = 5000
_MOST_NAMED = 100


class Executor:
    """Runs the stages of `plan`; `manifest` is the commit's tree, `fingerprint` the environment's as recorded."""

    def __init__(
        self,
        plan: Mapping[str, Any],
        places: Layout,
        journal: Journal,
        interpreter: Interpreter,
        manifest: tree.Manifest,
        fingerprint: str,
        supervisor: Supervisor,
    ) -> None:
        self._plan = plan
        self._places = places
        self._journal = journal
        self._interpreter = interpreter
        self._manifest = manifest
        self._fingerprint = fingerprint
        self._supervisor = supervisor
        self._artifacts = Artifacts(places)
        self._strays: List[str] = []
        self._statuses: Dict[str, str] = {}
        self._cache = places.cache(hashlib.sha256(f"{plan['tree']} {fingerprint}".encode()).hexdigest()[:16])

    def run_stage(self, number: int, stage: Mapping[str, Any]) -> None:
        """Run one stage (or say why it is blocked), judge it, and record both."""
        record = blank(self._strays)
        tmp = self._places.tmp(number)
        command = self._command(stage, tmp)
        record["blocked"] = self._why_blocked(stage, command)
        if record["blocked"] is None:
            try:
                existed = self._artifacts.existing(stage["expect"]["artifacts"])
                record.update(vars(self._run(stage, command)), started=True)
                self._collect(stage, command, existed, record)
            except CannotStart as e:
                record["blocked"] = str(e)
            finally:
                shutil.rmtree(tmp, ignore_errors=True)
        self._record(stage, record)

    def _command(self, stage: Mapping[str, Any], tmp: Path) -> Command:
        places, python = self._places, self._interpreter.python
        folder = places.stage(stage["name"])
        argv = [self._fill(word) for word in prepare.with_python(stage["argv"], python)]
        if stage["pytest"]:
            argv = prepare.with_plugin(argv, places.tree, folder / "junit.xml")
        planned = {name: self._fill(value) for name, value in stage["env"].items()}
        return Command(
            argv=argv,
            cwd=places.tree,
            env={
                **stage_variables(planned, places, self._interpreter.bin, tmp, self._cache),
                guard.CONFIG_VARIABLE: str(places.plugin / f"{stage['name']}.guard"),
            },
            stdout=folder / "stdout",
            stderr=folder / "stderr",
            log_bytes=stage["limits"]["log_bytes"],
            events=folder / "pytest.jsonl" if stage["pytest"] else None,
            fd_variable=FD_VARIABLE,
        )

    def _fill(self, text: str) -> str:
        return prepare.fill(text, self._plan["commit"], self._interpreter.python, self._places)

    def _why_blocked(self, stage: Mapping[str, Any], command: Command) -> str | None:
        for need in stage["needs"]:
            if self._statuses.get(need) != "passed":
                return f"needs {need}, which is {self._statuses.get(need, 'not part of this run')}"
        if stage["blocked"]:
            return str(stage["blocked"])
        if stage["cuda"] and not self._plan["promises"].get("cuda"):
            return "needs a CUDA GPU, and the pod has none"
        return prepare.why_blocked(stage, command.argv, command.env, self._interpreter, self._places)

    def _run(self, stage: Mapping[str, Any], command: Command) -> Ending:
        """Run the command to its end; CannotStart if it, or the place for it, cannot be had."""
        try:
            self._prepare_places(stage, command)
        except OSError as e:  # the disk is full, say
            raise CannotStart(f"the pod has no place for the stage: {e}") from e
        limits = stage["limits"]
        own = inherited()
        told = {"argv": list(command.argv), "env": dict(command.env), "inherited": sorted(own)}
        self._journal.append("stage_started", stage=stage["name"], **told)
        return self._supervisor.run(
            dataclasses.replace(command, env={**own, **command.env}),
            Limits(limits["wall"], limits["silence"], limits["grace"]),
            lambda stream, elapsed, log: self._tell_output(stage["name"], stream, elapsed, log),
        )

    def _prepare_places(self, stage: Mapping[str, Any], command: Command) -> None:
        self._places.stage(stage["name"]).mkdir(parents=True)
        for folder in (Path(command.env["TMPDIR"]), self._cache):
            folder.mkdir(parents=True, exist_ok=True)
        roots = prepare.import_roots(self._places.tree, command.env)
        names = prepare.importable_names(self._places.tree, roots, self._manifest)
        report = self._places.stage(stage["name"]) / GUARD_REPORT
        config = guard.config_text(str(report), str(self._places.tree), roots, names)
        Path(command.env[guard.CONFIG_VARIABLE]).write_text(config, encoding="utf-8", errors="surrogateescape")

    def _tell_output(self, stage: str, stream: str, elapsed: float, log: Log) -> None:
        self._journal.append(
            "output", stage=stage, stream=stream, elapsed=elapsed, bytes=log.total, last_line=log.last_line()
        )

    def _collect(
        self, stage: Mapping[str, Any], command: Command, existed: Mapping[str, bool], record: Dict[str, Any]
    ) -> None:
        """The facts after the stage: its files, the tree, the environment, the modules, the journal."""
        folder = self._places.stage(stage["name"])
        problems = {a["path"]: self._artifacts.deliver(a, stage["name"]) for a in stage["expect"]["artifacts"]}
        record["artifacts"] = [
            {"path": path, "existed_before": existed[path], "problem": problem} for path, problem in problems.items()
        ]
        fresh, record["overwritten"] = self._artifacts.made()
        names = sorted(f"stages/{stage['name']}/{name}" for name, _ in walk(folder))
        record["files"], record["refused"] = describe_files(
            self._places.run_dir, [*names, *(f"artifacts/{name}" for name in fresh)]
        )
        loaded, record["foreign_modules"] = read_guard_report(folder)
        record["guarded"] = loaded if stage["pytest"] or prepare.runs_python(command.argv) else None
        done = tree.difference(self._places.tree, self._manifest, self._artifacts.in_tree, self._plan["commit"])
        self._strays = done.strays[:_MOST_NAMED]
        record["tree"] = {"ok": not done.changed, "changed": done.changed[:_MOST_NAMED], "strays": self._strays}
        record["environment_ok"] = self._environment_ok()
        record["journal_ok"] = self._journal.intact()

    def _environment_ok(self) -> bool:
        try:
            return self._interpreter.fingerprint() == self._fingerprint
        except OSError:  # files that go away while they are listed are a change too
            return False

    def _record(self, stage: Mapping[str, Any], record: Dict[str, Any]) -> None:
        judgement = judge_stage(stage, record, self._places.run_dir, self._statuses)
        self._statuses[stage["name"]] = judgement.status
        files = record["files"]
        while len(files) > _FILES_PER_LINE:
            files, batch = files[_FILES_PER_LINE:], files[:_FILES_PER_LINE]
            self._journal.append("stage_files", stage=stage["name"], files=batch)
        told = {**record, "files": files, "status": judgement.status, "reason": judgement.reason}
        self._journal.append("stage_ended", stage=stage["name"], **told)
