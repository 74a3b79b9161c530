"""The plan of a comparison: what goes ahead of the timing, and in which order the sides are timed."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.config.runbook import Runbook
from orchestrator.config.yamlfile import loads
from orchestrator.errors import InputError, IntegrityError, PodError
from orchestrator.plan.comparison import before, benches, comparison_plan, harness
from orchestrator.plan.plan import Tree, read_plan, to_json, with_id
from orchestrator.shared.plan import Comparison, Plan, commits_of
from orchestrator.verdict.rules import blocked_by_plan
from orchestrator.verdict.status import Status
from tests.support.plans import plan_of

RUNBOOK = """
name: r
stages:
  - {name: build, run: [make], builds: ["*.so"], expect: {artifacts: [{path: log, from: stdout}]}}
  - {name: unit, run: [pytest, tests]}
  - {name: other, run: [pytest, tests], needs: [build]}
  - name: bench
    run: [python, bench/a.py, "{artifacts}/a.csv"]
    needs: [build, unit]
    expect: {artifacts: [{path: "a_{commit7}.csv", kind: csv, figures: {measures: {ms: {unit: ms, better: lower}}}}]}
  - {name: later, run: [pytest, tests]}
  - name: own
    run: [python, -m, tool.bench]
    harness: ["tool/bench*", "data"]
    expect: {artifacts: [{path: b.json, kind: pytest-benchmark}]}
  - {name: gpu, run: [python, bench/a.py], when: [cuda], expect: {artifacts: [{path: c.json, kind: nvbench}]}}
"""
TOLD = Comparison(a="c" * 40, b="b" * 40, harness=None, threshold=0.01)


@pytest.fixture
def runbook() -> Runbook:
    return loads(RUNBOOK, "r.yaml", Runbook)


def plans() -> tuple[Plan, Plan]:
    a = plan_of(RUNBOOK)
    b: Plan = {**plan_of(RUNBOOK), "commit": "b" * 40, "tree": "8" * 40}
    for stage in b["stages"]:
        for asked in stage["expect"].get("artifacts", ()):
            asked["path"] = asked["path"].replace("ccccccc", "bbbbbbb")
    return a, b


def made(runbook: Runbook, blocks: int = 8, timed: tuple[str, ...] = ("bench",)) -> Plan:
    return comparison_plan(*plans(), runbook, timed, blocks, TOLD).plan


def test_what_measures_is_timed(runbook: Runbook) -> None:
    assert benches(runbook, []) == ["bench", "own", "gpu"]
    assert benches(runbook, ["own"]) == ["own"]
    with pytest.raises(InputError, match="stage 'unit' does not say what it measures"):
        benches(runbook, ["unit"])
    with pytest.raises(InputError, match="has no stage 'bunch'"):
        benches(runbook, ["bunch"])


@pytest.mark.parametrize(
    ("timed", "ahead"),
    [("bench", ["build", "unit"]), ("own", ["build", "unit", "other", "later"])],
)
def test_what_is_needed_and_built_goes_ahead_and_where_that_tests_nothing_all_tests(
    timed: str, ahead: list[str], runbook: Runbook
) -> None:
    assert before(runbook, [timed]) == ahead
    assert before(runbook, ["own"], tests=False) == ["build"]


def test_files_that_measure_are_those_named_or_the_harness(runbook: Runbook) -> None:
    files = frozenset({"bench/a.py", "bench/b.py", "tool/bench.py", "tool/bench_x.py", "tool/core.py", "data/x"})
    tree = Tree("c" * 40, b"", "7" * 40, [], False, files)
    own = {"tool/bench.py", "tool/bench_x.py", "data/x"}
    assert harness(runbook, ["bench", "own"], tree) == {"bench": {"bench/a.py"}, "own": own}
    assert harness(runbook, ["own"], replace(tree, files=frozenset())) == {"own": set()}


def test_both_are_built_and_tested_before_anything_is_timed(runbook: Runbook) -> None:
    plan = made(runbook)
    ahead = [stage for stage in plan["stages"] if "trial" not in stage]
    assert [stage["name"] for stage in ahead] == ["build.a", "build.b", "build.control", "unit.a", "unit.b"]
    trials = plan["stages"][len(ahead) :]
    assert all(stage["needs"] == [each["name"] for each in ahead] for stage in trials)
    assert {stage.get("beside", "") for stage in ahead} == {"", "b", "control"} == set(commits_of(plan))
    commits = {name: of["commit"][:1] for name, of in commits_of(plan).items()}
    assert commits == {"": "c", "b": "b", "control": "c"}


def test_each_block_has_each_side_once_in_an_order_drawn_at_random_and_then_back(runbook: Runbook) -> None:
    blocks: dict[int, list[str]] = {}
    for stage in made(runbook, blocks=60)["stages"]:
        if "trial" in stage:
            blocks.setdefault(stage["trial"]["block"], []).append(stage["trial"]["side"])
    assert all(sorted(order) == ["a", "b", "control"] for order in blocks.values())
    assert all(blocks[block] == blocks[block - 1][::-1] for block in range(1, 60, 2))
    assert len({tuple(order) for order in blocks.values()}) == 6, "all orders of three sides come about"


def test_each_run_has_a_folder_of_its_own_and_artifacts_named_for_its_commit(runbook: Runbook) -> None:
    for stage in made(runbook)["stages"]:
        (asked,) = stage["expect"].get("artifacts") or [{"path": f"{stage['name']}/"}]
        assert stage["folder"] == stage["name"] and asked["path"].startswith(f"{stage['name']}/")
        if "trial" in stage:
            commit = "bbbbbbb" if stage["trial"]["side"] == "b" else "ccccccc"
            assert asked["path"] == f"{stage['name']}/a_{commit}.csv"


def test_a_bench_that_failed_twice_on_one_side_is_not_run_again(runbook: Runbook) -> None:
    stages = [stage for stage in made(runbook)["stages"] if "trial" in stage]
    statuses: dict[str, Status] = dict.fromkeys(stages[0]["needs"], "passed")
    for stage in stages:
        trial, stage["blocked"] = stage["trial"], None
        blocked = blocked_by_plan(stage, statuses)
        assert (blocked is not None) == (trial["block"] >= 2), "one side failed in both of the first two blocks"
        assert blocked is None or re.match(r"needs one of (bench\.0[01]\.\d\.b(, )?){2}, none of which", blocked)
        failed = trial["side"] == "b" or (trial["side"], trial["block"]) == ("a", 0)  # A failed in one: it goes on
        statuses[stage["name"]] = "blocked" if blocked else "failed" if failed else "passed"


def test_the_plan_is_one_that_both_ends_read(runbook: Runbook) -> None:
    plan = made(runbook)
    assert read_plan(to_json(plan), "it") == plan
    other = comparison_plan(*plans(), runbook, ["bench"], 8, TOLD)
    assert other.plan["run_id"] != plan["run_id"]
    assert {other.bases[name] for name in ("build.b", "bench.00.0." + first(other.plan))} == {"build", "bench"}


def first(plan: Plan) -> str:
    return next(stage["trial"]["side"] for stage in plan["stages"] if "trial" in stage)


@pytest.mark.parametrize("wrong", [{"beside": "nobody"}, {"folder": "../up"}, {"folder": "a/b"}])
def test_a_stage_of_no_commit_or_of_a_folder_elsewhere_is_refused(wrong: dict[str, Any], runbook: Runbook) -> None:
    plan = made(runbook)
    plan["stages"][0].update(wrong)  # type: ignore[typeddict-item]
    with pytest.raises(IntegrityError, match=r"expected letters|does not hold"):
        read_plan(to_json(with_id(plan)), "it")


def test_a_bench_that_the_pod_cannot_run_is_said(runbook: Runbook) -> None:
    with pytest.raises(PodError, match="'gpu' is no part of a run on pod 'p': when cuda"):
        made(runbook, timed=("gpu",))
