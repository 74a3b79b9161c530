"""Which of two commits is faster: both built and tested on one pod, and their benches run in turn, in one run."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from orchestrator.errors import InputError
from orchestrator.figures import Comparison, comparison_of
from orchestrator.figures.trials import shortfalls
from orchestrator.files import write_atomically
from orchestrator.git.overlay import overlaid
from orchestrator.git.repository import Revision
from orchestrator.launchers.claim import Claim, queue
from orchestrator.plan import comparison as planning
from orchestrator.plan.plan import secret_values
from orchestrator.pod.session import PodSession
from orchestrator.report.comparison import Document, document
from orchestrator.results import Result
from orchestrator.shared.plan import Comparison as Told
from orchestrator.shared.plan import Plan
from orchestrator.store.run_directory import RunDirectory
from orchestrator.tasks.follow import bring_home
from orchestrator.tasks.request import Asked, Request
from orchestrator.tasks.request import find as find_request
from orchestrator.tasks.validate import begin, in_the_way, prepare
from orchestrator.verdict.status import OUTCOMES, Status, verdict_of

Harness = Literal["a", "b", "own"]
MOST_BLOCKS = 99


@dataclass(frozen=True)
class What:
    """Commit `a` (in `asked`) and commit `b`; which stages are timed (none: all that say what they measure), in how
    many blocks, from which part on a row counts as different, and whose bench files measure.
    """

    asked: Asked
    b: str
    stages: Sequence[str] = ()
    blocks: int = 20
    threshold: float = 0.01
    harness: Harness = "a"


@dataclass(frozen=True)
class Pair:
    """What is to be compared, found in the repository: `a` and `b` as the pod gets them, with one harness."""

    what: What
    a: Request
    b: Request
    told: Told

    @property
    def timed(self) -> list[str]:
        return planning.benches(self.a.runbook, self.what.stages)


@dataclass(frozen=True)
class Limit:
    """What makes a comparison fail: an answer, and from which part on."""

    answer: Literal["slower", "faster"]
    part: float

    def is_met(self, found: Comparison) -> bool:
        """Whether a row is that much slower (or faster)."""
        return any(abs(row.excess) >= self.part for row in found.of(self.answer))


@dataclass(frozen=True)
class Compared:
    """A comparison that was made; `result` is that of its run."""

    run: RunDirectory
    result: Result

    @cached_property
    def plan(self) -> Plan:
        return self.run.plan()

    @cached_property
    def not_timed(self) -> list[Status]:
        """Of what had to pass before anything is timed and did not, and of benches that passed in no run of a side."""
        statuses = self.result.statuses
        whole = [one for one in shortfalls(self.plan, statuses) if one.is_whole]
        return [statuses[name] for one in whole for name in one.stages]

    @cached_property
    def figures(self) -> Comparison:
        return comparison_of(self.run.path, self.plan, self.result.statuses)

    @cached_property
    def document(self) -> Document:
        """comparison.json."""
        return document(self.figures, self.plan, self.result)

    def exit_code(self, limit: Limit | None) -> int:
        """0: nothing that was asked for is worse; 1: something is, or a commit's own tests or bench failed; 3: it
        cannot be told; 4: the infrastructure failed.
        """
        if self.result.error:
            return OUTCOMES["error"].exit_code
        if self.not_timed:
            return OUTCOMES[verdict_of(self.not_timed, None, True)].exit_code
        if limit and limit.is_met(self.figures):
            return OUTCOMES["failed"].exit_code
        unsure = not self.figures.rows or (limit and self.figures.of("cannot tell"))
        return OUTCOMES["incomplete" if unsure else "passed"].exit_code


def find(what: What) -> Pair:
    """Both commits; InputError for what does not exist or cannot be compared."""
    asked = dataclasses.replace(what.asked, sabotage=False)
    a = find_request(asked)
    timed = planning.benches(a.runbook, what.stages)
    b = find_request(dataclasses.replace(asked, commit=what.b))
    told = Told(a=a.revision.commit, b=b.revision.commit, harness=None, threshold=what.threshold)
    if what.harness == "a":
        told["harness"] = told["a"]
        b = _measured_by(b, a, asked, timed)
    elif what.harness == "b":
        told["harness"] = told["b"]
        a = _measured_by(a, b, asked, timed)
    return Pair(what, a, b, told)


def _measured_by(request: Request, other: Request, asked: Asked, timed: Sequence[str]) -> Request:
    """The request with the bench files of the other's commit; InputError where that has none."""
    theirs = planning.harness(other.runbook, timed, other.tree)
    own = planning.harness(request.runbook, timed, request.tree)
    without = next((stage for stage, files in theirs.items() if not files), None)
    if without:
        raise InputError(
            f"stage {without!r} names no file of {other.revision.commit[:7]} that measures both sides alike: say which "
            "ones in its `harness`, or give --harness own to compare (docs/figures.md)"
        )
    measuring = set().union(*theirs.values(), *own.values())
    files = {path: other.contents.files.get(path) for path in measuring}
    message = f"{request.revision.commit[:12]} with the bench files of {other.revision.commit[:12]}"
    made: Revision = overlaid(request.repo, request.revision, files, message)
    if made == request.revision:
        return request
    return dataclasses.replace(find_request(dataclasses.replace(asked, commit=made.commit)), dirty=request.dirty)


def compare(pair: Pair, session: PodSession, claim: Claim) -> Compared:
    """Build, test and time both on the session's pod."""
    pair.a.warn(session.progress)
    if pair.b.findings != pair.a.findings:
        for finding in pair.b.findings:
            session.progress.warn(finding)
    if claim.wait:
        queue(session)
    with session.open() as agent:
        facts = session.facts(agent)
        holder = in_the_way(facts, claim)
        if holder:
            raise agent.busy(holder)
        one, other = (prepare(request, agent, facts, session.progress) for request in (pair.a, pair.b))
        made = planning.comparison_plan(one, other, pair.a.runbook, pair.timed, pair.what.blocks, pair.told)
        trials = sum("trial" in stage for stage in made.plan["stages"])
        ahead = len(made.plan["stages"]) - trials
        session.progress.say(f"{ahead} stages build and test the commits, then {trials} runs of benches are timed")
        variables = {name: pair.a.variables[base] for name, base in made.bases.items()}
        run = begin(made.plan, secret_values(made.plan, variables), pair.a, session, agent, claim)
        compared = Compared(run, bring_home(session, agent, run))
    write_atomically(run.path / "comparison.json", json.dumps(compared.document, indent=1) + "\n")
    return compared


def harness_of(text: str) -> Harness:
    """As the command line has it."""
    return "b" if text == "b" else "own" if text == "own" else "a"


def limit_of(text: str) -> Limit:
    """Of `slower:3%`. InputError for what is none."""
    answer, _, part = text.partition(":")
    if answer not in ("slower", "faster"):
        raise InputError(f"--fail-on {text}: expected slower or faster with a part, such as slower:3%")
    return Limit("slower" if answer == "slower" else "faster", part_of(part or "0%", "--fail-on"))


def part_of(text: str, option: str) -> float:
    """0.03 of `3%`. InputError for what is no percentage from 0 to 1000."""
    number = text.strip().removesuffix("%")
    try:
        part = float(number) / 100
    except ValueError:
        part = -1.0
    if not 0 <= part <= 10 or not text.strip().endswith("%"):
        raise InputError(f"{option}: expected a percentage such as 3%, got {text!r}")
    return part
