"""Runs a plan's stages in order, each in the run's own tree, and writes down what happened to each of them."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import Any, ContextManager, Dict, Mapping, Optional

from orchestrator.agent.evidence.borrowed import Sources
from orchestrator.agent.evidence.collect import Artifacts, describe_files, in_lines
from orchestrator.agent.host import gpu, telemetry
from orchestrator.agent.host.cuda_watch import CudaWatch
from orchestrator.agent.host.gpu_use import EXCLUSIVE, use_by_others
from orchestrator.agent.host.inherited import inherited
from orchestrator.agent.host.removal import remove
from orchestrator.agent.layout import Layout
from orchestrator.agent.run import prepare, temporary
from orchestrator.agent.run.command import seen_by
from orchestrator.agent.run.findings import MOST_NAMED, Findings
from orchestrator.agent.run.ground import Ground
from orchestrator.agent.run.live_failures import LiveFailures
from orchestrator.agent.run.logs import Log
from orchestrator.agent.run.pytest_count import PytestCount
from orchestrator.agent.run.sabotage import Sabotage, kept_output
from orchestrator.agent.run.secret_values import Secrets
from orchestrator.agent.run.supervise import CannotStart, Command, Ending, Limits, Supervisor
from orchestrator.shared import disk
from orchestrator.shared.events import Output, StageEnded, StageFiles, StageStarted, Tested
from orchestrator.shared.failure import Failure
from orchestrator.shared.journal import Journal
from orchestrator.shared.plan import Plan, Stage, artifacts_of, commits_of, with_sabotage
from orchestrator.shared.stage_record import StageRecord, blank
from orchestrator.shared.text import listing
from orchestrator.verdict import routes, rules
from orchestrator.verdict.case import Run
from orchestrator.verdict.status import Status

_NO_PLACE = "the pod has no place for the stage: "


class Executor:
    """Runs the stages of `plan`, each on the ground of its commit: the plan's own is called ""."""

    def __init__(
        self,
        plan: Plan,
        places: Layout,
        journal: Journal,
        grounds: Mapping[str, Ground],
        supervisor: Supervisor,
        secrets: Secrets,
    ) -> None:
        self._plan = plan
        self._places = places
        self._journal = journal
        self._grounds = grounds
        self._supervisor = supervisor
        self._secrets = secrets
        manifests = [ground.manifest for ground in grounds.values()]
        self._artifacts = Artifacts(places, manifests, _sources(plan, places, grounds))
        self._statuses: Dict[str, Status] = {}
        self._run = Run(places.run_dir, devices=routes.devices(plan), sabotage=with_sabotage(plan))
        self._sabotage = {
            name: Sabotage(self._run.sabotage, of.places, of.commands, of.injection, of.origins, supervisor, journal)
            for name, of in grounds.items()
        }

    def take_over(self, records: Mapping[str, Mapping[str, Any]]) -> None:
        """Count the stages that an earlier agent of the run finished."""
        self._statuses.update({name: done["status"] for name, done in records.items()})

    def run_stage(self, number: int, stage: Stage) -> None:
        """Run one stage (or say why it is blocked), judge it, and record both."""
        ground = self._ground(stage)
        record = blank(ground.strays)
        watch = CudaWatch() if self._plan["promises"]["cuda"] else None
        with temporary.place(self._places, number) as tmp:
            command = dataclasses.replace(ground.commands.of(stage, tmp), cuda_watch=watch)
            record["blocked"] = (
                self._why_no_place(ground)
                or self._why_blocked(stage, command)
                or self._why_gpu_blocked(stage, command, record)
            )
            if record["blocked"] is None:
                try:
                    self._run_allowed(stage, command, tmp, record)
                except CannotStart as e:
                    record["blocked"] = str(e)
        self._record(stage, record)

    def _run_allowed(self, stage: Stage, command: Command, tmp: Path, record: StageRecord) -> None:
        """Run what nothing blocks, and note what is found of it; CannotStart if it, or its place, cannot be had."""
        ground = self._ground(stage)
        existed = self._artifacts.begin(artifacts_of(stage), ground.places.tree)
        self._note_ending(record, self._run_command(stage, command))
        if record["gpu"]:
            record["gpu"]["disturbed"] = use_by_others(seen_by(command)).by
        findings = Findings(self._places, self._artifacts, self._journal, self._secrets, ground, stage, command, record)
        findings.note(existed)
        ground.bytecode.take_told()
        self._run_sabotage(stage, tmp, record)

    def finish(self) -> None:
        """After the last stage; Failure for a change of the environment that no stage could be charged with."""
        for ground in self._grounds.values():
            ground.bytecode.remove()
            if ground.installed.is_same() and not ground.installed.is_same_in_all():
                which = listing(ground.installed.changed())
                raise Failure(f"the environment's installed files are not those that the run began with: {which}")

    def _ground(self, stage: Stage) -> Ground:
        return self._grounds[stage.get("beside", "")]

    @staticmethod
    def _why_no_place(ground: Ground) -> str | None:
        """Why the stage cannot have a thin environment of its own: a full disk, say."""
        try:
            ground.injection.renew()
        except OSError as e:
            return f"{_NO_PLACE}{disk.told(e, ground.places.run_dir)}"
        return None

    def _why_blocked(self, stage: Stage, command: Command) -> str | None:
        known = rules.blocked_by_plan(stage, self._statuses)
        if known:
            return known
        if stage["cuda"] and not self._plan["promises"]["cuda"]:
            return "needs a CUDA GPU, and the pod has none"
        visible = seen_by(command).get("CUDA_VISIBLE_DEVICES")
        if stage["cuda"] and visible is not None and not gpu.sees_any(visible, self._plan["facts"].get("gpus", ())):
            return f"needs a CUDA GPU, and CUDA_VISIBLE_DEVICES hides all of them from it: it is {visible!r}"
        ground = self._ground(stage)
        return prepare.why_blocked(stage, command, ground.interpreter, ground.places)

    def _why_gpu_blocked(self, stage: Stage, command: Command, record: StageRecord) -> str | None:
        """Who else uses the GPU of a stage that wants it for itself; whether that could be told is recorded."""
        if not self._wants_gpu(stage):
            return None
        found = use_by_others(seen_by(command))
        record["gpu"] = {"unknown": found.unknown, "disturbed": None}
        return f"the GPU is used by someone else: {found.by}" if found.by else None

    def _wants_gpu(self, stage: Stage) -> bool:
        return stage["exclusive"] == EXCLUSIVE and self._plan["promises"]["cuda"]

    def _run_command(self, stage: Stage, command: Command) -> Ending:
        """Run the command to its end; CannotStart if it, or the place for it, cannot be had."""
        try:
            self._prepare_places(stage, command)
            self._sabotage[stage.get("beside", "")].begin(stage)
        except OSError as e:  # the disk is full, say
            raise CannotStart(f"{_NO_PLACE}{disk.told(e, self._places.run_dir)}") from e
        limits = stage["limits"]
        ground = self._ground(stage)
        ground.workspace.begin()
        ground.pointers.begin()
        self._journal.append(
            StageStarted(
                event="stage_started",
                stage=stage["name"],
                argv=list(command.argv),
                env=dict(command.env),
                inherited=sorted(inherited()),
            )
        )
        count = PytestCount()
        failures = LiveFailures(stage["name"], self._journal.append)

        def see(piece: bytes) -> None:
            count.see(piece)
            failures.see(piece)

        with self._sampling(stage) as sampler:
            return self._supervisor.run(
                dataclasses.replace(
                    command,
                    env=seen_by(command),
                    beside=[sampler] if sampler else [],
                    on_events=see,
                ),
                Limits(limits["wall"], limits["silence"], limits["grace"]),
                lambda stream, elapsed, log: self._tell_output(stage["name"], stream, elapsed, log, count.told),
            )

    def _sampling(self, stage: Stage) -> ContextManager[Optional[int]]:
        """What samples the GPUs while a stage has them for itself, if it does."""
        if self._wants_gpu(stage):
            return telemetry.sampling(self._places.stage(stage["name"]), stage["limits"]["wall"])
        return contextlib.nullcontext()

    def _prepare_places(self, stage: Stage, command: Command) -> None:
        ground = self._ground(stage)
        self._places.stage(stage["name"]).mkdir(parents=True)
        own = self._places.artifacts / stage.get("folder", "")
        for folder in (Path(command.env["TMPDIR"]), ground.commands.cache, own):
            folder.mkdir(parents=True, exist_ok=True)
        ground.injection.forget()
        config = ground.origins.of(seen_by(command), command.cwd).config
        owed = [a["path"] for a in artifacts_of(stage)]
        ground.injection.tell(stage["name"], {**config, "owed": owed})

    def _tell_output(self, stage: str, stream: str, elapsed: float, log: Log, tests: Optional[Tested]) -> None:
        told = Output(
            event="output",
            stage=stage,
            stream=stream,
            elapsed=elapsed,
            bytes=log.total,
            last_line=log.last_line(),
            tests=tests,
        )
        self._journal.append(told)

    def _run_sabotage(self, stage: Stage, tmp: Path, record: StageRecord) -> None:
        """Of a stage that passed by all else, see whether its tests notice wrong code."""
        sabotage = self._sabotage[stage.get("beside", "")]
        if not sabotage.is_wanted(stage):
            return
        before = rules.judge_stage(dataclasses.replace(self._run, sabotage=False), stage, record, self._statuses)
        if before.status == "passed":
            remove(str(tmp))
            sabotage.run(stage, tmp, record)
            record["files"] += describe_files(self._places.run_dir, kept_output(self._places, stage["name"], record))[0]

    @staticmethod
    def _note_ending(record: StageRecord, ending: Ending) -> None:
        record["started"] = True
        record["exit_code"], record["signal"] = ending.exit_code, ending.signal
        record["ended_by"] = ending.ended_by
        record["seconds"] = ending.seconds
        record["truncated"], record["redacted"] = ending.truncated, ending.redacted
        record["leftovers"] = ending.leftovers

    def _record(self, stage: Stage, record: StageRecord) -> None:
        record["overwritten"] = record["overwritten"][:MOST_NAMED]  # a journal line has an end, however many there are
        record["leftovers"] = record["leftovers"][:MOST_NAMED]
        judgement = rules.judge_stage(self._run, stage, record, self._statuses)
        self._statuses[stage["name"]] = judgement.status
        *ahead, files = in_lines(record["files"])
        for part in ahead:
            self._journal.append(StageFiles(event="stage_files", stage=stage["name"], files=part))
        record["files"] = files
        ended = StageEnded(
            event="stage_ended", stage=stage["name"], status=judgement.status, reason=judgement.reason, **record
        )
        self._journal.append(ended)


def _sources(plan: Plan, places: Layout, grounds: Mapping[str, Ground]) -> Sources:
    commits = commits_of(plan)
    trees = {places.pristine(of["tree"]): grounds[name].manifest for name, of in commits.items()}
    return Sources(places.run_dir, trees, [of["commit"] for of in commits.values()])
