"""Runs a plan's stages in order, each in the run's own tree, and writes down what happened to each of them."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import shutil
from pathlib import Path
from typing import Any, ContextManager, Dict, List, Mapping, Optional, Sequence

from orchestrator.agent.host import gpu, telemetry
from orchestrator.agent.host.gpu_use import EXCLUSIVE, use_by_others
from orchestrator.agent.host.interpreter import Interpreter
from orchestrator.agent.injected import guard
from orchestrator.agent.run import prepare
from orchestrator.agent.run.collect import GUARD_REPORT, Artifacts, describe_files, in_lines, read_guard_report
from orchestrator.agent.run.layout import Layout
from orchestrator.agent.run.logs import Log
from orchestrator.agent.run.secret_files import redact_logs, take_away
from orchestrator.agent.run.secret_values import Secrets
from orchestrator.agent.run.supervise import CannotStart, Command, Ending, Limits, Supervisor
from orchestrator.agent.run.variables import inherited, stage_variables
from orchestrator.shared import tree
from orchestrator.shared.files import walk
from orchestrator.shared.journal import Journal
from orchestrator.shared.stage_record import blank
from orchestrator.verdict import routes
from orchestrator.verdict.evidence import judge_stage

FD_VARIABLE = "NSA_POD_PYTEST_FD"
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
        secrets: Secrets,
    ) -> None:
        self._plan = plan
        self._places = places
        self._journal = journal
        self._interpreter = interpreter
        self._manifest = manifest
        self._fingerprint = fingerprint
        self._supervisor = supervisor
        self._secrets = secrets
        self._artifacts = Artifacts(places)
        self._written = tree.write_times(places.tree, manifest)
        self._strays: List[str] = []
        self._statuses: Dict[str, str] = {}
        self._cache = places.cache(hashlib.sha256(f"{plan['tree']} {fingerprint}".encode()).hexdigest()[:16])

    def take_over(self, records: Mapping[str, Mapping[str, Any]]) -> None:
        """Count the stages that an earlier agent of the run finished, and put back what they delivered in the tree."""
        for stage in self._plan["stages"]:
            done = records.get(stage["name"])
            if done:
                self._statuses[stage["name"]] = done["status"]
                kept = {file["path"] for file in done["files"]}
                self._artifacts.put_back(a for a in stage["expect"]["artifacts"] if f"artifacts/{a['path']}" in kept)

    def run_stage(self, number: int, stage: Mapping[str, Any]) -> None:
        """Run one stage (or say why it is blocked), judge it, and record both."""
        record = blank(self._strays)
        tmp = self._places.tmp(number)
        command = self._command(stage, tmp)
        record["blocked"] = self._why_blocked(stage, command) or self._why_gpu_blocked(stage, command, record)
        if record["blocked"] is None:
            try:
                existed = self._artifacts.existing(stage["expect"]["artifacts"])
                record.update(vars(self._run(stage, command)), started=True)
                if record["gpu"]:
                    record["gpu"]["disturbed"] = use_by_others(self._seen_by(command)).by
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
        planned.update(self._secrets.of(stage["name"]))
        if not stage["pytest"]:
            planned.update(prepare.with_plugin_variable(planned))
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
            redactor=self._secrets.redactor,
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
        visible = self._seen_by(command).get("CUDA_VISIBLE_DEVICES")
        if stage["cuda"] and visible is not None and not gpu.sees_any(visible, self._plan["facts"].get("gpus", ())):
            return f"needs a CUDA GPU, and CUDA_VISIBLE_DEVICES hides all of them from it: it is {visible!r}"
        return prepare.why_blocked(stage, command.argv, command.env, self._interpreter, self._places)

    def _why_gpu_blocked(self, stage: Mapping[str, Any], command: Command, record: Dict[str, Any]) -> str | None:
        """Who else uses the GPU of a stage that wants it for itself; whether that could be told is recorded."""
        if not self._wants_gpu(stage):
            return None
        found = use_by_others(self._seen_by(command))
        record["gpu"] = {"unknown": found.unknown, "disturbed": None}
        return f"the GPU is used by someone else: {found.by}" if found.by else None

    def _wants_gpu(self, stage: Mapping[str, Any]) -> bool:
        return stage.get("exclusive") == EXCLUSIVE and bool(self._plan["promises"].get("cuda"))

    def _seen_by(self, command: Command) -> Dict[str, str]:
        return {**inherited(), **command.env}

    def _run(self, stage: Mapping[str, Any], command: Command) -> Ending:
        """Run the command to its end; CannotStart if it, or the place for it, cannot be had."""
        try:
            self._prepare_places(stage, command)
        except OSError as e:  # the disk is full, say
            raise CannotStart(f"the pod has no place for the stage: {e}") from e
        limits = stage["limits"]
        told = {"argv": list(command.argv), "env": dict(command.env), "inherited": sorted(inherited())}
        self._journal.append("stage_started", stage=stage["name"], **told)
        with self._sampling(stage) as sampler:
            return self._supervisor.run(
                dataclasses.replace(command, env=self._seen_by(command), beside=[sampler] if sampler else []),
                Limits(limits["wall"], limits["silence"], limits["grace"]),
                lambda stream, elapsed, log: self._tell_output(stage["name"], stream, elapsed, log),
            )

    def _sampling(self, stage: Mapping[str, Any]) -> ContextManager[Optional[int]]:
        """What samples the GPUs while a stage has them for itself, if it does."""
        if self._wants_gpu(stage):
            return telemetry.sampling(self._places.stage(stage["name"]), stage["limits"]["wall"])
        return contextlib.nullcontext()

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
        removed = self._without_secrets(stage, folder, [*fresh, *record["overwritten"]], record)
        fresh = [name for name in fresh if name not in removed]
        names = sorted(f"stages/{stage['name']}/{name}" for name, _ in walk(folder))
        record["files"], refused = describe_files(
            self._places.run_dir, [*names, *(f"artifacts/{name}" for name in fresh)]
        )
        record["refused"] += refused
        record.update(read_guard_report(folder))
        if stage["pytest"] or prepare.runs_python(command.argv):
            record["guarded"] = bool(record["guarded"])
        done = tree.difference(
            self._places.tree, self._manifest, self._artifacts.in_tree, self._plan["commit"], self._written
        )
        self._written = tree.write_times(self._places.tree, self._manifest)
        strays_removed = take_away(self._places.tree, done.strays, self._secrets.redactor)
        record["refused"] += [{"path": f"tree/{name}", "reason": why} for name, why in strays_removed.items()]
        self._strays = done.strays[:_MOST_NAMED]
        record["tree"] = {"ok": not done.changed, "changed": done.changed[:_MOST_NAMED], "strays": self._strays}
        record["environment_ok"] = self._environment_ok()
        record["journal_ok"] = self._journal.intact()

    def _without_secrets(
        self, stage: Mapping[str, Any], folder: Path, made: Sequence[str], record: Dict[str, Any]
    ) -> Dict[str, str]:
        """Redact the stage's own files, take away what of `made` holds a secret value: why, by artifact."""
        redactor = self._secrets.redactor
        record["redacted"].update(redact_logs(folder, redactor))
        removed = self._artifacts.take_away(made, redactor)
        for artifact in record["artifacts"]:
            artifact["problem"] = removed.get(artifact["path"], artifact["problem"])
        record["refused"] += [{"path": f"artifacts/{name}", "reason": why} for name, why in removed.items()]
        return removed

    def _environment_ok(self) -> bool:
        try:
            return self._interpreter.fingerprint() == self._fingerprint
        except OSError:  # files that go away while they are listed are a change too
            return False

    def _record(self, stage: Mapping[str, Any], record: Dict[str, Any]) -> None:
        for name in ("overwritten", "leftovers"):  # a journal line has an end, however many there are
            record[name] = record[name][:_MOST_NAMED]
        judgement = judge_stage(stage, record, self._places.run_dir, self._statuses, routes.devices(self._plan))
        self._statuses[stage["name"]] = judgement.status
        *ahead, files = in_lines(record["files"])
        for part in ahead:
            self._journal.append("stage_files", stage=stage["name"], files=part)
        told = {**record, "files": files, "status": judgement.status, "reason": judgement.reason}
        self._journal.append("stage_ended", stage=stage["name"], **told)
