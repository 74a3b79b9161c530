"""`nsa-pod compare`: two commits in one run, and two runs that are kept."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from orchestrator.config.inventory import Pod
from orchestrator.errors import InputError
from orchestrator.report.hosts import Hosts
from orchestrator.store.run_directory import RunDirectory
from orchestrator.tasks.compare import Limit, What, find, limit_of, part_of
from orchestrator.tasks.report import Told, written
from orchestrator.tasks.request import Asked
from tests.support.project import Outcome, Project

RUNBOOK = """
name: r
environment: {python: system}
limits: {wall: 60, silence: 60}
stages:
  - name: build
    shell: cp source.txt built.txt
    builds: [built.txt]
    expect: {artifacts: [{path: build.txt, from: "tree:built.txt", reproducible: true}]}
  - {name: tests, run: [python, -m, pytest, -q, test_code.py]}
  - name: bench
    run: [python, bench.py]
    needs: [tests]
    expect:
      artifacts:
        - path: bench.jsonl
          kind: jsonl
          reproducible: true
          figures: {keys: [built], measures: {ms: {unit: ms, better: lower}}}
"""
# What it measures is what the commit says: a machine that others use has no say in this test.
BENCH = """
import json, os, pathlib
import code_of
ms = code_of.MS * {factor}
row = dict(built=len(pathlib.Path("built.txt").read_text()), ms=[ms, ms * 1.001, ms * 0.999])
pathlib.Path(os.environ["NSA_POD_ARTIFACTS"], "bench.jsonl").write_text(json.dumps(row))
"""
TEST = "import code_of\ndef test_code(): assert code_of.MS > 0\n"


@pytest.fixture
def commits(project: Project) -> Project:
    """`fast`; `slow` is 5 % slower, and its own bench would have it twice as fast; `wrong` fails its tests."""
    common = {"runbooks/r.yaml": RUNBOOK, "test_code.py": TEST, "source.txt": "same"}
    project.commit({**common, "code_of.py": "MS = 2.0\n", "bench.py": BENCH.format(factor=1)})
    project.git("tag", "fast")
    project.commit({"code_of.py": "MS = 2.1\n", "bench.py": BENCH.format(factor=0.5)})
    project.git("tag", "slow")
    project.commit({"code_of.py": "MS = -2.0\n"})
    project.git("tag", "wrong")
    return project


def compare(project: Project, *arguments: str) -> Outcome:
    return project.run("compare", *arguments, "--pod", "local", "--blocks", "6", "--json", "--stage", "bench")


def only_row(done: Outcome) -> dict[str, Any]:
    (row,) = done.json["rows"]
    return dict(row)


def test_a_slower_commit_is_found_with_the_first_ones_bench_for_both(commits: Project) -> None:
    done = compare(commits, "fast", "slow", "--fail-on", "slower:3%", "--page", "page.html")
    row = only_row(done)
    assert (done.exit_code, row["answer"], row["why"]) == (1, "slower", ""), done.stderr
    assert row["measured"]["ratio"] == pytest.approx(1.05) and row["control"]["ratio"] == 1.0
    assert (row["row"], row["runs"], row["samples"]) == ({"built": "4"}, 6, 18)
    assert (done.json["false_alarms"], done.json["judged"], done.json["not_timed"]) == (0, 1, [])
    names = {name: commits.git("rev-parse", name) for name in ("fast", "slow")}
    assert (done.json["a"], done.json["b"], done.json["harness"]) == (names["fast"], names["slow"], names["fast"])
    run = commits.root / done.json["path"]
    assert json.loads((run / "comparison.json").read_text()) == done.json
    result = json.loads((run / "result.json").read_text())
    assert "verdict" not in result and {stage["status"] for stage in result["stages"]} == {"passed"}
    (listed,) = json.loads(commits.here("runs", "--json").stdout)
    assert listed["runbook"] == f"compare: {names['fast'][:7]} with {names['slow'][:7]}" and listed["verdict"] is None
    told = "bench: built=4 ms: slower, +5 %"
    kept = RunDirectory(run, done.json["path"])
    forms = Told(kept.rejudge(), kept.plan(), run, Hosts(active=False))
    comment, junit, notes, text = (written(forms, form) for form in ("github", "junit", "annotations", "text"))
    assert json.loads(written(forms, "json")) == done.json
    assert comment.startswith("<!-- nsa-pod comparison r on local -->\n") and "<error" not in junit
    assert notes.startswith("::notice title=nsa-pod::") and "1 slower; 0 of 1 row" in notes
    assert "1 slower; 0 of 1 row" in text
    assert told in (commits.root / "page.html").read_text() and told in comment
    assert f"{3 * row['runs']} runs of benches passed." in comment and "| **slower** |" in comment


def test_a_bench_of_which_no_file_is_known_is_refused_unless_each_has_its_own(commits: Project) -> None:
    file = commits.root / "m.yaml"
    asked = Asked(lambda: Pod(name="local", transport="local"), commits.root, "fast", str(file))
    runbook = RUNBOOK.replace("[python, bench.py]", "[python, -m, bench]")
    file.write_text(runbook)
    with pytest.raises(InputError, match=r"names no file of .* that measures both sides alike: say which ones in its"):
        find(What(asked, "slow", ["bench"]))
    assert find(What(asked, "slow", ["bench"], harness="own")).told["harness"] is None
    file.write_text(runbook.replace("    needs: [tests]", "    harness: [bench.py]"))
    pair = find(What(asked, "slow", ["bench"]))
    bench, code = (pair.b.contents.files[name].blob for name in ("bench.py", "code_of.py"))
    assert bench == pair.a.contents.files["bench.py"].blob and code != pair.a.contents.files["code_of.py"].blob


@pytest.mark.slow
def test_each_its_own_bench_and_a_commit_against_itself(commits: Project) -> None:
    own = compare(commits, "fast", "slow", "--harness", "own")
    assert (own.exit_code, only_row(own)["answer"], own.json["harness"]) == (0, "faster", None)
    same = compare(commits, "fast", "fast", "--fail-on", "slower:3%")
    assert (same.exit_code, only_row(same)["answer"]) == (0, "same")
    shown = commits.run("compare", "slow", "fast", "--pod", "local", "--blocks", "6", "-q")
    assert shown.exit_code == 0 and "faster" in shown.stdout and "0 of 1 row called" in shown.stdout


@pytest.mark.slow
def test_a_side_whose_tests_fail_is_not_timed(commits: Project) -> None:
    done = compare(commits, "fast", "wrong")
    assert done.exit_code == 1 and done.json["rows"] == []
    assert done.json["not_timed"] == [done.json["not_timed"][0]]
    assert done.json["not_timed"][0].startswith("tests.b is failed: ")
    statuses = [
        s["status"] for s in json.loads((commits.root / done.json["path"] / "result.json").read_text())["stages"]
    ]
    assert statuses.count("blocked") == 18 and statuses.count("failed") == 1


@pytest.mark.slow
def test_a_side_whose_bench_never_runs_fails_and_says_why(commits: Project) -> None:
    commits.git("checkout", "-q", "slow")
    commits.commit({"code_of.py": "MS = 2.0\ndel MS\n", "test_code.py": "def test_code(): assert True\n"})
    done = compare(commits, "fast", "HEAD")
    (why,) = done.json["not_timed"]
    assert done.exit_code == 1 and why.startswith("bench of b is failed in 2 of 2 runs: ")
    assert (only_row(done)["answer"], only_row(done)["why"]) == ("cannot tell", "b did not measure it")


@pytest.mark.slow
def test_two_kept_runs_are_shown_and_never_judged(commits: Project) -> None:
    first = commits.validate("--commit", "fast").json
    second = commits.validate("--commit", "slow").json
    began = time.monotonic()
    done = commits.run("compare", first["run_id"], second["path"], "--json")
    assert time.monotonic() - began < 10, "about half a second where nothing else runs"
    assert done.exit_code == 0 and done.json["kind"] == "runs"
    assert done.json["rows"][0]["ratio"] == pytest.approx(0.525), "each has its own bench"
    assert done.json["not_comparable"] == [] and done.json["differences"][0].startswith("bench files: ")
    assert commits.run("compare", first["run_id"], second["path"], "--fail-on", "slower:3%").exit_code == 3
    mixed = commits.run("compare", first["run_id"], "slow")
    assert mixed.exit_code == 2 and "expected two commits or two runs" in mixed.stderr
    (commits.root / second["path"] / "artifacts/bench.jsonl").write_text('{"built": 4, "ms": [0.1]}')
    edited = commits.run("compare", first["run_id"], second["path"], "--json").json
    assert edited["differences"][-1] == "bench: passed and invalid" and edited["rows"][0]["b"] is None


@pytest.mark.parametrize(("text", "limit"), [("slower:3%", Limit("slower", 0.03)), ("faster", Limit("faster", 0.0))])
def test_what_fails_a_comparison(text: str, limit: Limit) -> None:
    assert limit_of(text) == limit


@pytest.mark.parametrize("text", ["slow", "slower:3", "slower:-1%", "slower:x%", "slower:nan%", "same:3%", ""])
def test_what_is_no_limit_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="expected"):
        limit_of(text)


def test_a_percentage() -> None:
    assert part_of(" 2.5% ", "--slower") == 0.025
