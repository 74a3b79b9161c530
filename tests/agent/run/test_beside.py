"""A run with stages of two commits: each has its own tree, and what is the other's is foreign to it."""

from __future__ import annotations

from typing import Any

from orchestrator.agent.tidy.survey import survey
from tests.support.agent_pod import COMMIT, Pod, artifact, script, stage

OTHER = "b" * 40
NONE: dict[str, Any] = {"objects": "", "tags": {}}
SHOW = "import code_of, os; print(code_of.NAME, os.environ['NSA_POD_ARTIFACTS'].rpartition('/')[2])"


def beside(pod: Pod, files: dict[str, str]) -> dict[str, Any]:
    parts = {"commit": OTHER, "commit_object": "", "submodules": [], "ancestry": NONE, "tree": pod.add_tree(files)}
    return {"b": {**parts, "environment": pod.environment}}


def of(name: str, argv: list[str], **over: Any) -> dict[str, Any]:
    """A stage with a folder of its own, whose stdout is its artifact."""
    said = artifact(f"{name}/said", from_="stdout", reproducible=True)
    return stage(
        name, argv, **{"folder": name, "env": {"PYTHONPATH": "{tree}"}, "expect": {"artifacts": [said]}, **over}
    )


def test_each_commit_has_its_own_tree_and_each_stage_its_own_folder(pod: Pod) -> None:
    both = [of("one", script(SHOW)), of("two", script(SHOW), beside="b"), of("three", script(SHOW))]
    run = pod.run({"code_of.py": "NAME = 'a'\n"}, *both, beside=beside(pod, {"code_of.py": "NAME = 'b'\n"}))
    assert {name: found.status for name, found in run.judge().items()} == dict.fromkeys(
        ("one", "two", "three"), "passed"
    )
    assert [run.text(f"artifacts/{name}/said") for name in ("one", "two", "three")] == [
        "a one\n",
        "b two\n",
        "a three\n",
    ]
    told = [(e["event"], e.get("tree"), e.get("beside")) for e in run.events if e["event"].endswith("_checked")]
    assert [event for event, _, _ in told] == ["tree_checked", "environment_checked"] * 2
    assert [side for event, _, side in told if event == "environment_checked"] == ["", "b"]
    needs = {need for item in survey(pod.workdir) if item.kind == "run" for need in item.needs}
    assert {f"trees/{run.plan['tree']}", f"trees/{run.plan['beside']['b']['tree']}"} <= needs, "prune keeps both"


def test_code_of_the_other_commits_tree_is_foreign(pod: Pod) -> None:
    lines = "import sys; sys.path.insert(0, '../../../tree'); import helper; print(helper.NAME)"
    files = {"helper.py": "NAME = 'a'\n"}
    honest = of("honest", script("import helper; print(helper.NAME)"))
    run = pod.run(files, honest, of("thief", script(lines), beside="b", env={}), beside=beside(pod, {"x.py": ""}))
    judged = run.judge()
    assert judged["honest"].status == "passed"
    assert judged["thief"].status == "invalid" and "helper came from" in judged["thief"].reason, judged["thief"].reason


def test_what_is_built_is_for_later_stages_of_that_commit_and_a_trial_leaves_nothing(pod: Pod) -> None:
    look = "import os; print(sorted(n for n in os.listdir('.') if n.endswith('.out')))"
    make = "open({0!r}, 'w').write('x'); print('made')"
    trial = {"of": "bench", "block": 0, "side": "b"}
    stages = [
        of("build.b", script(make.format("b.out")), beside="b", builds=["*.out"]),
        of("bench.b", script(make.format("trial.out")), beside="b", builds=["*.out"], trial=trial),
        of("look.b", script(look), beside="b"),
        of("look.a", script(look)),
    ]
    run = pod.run({}, *stages, beside=beside(pod, {"x": "1"}))
    assert {found.status for found in run.judge().values()} == {"passed"}
    assert (run.text("artifacts/look.b/said"), run.text("artifacts/look.a/said")) == ("['b.out']\n", "[]\n")


def test_a_changed_tree_is_charged_to_the_commit_whose_it_is(pod: Pod) -> None:
    wrong = of("wrong", script("open('code_of.py', 'w').write('NAME = 1'); print(1)"), beside="b")
    files = {"code_of.py": "NAME = 'a'\n"}
    run = pod.run(
        files, wrong, of("after", script(SHOW), beside="b"), of("own", script(SHOW)), beside=beside(pod, files)
    )
    statuses = {name: found.status for name, found in run.judge().items()}
    assert statuses == {"wrong": "invalid", "after": "passed", "own": "passed"}


def test_it_is_not_gone_on_with(pod: Pod) -> None:
    run = pod.prepare({}, [of("one", script("print(1)"))], beside=beside(pod, {"x": "1"}))
    done = pod.call("launch", str(run.path), "--resume-by", "me", check=False)
    assert done.returncode != 0 and b"start a new run" in done.stdout + done.stderr
    assert COMMIT in run.text("plan.json")
