"""A stage before the rules: what was asked of it, what the agent recorded, and the evidence that it left."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, Callable, FrozenSet, List, Mapping, NamedTuple, Optional

from orchestrator.shared.files import Refused, clause, open_inside
from orchestrator.shared.plan import FORMAT, Stage
from orchestrator.shared.stage_record import Evidence, File
from orchestrator.verdict import execution as executions
from orchestrator.verdict import junit, outcomes
from orchestrator.verdict.expect import Expect
from orchestrator.verdict.status import Status


@dataclass(frozen=True)
class Run:
    """What the rules need to know of the run that the stages belong to.

    `format` is its journal's; `devices` are the pod's, as routes name them (None: not known); `never_ended` says why a
    stage has no record; `not_as_recorded` names the first file that is not here as the agent recorded it, which only
    the laptop has to ask.
    """

    directory: Path
    format: int = FORMAT
    devices: Optional[FrozenSet[str]] = None
    never_ended: str = "the run ended before it"
    not_as_recorded: Callable[[Evidence], Optional[str]] = lambda evidence: None


class Sessions(NamedTuple):
    """What pytest left: the agent's plugin's account, and the JUnit file; with what is wrong with each, as a clause."""

    session: outcomes.Session
    wrong: Optional[str]
    junit: List[junit.Case]
    junit_wrong: Optional[str]


@dataclass
class Case:
    """`record` is None where the stage never ended; `statuses` are those of the stages before it."""

    run: Run
    stage: Stage
    record: Optional[Evidence]
    statuses: Mapping[str, Status] = field(default_factory=dict)
    malformed: Optional[str] = None

    @property
    def evidence(self) -> Evidence:
        """The record, for the rules that come after those about its absence."""
        if self.record is None:
            raise ValueError(f"stage {self.stage['name']} has no record")
        return self.record

    @property
    def expect(self) -> Expect:
        return self.stage["expect"]  # type: ignore[return-value]

    @cached_property
    def sessions(self) -> Sessions:
        """Empty for a stage that runs no pytest, or did not start."""
        if self.record is None or not self.record["started"] or not self.stage["pytest"]:
            return Sessions(outcomes.Session(), None, [], None)
        session, wrong = self._parsed("pytest.jsonl", outcomes.read, outcomes.Session())
        written, junit_wrong = self._parsed("junit.xml", junit.parse, [])
        return Sessions(
            session,
            wrong and f"the report of the agent's pytest plugin {wrong}",
            written,
            junit_wrong and f"junit.xml {junit_wrong}",
        )

    @property
    def session(self) -> outcomes.Session:
        return self.sessions.session

    @cached_property
    def execution(self) -> executions.Execution:
        """What was seen to run in its tests; nothing where the report is missing or malformed."""
        found: executions.Execution = self._parsed(executions.FILE, executions.read, executions.Execution())[0]
        return found

    def recorded(self, path: str) -> Optional[File]:
        """The record's entry of the file `path` of the run's directory."""
        return next((file for file in self.evidence["files"] if file["path"] == path), None)

    def open(self, path: str) -> AbstractContextManager[BinaryIO]:
        """A file that the record names; Refused for any other."""
        if self.recorded(path) is None:
            raise Refused("is missing")
        return open_inside(self.run.directory, path)

    def _parsed(self, name: str, parse: Callable[[BinaryIO], Any], nothing: Any) -> Any:
        try:
            with self.open(f"stages/{self.stage['name']}/{name}") as f:
                return parse(f), None
        except (outcomes.Malformed, junit.Malformed, Refused, OSError) as e:
            return nothing, clause(e)
