"""What is known before a pod is contacted: all of it is said at once, by every verb that reads a runbook."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.support.project import Project, with_pod

WRONG = """\
name: wrong
stages:
  - name: one
    run: [python, -m, pytest, tests/test_b.py]
    limts: {wall: 10m}
  - nam: two
    run: [bash, -c, ./go.sh]
    limits: {wall: ten}
    expect: {tests: {}, artifacts: [{path: a.txt, form: stdout}]}
  - name: three
    run: x
    needs: [onee]
    expect: {artifacts: [{path: a.txt}, {path: b, kind: csv, checks: [{finit: all}]}]}
  - name: one
    run: [a]
    expect: {artifacts: [{path: a.txt}]}
"""
SENTENCES = [
    "wrong.yaml:5: key 'stages.0.limts' (one): unknown key: did you mean limits?",
    "wrong.yaml:6: key 'stages.1.nam': unknown key: did you mean name?",
    "wrong.yaml:8: key 'stages.1.limits.wall': expected a duration such as 90m",
    "wrong.yaml:9: key 'stages.1.expect.artifacts.0.form': unknown key: did you mean from?",
    "wrong.yaml:9: key 'stages.1.expect.tests': expected only of a stage that runs pytest",
    "wrong.yaml:11: key 'stages.2.run' (three): expected a list, got 'x'",
    "wrong.yaml:12: key 'stages.2.needs.0' (three): stage 'three' needs 'onee': expected an earlier stage",
    "wrong.yaml:13: key 'stages.2.expect.artifacts.1.checks.0.finit' (three): unknown key: did you mean finite",
    "wrong.yaml:14: key 'stages.3.name': expected one stage of each name, got two called 'one'",
    "wrong.yaml:16: key 'stages.3.expect.artifacts.0.path' (one): artifact 'a.txt': expected one owner",
]
ABSENT = """\
name: absent
environment: {python: system}
stages:
  - name: tests
    run: [python, -m, pytest, -q, tests/test_b.py]
  - name: script
    run: [bash, go.sh]
    expect: {artifacts: [{path: a.txt, from: stdout}]}
  - name: silent
    run: [python, -c, print(1)]
  - name: good
    run: [python, -m, pytest, -q, tests/test_a.py]
  - name: piped
    run: [pytest, tests/test_a.py, "|", tee, log]
  - name: one_word
    run: [pytest -q tests/test_a.py]
"""
FINDINGS = [
    "absent.yaml:5: key 'stages.0.run.4' (tests): tests/test_b.py is not in commit {}: did you mean tests/test_a.py?",
    "absent.yaml:7: key 'stages.1.run.1' (script): go.sh is not in commit {}",
    "absent.yaml:9: key 'stages.2' (silent): stage 'silent' asks for no evidence: expected artifacts, or the tests",
    "absent.yaml:14: key 'stages.4.run.2' (piped): | is a shell's, and `run` has none: expected the line under `shell`",
    "absent.yaml:16: key 'stages.5.run.0' (one_word): 'pytest -q tests/test_a.py' is taken for one program's name: "
    "expected each word by itself, [pytest, -q, tests/test_a.py]",
]
GOOD = "name: good\nenvironment: {python: system}\nstages: [{name: a, run: [pytest, tests]}]\n"
FILES = {"tests/test_a.py": "def test_a(): assert True\n"}


@pytest.mark.parametrize(
    "verb",
    [
        ["check", "wrong"],
        ["validate", "--pod", "local", "--runbook", "wrong"],
        ["check", "--runbook", "runbooks/wrong.yaml"],
    ],
)
def test_all_that_is_wrong_with_a_runbook_is_said_at_once(project: Project, verb: list[str]) -> None:
    project.commit({**FILES, "runbooks/wrong.yaml": WRONG})
    outcome = project.here(*verb, "--json")
    assert outcome.exit_code == 2
    errors = outcome.json["errors"]
    assert len(errors) == len(SENTENCES), errors
    assert [s for s, error in zip(SENTENCES, errors, strict=True) if s not in error] == []
    assert all(f"error: {error}" in outcome.stderr for error in errors)


def test_what_is_wrong_with_the_inventory_is_said_beside_it(project: Project) -> None:
    project.commit({**FILES, "runbooks/wrong.yaml": WRONG})
    project.inventory.write_text("pods:\n  local: {transport: local, runbok: x}\n  gpu: {host: x, port: 99999}\n")
    for verb in (["check", "wrong"], ["validate", "--pod", "local", "--runbook", "wrong"]):
        outcome = project.here(*verb, "--json")
        assert outcome.exit_code == 2 and len(outcome.json["errors"]) == len(SENTENCES) + 2
        assert "pods.yaml:2: key 'pods.local.runbok': unknown key: did you mean runbook" in outcome.json["error"]
        assert "pods.yaml:3: key 'pods.gpu.port': expected at most 65535, got 99999" in outcome.json["error"]


def test_what_the_inventory_names_exists(project: Project) -> None:
    project.commit({**FILES, "runbooks/good.yaml": GOOD})
    with_pod(project, runbook="goood", environment="torch99")
    outcome = project.here("check", "good")
    assert outcome.exit_code == 2
    assert "key 'pods.local.runbook': unknown runbook 'goood': did you mean good?" in outcome.stderr
    assert "key 'pods.local.environment': unknown environment 'torch99'" in outcome.stderr


def test_a_missing_path_and_a_stage_without_evidence_are_found_by_all(project: Project) -> None:
    commit = project.commit({**FILES, "runbooks/absent.yaml": ABSENT})
    findings = [sentence.format(commit[:7]) for sentence in FINDINGS]
    checked = project.here("check")
    dry = project.here("validate", "--pod", "local", "--dry-run")
    ran = project.validate()
    assert (checked.exit_code, dry.exit_code, ran.exit_code) == (2, 3, 1)
    for outcome in (checked, dry, ran):
        assert [finding for finding in findings if finding not in outcome.stderr] == [], outcome.stderr
    statuses = [s["status"] for s in ran.json["stages"]]
    assert statuses == ["blocked", "blocked", "invalid", "passed", "blocked", "blocked"]
    assert ran.stage("silent")["reason"] == "no evidence asked"
    assert "4 blocked" in dry.stdout and "go.sh is not in the commit" in dry.stdout


def test_nothing_wrong_is_said_too(project: Project) -> None:
    commit = project.commit({**FILES, "runbooks/good.yaml": GOOD})
    outcome = project.here("check")
    assert outcome.exit_code == 0 and f"runbooks/good.yaml on {commit[:7]}" in outcome.stdout
    assert project.here("check", "--json", "--pod", "local").json["commit"] == commit
    assert project.here("check", "--pod", "locl").exit_code == 2


def test_a_repository_without_a_runbook_is_told_what_to_run(project: Project) -> None:
    project.commit(FILES)
    for verb in (["check"], ["validate", "--pod", "local"], ["validate", "--pod", "local", "--dry-run"]):
        outcome = project.here(*verb)
        assert outcome.exit_code == 2
        assert outcome.stderr.count("\n") == 1
        assert f"{project.root} has no runbook: `nsa-pod init {project.root}` writes one" in outcome.stderr
    assert project.here("validate", "--pod", "local", "--runbook", "cpu-smoke", "--dry-run", "--json").json["stages"]


def test_a_bare_repository_is_said_to_be_one(project: Project) -> None:
    project.commit(FILES)
    bare = project.root.parent / "bare.git"
    subprocess.run(["git", "clone", "-q", "--bare", str(project.root), str(bare)], check=True)
    for verb in (["check", "--repo", str(bare)], ["init", str(bare)], ["init", ".git"]):
        outcome = project.here(*verb)
        assert outcome.exit_code == 2 and "is a bare repository" in outcome.stderr
    assert not (bare / "pods.yaml").exists()
    project.write({"good.yaml": GOOD})
    dry = ["validate", "--pod", "local", "--dry-run", "--repo", str(bare), "--runbook", "good.yaml"]
    assert project.here(*dry).exit_code == 0


def test_the_runbook_that_is_meant(project: Project) -> None:
    """The pod's own; else the usual one, the only one; of several, nobody guesses."""

    def chosen() -> str:
        outcome = project.here("validate", "--pod", "local", "--dry-run", "--json")
        return outcome.json["runbook"]["path"] if outcome.exit_code == 0 else outcome.json["error"]

    project.commit({**FILES, "runbooks/one.yaml": GOOD})
    assert chosen() == "runbooks/one.yaml"
    project.commit({"runbooks/two.yaml": GOOD})
    assert "has several runbooks: expected --runbook with one of one, two" in chosen()
    with_pod(project, runbook="two")
    assert chosen() == "runbooks/two.yaml"
    with_pod(project, runbook=None)
    project.commit({"runbooks/cpu-smoke.yaml": GOOD})
    assert chosen() == "runbooks/cpu-smoke.yaml"


def test_what_init_writes_is_right(project: Project) -> None:
    project.commit(FILES)
    first = project.here("init")
    written = [line.removeprefix("./") for line in first.stdout.split()]
    assert written == [
        "pods.yaml",
        "runbooks/validate.yaml",
        "runbooks/.schema/pods.json",
        "runbooks/.schema/runbook.json",
    ]
    project.inventory.unlink()
    assert project.here("check", NSA_POD_INVENTORY="pods.yaml").exit_code == 0
    before = (project.root / "runbooks/validate.yaml").read_text()
    again = project.here("init")
    assert (again.exit_code, again.stdout) == (0, "")
    assert "kept pods.yaml" in again.stderr and "kept runbooks/validate.yaml" in again.stderr
    assert (project.root / "runbooks/validate.yaml").read_text() == before
    assert json.loads((project.root / "runbooks/.schema/runbook.json").read_text())["title"]
    assert "note:" not in again.stderr
    project.write({"pyproject.toml": "[project\n"})
    assert "note: pyproject.toml is not valid TOML, and nothing of it was taken: " in project.here("init").stderr


def test_init_reads_what_may_be_committed(project: Project) -> None:
    package = {"pyproject.toml": "[project]\nname = 'fast'\n", "fast/__init__.py": "from ._version import version\n"}
    ignored = {"fast/_version.py": "", "made/test_made.py": "import numpy\n"}
    tests = {"fast/tests/test_x.py": "", "more/test_y.py": ""}
    project.commit({**package, **tests, ".gitignore": "_version.py\nmade/\n"})
    project.write(ignored)
    assert "2 test files" in project.here("init").stderr
    text = (project.root / "runbooks/validate.yaml").read_text()
    assert "numpy" not in text and "run: [pytest, -q, --pyargs, fast.tests]" in text


def test_where_no_results_can_be_kept_is_said_before_anything_is_run(project: Project) -> None:
    project.commit({**FILES, "runbooks/good.yaml": GOOD})
    project.write({"kept": "a file"})
    asked = ["validate", "--pod", "local", "--json", "--runbook", "good", "--artifacts"]
    outcome = project.here(*asked, "kept/here")
    assert outcome.exit_code == 2, outcome.stderr
    assert "kept/here/runner: expected a folder for results, and " in outcome.json["error"]
    outcome = project.here(*asked, "/proc/kept")
    assert outcome.exit_code == 2 and "and /proc cannot be written to" in outcome.json["error"]
    outcome = project.here(*asked[:-1], NSA_POD_HOME="/proc/home")
    assert outcome.exit_code == 2 and "/proc/home: expected a folder for what is remembered" in outcome.json["error"]
    assert not (project.root.parent / "workdir").exists()


def test_a_patch_of_an_impossible_name_is_bad_input(project: Project) -> None:
    stage = f"{{name: a, run: [pytest, tests], expect: {{mutants: [{{patch: {'x' * 300}}}]}}}}"
    project.commit({**FILES, "runbooks/good.yaml": f"name: good\nstages: [{stage}]\n"})
    outcome = project.here("check", "--json")
    assert outcome.exit_code == 2 and "expected a patch in the commit, or beside the runbook" in outcome.json["error"]
