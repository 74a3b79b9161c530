"""What a stage writes, shown by `logs`: of the copy here, of the pod, of a run that goes on."""

from __future__ import annotations

import shutil

import pytest

from tests.support.gated_run import clone, commit, finish, validate, wait_until_waiting
from tests.support.project import Project
from tests.support.waiting import wait_for

RUNBOOK = """
name: r
environment: {python: system}
stages:
  - {name: talks, run: [python, talks.py], expect: {artifacts: [{path: t.txt, from: stdout}]}}
  - {name: absent, run: [python, absent.py]}
"""
TALKS = "import os, sys\nos.write(1, b'out ' + os.environb[b'TOKEN'] + b'\\n')\nsys.stderr.write('err\\n')\n"


def test_the_copy_here_is_shown_and_else_the_pods(project: Project) -> None:
    project.commit({"runbooks/r.yaml": RUNBOOK + "env: {TOKEN: {secret: hushhush}}\n", "talks.py": TALKS})
    ended = str(project.validate("--runbook", "r").json["run_id"])
    assert project.here("logs", "latest", "talks").stdout == "out ***TOKEN***\n"
    assert project.here("logs", ended[:15], "talks", "--stderr").stdout == "err\n"
    mistyped = project.here("logs", ended, "talk")
    assert mistyped.exit_code == 2 and "has no stage 'talk': did you mean talks?" in mistyped.stderr
    for _ in range(2):
        blocked = project.here("logs", "--pod", "local", ended, "absent", "--follow")
        assert blocked.exit_code == 4 and "did not run: absent.py is not in the commit" in blocked.stderr
        shutil.rmtree(project.root / "artifacts", ignore_errors=True)
    assert project.here("logs", "--pod", "local", ended, "talks", "--stderr").stdout == "err\n"
    unknown = project.here("logs", "--pod", "local", "2019", "talks")
    assert unknown.exit_code == 4 and "knows 0 runs called 2019" in unknown.stderr
    assert project.here("logs", ended, "talks").exit_code == 2  # nobody knows on which pod


@pytest.mark.slow
def test_a_stage_is_followed_from_another_laptop(project: Project, other: Project) -> None:
    gate = commit(project)
    clone(project, other)
    going_on = validate(project)
    run_id = wait_until_waiting(project)
    assert other.here("logs", "--pod", "local", run_id, "first").stdout == "1\n"
    assert other.here("logs", "--pod", "local", run_id, "waits").stdout == ""
    following = other.popen("logs", "--pod", "local", run_id, "last", "--follow")
    wait_for(lambda: following.poll() is None)
    gate.touch()
    assert following.communicate(timeout=120)[0] == "3\n" and following.returncode == 0
    assert finish(going_on).exit_code == 0
