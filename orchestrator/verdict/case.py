"""A stage before the rules: what was asked of it, what the agent recorded, and the evidence that it left."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, Callable, Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from orchestrator.shared.files import Refused, clause, open_inside
from orchestrator.shared.plan import FORMAT, Stage
from orchestrator.shared.stage_record import Evidence, File
from orchestrator.verdict import execution as executions
from orchestrator.verdict import junit, outcomes
from orchestrator.verdict.artifacts import evidence as artifacts
from orchestrator.verdict.artifacts.kind import Finding
from orchestrator.verdict.expect import Expect
from orchestrator.verdict.status import Status

SESSIONS = "sessions"
"""In a stage's folder: a file for each pytest session that another program, or a test, has started."""

_END_BYTES = 64 << 10


@dataclass(frozen=True)
class Run:
    """What the rules need to know of the run that the stages belong to.

    `sabotage` says whether what the stages ask for of it is part of the run; `format` is its journal's; `devices` are
    the pod's, as routes name them (None: not known); `never_ended` says why a stage has no record; `not_as_recorded`
    names the first file that is not here as the agent recorded it, which only the laptop has to ask.
    """

    directory: Path
    format: int = FORMAT
    devices: Optional[FrozenSet[str]] = None
    sabotage: bool = True
    never_ended: str = "the run ended before it"
    not_as_recorded: Callable[[Evidence], Optional[str]] = lambda evidence: None


class Sessions(NamedTuple):
    """What pytest left: the agent's plugin's account, and the JUnit file; with what is wrong with each, as a sentence.

    `own` are the sessions that the stage consists of: one for a pytest stage, those that a script ran for another;
    `session` is all of them as one; `inner` are those that a test started. `listing` are those that were asked for no
    more than to collect.
    """

    own: List[outcomes.Session]
    session: outcomes.Session
    inner: List[outcomes.Session]
    wrong: Optional[str]
    junit: List[junit.Case]
    junit_wrong: Optional[str]
    listing: Sequence[outcomes.Session] = ()


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
        """Empty for a stage that did not start."""
        if self.record is None or not self.record["started"]:
            return Sessions([], outcomes.Session(), [], None, [], None)
        known, wrong = self._other_sessions()
        others = [s for s in known if not s.only_collects]
        listing = [s for s in known if s.only_collects and s.inside is None and not s.outside]
        if not self.stage["pytest"]:
            own = [s for s in others if s.inside is None]
            inner = [s for s in others if s.inside is not None]
            return Sessions(own, outcomes.merged(own), inner, wrong, [], None, listing)
        session, own_wrong = self._parsed("pytest.jsonl", outcomes.read, outcomes.Session())
        written, junit_wrong = self._parsed("junit.xml", junit.parse, [])
        return Sessions(
            [session],
            session,
            [s for s in others if not s.outside],
            f"the report of the agent's pytest plugin {own_wrong}" if own_wrong else wrong,
            written,
            junit_wrong and f"junit.xml {junit_wrong}",
        )

    @property
    def session(self) -> outcomes.Session:
        return self.sessions.session

    @cached_property
    def artifacts(self) -> List[Finding]:
        """What is wrong with the artifacts that are asked for, in their order."""
        return artifacts.found(self)

    @cached_property
    def execution(self) -> executions.Execution:
        """What was seen to run in its tests; nothing where the report is missing or malformed."""
        found: executions.Execution = self._parsed(executions.FILE, executions.read, executions.Execution())[0]
        return found

    @cached_property
    def ends(self) -> Dict[str, str]:
        """The end of each of the stage's streams; empty where it did not start."""
        return {stream: self._end(stream) for stream in ("stderr", "stdout")}

    def recorded(self, path: str) -> Optional[File]:
        """The record's entry of the file `path` of the run's directory."""
        return next((file for file in self.evidence["files"] if file["path"] == path), None)

    def open(self, path: str) -> AbstractContextManager[BinaryIO]:
        """A file that the record names; Refused for any other."""
        if self.recorded(path) is None:
            raise Refused("is missing")
        return open_inside(self.run.directory, path)

    def _end(self, stream: str) -> str:
        if self.record is not None and self.record["started"]:
            with contextlib.suppress(Refused, OSError), self.open(f"stages/{self.stage['name']}/{stream}") as f:
                f.seek(max(0, f.seek(0, 2) - _END_BYTES))
                return f.read().decode("utf-8", "replace")
        return ""

    def _other_sessions(self) -> Tuple[List[outcomes.Session], Optional[str]]:
        """Those that reported into files of their own; the first that cannot be read."""
        folder = f"stages/{self.stage['name']}/"
        names = [file["path"][len(folder) :] for file in self.evidence["files"] if file["path"].startswith(folder)]
        sessions = []
        wrong = None
        for name in (name for name in names if name.startswith(f"{SESSIONS}/")):
            session, clause = self._parsed(name, outcomes.read, outcomes.Session())
            wrong = wrong or (clause and f"the report of a pytest session, {name}, {clause}")
            if session.started:
                sessions.append(session)
        return sessions, wrong

    def _parsed(self, name: str, parse: Callable[[BinaryIO], Any], nothing: Any) -> Any:
        try:
            with self.open(f"stages/{self.stage['name']}/{name}") as f:
                return parse(f), None
        except (outcomes.Malformed, junit.Malformed, Refused, OSError) as e:
            return nothing, clause(e)
