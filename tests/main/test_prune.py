"""A pod that is pruned: while others validate there, after many commits, when its disk is full, and by its limit."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from orchestrator.config.inventory import Pod
from orchestrator.errors import NsaPodError
from orchestrator.launchers.claim import Claim
from orchestrator.pod.session import PodSession
from orchestrator.results import Result
from orchestrator.tasks.prune import Wish, prune
from orchestrator.tasks.request import Asked, find
from orchestrator.tasks.validate import validate
from orchestrator.ui import Progress
from tests.support.project import Project, local_pod, new_project, with_pod

RUNBOOK = """
    name: NAME
    environment: NEEDS
    stages:
      - name: use
        run: [python, use.py]
        expect: {artifacts: [{path: said.txt, from: stdout}]}
"""
RUNBOOKS = {
    "runbooks/bare.yaml": RUNBOOK.replace("NAME", "bare").replace("NEEDS", "{python: system}"),
    "runbooks/packages.yaml": RUNBOOK.replace("NAME", "packages").replace("NEEDS", '{extra: ["tool<2"]}'),
}
INTERLEAVINGS = 200
COMMITS = 50


def commits(project: Project, number: int, size: int) -> Iterator[str]:
    """So many commits, each with a file of its own content, of `size` random bytes."""
    for n in range(number):
        project.write({**RUNBOOKS, "use.py": f"print({n})\n"})
        (project.root / "data").write_bytes(os.urandom(size))
        yield project.commit()


def validate_here(pod: Pod, project: Project, commit: str, runbook: str, artifacts: Path) -> Result:
    """As the command line does it, in this process; the pod is waited for."""
    request = find(Asked(lambda: pod, project.root, commit, runbook, artifacts))
    return validate(request, PodSession(pod, Progress(-1)), Claim(wait=True))


def disk_of(workdir: Path) -> int:
    return int(subprocess.check_output(["du", "-s", "--block-size=1", str(workdir)]).split()[0])


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.process
def test_nothing_that_is_in_use_or_queued_is_lost_in_random_interleavings(
    tmp_path: Path, uv: Path, index: str, laptop: Path
) -> None:
    """Two laptops validate in turn what the other does not, each waiting for the pod; a third removes all it can."""
    env = {"PIP_INDEX_URL": index, "PATH": f"{uv.parent}:/usr/bin:/bin"}
    project = new_project(tmp_path, {})
    known = list(commits(project, 4, 1 << 10))
    pod = Pod(name="local", **{**local_pod(tmp_path), "env": env})
    over = threading.Event()
    going: set[int] = set()
    wrong: list[str] = []
    passed: list[str] = []

    def validate_on(number: int) -> None:
        chance = random.Random(number)
        while not over.is_set():
            going.add(number)
            asked = (chance.choice(known), chance.choice(["bare", "bare", "packages"]))
            try:
                result = validate_here(pod, project, *asked, tmp_path / f"artifacts-{number}")
                (passed if result.verdict == "passed" else wrong).append(result.summary)
            except NsaPodError as e:
                wrong.append(str(e))
            going.discard(number)

    laptops = [threading.Thread(target=validate_on, args=(number,)) for number in range(2)]
    for thread in laptops:
        thread.start()
    chance, removed, interleaved = random.Random(20261123), 0, 0
    try:
        while interleaved < INTERLEAVINGS and not wrong:
            time.sleep(chance.uniform(0, 0.5))
            interleaved += bool(going)
            wish = chance.choice([Wish(keep=0), Wish(keep=1), Wish(older_than=0.001)])
            removed += len(prune(PodSession(pod, Progress(-1)), wish)["removed"])
    finally:
        over.set()
        for thread in laptops:
            thread.join()
    assert not wrong, wrong
    print(f"{len(passed)} runs passed in {interleaved} interleavings, {removed} things removed")
    assert len(passed) > INTERLEAVINGS / 20 and removed > INTERLEAVINGS / 4


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.process
def test_after_fifty_commits_the_pod_takes_as_much_as_after_one(tmp_path: Path, laptop: Path) -> None:
    project = new_project(tmp_path, {})
    pod = Pod(name="local", **local_pod(tmp_path))
    workdir = tmp_path / "workdir"
    taken = []
    for commit in commits(project, COMMITS, 1 << 20):
        assert validate_here(pod, project, commit, "bare", tmp_path / "artifacts").verdict == "passed"
        taken.append(disk_of(workdir))
    pruned = prune(PodSession(pod, Progress(-1)), Wish(keep=1))
    after = disk_of(workdir)
    print(f"{taken[0] >> 10} KiB after one run, {taken[-1] >> 10} after {COMMITS}, {after >> 10} when pruned")
    assert taken[-1] > 20 * taken[0] and after < 2 * taken[0]
    assert sum(item["kind"] == "run" for item in pruned["removed"]) == COMMITS - 1
    assert validate_here(pod, project, "HEAD", "bare", tmp_path / "artifacts").verdict == "passed"


@pytest.mark.slow
def test_a_launch_says_what_its_limit_removed(project: Project) -> None:
    with_pod(project, max_disk="13M")
    for n, _ in enumerate(commits(project, 3, 1 << 20)):
        outcome = project.validate("--runbook", "bare")
        assert outcome.exit_code == 0, outcome.stderr
        assert ("max_disk is 13.0 MiB" in outcome.stderr) == (n == 2), outcome.stderr
    nothing = project.here("prune", "--pod", "local")
    assert nothing.exit_code == 0 and "the workdir took " in nothing.stdout, "without limits, max_disk is kept"


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a small file system")
def test_a_full_pod_that_cannot_take_the_agent_is_looked_at_fetched_from_and_pruned(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(small)], check=True)
    try:
        workdir = small / "workdir"
        project = new_project(tmp_path, {"local": {**local_pod(tmp_path), "workdir": str(workdir)}})
        for _ in commits(project, 3, 1 << 20):  # two of them are more than the agent and a run
            assert project.validate("--runbook", "bare").exit_code == 0
        for path in (*workdir.glob("agent-*"), workdir / "gate"):
            path.unlink()
        with suppress(OSError), (small / "fill").open("wb", buffering=0) as f:
            while f.write(bytes(4096)):
                pass
        advice = {
            check["name"]: check["advice"]
            for check in json.loads(project.here("doctor", "--pod", "local", "--json").stdout)
        }
        freed = re.match(r"nsa-pod prune --pod local --keep 1 frees (\S+ MiB); or free some", advice["disk"])
        assert freed, advice
        assert project.here("fetch", "--pod", "local", "--json").json["verdict"] == "passed"
        pruned = project.here("prune", "--pod", "local", "--keep", "1")
        assert pruned.exit_code == 0 and f"the disk has {freed[1]} free" in pruned.stdout, (pruned, advice)
        assert project.validate("--runbook", "bare").exit_code == 0
        project.here("prune", "--pod", "local", "--keep", "1")
        (small / "fill").write_bytes(bytes((small / "fill").stat().st_size + shutil.disk_usage(small).free - 8192))
        checks = json.loads(project.here("doctor", "--pod", "local", "--json").stdout)
        assert any("nsa-pod has nothing there that could go" in check["advice"] for check in checks), checks
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)
