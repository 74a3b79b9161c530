"""What happens to the line between laptop and pod: a run that was launched goes on, and comes home whole."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchestrator.agent.host import processes
from tests.bench import cuts
from tests.support.faults import runs, world
from tests.support.project import Outcome, Project, new_project
from tests.support.proxy import Proxy
from tests.support.sshd import Sshd

BIG = "import os; open(os.environ['NSA_POD_ARTIFACTS'] + '/big', 'wb').write(os.urandom(2_000_000)); print(1)"


@pytest.fixture
def line(own_sshd: Sshd, proxy_to: Callable[..., Proxy]) -> Iterator[Proxy]:
    return proxy_to(own_sshd.port)


@pytest.fixture
def project(own_sshd: Sshd, line: Proxy, tmp_path: Path) -> Project:
    """A repository whose pod `p` is reached through `line`."""
    return new_project(tmp_path, {"p": own_sshd.entry(port=line.port, workdir=str(tmp_path / "workdir"))})


def cut_validate(project: Project, line: Proxy, offset: int) -> Outcome:
    line.cut_once_after(offset)
    outcome = runs.run(project, "validate", "--pod", "p", "--runbook", "r")
    line.cut_after(None)
    return outcome


def bytes_of(line: Proxy, act: Callable[[], Outcome]) -> int:
    """How many bytes pass while `act` does its work undisturbed."""
    before = line.passed
    assert act().exit_code == 0
    return line.passed - before


def check_cut_launch(project: Project, workdir: Path, line: Proxy, offset: int) -> None:
    """Cut once at `offset`: the run completes, or one sentence says that it did not begin; then it can be repeated."""
    known = set(world.runs_of(workdir))
    outcome = cut_validate(project, line, offset)
    if outcome.exit_code == 0:
        runs.check(project, workdir, outcome, "passed", "passed")
        return
    assert (outcome.exit_code, outcome.json["verdict"]) == (4, "error"), outcome.stderr
    assert "\n" not in outcome.json["error"]
    world.check_rest(workdir)
    began = [run for run in world.runs_of(workdir) if run not in known and world.events_of(run)]
    if began:  # the launch arrived, its answer did not
        assert "nsa-pod fetch" in outcome.json["error"], outcome.json["error"]
        runs.check(project, workdir, runs.run(project, "fetch", "--pod", "p", began[0].name), "passed", "passed")
    runs.check(project, workdir, runs.run(project, "validate", "--pod", "p", "--runbook", "r"), "passed", "passed")


def spread(most: int, number: int) -> list[int]:
    """Offsets from the first byte to the last, denser towards the end, where the launch is."""
    return [round(most * (1 - (1 - i / number) ** 2)) + 1 for i in range(number)]


def cut_everywhere(project: Project, line: Proxy, workdir: Path, number: int) -> None:
    project.commit(runs.files(runs.said("only", "import time; time.sleep(0.3); print('said')")))
    validate = ("validate", "--pod", "p", "--runbook", "r")
    runs.run(project, *validate)  # brings agent and tree
    whole = bytes_of(line, lambda: runs.run(project, *validate))
    for offset in spread(whole, number):
        check_cut_launch(project, workdir, line, offset)


@pytest.mark.slow
def test_a_cut_at_any_byte_of_launch_and_follow(project: Project, line: Proxy, tmp_path: Path) -> None:
    cut_everywhere(project, line, tmp_path / "workdir", 3)


@pytest.mark.slow
@pytest.mark.timeout(1800)  # 60 validations, each with a cut and what brings the rest home
def test_a_cut_at_many_bytes_of_launch_and_follow(project: Project, line: Proxy, tmp_path: Path) -> None:
    cut_everywhere(project, line, tmp_path / "workdir", 60)


@pytest.mark.slow
@pytest.mark.parametrize("parts", [1, 24])
def test_a_cut_at_any_byte_of_a_fetch(project: Project, line: Proxy, tmp_path: Path, parts: int) -> None:
    project.commit(runs.files(runs.said("only", BIG)))
    done = runs.run(project, "validate", "--pod", "p", "--runbook", "r")

    def fetch(name: str) -> Outcome:
        """The run, to a laptop that has nothing of it."""
        command = ["fetch", "--pod", "p", "--artifacts", str(tmp_path / name), done.json["run_id"], "--json"]
        return runs.end(project.popen(*command, NSA_POD_HOME=str(tmp_path / f"home of {name}")))

    whole = bytes_of(line, lambda: fetch("undisturbed"))
    for number in range(parts):
        line.cut_once_after(whole * (2 * number + 1) // (2 * parts))
        outcome = fetch(f"artifacts-{number}")
        line.cut_after(None)
        assert "contact lost" in outcome.stderr, "the cut came too late"
        runs.check(project, tmp_path / "workdir", outcome, "passed", "passed")


def test_the_server_is_killed_and_comes_back(project: Project, own_sshd: Sshd, tmp_path: Path) -> None:
    project.commit(runs.first_and_long(3))
    validate = runs.start(project)
    world.wait_for_event(tmp_path / "workdir", "stage_started", stage="long")
    own_sshd.signal_sessions(signal.SIGKILL)
    own_sshd.stop()
    time.sleep(1)
    own_sshd.start()
    outcome = runs.end(validate)
    assert "contact lost" in outcome.stderr and "the run goes on" in outcome.stderr
    runs.check(project, tmp_path / "workdir", outcome, "passed", "passed", "passed")


@pytest.mark.slow
def test_a_laptop_asleep_while_the_run_ends_and_its_line_is_cut(project: Project, line: Proxy, tmp_path: Path) -> None:
    project.commit(runs.first_and_long(2))
    validate = runs.start(project)
    workdir = tmp_path / "workdir"
    world.wait_for_event(workdir, "stage_started", stage="long")
    asleep = [validate.pid, *processes.descendants(validate.pid)]
    processes.send(signal.SIGSTOP, asleep)
    line.cut()
    world.wait_for_event(workdir, "run_ended")
    processes.send(signal.SIGCONT, asleep)
    outcome = runs.end(validate)
    assert "contact lost" in outcome.stderr
    runs.check(project, workdir, outcome, "passed", "passed", "passed")


def with_latency_and_cuts(project: Project, line: Proxy, workdir: Path, seed: int) -> Outcome:
    """A user's persistence on a bad line: repeat what failed before the launch, then fetch until it is home."""
    line.delay = 0.1  # each way
    line.cut_some(0.05, random.Random(seed))
    known = set(world.runs_of(workdir))
    command: tuple[str, ...] = ("validate", "--pod", "p", "--runbook", "r")
    for _ in range(10):
        outcome = runs.run(project, *command)
        if outcome.exit_code != 4:
            break
        if set(world.runs_of(workdir)) - known:
            command = ("fetch", "--pod", "p")
    line.delay = 0.0
    line.cut_some(0.0, random.Random())
    return outcome


def unlucky(*fates: bool) -> int:
    """A seed by which of the first connections these are cut."""

    def drawn(seed: int) -> list[bool]:
        chance = random.Random(seed)
        return [chance.random() < 0.05 for _ in fates]

    return next(seed for seed in range(10_000) if drawn(seed) == [*fates])


@pytest.mark.slow
def test_latency_of_200_ms_and_a_connection_that_is_cut(project: Project, line: Proxy, tmp_path: Path) -> None:
    project.commit(runs.first_and_long(1))
    outcome = with_latency_and_cuts(project, line, tmp_path / "workdir", unlucky(False, True))
    assert line.doomed
    runs.check(project, tmp_path / "workdir", outcome, "passed", "passed", "passed")


@pytest.mark.slow
def test_latency_of_200_ms_and_5_percent_of_connections_cut(project: Project, line: Proxy, tmp_path: Path) -> None:
    for seed in (*range(19), unlucky(True)):
        project.commit(runs.first_and_long(1))
        before = len(world.runs_of(tmp_path / "workdir"))
        outcome = with_latency_and_cuts(project, line, tmp_path / "workdir", seed)
        runs.check(project, tmp_path / "workdir", outcome, "passed", "passed", "passed")
        assert len(world.runs_of(tmp_path / "workdir")) > before
    assert line.doomed >= 1


@pytest.mark.slow
@pytest.mark.parametrize("size", [100_000, 200_000, 500_000])
def test_a_line_that_cuts_every_connection_is_slow_and_not_fatal(
    own_sshd: Sshd, line: Proxy, tmp_path: Path, size: int
) -> None:
    found = cuts.measure(tmp_path / "cold", own_sshd, line, size)
    assert found.ours <= 1.5 * found.rsync + 2, found  # a loaded machine's sshd loses what it has not passed on
    assert list(tmp_path.glob("cold/workdir/trees/.*")) == list(tmp_path.glob("cold/workdir/*.part")) == []
