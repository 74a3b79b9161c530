"""A stage that begins in a folder of the tree: what it runs, its paths, its evidence."""

from __future__ import annotations

from tests.support.project import Project

RUNBOOK = """\
name: r
environment: {python: system}
limits: {wall: 5m, silence: 90s}
stages:
  - name: tests
    cwd: kernels
    run: [python, -m, pytest, -q, tests/test_it.py]
    env: {WHERE: "{tree}/kernels", WHICH: "{commit7}"}
    limits: {wall: 1h30m}
  - name: script
    cwd: kernels/tools
    run: [bash, where.sh, "{tree}"]
    paths: [../tests, "{tree}/top.txt"]
    builds: [kernels/tools/made.py]
    expect: {artifacts: [{path: "where_{commit7}.txt", from: stdout}, {path: said.txt, from: stderr, contains: [said]}]}
  - name: built
    cwd: kernels/tools
    run: [python, made.py]
    expect: {artifacts: [{path: built.txt, from: stdout}]}
  - name: helper
    cwd: kernels
    run: [python, -m, helper]
    expect: {artifacts: [{path: helper.txt, from: stdout}]}
"""
TEST = """\
import os
import helper
def test_it():
    assert os.getcwd() == os.environ["WHERE"] and len(os.environ["WHICH"]) == 7
    assert helper.__file__ == os.path.join(os.getcwd(), "helper.py")
"""
SCRIPT = 'test "$PWD" = "$1/kernels/tools"\necho "$PWD"\necho said >&2\necho "print(6 * 7)" > made.py\n'
FILES = {
    "runbooks/r.yaml": RUNBOOK,
    "kernels/tests/test_it.py": TEST,
    "kernels/helper.py": "print('helped')\n",
    "kernels/tools/where.sh": SCRIPT,
    "top.txt": "top\n",
}


def test_a_stage_begins_in_its_folder(project: Project) -> None:
    commit = project.commit(FILES)
    outcome = project.validate("--runbook", "r")
    assert outcome.exit_code == 0, outcome.stdout
    assert [s["status"] for s in outcome.json["stages"]] == ["passed"] * 4
    kept = project.root / outcome.json["path"]
    assert (kept / f"artifacts/where_{commit[:7]}.txt").read_text().rstrip().endswith("/tree/kernels/tools")
    assert (kept / "artifacts/built.txt").read_text() == "42\n"
    assert 'name="test_it"' in (kept / "stages/tests/junit.xml").read_text()


def test_a_folder_that_the_commit_lacks_blocks_its_stage(project: Project) -> None:
    runbook = RUNBOOK.replace("cwd: kernels\n    run: [python, -m, h", "cwd: absent\n    run: [python, -m, h")
    project.commit({**FILES, "runbooks/r.yaml": runbook})
    outcome = project.validate("--runbook", "r")
    assert outcome.exit_code == 3
    helper = outcome.stage("helper")
    assert (helper["status"], helper["reason"]) == ("blocked", "absent is not in the commit")
    assert "stages.3.cwd' (helper): absent is not in commit" in outcome.stderr
