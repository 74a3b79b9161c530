"""Through the real command line: a wrong environment is found by the next validate, rebuilt, and that is said."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.project import Project, local_pod, new_project

RUNBOOK = """
    name: tiny
    environment: {extra: ["tool<2"]}
    stages:
      - name: use
        run: [python, use.py]
        expect: {artifacts: [{path: version.txt, from: stdout}]}
"""
# Waits as long as somebody wants it to.
USE = """
    import os, part, time, tool
    print(tool.__version__, flush=True)
    while os.path.exists(os.environ["WAIT"]):
        time.sleep(0.05)
"""
LINKS = """
    import os, pathlib, tool as linked
    for path in list(pathlib.Path(linked.__file__).parent.parent.rglob("*")):
        if path.is_file():
            os.link(path, f"{os.environ['TMPDIR']}/{path.name}-{path.stat().st_ino}")
"""


@pytest.fixture
def project(tmp_path: Path, uv: Path, index: str) -> Project:
    """A repository whose runbook needs `tool` 1.0, and a pod whose index has it."""
    env = {"PIP_INDEX_URL": index, "PATH": f"{uv.parent}:/usr/bin:/bin", "WAIT": str(tmp_path / "wait")}
    project = new_project(tmp_path, {"local": {**local_pod(tmp_path), "env": env}})
    project.commit({"runbooks/tiny.yaml": RUNBOOK, "use.py": USE})
    return project


def validate(project: Project) -> tuple[dict[str, Any], str]:
    """The environment.json of a passed run, and what was said."""
    outcome = project.validate("--runbook", "tiny")
    assert outcome.exit_code == 0, outcome.stderr
    run = project.root / outcome.json["path"]
    assert (run / "artifacts" / "version.txt").read_text() == "1.0\n"
    return json.loads((run / "environment.json").read_text()), " ".join(outcome.stderr.split())


@pytest.mark.slow
def test_an_environment_changed_by_hand_is_rebuilt_and_that_is_said(project: Project, uv: Path, index: str) -> None:
    environment, _ = validate(project)
    # Three separate facts, whether or not there is any of it.
    assert {"driver", "driver_cuda", "torch_cuda"} <= set(environment)
    for change, said in (
        (["install", "--default-index", index, "tool==2.0"], "tool 1.0 -> 2.0"),
        (["uninstall", "part"], "part 1.5 -> removed"),
    ):
        command = [str(uv), "pip", change[0], "--python", environment["python"], *change[1:]]
        subprocess.run(command, check=True, capture_output=True)
        again, stderr = validate(project)
        assert f"was changed since it was verified: {said}; it is rebuilt" in stderr
        assert (again["key"], again["packages"]) == (environment["key"], {"part": "1.5", "tool": "1.0"})
    assert "rebuilt" not in validate(project)[1]


@pytest.mark.slow
def test_hard_links_that_a_stage_makes_are_no_change(project: Project) -> None:
    """As `cp -al` of an environment does, or a cleaned cache."""
    environment, _ = validate(project)
    project.commit({"use.py": LINKS + USE.strip("\n")})
    again, stderr = validate(project)
    assert (again["key"], "changed" in stderr) == (environment["key"], False)
    assert "rebuilt" not in validate(project)[1]


@pytest.mark.slow
def test_what_bootstrap_and_prune_show_is_for_people(project: Project) -> None:
    """Dictionaries were printed as Python writes them; --json has them as data."""
    made = project.run("bootstrap", "--pod", "local", "--runbook", "tiny")
    key = project.run("bootstrap", "--pod", "local", "--runbook", "tiny", "--json").json["key"]
    assert made.stdout.startswith(f"environment {key}: Python 3.") and "has part 1.5, tool 1.0\n" in made.stdout
    kept = project.here("prune", "--pod", "local", "--keep", "0")
    assert f"kept: environment {key}, " in kept.stdout and ": a laptop is about to use it" in kept.stdout
    assert "nothing was removed" in kept.stdout
    for hold in (project.root.parent / "workdir" / "holds").iterdir():
        hold.unlink()  # as time does
    planned = project.here("prune", "--pod", "local", "--older-than", "7d", "--dry-run", "--json").json
    assert "environment" not in {item["kind"] for item in planned["removed"]} and planned["dry_run"]
    gone = project.here("prune", "--pod", "local", "--keep", "0")
    assert "removed: 1 environment, " in gone.stdout and "the workdir took " in gone.stdout
    for outcome in (made, kept, gone):
        assert outcome.exit_code == 0 and "{" not in outcome.stdout


@pytest.mark.slow
def test_neither_a_rebuild_nor_prune_moves_it_from_under_a_run(project: Project, tmp_path: Path) -> None:
    environment, _ = validate(project)
    root = Path(environment["root"])
    inode = root.stat().st_ino
    (tmp_path / "wait").touch()
    running = project.popen("validate", "--pod", "local", "--runbook", "tiny", "--json")
    runs = tmp_path / "workdir" / "runs"
    end = time.monotonic() + 90
    while sum(path.stat().st_size > 0 for path in runs.glob("*/stages/use/stdout")) < 2:
        assert time.monotonic() < end and running.poll() is None
        time.sleep(0.05)
    kept = project.here("prune", "--pod", "local", "--keep", "0", "--json").json["kept"]
    assert {item["name"]: item["in_use"] for item in kept if item["kind"] == "environment"} == {
        environment["key"]: "a run uses it"
    }
    next(root.glob("lib/python*/site-packages/part/inner.py")).unlink()
    refused = project.run("bootstrap", "--pod", "local", "--runbook", "tiny")
    assert refused.exit_code == 4
    assert "a run that goes on uses it" in " ".join(refused.stderr.split())
    assert root.stat().st_ino == inode

    (tmp_path / "wait").unlink()
    stdout, _ = running.communicate(timeout=90)
    assert json.loads(stdout)["verdict"] == "failed", "its environment was changed while it ran"
    assert "it is rebuilt" in validate(project)[1]
    gone = project.here("prune", "--pod", "local", "--keep", "0", "--json").json["removed"]
    assert [item["name"] for item in gone if item["kind"] == "environment"] == [environment["key"]]
