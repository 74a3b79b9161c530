"""The main job, from a commit to a verdict, over each transport."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest

from tests.support import gated_run
from tests.support.project import Project
from tests.support.two_stages import FILES, RUNBOOK, TOOL, journal_lines
from tests.support.waiting import wait_for


def files_of(directory: Path) -> set[str]:
    return {p.relative_to(directory).as_posix() for p in directory.rglob("*") if p.is_file()}


def test_a_run_comes_home_whole(any_project: Project) -> None:
    commit = any_project.commit(FILES)
    outcome = any_project.validate("--runbook", "r", pod="p")
    assert outcome.exit_code == 0, outcome.stderr
    result = outcome.json
    assert (result["verdict"], result["state"], result["commit"], result["dirty"]) == ("passed", "ended", commit, False)
    assert result["tree"] == any_project.git("rev-parse", "HEAD^{tree}")
    assert [s["status"] for s in result["stages"]] == ["passed", "passed"]
    directory = any_project.root / result["path"]
    assert result["path"] == f"artifacts/runner/{commit}/{result['run_id']}"
    assert files_of(directory) == {
        "result.json", "manifest.json", "plan.json", "environment.json", "report.md", "journal.jsonl",
        "stages/tests/stdout", "stages/tests/stderr", "stages/tests/observed.jsonl",
        "stages/tests/junit.xml", "stages/tests/pytest.jsonl",
        "stages/tool/stdout", "stages/tool/stderr", "stages/tool/observed.jsonl",
        "artifacts/tests.txt", "artifacts/t.csv", "artifacts/commit.txt",
    }  # fmt: skip
    runner = any_project.root / "artifacts" / "runner"
    assert (runner / commit[:7]).resolve() == directory.parent
    assert (runner / "latest").resolve() == directory
    assert any_project.git("status", "--porcelain") == ""
    assert json.loads((directory / "result.json").read_text()) == result


@pytest.mark.slow
def test_an_older_commit_is_run_as_it_was(any_project: Project) -> None:
    first = any_project.commit({**FILES, "tests/test_it.py": "def test_old(): assert True\n"})
    any_project.commit(FILES)
    result = any_project.validate("--runbook", "r", "--commit", "HEAD~1", pod="p").json
    assert (result["commit"], result["tree"]) == (first, any_project.git("rev-parse", "HEAD~1^{tree}"))
    junit = any_project.root / result["path"] / "stages/tests/junit.xml"
    assert "test_old" in junit.read_text()


@pytest.mark.slow
def test_a_submodule_that_this_clone_does_not_have_is_left_out_and_said(any_project: Project) -> None:
    clean = "assert not subprocess.run(['git', 'status', '--porcelain'], capture_output=True, check=True).stdout\n"
    any_project.commit({**FILES, "tool.py": TOOL + clean})
    any_project.git("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},libs/sub")
    any_project.git("commit", "-q", "-m", "with a submodule")
    outcome = any_project.validate("--runbook", "r", pod="p")
    assert outcome.exit_code == 0, outcome.stderr
    assert "without the submodule libs/sub" in outcome.json["summary"]
    assert "the submodule libs/sub is not in this clone" in outcome.stderr


def test_what_the_commit_does_not_hold_is_not_shipped_and_is_said(project: Project) -> None:
    """A change of a test; a runbook, which the run is judged by."""
    said = "judged by a runbook that the commit does not hold"
    project.commit({**FILES, "runbooks/cpu-smoke.yaml": FILES["runbooks/r.yaml"]})
    assert said not in project.validate("--runbook", "r").json["summary"]
    project.write({"tests/test_it.py": "def test_it(): assert False\n"})
    project.write({"runbooks/r.yaml": FILES["runbooks/r.yaml"] + "# weaker\n"})
    outcome = project.validate("--runbook", "r")
    assert (outcome.exit_code, outcome.json["dirty"]) == (0, True)
    assert said in outcome.json["summary"]
    assert "uncommitted" in outcome.stderr and "tests/test_it.py" in outcome.stderr
    (project.root / "runbooks/cpu-smoke.yaml").unlink()  # then a packaged one takes its place
    plan = project.here("validate", "--pod", "local", "--json", "--runbook", "cpu-smoke", "--dry-run").json
    assert plan["runbook"]["instead_of"] == "runbooks/cpu-smoke.yaml"


def test_a_killed_laptop_loses_nothing(any_project: Project) -> None:
    gate = gated_run.commit(any_project)
    process = any_project.popen("validate", "--pod", "p", "--runbook", "r", "--json")
    try:
        gated_run.wait_until_waiting(any_project)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
        gate.touch()
    outcome = any_project.here("fetch", "--pod", "p", "--json")
    assert (outcome.exit_code, outcome.json["verdict"], outcome.json["state"]) == (0, "passed", "ended"), outcome.stderr
    assert [s["status"] for s in outcome.json["stages"]] == ["passed", "passed", "passed"]


@pytest.mark.parametrize(
    "signum",
    [signal.SIGINT, *(pytest.param(number, marks=pytest.mark.slow) for number in (signal.SIGTERM, signal.SIGHUP))],
)
def test_interrupt_leaves_the_run_alive_and_says_how_to_go_on(project: Project, signum: int) -> None:
    gate = gated_run.commit(project)
    process = gated_run.validate(project)
    wait_for(lambda: any("stage_started" in line for line in journal_lines(project)))
    process.send_signal(signum)
    stdout, stderr = process.communicate(timeout=30)
    gate.touch()
    assert process.returncode == 128 + signum
    assert "nsa-pod follow --pod local" in stderr and "nsa-pod cancel --pod local" in stderr
    assert json.loads(stdout)["verdict"] == "error"
    assert project.run("follow", "--pod", "local", "--json").json["verdict"] == "passed"


def test_cancel_keeps_what_has_run(project: Project) -> None:
    project.commit({**FILES, "tool.py": "import time\ntime.sleep(100)\n"})
    process = project.popen("validate", "--pod", "local", "--runbook", "r", "--json")
    wait_for(lambda: any("stage_started" in line and '"tool"' in line for line in journal_lines(project)))
    assert project.here("cancel", "--pod", "local").exit_code == 0
    stdout, _ = process.communicate(timeout=60)
    result = json.loads(stdout)
    assert (process.returncode, result["verdict"]) == (3, "incomplete")
    assert [s["status"] for s in result["stages"]] == ["passed", "cancelled"]


def test_fetch_never_gives_an_older_green_for_a_launch_that_failed(project: Project) -> None:
    commit = project.commit(FILES)
    green = project.validate("--runbook", "r").json
    launch = json.loads((project.home / "runs" / f"{green['run_id']}.json").read_text())
    launch["run_id"] = "29990101-000000-" + commit[:7] + "-00000000"
    (project.home / "runs" / f"{launch['run_id']}.json").write_text(json.dumps(launch))
    outcome = project.here("fetch", "--pod", "local", "--json")
    assert (outcome.exit_code, outcome.json["verdict"]) == (4, "error")
    assert "does not know it" in outcome.json["error"]
    assert project.here("fetch", "--pod", "local", "--json", green["run_id"]).json["verdict"] == "passed"


def test_a_command_is_no_launch_that_fetch_asks_after(project: Project) -> None:
    """Neither does one that the pod does not know stand for a run, nor does one that it knows hide a run's launch."""
    commit = project.commit(FILES)
    green = project.validate("--runbook", "r").json
    command = project.run("run", "--pod", "local", "--runbook", "r", "--json", "--", "true").json
    records = {name: project.home / "runs" / f"{name}.json" for name in (green["run_id"], command["run_id"])}
    gone = json.loads(records[command["run_id"]].read_text())
    gone["run_id"] = gone["run_id"][:-8] + "00000000"
    (project.home / "runs" / f"{gone['run_id']}.json").write_text(json.dumps({**gone, "number": gone["number"] + 1}))
    assert project.here("fetch", "--pod", "local", "--json").json["run_id"] == green["run_id"]
    lost = {**json.loads(records[green["run_id"]].read_text()), "run_id": f"20261101-000000-{commit[:7]}-00000000"}
    (project.home / "runs" / f"{lost['run_id']}.json").write_text(json.dumps({**lost, "number": 2}))
    records[command["run_id"]].write_text(json.dumps({**gone, "run_id": command["run_id"], "number": 3}))
    assert f"run {lost['run_id']} was launched from here" in project.here("fetch", "--pod", "local").stderr


def test_report_judges_again_and_believes_no_stored_verdict(project: Project) -> None:
    project.commit(FILES)
    result = project.validate("--runbook", "r").json
    directory = project.root / result["path"]
    assert project.here("report", "--json").json == result
    (directory / "environment.json").write_text('{"gpus": [{"name": "NVIDIA H200"}]}')
    assert "H200" not in project.here("report", "--markdown").stdout
    (directory / "artifacts" / "t.csv").write_text("S,ms\n1,2\n3,5\n")
    again = project.here("report", "--json")
    assert (again.exit_code, again.stage("tool")["status"]) == (1, "invalid")
    (directory / "artifacts" / "t.csv").write_text("S,ms\n1,2\n3,4\n")
    relaxed = json.loads((directory / "plan.json").read_text())
    relaxed["stages"].pop()
    (directory / "plan.json").write_text(json.dumps(relaxed))
    refused = project.here("report", "--json")
    assert (refused.exit_code, refused.json["verdict"]) == (2, "error")


def test_dry_run_prints_the_plan_and_contacts_nothing(project: Project) -> None:
    project.commit({**FILES, "runbooks/r.yaml": RUNBOOK.replace("name: tool", "name: tool\n    when: [cuda]")})
    outcome = project.here("validate", "--pod", "local", "--runbook", "r", "--dry-run", "--json")
    assert outcome.stderr.startswith(f"runbook r on commit {outcome.json['commit'][:7]}, pod local\n")
    plan = outcome.json
    assert [s["name"] for s in plan["stages"]] == ["tests"]
    assert [s["name"] for s in plan["left_out"]] == ["tool"]
    page = project.here("validate", "--pod", "local", "--runbook", "r", "--dry-run")
    assert page.exit_code == 0 and re.search(r"runs +tests\s+python -m pytest.*\s+evidence: at least 1", page.stdout), (
        page
    )
    assert re.search(r"left out +tool: when cuda: the pod has no CUDA GPU", page.stdout)
    assert not (project.root / "artifacts").exists()
    assert not (project.root.parent / "workdir").exists()


BAD_INPUT = [
    (["validate", "--pod", "locl"], "unknown pod 'locl'"),
    (["validate", "--pod", "local", "--runbook", "rr"], "unknown runbook 'rr'"),
    (["validate", "--pod", "local", "--runbook", "r", "--commit", "no-such-revision"], "no-such-revision"),
    (["validate", "--pod", "local", "--runbook", "bad"], "bad.yaml:2"),
    (["validate"], "--pod"),
    (["validate", "--pod", "pinned", "--runbook", "r"], "key 'pods.pinned.environment': unknown environment 'torch99'"),
    (["bootstrap", "--pod", "pinned", "--runbook", "r"], "unknown environment 'torch99'"),
    (["bootstrap", "--pod", "pinned", "--runbook", "r", "--explain"], "unknown environment 'torch99'"),
    (["bootstrap", "--pod", "local", "--explain", "--download-wheelhouse", "."], "not both"),
    (["prune", "--pod", "local", "--keep", "2.5"], "'2.5' is not a valid integer"),
    (["prune", "--pod", "local", "--older-than", "a week"], "expected a duration such as"),
    (["prune", "--pod", "local", "--older-than", "7"], "--older-than: expected a duration with its unit"),
    (["prune", "--pod", "local"], "expected --keep or --older-than"),
    (["validate", "--pod", "local", "--repo", "/"], "git repository"),
    (["report"], "no run is kept in"),
    (["fetch", "--pod", "local", "--commit", "no-such-revision"], "no-such-revision"),
    (["no-such-command"], "no-such-command"),
    (["cancel", "--pod", "local", ""], "expected a name, got an empty text"),
    (["fetch", "--pod", "local", ""], "expected a name, got an empty text"),
    (["fetch", "--pod", "local", "--commit", ""], "expected a name, got an empty text"),
    (["report", ""], "expected a name, got an empty text"),
    (["validate", "--pod", "local", "--runbook", ""], "expected a name, got an empty text"),
    (["validate", "--pod", "local", "--artifacts", ""], "expected a name, got an empty text"),
    (["pods", "--inventory", ""], "expected a name, got an empty text"),
    (["validate", "--pod", "local", "--commit", " "], "expected a name, got a blank text"),
    (["report", "--output", "/proc/report.md"], "/proc: expected a folder for the file report.md, and /proc cannot be"),
    (["history", "--output", "runbooks/bad.yaml/page"], "runbooks/bad.yaml: expected a folder for the file page, and"),
    (["compare", "HEAD", "HEAD", "--page", "/proc/a/page.html"], "/proc/a: expected a folder for the file page.html"),
    (["bootstrap", "--pod", "local", "--download-wheelhouse", "/proc/wheels"], "/proc/wheels: expected a folder for"),
    (["report", "--markdown"], "expected --markdown or --json, not both"),
]


@pytest.mark.parametrize(("arguments", "sentence"), BAD_INPUT, ids=lambda v: " ".join(v) if isinstance(v, list) else "")
def test_bad_input_is_one_sentence_and_exit_code_2(project: Project, arguments: list[str], sentence: str) -> None:
    project.commit({**FILES, "runbooks/bad.yaml": "name: bad\nstagess: []\n"})
    pods = json.loads(project.inventory.read_text())["pods"]
    pods["pinned"] = {"host": "127.0.0.1", "port": 9, "environment": "torch99"}  # nobody is there
    project.inventory.write_text(json.dumps({"pods": pods}))
    outcome = project.here(*arguments, "--json")
    assert outcome.exit_code == 2, outcome.stderr
    assert sentence in outcome.json["error"]
    assert outcome.json["verdict"] == "error"
    assert "Traceback" not in outcome.stderr
    assert not (project.root / "artifacts").exists()
