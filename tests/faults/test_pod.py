"""What happens to the pod: its agent killed, a reboot, another machine at the address, a wiped /tmp, full disks."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.agent.host import processes
from tests.support.faults import runs, world
from tests.support.faults.box import Box
from tests.support.project import Project, local_pod, new_project
from tests.support.waiting import wait_for


def validate(project: Project, *more: str) -> runs.Outcome:
    return runs.run(project, "validate", "--pod", "p", "--runbook", "r", *more)


def check_died(project: Project, workdir: Path, outcome: runs.Outcome) -> None:
    """What ended counts, what did not is not run, and the way on is named."""
    runs.check(project, workdir, outcome, "error", "passed", "not_run")
    result = outcome.json
    assert (outcome.exit_code, result["state"]) == (4, "lost")
    assert "the agent died before the run ended; what ran until then is below" in result["error"]
    assert f"--resume {result['run_id']}" in result["error"]


def project_on(boxed: Box, folder: Path) -> Project:
    return new_project(folder, {"p": boxed.entry()})


# The agent and the machine ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_agent_is_killed(project: Project, tmp_path: Path) -> None:
    project.commit(runs.first_and_long(60))
    workdir = tmp_path / "workdir"
    going_on = runs.start(project)
    world.wait_for_event(workdir, "stage_started", stage="long")
    processes.send(signal.SIGKILL, [world.wait_for_agent(workdir)])
    outcome = runs.end(going_on)
    check_died(project, workdir, outcome)
    runs.check(project, workdir, runs.run(project, "fetch", "--pod", "p"), "error", "passed", "not_run")
    project.commit(runs.first_and_long(0.1))
    runs.check(project, workdir, validate(project), "passed", "passed", "passed")


@pytest.mark.slow
def test_the_pod_is_rebooted(boxed: Box, tmp_path: Path) -> None:
    project = project_on(boxed, tmp_path)
    project.commit(runs.first_and_long(60))
    going_on = runs.start(project)
    world.wait_for_event(boxed.workdir, "stage_started", stage="long")
    before = boxed.boot_id
    boxed.power_off()
    time.sleep(1)
    boxed.boot()
    outcome = runs.end(going_on)
    assert "contact lost" in outcome.stderr
    check_died(project, boxed.workdir, outcome)
    project.commit(runs.first_and_long(0.1))
    again = validate(project)
    runs.check(project, boxed.workdir, again, "passed", "passed", "passed")
    booted = [world.events_of(run)[0]["boot_id"] for run in world.runs_of(boxed.workdir)]
    assert sorted(booted) == sorted([before, boxed.boot_id]) and before != boxed.boot_id


@pytest.mark.slow
def test_the_pod_is_replaced(boxed: Box, tmp_path: Path) -> None:
    """During a run, by another machine at the same address: nothing is sent to it, and no older green stands in."""
    entry = {key: value for key, value in boxed.entry().items() if key != "host_key"}
    project = new_project(tmp_path, {"p": entry})
    project.commit(runs.first_and_long(60))
    (tmp_path / "home").mkdir()
    assert runs.run(project, "runs", "--pod", "p", "--accept-new-host-key").exit_code == 0
    going_on = runs.start(project)
    world.wait_for_event(boxed.workdir, "stage_started", stage="long")
    boxed.replace()
    outcome = runs.end(going_on)
    assert outcome.exit_code == 4 and "SHA256:" in outcome.json["error"], outcome.stderr
    assert "--accept-new-host-key" in outcome.json["error"] and not boxed.workdir.exists()
    unknown = runs.run(project, "fetch", "--pod", "p", "--accept-new-host-key")
    assert unknown.exit_code == 4 and "the launch failed or the pod was replaced" in unknown.json["error"]
    project.commit(runs.first_and_long(0.1))
    runs.check(project, boxed.workdir, validate(project), "passed", "passed", "passed")


@pytest.mark.slow
def test_the_disk_of_the_pod_is_gone_and_its_key_is_the_same(project: Project, tmp_path: Path) -> None:
    """What was recorded is at home; of the rest it is said that the pod does not have it."""
    project.commit(runs.first_and_long(60))
    workdir = tmp_path / "workdir"
    going_on = runs.start(project)
    world.wait_for_event(workdir, "stage_started", stage="long")
    artifacts = project.root / "artifacts/runner"
    wait_for(lambda: any(artifacts.glob("*/*/artifacts/first.txt")), "the first stage's files at home")
    agents = [*world.agents(workdir), *(pid for run in world.runs_of(workdir) for pid in processes.marked(run.name))]
    processes.send(signal.SIGSTOP, agents)
    shutil.rmtree(workdir)
    processes.send(signal.SIGKILL, agents)
    outcome = runs.end(going_on)
    assert outcome.exit_code == 4 and "its disk was cleared" in outcome.json["error"], outcome.stderr
    unknown = runs.run(project, "fetch", "--pod", "p")
    assert unknown.exit_code == 4 and "the launch failed or the pod was replaced" in unknown.json["error"]
    [journal] = [j for j in artifacts.glob("*/*/journal.jsonl") if not j.parent.is_symlink()]
    reported = runs.run(project, "report", journal.parent.name)
    assert reported.stage("first")["status"] == "passed" and reported.json["verdict"] != "passed"
    assert (journal.parent / "artifacts/first.txt").read_text() == "one\n"


@pytest.mark.slow
def test_tmp_is_wiped_here_and_on_the_pod(boxed: Box, tmp_path: Path) -> None:
    project = project_on(boxed, tmp_path)
    project.commit(runs.first_and_long(3))
    own = Path("/tmp") / f"nsa-{tmp_path.name[-20:]}"  # short, for the sockets of ssh
    own.mkdir()
    try:
        going_on = runs.start(project, TMPDIR=str(own))
        world.wait_for_event(boxed.workdir, "stage_started", stage="long")
        assert list(own.rglob("*")), "the laptop has something there"
        subprocess.run(["find", str(own), "-mindepth", "1", "-delete"], check=True)
        boxed.wipe_tmp()
        outcome = runs.end(going_on)
    finally:
        subprocess.run(["rm", "-rf", str(own)], check=True)
    runs.check(project, boxed.workdir, outcome, "passed", "passed", "passed")


# Disks --------------------------------------------------------------------------------------------------------------

FILL = """\
import os
with open(os.environ['NSA_POD_ARTIFACTS'] + '/fill', 'wb') as f:
    while True:
        f.write(bytes(1 << 16))
"""
MANY = """\
import os
made = 0
try:
    while True:
        open(os.environ['NSA_POD_ARTIFACTS'] + f'/f{made}', 'w').close()
        made += 1
except OSError as e:
    print(made, 'files, then', e)
"""


def disk_project(workdir: Path, folder: Path) -> Project:
    return new_project(folder, {"p": {**local_pod(folder), "workdir": str(workdir)}})


def fill(file: Path) -> None:
    """Take what is left of the disk."""
    with contextlib.suppress(OSError), file.open("wb", buffering=0) as f:
        while True:
            f.write(bytes(1 << 12))


def free(workdir: Path) -> None:
    for file in workdir.glob("runs/*/artifacts/f*"):
        file.unlink()


@pytest.mark.slow
def test_a_stage_that_fills_the_pods_disk(small_disk: Callable[..., Path], tmp_path: Path) -> None:
    workdir = small_disk("disk", "size=16m") / "workdir"
    project = disk_project(workdir, tmp_path)
    first, last = runs.said("first", "print(1)"), runs.said("last", "print(3)")
    project.commit(runs.files(first, runs.said("fill", FILL), last))
    outcome = validate(project)
    result = outcome.json
    assert runs.statuses(outcome)[:2] == ["passed", "failed"] and result["state"] == "ended", outcome.stderr
    runs.check(project, workdir, outcome, "failed", *runs.statuses(outcome))
    assert world.events_of(workdir / "runs" / result["run_id"])[-1]["event"] == "run_ended"
    fill(workdir / "runs" / result["run_id"] / "artifacts/further")
    full = validate(project)
    assert full.exit_code == 4 and "disk is full (0 B of 16.0 MiB" in full.json["error"], full.stderr
    free(workdir)
    project.commit(runs.files(first, last))
    runs.check(project, workdir, validate(project), "passed", "passed", "passed")


@pytest.mark.slow
def test_stages_that_take_the_journals_reserve_too(small_disk: Callable[..., Path], tmp_path: Path) -> None:
    """The agent cannot even write that it ends: what it died of is found out when somebody asks for it."""
    workdir = small_disk("disk", "size=16m") / "workdir"
    project = disk_project(workdir, tmp_path)
    fills = [runs.said(f"fill{number}", FILL.replace("/fill'", f"/f{number}'")) for number in range(4)]
    project.commit(runs.files(*fills))
    outcome = validate(project)
    assert (outcome.exit_code, outcome.json["state"]) == (4, "lost"), outcome.stderr
    assert "died before the run ended: pod 'p': its disk is full (0 B of 16.0 MiB" in outcome.json["error"]
    free(workdir)
    project.commit(runs.files(runs.said("last", "print(3)")))
    runs.check(project, workdir, validate(project), "passed", "passed")


@pytest.mark.slow
def test_a_stage_that_uses_up_the_pods_inodes(small_disk: Callable[..., Path], tmp_path: Path) -> None:
    workdir = small_disk("disk", "size=60m,nr_inodes=800") / "workdir"
    project = disk_project(workdir, tmp_path)
    last = runs.said("last", "print(3)")
    project.commit(runs.files(runs.said("many", MANY), last))
    outcome = validate(project)
    result = outcome.json
    assert result["state"] == "ended", outcome.stderr
    assert "No space left" in result["stages"][1]["reason"], result
    runs.check(project, workdir, outcome, result["verdict"], *runs.statuses(outcome))
    assert result["verdict"] != "passed"
    full = validate(project)
    assert full.exit_code == 4 and "inodes" in full.json["error"], full.stderr
    free(workdir)
    project.commit(runs.files(last))
    runs.check(project, workdir, validate(project), "passed", "passed")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "more"),
    [("size=300k", "size=60m"), ("size=60m,nr_inodes=8", "nr_inodes=800")],
)
def test_a_full_disk_of_the_laptop(
    project: Project, small_disk: Callable[..., Path], tmp_path: Path, options: str, more: str
) -> None:
    disk = small_disk("disk", options)
    artifacts = disk / "artifacts"
    big = "import os; open(os.environ['NSA_POD_ARTIFACTS'] + '/big', 'wb').write(os.urandom(2_000_000)); print(1)"
    project.commit(runs.files(runs.said("big", big), runs.said("last", "import time; time.sleep(0.5); print(2)")))
    outcome = validate(project, "--artifacts", str(artifacts))
    assert outcome.exit_code == 4 and "this machine's disk is full" in outcome.json["error"], outcome.stderr
    world.check_rest(tmp_path / "workdir")
    subprocess.run(["mount", "-o", f"remount,{more}", str(disk)], check=True)
    fetched = runs.run(project, "fetch", "--pod", "p", "--artifacts", str(artifacts))
    if fetched.exit_code == 4:  # the disk was full before anything could be asked of the pod
        assert "has no run" in fetched.json["error"], fetched.stderr
        fetched = validate(project, "--artifacts", str(artifacts))
    runs.check(project, tmp_path / "workdir", fetched, "passed", "passed", "passed")
