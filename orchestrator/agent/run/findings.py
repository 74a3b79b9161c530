"""What is found once a stage has ended, before it is judged: its files, what its programs did, where their code and its
figures come from, what it has left in its tree.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Sequence

from orchestrator.agent.evidence import exit_codes
from orchestrator.agent.evidence.collect import Artifacts, describe_files
from orchestrator.agent.evidence.earlier_runs import left_by_others
from orchestrator.agent.evidence.escaped import escaped
from orchestrator.agent.evidence.measuring import Measuring
from orchestrator.agent.evidence.observed import Observed, read_observed
from orchestrator.agent.evidence.programs import Where, leaves_site_out
from orchestrator.agent.evidence.provenance import StageOrigins
from orchestrator.agent.evidence.secret_files import redact_logs, take_away
from orchestrator.agent.layout import Layout
from orchestrator.agent.run import prepare
from orchestrator.agent.run.command import seen_by
from orchestrator.agent.run.ground import Ground
from orchestrator.agent.run.secret_values import Secrets
from orchestrator.agent.run.supervise import Command
from orchestrator.shared.files import walk
from orchestrator.shared.journal import Journal
from orchestrator.shared.plan import Stage, artifacts_of
from orchestrator.shared.pythons import is_python
from orchestrator.shared.stage_record import StageRecord
from orchestrator.shared.text import plain
from orchestrator.verdict.integrity import is_allowed

MOST_NAMED = 100
_ONLY_ASIDE = "its kernels were launched by fixtures alone, and its tests take nothing of them"


@dataclass(frozen=True)
class Findings:
    """Of a stage whose command has ended, for its `record`."""

    places: Layout
    artifacts: Artifacts
    journal: Journal
    secrets: Secrets
    ground: Ground
    stage: Stage
    command: Command
    record: StageRecord

    def note(self, existed: Mapping[str, bool]) -> None:
        """`existed` says of each artifact that is owed whether it was there before."""
        record, ground = self.record, self.ground
        pointers = ground.pointers.read()  # before the agent itself reads some
        delivered = self._note_artifacts(existed)
        self._note_files()
        seen = read_observed(self._folder)
        self._note_work(seen)
        lost = self._note_exit_codes(seen)
        origins = ground.origins.of(seen_by(self.command), self.command.cwd)
        scripts = [file for file in lost.files if self._is_from_before(os.path.normpath(file))]
        record["foreign_modules"] = origins.foreign_modules(seen.origins)
        record["elsewhere"] = origins.elsewhere(seen.origins, scripts)
        figures = self.artifacts.figures(delivered, self._measuring(seen, lost))
        record["borrowed"] = figures.borrowed
        unread = ground.variables.unread(self.stage["env"], [*lost.scripts, " ".join(self.stage["argv"])])
        record["doubts"] = [
            *self._launched_aside(seen),
            *seen.doubts,
            *lost.doubts,
            *figures.doubts,
            *unread,
            *pointers,
            *origins.altered(seen.origins),
            *origins.prebuilt(seen.origins),
            *self._files_from_elsewhere(origins, seen, lost),
        ]
        self._note_tree()
        record["environment_ok"] = ground.installed.is_same()
        if not record["environment_ok"]:
            record["environment_changed"] = ground.installed.changed()[:MOST_NAMED]
        record["journal_ok"] = self.journal.intact()

    @property
    def _folder(self) -> Path:
        return self.places.stage(self.stage["name"])

    def _is_from_before(self, file: str) -> bool:
        return self.artifacts.is_from_before(Path(file))

    def _note_artifacts(self, existed: Mapping[str, bool]) -> Sequence[Mapping[str, Any]]:
        """Those of the stage that are there as they should be."""
        record, tree, owed = self.record, self.ground.places.tree, artifacts_of(self.stage)
        problems = {a["path"]: self.artifacts.deliver(a, self.stage["name"], tree) for a in owed}
        record["artifacts"] = [
            {"path": path, "existed_before": existed[path], "problem": problem} for path, problem in problems.items()
        ]
        delivered = [a for a in owed if problems[a["path"]] is None]
        record["older"] = self.artifacts.older(delivered, tree)
        record["equal_to_committed"] = self.artifacts.equal_to_committed(delivered)
        return delivered

    def _note_files(self) -> None:
        """The stage's own files and the artifacts that it made, but for those that hold a secret value."""
        fresh, self.record["overwritten"] = self.artifacts.made()
        removed = self._without_secrets([*fresh, *self.record["overwritten"]])
        told = (name for name, _ in walk(self._folder) if not name.startswith(f"{prepare.PYTEST_CACHE}/"))
        names = sorted(f"stages/{self.stage['name']}/{name}" for name in told)
        made = [f"artifacts/{name}" for name in fresh if name not in removed]
        self.record["files"], refused = describe_files(self.places.run_dir, [*names, *made])
        self.record["refused"] += refused

    def _without_secrets(self, made: Sequence[str]) -> Dict[str, str]:
        """Redact the stage's own files, take away what of `made` holds a secret value: why, by artifact."""
        record, redactor = self.record, self.secrets.redactor
        record["redacted"].update(redact_logs(self._folder, redactor))
        removed = self.artifacts.take_away(made, redactor)
        for artifact in record["artifacts"]:
            artifact["problem"] = removed.get(artifact["path"], artifact["problem"])
        record["refused"] += [{"path": f"artifacts/{name}", "reason": why} for name, why in removed.items()]
        return removed

    def _note_work(self, seen: Observed) -> None:
        """What was executed where, and whether that was seen."""
        record = self.record
        owes_a_guard = self.stage["pytest"] or is_python(self.command.argv[0])
        record["guarded"] = bool(seen.guarded) if owes_a_guard else seen.guarded
        record["executed"] = seen.execution.executed
        seen_outside = self.command.cuda_watch is not None and self.command.cuda_watch.seen
        record["used_cuda"] = seen.execution.whole.on_cuda or seen_outside
        record["unseen_sessions"] = list(seen.unseen_sessions.values())
        if not self.stage["pytest"]:
            ground = self.ground
            record["escaped"] = escaped(ground.places, self.stage["name"], record["seconds"], ground.manifest)

    def _note_exit_codes(self, seen: Observed) -> exit_codes.Seen:
        """Those that nobody looked at, and the programs that did nothing."""
        record, ground = self.record, self.ground
        bins = (str(ground.injection.venv.bin), *ground.interpreter.bins)
        processes = seen.processes
        if self.stage["pytest"]:
            processes = processes.first(os.getpid(), " ".join(self.stage["argv"]))
        ran = exit_codes.Command(self.stage["argv"], record["exit_code"])
        where = Where(ground.places.tree, self.command.cwd, bins)
        lost = exit_codes.read(self._folder, ran, where, seen.children, processes)
        record["idle_programs"], record["inert_programs"] = list(seen.idle), [*seen.inert, *lost.inert]
        if seen.guarded is None and any(map(leaves_site_out, lost.scripts)):
            record["guarded"] = False
        record["lost_exit_codes"], record["unseen_exit_codes"] = lost.lost, lost.unseen
        return lost

    def _measuring(self, seen: Observed, lost: exit_codes.Seen) -> Measuring:
        return Measuring(
            seen.has_clock,
            seen.unwaited,
            seen.ran_cells,
            [*lost.others, *seen.measures],
            [*lost.scripts, " ".join(self.command.argv)],
            self.command.argv,
            list(seen.read),
            seen_by(self.command),
            self.command.cwd,
        )

    def _launched_aside(self, seen: Observed) -> List[str]:
        launched = sum(executed["launches"] for executed in self.record["executed"].values())
        return [_ONLY_ASIDE] if launched and seen.launched_aside == launched else []

    def _files_from_elsewhere(self, origins: StageOrigins, seen: Observed, lost: exit_codes.Seen) -> Iterator[str]:
        """Doubts of programs and files that are neither the commit's nor the environment's, or an earlier run's."""
        used = [("runs", self.command.argv[0]), *lost.foreign, *(("runs", file) for file in seen.started)]
        foreign = origins.foreign_files([each for each in used if self._is_from_before(each[1])], besides=lost.files)
        linked = [
            (file, f"it reads {plain(file)}, to which {plain(link)} leads, a link of the commit")
            for file, link in seen.linked.items()
            if self._is_from_before(file)
        ]
        read = [file for file in seen.read if file not in seen.linked]
        left = left_by_others(read, seen.named, self.places.run_dir, seen_by(self.command))
        for file, doubt in (*foreign, *linked, *left):
            if not is_allowed(file, self.stage["expect"]):
                yield doubt

    def _note_tree(self) -> None:
        """What the stage did to the tree, which is set in order for the next one."""
        record, ground = self.record, self.ground
        holding: Dict[str, str] = {}

        def is_clean(path: str) -> bool:
            holding.update(take_away(ground.places.tree, [path], self.secrets.redactor))
            return path not in holding

        done = ground.workspace.end(self.stage, is_clean)
        record["refused"] += [{"path": f"tree/{name}", "reason": why} for name, why in holding.items()]
        record["left"], record["built"] = done.told_left, done.told_built
        ground.strays = done.stuck[:MOST_NAMED]
        record["tree"] = {
            "ok": not done.changed,
            "changed": done.changed[:MOST_NAMED],
            "strays": ground.strays,
            "rewritten": done.rewritten[:MOST_NAMED],
            "set_back": done.set_back[:MOST_NAMED],
        }
