"""`nsa-pod bisect`: halving, passing over what cannot be told, and what makes a commit slower."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import pytest

from orchestrator.config.inventory import Pod
from orchestrator.errors import InputError
from orchestrator.figures import Figure, Identity
from orchestrator.figures.comparison import Comparison, Trial, compare
from orchestrator.git.repository import Repository
from orchestrator.plan.blocks import trials
from orchestrator.report.bisection import Answer, Probe
from orchestrator.tasks.bisect import Search, _BySpeed, commits_between, only
from orchestrator.tasks.request import Asked, find
from tests.support.project import Project

COMMITS = [f"{number:040x}" for number in range(32)]


def search(first_bad: int, unknown: frozenset[int] = frozenset()) -> tuple[list[int], int]:
    """The commits that are left, and how many were probed."""

    def probe(commit: str) -> Probe:
        at = COMMITS.index(commit)
        answer: Answer = "cannot tell" if at in unknown else "bad" if at >= first_bad else "good"
        return Probe(commit=commit, answer=answer, why="", paths=[])

    found = Search(COMMITS, probe)
    return [COMMITS.index(commit) for commit in found.left()], len(found.probes)


@pytest.mark.parametrize("first_bad", range(32))
def test_a_bad_commit_among_32_takes_5_probes(first_bad: int) -> None:
    assert search(first_bad) == ([first_bad], 5)


@pytest.mark.parametrize("first_bad", [0, 7, 15, 16, 31])
def test_what_cannot_be_told_is_passed_over(first_bad: int) -> None:
    left, probes = search(first_bad, frozenset({15, 16, 20}) - {first_bad, first_bad - 1})
    assert left == [first_bad] and probes <= 9
    left, _ = search(15, frozenset({13, 14}))
    assert left == [13, 14, 15], "who cannot be told from the first bad one is named with it"


def session(rng: random.Random, slower: dict[str, float], noise: float = 0.002) -> Iterator[Trial]:
    for trial, _ in trials(["bench"], 20, rng):
        figures = {}
        for row, part in slower.items():
            name = Identity("bench", "a.csv", (("case", row),), "ms")
            factor = 1 + part if trial["side"] == "b" else 1
            figures[name] = Figure(name, "ms", "lower", (factor * rng.gauss(1, noise),))
        yield Trial(trial["block"], trial["side"], figures)


def judged(*comparisons: Comparison) -> list[str]:
    judge = _BySpeed(None, None, None, slower=0.05)  # type: ignore[arg-type]
    return [judge.judge(found)[0] for found in comparisons]


def test_rows_that_the_bad_end_has_slower_tell_the_others() -> None:
    rng = random.Random(20)
    ends = compare(session(rng, {"x": 0.08, "y": 0.0}), 0.025)
    fine = compare(session(rng, {"x": 0.0, "y": 0.3}), 0.025)
    slow = compare(session(rng, {"x": 0.08, "y": 0.0}), 0.025)
    noisy = compare(session(rng, {"x": 0.03, "y": 0.0}, noise=0.2), 0.025)
    assert judged(ends, fine, slow, noisy) == ["bad", "good", "bad", "cannot tell"]
    assert judged(fine) == ["bad"], "whichever row it is"
    assert judged(compare(session(rng, {"x": 0.04}), 0.025)) == ["good"], "not so much slower"


def test_good_has_to_be_before_bad(project: Project) -> None:
    first, second = project.commit(), project.commit()
    repo = Repository.open(project.root)
    assert commits_between(repo, first, second) == [second]
    for good, bad in ((second, first), (first, first)):
        with pytest.raises(InputError, match="expected GOOD to be an ancestor of BAD"):
            commits_between(repo, good, bad)


RUNBOOK = """
name: r
environment: {python: system}
limits: {wall: 60, silence: 60}
stages:
  - {name: tests, run: [python, -m, pytest, -q, test_code.py]}
  - name: bench
    run: [python, bench.py]
    expect:
      artifacts: [{path: b.jsonl, kind: jsonl, figures: {measures: {turns: {unit: turns, better: lower}}}}]
"""
CODE = """
def work(turns={turns}):
    total = 0
    for turn in range(turns):
        total += turn * turn % 7
    return {sign}total
# {number}
"""
BENCH = """
from nsa_pod_bench import Bench
from code_of import work
Bench("b.jsonl", seconds=0.1).time({}, make=tuple, call=work)
"""


def test_a_run_of_one_stage_says_that_it_was_asked_for_no_more(project: Project) -> None:
    project.commit({"runbooks/r.yaml": RUNBOOK, "test_code.py": "", "bench.py": BENCH})
    asked = Asked(lambda: Pod(name="p", transport="local"), project.root, "HEAD", "r")
    assert "partial" not in find(asked).origin
    assert find(asked, lambda runbook: only(runbook, "tests")).origin["partial"]


def planted(project: Project, slow: int, wrong: int) -> None:
    for number in range(33):
        turns, sign = 5500 if number >= slow else 5000, "-" if number >= wrong else ""
        files = {"code_of.py": CODE.format(turns=turns, sign=sign, number=number)}
        if number == 0:
            files |= {"runbooks/r.yaml": RUNBOOK, "bench.py": BENCH}
            files["test_code.py"] = "from code_of import work\ndef test_work(): assert work(10) > 0\n"
        project.commit(files, message=f"commit {number}")


@pytest.mark.slow
def test_a_planted_wrong_commit_among_32_is_found(project: Project) -> None:
    planted(project, slow=99, wrong=11)
    done = project.run("bisect", "HEAD~32", "HEAD", "--stage", "tests", "--pod", "local", "--json")
    assert (done.exit_code, done.json["title"]) == (0, "commit 11"), done.stderr
    assert (done.json["runs"], done.json["log2"]) == (7, 5), "both ends are proved"
    assert {len(probe["paths"]) for probe in done.json["probes"]} == {1}
    turned = project.run("bisect", "HEAD~10", "HEAD", "--stage", "tests", "--pod", "local")
    assert turned.exit_code == 3 and "is not what it is said to be: failed" in turned.stdout


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_planted_slow_commit_among_32_is_found(project: Project) -> None:
    planted(project, slow=21, wrong=99)
    asked = ("--stage", "bench", "--slower", "5%", "--blocks", "16", "--pod", "local", "--json")
    done = project.run("bisect", "HEAD~32", "HEAD", *asked, timeout=1200)
    assert (done.exit_code, done.json["title"]) == (0, "commit 21"), done.stdout + done.stderr
    assert math.ceil(math.log2(32)) + 1 <= done.json["runs"] <= 12
