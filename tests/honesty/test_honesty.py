"""Each lie gets its one right status and verdict from the real command line, and its honest twin passes."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.honesty import sabotage_cases
from tests.honesty.case import Case
from tests.honesty.catalogue import CASES, table
from tests.honesty.environment_cases import SHELL, environment
from tests.support import ROOT
from tests.support.project import Outcome, Project, local_pod, new_project

_LIMIT_S = 1100
"""Of a run of some hundred stages, on a machine that has other work too."""


@dataclass
class Stand:
    """Where the cases run, each run in the background; runs that are shared are made once."""

    folder: Path
    workers: ThreadPoolExecutor
    python: str
    shared: dict[str, Future[tuple[Project, Outcome]]] = field(default_factory=dict)

    def begin(self, cases: Sequence[Case]) -> dict[str, Future[Outcome]]:
        """Begin the runs of all `cases`: the shared ones, which take longest, first; who waits for one comes last."""
        for run in {case.shared_run for case in cases if not case.is_alone}:
            together = [case for case in cases if not case.is_alone and case.shared_run == run]
            if not any(case.stages for case in together):  # all of them tamper with what others have run
                together = [case for case in CASES if case.shared_run == run and not (case.is_alone or is_slow(case))]
            self.shared[run] = self.workers.submit(self._together, run, together)
        alone = {case.name: self.workers.submit(self._alone, case) for case in cases if case.is_alone}
        others = [case for case in cases if not case.is_alone]
        return {**alone, **{case.name: self.workers.submit(self._from_shared, case) for case in others}}

    def _alone(self, case: Case) -> Outcome:
        project = self._project(case.name, [case])
        return case.play(project) if case.play else project.validate("--runbook", "r")

    def _together(self, run: str, cases: Sequence[Case]) -> tuple[Project, Outcome]:
        """One run of the cases that need none of their own and belong to this one."""
        project = self._project(run, cases)  # short: programs make sockets below it
        asked = ("validate", "--pod", "local", "--json", "--runbook", "r")
        outcome = project.run(*asked, timeout=_LIMIT_S, **SHELL)
        assert not _missed(project.root / outcome.json["path"]), "what looks on must not fail: it sees nothing then"
        return project, outcome

    def _from_shared(self, case: Case) -> Outcome:
        project, outcome = self.shared[case.shared_run].result()
        if case.tamper is None:
            return outcome
        copy = self.folder / f"{case.name}-run"
        shutil.copytree(project.root / outcome.json["path"], copy)
        case.tamper(copy)
        return project.run("report", "--json", str(copy))

    def _project(self, name: str, cases: Sequence[Case]) -> Project:
        """A repository that holds the cases, with a pod of its own."""
        folder = self.folder / name
        project = new_project(folder, {"local": {**local_pod(folder), "python": self.python}})
        files = {path: text for case in cases for path, text in case.files.items()}
        project.write(files)
        for prepare in (case.prepare for case in cases if case.prepare):
            prepare(project.root)
        project.commit({"runbooks/r.yaml": _runbook(cases)})
        for path, content in (item for case in cases for item in case.beside.items()):
            (project.root / path).parent.mkdir(exist_ok=True)
            (project.root / path).write_bytes(content)
        return project


def _missed(run: Path) -> list[str]:
    """What the agent's hooks could not look at, in the stages of a run."""
    reports = run.glob("stages/*/observed.jsonl")
    return [line for report in reports for line in report.read_text().splitlines() if line.startswith('{"missed"')]


def _runbook(cases: Sequence[Case]) -> str:
    """The runbook of the cases' stages; JSON is YAML."""
    more: dict[str, Any] = {key: value for case in cases for key, value in case.runbook.items()}
    stages: list[Mapping[str, Any]] = [stage for case in cases for stage in case.stages]
    return json.dumps({"name": "r", "environment": {"python": "system"}, **more, "stages": stages})


@pytest.fixture(scope="session")
def outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[Case], Outcome]]:
    """The outcomes of the cases of this session, which all begin when the first is asked for."""
    folder = tmp_path_factory.mktemp("honesty")
    asked = [item.callspec.params.get("case") for item in request.session.items if hasattr(item, "callspec")]
    with ThreadPoolExecutor(os.cpu_count()) as workers:
        stand = Stand(folder, workers, str(environment(folder / "environment")["python"]))
        begun = stand.begin([case for case in asked if isinstance(case, Case)])
        yield lambda case: begun[case.name].result()
        workers.shutdown(cancel_futures=True)


def _beyond_the_first() -> Iterator[str]:
    """The names of lies that share a run, beside whose honest case `_EACH` others stand already."""
    beside = Counter[str]()
    for case in CASES:
        if case.honest and case.stage and not case.is_alone:
            beside[case.honest] += 1
            if beside[case.honest] > _EACH:
                yield case.name


_EACH = 3
_OTHERS = frozenset(_beyond_the_first())


def is_slow(case: Case) -> bool:
    """Honest oddities, tests that are run again with planted faults, and of the lies beside one honest case most."""
    return bool(case.run) or case in sabotage_cases.CASES or case.name in _OTHERS


@pytest.mark.process
@pytest.mark.timeout(_LIMIT_S + 100)  # the first one waits until all have begun
@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case.name, marks=[pytest.mark.slow] if is_slow(case) else []) for case in CASES]
)
def test_what_it_is_called(case: Case, outcomes: Callable[[Case], Outcome]) -> None:
    outcome = outcomes(case)
    assert "Traceback" not in outcome.stderr
    assert outcome.json["verdict"] == case.right_verdict, _not_passed(outcome)
    assert outcome.exit_code == case.right_exit_code
    if case.status is None:
        assert re.search(case.reason, outcome.json.get("error", "")), outcome.json.get("error")
        return
    notes = "\n".join(outcome.json["notes"])
    assert re.search(case.note, notes) if case.note else not notes, notes
    stage = outcome.stage(case.name)
    assert (stage["status"], bool(stage["reason"])) == (case.status, case.status != "passed"), stage
    assert re.search(case.reason, stage["reason"]), stage["reason"]


def _not_passed(outcome: Outcome) -> str:
    """What a run says as a whole, and which stages did not pass: as lines, of which pytest leaves out none."""
    stages = [stage for stage in outcome.json.get("stages", ()) if stage["status"] != "passed"]
    said = [f"{stage['name']} {stage['status']}: {stage['reason']}" for stage in stages]
    return "\n".join([outcome.json.get("error") or outcome.json["summary"], *said])


def test_each_lie_stands_beside_an_honest_case() -> None:
    honest = {case.name for case in CASES if case.honest is None}
    assert set(Counter(case.name for case in CASES).values()) == {1}
    assert all(case.right_verdict == "passed" for case in CASES if case.honest is None)
    assert all(case.right_verdict != "passed" or case.note for case in CASES if case.honest)
    assert {case.honest for case in CASES if case.honest} <= honest


@pytest.mark.skipif(sys.version_info < (3, 11), reason="some cases are written in Python 3.11")
def test_the_documents_list_the_catalogue() -> None:
    assert (ROOT / "docs" / "honesty.md").read_text() == table(), "python -m tests.honesty > docs/honesty.md"
