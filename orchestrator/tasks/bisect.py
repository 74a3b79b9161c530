"""Which commit made a stage fail, or slower: the commits between a good and a bad one, halved until one is left."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from orchestrator.config.runbook import Runbook
from orchestrator.errors import InputError
from orchestrator.figures import Comparison, Identity
from orchestrator.git.repository import Repository, title_of
from orchestrator.launchers.claim import Claim, queue
from orchestrator.plan.comparison import before
from orchestrator.pod.session import PodSession
from orchestrator.report.bisection import Answer, Document, Probe
from orchestrator.results import Result, StageResult
from orchestrator.tasks import compare as comparing
from orchestrator.tasks.follow import bring_home
from orchestrator.tasks.request import Asked, Request, find
from orchestrator.tasks.validate import in_the_way, start
from orchestrator.text import plain
from orchestrator.verdict.status import Status, verdict_of

_TRIES = 2
_WIDER = 2
"""So many times more blocks are tried, once, before a commit is passed over."""


@dataclass(frozen=True)
class What:
    """`asked` has the good commit; the bad one; the stage; from which part on it is slower (None: by its status)."""

    asked: Asked
    bad: str
    stage: str
    slower: float | None = None
    blocks: int = 20


@dataclass
class Search:
    """Halves `commits` (oldest first, the last one is bad, the one before the first is good); one that cannot be told
    is passed over for its nearest neighbour.
    """

    commits: Sequence[str]
    probe: Callable[[str], Probe]
    probes: list[Probe] = field(default_factory=list)

    def left(self) -> list[str]:
        """The commits among which the first bad one is: one, or those that could not be told from each other."""
        low, high = 0, len(self.commits) - 1  # the first bad one is not before `low`, and not after `high`
        unknown: set[int] = set()
        while True:
            open_ = [index for index in range(low, high) if index not in unknown]
            if not open_:
                return list(self.commits[low : high + 1])
            middle = (low + high - 1) / 2
            index = min(open_, key=lambda at: abs(at - middle))
            found = self.probe(self.commits[index])
            self.probes.append(found)
            if found["answer"] == "good":
                low = index + 1
            elif found["answer"] == "bad":
                high = index
            else:
                unknown.add(index)
            unknown = {at for at in unknown if low <= at < high}


def bisect(what: What, session: PodSession, claim: Claim) -> Document:
    """Prove that the ends are what they are said to be, and search between them. InputError for what cannot be
    searched.
    """
    request = find(dataclasses.replace(what.asked, sabotage=False))
    request.warn(session.progress)
    repo, good = request.repo, request.revision.commit
    bad = repo.revision(what.bad).commit
    commits = commits_between(repo, good, bad)
    if claim.wait:
        queue(session)
    judge: _ByVerdict | _BySpeed
    if what.slower is None:
        judge = _ByVerdict(what, request, session, claim)
        ends = [judge.of(good), judge.of(bad)]
    else:
        judge = _BySpeed(what, session, claim, what.slower)
        ends = [judge.of(bad)]
    wanted: list[Answer] = ["good", "bad"] if what.slower is None else ["bad"]
    wrong = [probe for probe, answer in zip(ends, wanted, strict=True) if probe["answer"] != answer]

    def told(commit: str) -> Probe:
        found = judge.of(commit)
        session.progress.say(f"{commit[:7]} is {found['answer']}: {found['why']}")
        return found

    search = Search(commits, told)
    left = search.left() if not wrong else []
    first = left[0] if len(left) == 1 else None
    why = "; ".join(f"{probe['commit'][:7]} is not what it is said to be: {probe['why']}" for probe in wrong)
    return Document(
        kind="bisect",
        stage=what.stage,
        slower=what.slower,
        good=good,
        bad=bad,
        commits=len(commits),
        first_bad=first,
        title=title_of(repo.commit_object(first)) if first else "",
        why=why or (f"{len(left)} commits cannot be told from each other" if not first else ""),
        left=left,
        probes=[*ends, *search.probes],
        runs=judge.runs,
        log2=math.ceil(math.log2(len(commits))) if len(commits) > 1 else 0,
    )


def commits_between(repo: Repository, good: str, bad: str) -> list[str]:
    """Those after `good` to `bad`, oldest first, by first parents. InputError if `good` is not before `bad`."""
    said = repo.said("rev-list", "--first-parent", "--reverse", f"{good}..{bad}")
    found = (said or b"").decode().split()
    if good == bad or not found or repo.said("merge-base", "--is-ancestor", good, bad) is None:
        raise InputError(f"{good[:7]} is not before {bad[:7]}: expected GOOD to be an ancestor of BAD")
    return found


def only(runbook: Runbook, stage: str) -> Runbook:
    """The runbook with that stage, and what it needs or is built before it. InputError if there is none."""
    if stage not in {each.name for each in runbook.stages}:
        known = ", ".join(each.name for each in runbook.stages)
        raise InputError(f"runbook {runbook.name!r} has no stage {stage!r}: expected one of {known}")
    own = next(each for each in runbook.stages if each.name == stage)
    names = {*before(runbook, [stage], tests=False), own.name}
    return runbook.model_copy(update={"stages": [each for each in runbook.stages if each.name in names]})


@dataclass
class _ByVerdict:
    """A commit is bad where the stage did not pass; what keeps the stage from running says nothing of it."""

    what: What
    first: Request
    session: PodSession
    claim: Claim
    runs: int = 0

    def of(self, commit: str) -> Probe:
        """Evidence that cannot be trusted, and a failure of the infrastructure, get another try."""
        asked = dataclasses.replace(self.what.asked, commit=commit, sabotage=False)
        request = find(asked, lambda runbook: only(runbook, self.what.stage))
        paths: list[str] = []
        for _ in range(_TRIES):
            result = self._run(request)
            self.runs += 1
            paths.append(result.path)
            stage = next((each for each in result.stages if each.name == self.what.stage), None)
            if result.error is None and not (stage and stage.status == "invalid"):
                break
        why = result.error or (_why(stage) if stage else "the stage is no part of a run there")
        answer = _answer(stage.status) if stage and result.error is None else "cannot tell"
        return Probe(commit=commit, answer=answer, why=plain(why), paths=paths)

    def _run(self, request: Request) -> Result:
        with self.session.open() as agent:
            facts = self.session.facts(agent)
            holder = in_the_way(facts, self.claim)
            if holder:
                raise agent.busy(holder)
            return bring_home(self.session, agent, start(request, self.session, agent, facts, self.claim))


@dataclass
class _BySpeed:
    """A commit is bad where rows that the bad end has slower are slower than at the good end, good where they are
    surely not so much slower.
    """

    what: What
    session: PodSession
    claim: Claim
    slower: float
    runs: int = 0
    rows: frozenset[Identity] | None = None

    def of(self, commit: str) -> Probe:
        """More blocks are tried where the first ones do not tell, or did not come about."""
        paths: list[str] = []
        for blocks in (self.what.blocks, min(self.what.blocks * _WIDER, comparing.MOST_BLOCKS)):
            found = self._compare(commit, blocks)
            paths.append(found.result.path)
            probe = self._judged(commit, found, paths)
            if probe["answer"] != "cannot tell":
                break
        return probe

    def _compare(self, commit: str, blocks: int) -> comparing.Compared:
        asked = comparing.What(self.what.asked, commit, [self.what.stage], blocks, self.slower / 2)
        found = comparing.compare(comparing.find(asked), self.session, self.claim)
        self.runs += 1
        return found

    def _judged(self, commit: str, found: comparing.Compared, paths: list[str]) -> Probe:
        if found.result.error or found.not_timed:
            why = found.result.error or "; ".join(found.document["not_timed"])
            return Probe(commit=commit, answer="cannot tell", why=plain(why), paths=paths)
        answer, why = self.judge(found.figures)
        return Probe(commit=commit, answer=answer, why=why, paths=paths)

    def judge(self, found: Comparison) -> tuple[Answer, str]:
        """By the rows that matter: those of the first comparison, of both ends, that were slower."""
        rows = [row for row in found.rows if self.rows is None or row.identity in self.rows]
        slow = [row for row in rows if row.answer == "slower" and row.excess >= self.slower / 2]
        if self.rows is None:
            slow = [row for row in slow if row.excess >= self.slower]
            self.rows = frozenset(row.identity for row in slow) or None
        if slow:
            most = max(slow, key=lambda row: row.excess)
            return "bad", f"{most.identity} is {most.excess:.1%} slower"
        if rows and all(row.is_surely_below(self.slower) for row in rows):
            return "good", f"no row is {self.slower:.3g} slower"
        unsure = next((row for row in rows if not row.is_surely_below(self.slower)), None)
        return "cannot tell", f"{unsure.identity}: {unsure.why or unsure.answer}" if unsure else "nothing was measured"


def _answer(status: Status) -> Answer:
    verdict = verdict_of([status], None, True)
    return "good" if verdict == "passed" else "bad" if verdict == "failed" else "cannot tell"


def _why(stage: StageResult) -> str:
    return f"{stage.status}: {stage.reason}" if stage.reason else stage.status
