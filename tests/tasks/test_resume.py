"""Going on with a run whose agent died: only as the same run, and never without saying so."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent import lock
from orchestrator.results import Seen
from orchestrator.shared.journal import Journal
from orchestrator.shared.plan import FORMAT
from tests.support.agent_pod import Pod, Run, artifact, make_environment, said, stage
from tests.support.gated_run import clone, commit, events, finish, validate, wait_until_waiting
from tests.support.project import Project
from tests.support.run_files import make_run, record
from tests.support.waiting import wait_for

SMI = """#!/bin/sh
case "$*" in
*query-gpu*) echo "0, $(cat {uuid}), NVIDIA H200, 550.90.07, 143771, 4, 0, 9.0" ;;
*) echo "| NVIDIA-SMI 550.90.07    Driver Version: 550.90.07    CUDA Version: 12.4     |" ;;
esac
"""
MAKE = "echo 1; mkdir -p out; echo made > out/x; echo free > $NSA_POD_ARTIFACTS/free.txt"
# Leaves all kinds of things half done, and takes the agent with it unless the flag is there: once it has logged "half".
BREAKS = """\
[ -e FLAG ] && echo whole && exit 0
echo half > $NSA_POD_ARTIFACTS/half.txt; echo half > stray; echo half >> README.md; echo half; touch FLAG
until [ -s "$NSA_POD_ARTIFACTS/../stages/breaks/stdout" ]; do sleep 0.01; done
kill -9 $PPID; sleep 60
"""


def three(flag: Path) -> list[dict[str, Any]]:
    """A stage that passes, one in which the agent dies at the first attempt, and one that needs what the first made."""
    made = {"artifacts": [artifact("made.txt", from_="tree:out/x"), artifact("free.txt")]}
    needs = said("needs", ["cat", "out/x"], needs=["makes", "breaks"])
    return [
        stage("makes", ["sh", "-c", MAKE], expect=made),
        said("breaks", ["sh", "-c", BREAKS.replace("FLAG", str(flag))]),
        needs,
    ]


def die(pod: Pod, tmp_path: Path, **over: Any) -> Run:
    """A run whose agent died in its second stage."""
    run = pod.launch({}, three(tmp_path / "flag"), **over)
    run.wait_for("stage_started", stage="breaks")
    pod.ask("holder", str(pod.workdir), "--wait", "20")
    assert pod.ask("status", str(run.path))["state"] == "lost"
    return run


def resume(pod: Pod, run: Run) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(pod.call("launch", str(run.path), "--resume-by", "me@desk", check=False).stdout)
    return answer


def left(run: Run) -> dict[str, bytes]:
    """What the agents before left of the run: its files, but for the agents' own log."""
    found = [p for p in run.path.rglob("*") if p.is_file() and ".git" not in p.parts]
    return {p.relative_to(run.path).as_posix(): p.read_bytes() for p in found if p.name != "agent.log"}


def refused(pod: Pod, run: Run) -> str:
    """Why a run is not gone on with; all that it left is as it was."""
    before = left(run)
    answer = resume(pod, run)
    assert left(run) == before
    assert f"run {run.run_id} cannot be resumed: " in answer["error"]
    return str(answer["error"])


def test_a_run_goes_on_at_its_first_unfinished_stage(pod: Pod, tmp_path: Path) -> None:
    run = die(pod, tmp_path)
    finished = [e for e in run.events if e["event"] == "stage_ended"]
    with (run.path / "journal.jsonl").open("ab") as journal:
        journal.write(b'{"seq":7,"t":1.0,"ev')  # as an agent leaves it that is killed while it writes
    assert resume(pod, run)["run_id"] == run.run_id
    assert {name: j.status for name, j in run.wait().judge().items()} == dict.fromkeys(
        ("makes", "breaks", "needs"), "passed"
    )
    (resumed,) = [e for e in run.events if e["event"] == "run_resumed"]
    assert (resumed["by"], resumed["finished"]) == ("me@desk", ["makes"])
    assert [e["stage"] for e in run.events if e["event"] == "stage_ended"] == ["makes", "breaks", "needs"]
    assert [e for e in run.events if e["event"] == "stage_ended"][:1] == finished
    assert [e["t"] for e in run.events] == sorted(e["t"] for e in run.events), "one clock, one chain"
    assert run.text("stages/breaks/stdout") == "whole\n" and run.text("artifacts/needs.txt") == "made\n"
    assert not (run.path / "artifacts" / "half.txt").exists() and not (run.path / "tree" / "stray").exists()
    assert run.text("interrupted/1/stages/breaks/stdout") == run.text("interrupted/1/artifacts/half.txt") == "half\n"
    assert "has ended (completed)" in refused(pod, run)


@pytest.mark.slow
def test_a_run_may_die_more_than_once(pod: Pod, tmp_path: Path) -> None:
    run = die(pod, tmp_path)
    (tmp_path / "flag").unlink()
    resume(pod, run)
    pod.ask("holder", str(pod.workdir), "--wait", "20")
    assert pod.ask("status", str(run.path))["state"] == "lost"
    resume(pod, run)
    assert [j.status for j in run.wait().judge().values()] == ["passed"] * 3
    assert sum(e["event"] == "run_resumed" for e in run.events) == 2


def test_the_time_before_the_death_counts_against_the_limit(pod: Pod, tmp_path: Path) -> None:
    run = die(pod, tmp_path, limit={"given": "--max-time 1h", "seconds": 3600.0, "spent": 3590.0})
    died_at = run.events[-1]["t"]
    resume(pod, run)
    run.wait()
    (resumed,) = [e for e in run.events if e["event"] == "run_resumed"]
    assert resumed["t"] >= died_at


def test_a_secret_is_needed_again_and_is_not_left_in_what_was_put_aside(pod: Pod, tmp_path: Path) -> None:
    stages = three(tmp_path / "flag")
    stages[1]["argv"][2] = 'echo $TOKEN > "$NSA_POD_ARTIFACTS/leak"; ' + stages[1]["argv"][2]
    stages[1]["secrets"] = ["TOKEN"]
    stages[1]["argv"][2] = stages[1]["argv"][2].replace("echo whole", 'rm "$NSA_POD_ARTIFACTS/leak" && echo whole')
    values = json.dumps({"breaks": {"TOKEN": "correct-horse"}}).encode()
    run = pod.prepare({}, stages)
    pod.call("launch", str(run.path), input=values)
    run.wait_for("stage_started", stage="breaks")
    pod.ask("holder", str(pod.workdir), "--wait", "20")
    assert (run.path / "artifacts" / "leak").read_text() == "correct-horse\n"
    assert "needs the secret TOKEN" in resume(pod, run)["error"]
    pod.call("launch", str(run.path), "--resume-by", "me@desk", input=values)
    assert [j.status for j in run.wait().judge().values()] == ["passed"] * 3
    assert run.text("interrupted/1/stages/breaks/stdout") == "half\n"
    holders = [p for p in pod.workdir.rglob("*") if p.is_file() and b"correct-horse" in p.read_bytes()]
    assert holders == []


def spoil_artifact(run: Run) -> None:
    (run.path / "artifacts" / "free.txt").write_text("forged\n")


def remove_log(run: Run) -> None:
    (run.path / "stages" / "makes" / "stdout").unlink()


def change_journal(run: Run) -> None:
    file = run.path / "journal.jsonl"
    file.write_bytes(file.read_bytes().replace(b'"exit_code":0', b'"exit_code":1', 1))


def cancel(run: Run) -> None:
    (run.path / "cancel.json").write_text(json.dumps({"by": "me@desk", "stolen": False}))


def change_tree(run: Run) -> None:
    (run.pod.workdir / "trees" / run.plan["tree"] / "README.md").write_text("patched\n")


def remove_tree(run: Run) -> None:
    (run.pod.workdir / "trees" / run.plan["tree"]).rename(run.pod.workdir / "elsewhere")


def begin_never(run: Run) -> None:
    (run.path / "journal.jsonl").write_bytes(b"")


REFUSALS: list[tuple[Callable[[Run], None], str]] = [
    (spoil_artifact, "artifacts/free.txt is not as stage makes left it"),
    (remove_log, "stages/makes/stdout is not as stage makes left it"),
    (change_journal, "a line was changed or removed"),
    (cancel, "it was cancelled by me@desk"),
    (change_tree, "is not the commit's tree"),
    (remove_tree, "is not on the pod"),
    (begin_never, "it had not begun"),
]


@pytest.mark.slow
def test_what_is_not_the_same_any_more_is_refused(pod: Pod, tmp_path: Path) -> None:
    for spoil, sentence in REFUSALS:
        (tmp_path / "flag").unlink(missing_ok=True)
        run = die(pod, tmp_path, nonce=spoil.__name__)
        spoil(run)
        assert sentence in refused(pod, run), spoil.__name__
        if spoil in (change_tree, remove_tree):  # with the right tree there again, the run can go on
            gone = pod.workdir / "elsewhere"
            place = pod.workdir / "trees" / run.plan["tree"]
            gone.rename(place) if gone.exists() else (place / "README.md").write_text("tiny\n")
            assert "pid" in resume(pod, run)
            assert [j.status for j in run.wait().judge().values()] == ["passed"] * 3


def test_another_environment_is_refused(pod: Pod, tmp_path: Path) -> None:
    environment = make_environment(tmp_path / "env")
    run = die(pod, tmp_path, environment=environment)
    (site,) = (tmp_path / "env").glob("lib/python*/site-packages")
    (site / "patch.py").write_text("1\n")
    assert "not those that it began with" in refused(pod, run)


def test_another_gpu_is_refused(pod: Pod, tmp_path: Path) -> None:
    """The pod's disk came back in another machine."""
    uuid = tmp_path / "uuid"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "nvidia-smi").write_text(SMI.replace("{uuid}", str(uuid)))
    (tmp_path / "bin" / "nvidia-smi").chmod(0o755)
    pod.env = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    uuid.write_text("GPU-1")
    run = die(pod, tmp_path, promises={"cuda": True})
    uuid.write_text("GPU-2")
    assert "it began on GPU GPU-1, and the pod has GPU GPU-2 now" in refused(pod, run)
    pod.env = {}
    assert "and the pod has no GPU now" in refused(pod, run)
    pod.env = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    uuid.write_text("GPU-1")
    resume(pod, run)
    assert [j.status for j in run.wait().judge().values()] == ["passed"] * 3


def test_a_run_that_goes_on_is_not_resumed(pod: Pod) -> None:
    run = pod.launch({}, [said("s", ["sleep", "30"])])
    assert resume(pod, run)["busy"]["run_id"] == run.run_id
    pod.ask("cancel", str(run.path))
    run.wait()


@pytest.mark.parametrize(
    ("gpu", "fingerprint", "verdict"), [("GPU-1", "a", "passed"), ("GPU-2", "a", "error"), ("GPU-1", "b", "error")]
)
def test_a_journal_that_mixes_machines_is_not_believed(
    tmp_path: Path, gpu: str, fingerprint: str, verdict: str
) -> None:
    """Should a pod's agent not have refused it, the laptop's judge does."""
    run, plan = make_run(tmp_path, {"one": True, "two": True})
    journal = Journal(run.journal_file)
    began = {"format": FORMAT, "run_id": plan["run_id"]}
    journal.append({"event": "run_started", **began, "gpus": [{"uuid": "GPU-1"}]})
    journal.append({"event": "environment_checked", "fingerprint": "a"})
    journal.append({"event": "stage_ended", **record(run, "one")})
    journal.append({"event": "run_resumed", **began, "by": "me@desk", "gpus": [{"uuid": gpu}]})
    journal.append({"event": "environment_checked", "fingerprint": fingerprint})
    journal.append({"event": "stage_ended", **record(run, "two")})
    journal.append({"event": "run_ended", "reason": "completed"})
    journal.close()
    result = run.settle(Seen("ended"))
    assert (result.verdict, result.resumed) == (verdict, 1)
    assert ("gone on with on other" in (result.error or "")) is (verdict == "error")


@pytest.mark.slow
def test_a_run_that_never_began_is_called_so_and_not_chosen(project: Project) -> None:
    """As a launch leaves it for which the pod had no room: a plan, and no line of a journal."""
    commit(project)
    first = validate(project)
    lost = kill_agent(project)
    assert finish(first).json["state"] == "lost"
    workdir = project.root.parent / "workdir"
    wait_for(lambda: lock.holder(workdir) is None)
    (workdir / "lock").unlink()
    (workdir / "lock").mkdir()
    assert "the agent cannot start" in finish(validate(project)).json["error"]
    (workdir / "lock").rmdir()
    fetched = project.here("fetch", "--pod", "local", "--json").json
    assert fetched["run_id"] != lost and fetched["error"].startswith("the run never began: ")
    (project.root.parent / "gate").touch()
    resumed = finish(validate(project, "--resume"))
    assert (resumed.exit_code, resumed.json["run_id"]) == (0, lost), resumed.stderr


# From the laptop ----------------------------------------------------------------------------------------------------


def kill_agent(project: Project) -> str:
    """Kill the agent of the run that waits; the run's id."""
    run_id = wait_until_waiting(project)
    os.kill(next(e["pid"] for e in events(project) if e["event"] == "run_started"), signal.SIGKILL)
    return run_id


def test_resume_from_the_laptop_and_from_another(project: Project, other: Project) -> None:
    gate = commit(project)
    clone(project, other)
    asked = ("validate", "--pod", "local", "--runbook", "r", "--json")
    nothing = project.here(*asked, "--resume")
    assert nothing.exit_code == 4 and "there is nothing to resume" in nothing.json["error"]
    first = validate(project)
    run_id = kill_agent(project)
    lost = finish(first)
    assert (lost.exit_code, lost.json["verdict"], lost.json["state"]) == (4, "error", "lost")
    assert f"--resume {run_id}" in lost.json["error"]

    project.commit({"README.md": "another tree\n"})
    another = project.here(*asked, "--resume", run_id)
    assert another.exit_code == 4 and "whose tree is not that of" in another.json["error"]
    project.write({"runbooks/r.yaml": (project.root / "runbooks" / "r.yaml").read_text() + "# edited\n"})
    edited = project.here(*asked, "--commit", "HEAD~1", "--resume", run_id)
    assert edited.exit_code == 4 and "another content of the runbook" in edited.json["error"]

    gate.touch()
    outcome = finish(validate(other, "--resume"))
    result = outcome.json
    assert (outcome.exit_code, result["run_id"], result["resumed"]) == (0, run_id, 1), outcome.stderr
    assert "resumed once after its agent died" in result["summary"]
    assert [s["status"] for s in result["stages"]] == ["passed"] * 3
    report = (other.root / result["path"] / "report.md").read_text()
    assert "resumed once after its agent died" in report

    fetched = project.here("fetch", "--pod", "local", "--json", run_id).json
    assert (fetched["verdict"], fetched["resumed"], fetched["plan_from"]) == ("passed", 1, "laptop")
    ended = other.here(*asked, "--resume", run_id)
    assert ended.exit_code == 4 and "has ended: nsa-pod fetch" in ended.json["error"]
