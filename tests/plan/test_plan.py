"""Plans: what applies, what is blocked before a pod is touched, and a run id that its content cannot leave."""

from __future__ import annotations

import json
from typing import Any

import pytest

from orchestrator.errors import IntegrityError
from orchestrator.plan.plan import ANY_SM, Capabilities, read_plan, to_json, unmet
from orchestrator.shared.plan import RunbookOrigin, is_not_the_commits
from tests.support.plans import ADA, CPU, RUNBOOK, plan_of


def test_stages_that_do_not_apply_are_left_out_with_what_needs_them() -> None:
    plan = plan_of()
    assert [s["name"] for s in plan["stages"]] == ["cpu", "absent"]
    assert {s["name"]: s["reason"] for s in plan["left_out"]} == {
        "gpu": "when cuda: the pod has no CUDA GPU",
        "after_gpu": "needs gpu, which is left out",
        "ampere": "when sm>=80: the pod has no CUDA GPU",
        "fa2": "when has:flash-attn: the environment does not have it",
    }
    assert [s["name"] for s in plan_of(have=ADA)["stages"]] == ["cpu", "gpu", "after_gpu", "ampere", "fa2", "absent"]


def test_an_unmet_requirement_of_the_runbook_blocks_every_stage() -> None:
    plan = plan_of(RUNBOOK.replace("name: r\n", "name: r\nrequires: [cuda]\n"))
    assert {s["blocked"] for s in plan["stages"]} == {"requires cuda: the pod has no CUDA GPU"}
    assert (len(plan["stages"]), plan["left_out"]) == (6, [])  # also those that `when` would leave out


def test_an_artifact_is_asked_for_by_the_commits_name() -> None:
    asked = (
        "{path: 'a_{commit7}.txt', from: 'tree:{commit}.txt', contains: ['at {commit7}'], lacks: ['{commit}-dirty']}"
    )
    plan = plan_of(f"name: r\nstages: [{{name: a, run: [a], expect: {{artifacts: [{asked}]}}}}]\n")
    commit = plan["commit"]
    assert plan["stages"][0]["expect"]["artifacts"] == [
        {
            "path": f"a_{commit[:7]}.txt",
            "from": f"tree:{commit}.txt",
            "contains": [f"at {commit[:7]}"],
            "lacks": [f"{commit}-dirty"],
        }
    ]


def test_a_path_that_the_commit_lacks_blocks_its_stage() -> None:
    blocked = {s["name"]: s["blocked"] for s in plan_of()["stages"]}
    assert blocked == {"cpu": None, "absent": "missing.py is not in the commit"}


@pytest.mark.parametrize(
    ("named", "is_named"), [("pkg.tests", False), ("pkg.other", True), ("tests", True), ("pkg/other.py", True)]
)
def test_what_pytest_may_take_for_a_module_is_no_path(named: str, is_named: bool) -> None:
    runbook = f"name: r\nstages: [{{name: s, run: [pytest, {named}]}}]\n"
    (stage,) = plan_of(runbook, files=frozenset({"src/pkg/tests/test_a.py"}))["stages"]
    assert (stage["paths"], stage["blocked"] is not None) == ([named] if is_named else [], is_named)


def test_the_stage_s_environment_wins_over_the_pod_s_over_the_runbook_s() -> None:
    stage = plan_of(env={"B": "pod", "C": "pod"})["stages"][0]
    assert stage["env"] == {"A": "runbook", "B": "pod", "C": "stage"}


def test_a_pytest_stage_without_expectation_owes_one_test() -> None:
    assert plan_of()["stages"][0]["expect"]["tests"] == {"min_passed": 1}


def test_artifacts_and_paths_may_be_named_after_the_commit() -> None:
    own = "{path: 'a_{commit7}.txt', from: 'tree:{commit}.txt'}, {path: b}"
    stage = f"{{name: s, run: [x], paths: ['{{artifacts}}/a_{{commit7}}.txt'], expect: {{artifacts: [{own}]}}}}"
    (planned,) = plan_of(f"name: r\nstages: [{stage}]\n")["stages"]
    named, plain = planned["expect"]["artifacts"]
    assert (named["path"], named["from"], plain) == ("a_ccccccc.txt", f"tree:{'c' * 40}.txt", {"path": "b"})
    assert planned["paths"] == ["{artifacts}/a_ccccccc.txt"]


@pytest.mark.parametrize(
    ("source", "committed", "instead", "said"),
    [
        ("repository", True, {}, False),
        ("repository", False, {}, True),
        ("file", True, {}, False),
        ("file", False, {}, True),
        ("packaged", False, {}, False),
        ("packaged", False, {"instead_of": "runbooks/r.yaml"}, True),
    ],
)
def test_whose_runbook_it_is(source: Any, committed: bool, instead: Any, said: bool) -> None:
    origin = RunbookOrigin(name="r", source=source, path="r", sha256="", committed=committed, **instead)
    assert is_not_the_commits(origin) is said


@pytest.mark.parametrize(
    ("condition", "have", "reason"),
    [
        ("cuda", ADA, None),
        ("cuda", CPU, "cuda: the pod has no CUDA GPU"),
        ("sm>=89", ADA, None),
        ("sm>=90", ADA, "sm>=90: the pod has SM 89"),
        ("sm==89", ADA, None),
        ("sm==80", ADA, "sm==80: the pod has SM 89"),
        ("sm==90", Capabilities(ANY_SM, frozenset()), None),
        ("sm==90", CPU, "sm==90: the pod has no CUDA GPU"),
        ("has:flash_attn", ADA, None),
        ("has:triton", ADA, "has:triton: the environment does not have it"),
    ],
)
def test_conditions(condition: str, have: Capabilities, reason: str | None) -> None:
    assert unmet([condition], have) == reason


def test_the_run_id_holds_the_plan_s_hash() -> None:
    plan = plan_of()
    assert read_plan(to_json(plan), "plan.json") == plan
    assert plan["run_id"] != plan_of()["run_id"]
    relaxed = json.loads(to_json(plan))
    relaxed["stages"][0]["expect"]["tests"]["min_passed"] = 2
    with pytest.raises(IntegrityError, match=r"its content is not what run .* was launched with"):
        read_plan(json.dumps(relaxed), "plan.json")
    with pytest.raises(IntegrityError, match="not a plan"):
        read_plan("{}", "plan.json")
