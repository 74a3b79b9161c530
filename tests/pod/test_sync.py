"""Arriving at a pod, bringing a tree there, and the doctor; over each transport."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.config.inventory import Pod
from orchestrator.errors import ContactLost, HostKeyError, IntegrityError, PodError
from orchestrator.git.repository import Repository
from orchestrator.pod.client import Agent, install_agent
from orchestrator.pod.facts import PodFacts, broken_promises, probe
from orchestrator.pod.session import PodSession
from orchestrator.pod.sync import sync
from orchestrator.shared.answers import TreeHash
from orchestrator.tasks.doctor import Check, doctor, from_facts
from orchestrator.transports import open_transport
from orchestrator.transports.base import PushStats, Transport
from orchestrator.transports.ssh import openssh
from orchestrator.transports.ssh.transport import SshTransport
from orchestrator.ui import Progress
from tests.support.proxy import Proxy
from tests.support.repository import Git
from tests.support.sshd import Sshd

pytestmark = pytest.mark.usefixtures("laptop")


def pod_of(kind: str, sshd: Sshd, **extra: Any) -> Pod:
    """A pod of the kind, on this interpreter."""
    if kind == "ssh":
        return sshd.pod(**extra)
    return Pod(name="here", transport="local", **{"python": sys.executable, **extra})


@pytest.fixture(params=["local", "ssh"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def agent(kind: str, sshd: Sshd, tmp_path: Path) -> Iterator[Agent]:
    with open_transport(pod_of(kind, sshd, workdir=str(tmp_path / "work dir"))) as transport:
        yield install_agent(transport)


@pytest.fixture
def git(tmp_path: Path) -> Git:
    git = Git(tmp_path / "repo")
    git.commit({"a": "aaaa", "d/b": "b" * 1000, "d/-c\nd": "c", "empty": ""})
    (git.root / "a").chmod(0o755)
    (git.root / "link").symlink_to("d/b")
    git.commit({})
    return git


def bring(agent: Agent, git: Git, revision: str = "HEAD") -> PushStats | None:
    repo = Repository.open(git.root)
    found = repo.resolve(revision)
    return sync(agent, repo, found, repo.contents(found))


def trees(agent: Agent) -> list[str]:
    """What is in the pod's directory of trees."""
    return sorted(os.listdir(f"{agent.workdir}/trees"))


def tree_on_pod(agent: Agent, tree: str) -> str:
    return str(agent.call(TreeHash, "tree-hash", f"{agent.workdir}/trees/{tree}")["tree"])


# arriving


def test_the_agent_is_brought_once(kind: str, sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_transport(pod_of(kind, sshd, workdir=str(tmp_path / "w"))) as transport:
        agent = install_agent(transport)
        [archive] = (tmp_path / "w").glob("agent-*.pyz")
        whole = archive.read_bytes()
        monkeypatch.setattr(transport, "put", lambda *_: pytest.fail("it is there already"))
        assert install_agent(transport) == agent
        monkeypatch.undo()
        archive.write_bytes(whole[:1000])  # what a pod that lost its power may have of it
        install_agent(transport)
        assert archive.read_bytes() == whole


def test_a_pod_whose_only_python_is_a_new_one_has_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    for tool in Path("/usr/bin").iterdir():
        if not tool.name.startswith("python"):
            (tmp_path / "bin" / tool.name).symlink_to(tool)
    (tmp_path / "bin" / "python3.14").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with open_transport(Pod(name="x", transport="local", workdir=str(tmp_path / "w"))) as transport:
        assert install_agent(transport).python


def test_the_interpreter_itself_is_used(sshd: Sshd, tmp_path: Path) -> None:
    shim = tmp_path / "shim"
    shim.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    shim.chmod(0o755)
    with open_transport(pod_of("ssh", sshd, python=str(shim), workdir=str(tmp_path / "w"))) as transport:
        assert install_agent(transport).python == sys.executable


@pytest.mark.parametrize(
    ("workdir", "expected"), [("~", "{home}"), ("~/a b", "{home}/a b"), ("rel", "{home}/rel"), ("{tmp}/x", "{tmp}/x")]
)
def test_the_workdir_is_absolute(sshd: Sshd, tmp_path: Path, workdir: str, expected: str) -> None:
    places = {"home": sshd.home, "tmp": tmp_path}
    with open_transport(sshd.pod(workdir=workdir.format(**places))) as transport:
        assert install_agent(transport).workdir == expected.format(**places)


def test_a_pod_without_a_usable_python_is_said(kind: str, sshd: Sshd, tmp_path: Path) -> None:
    old = tmp_path / "python2"
    old.write_text("#!/bin/sh\nexit 0\n")
    old.chmod(0o755)
    for python in ("/no/such/python", str(old)):
        with (
            open_transport(pod_of(kind, sshd, python=python, workdir=str(tmp_path / "w"))) as transport,
            pytest.raises(PodError, match=r"has no Python 3\.8 or newer: looked for"),
        ):
            install_agent(transport)
    assert not (tmp_path / "w").exists()


def test_a_failure_of_the_agent_is_one_sentence(agent: Agent) -> None:
    with pytest.raises(PodError, match=r"^pod '\w+': .*no/such"):
        agent.call(TreeHash, "tree-hash", "/no/such")
    with pytest.raises(PodError, match="the agent's nonsense failed"):
        agent.call(TreeHash, "nonsense")


def test_the_facts_are_of_the_pod(agent: Agent) -> None:
    facts = probe(agent)
    assert facts.raw["workdir"] == agent.workdir and facts.raw["hostname"] and facts.raw["pythons"]
    assert (facts.gpu, facts.sm, facts.driver) == (None, None, None) or facts.gpu is not None


# promises


def facts_with(*names: str, driver: str = "550.163.01", **raw: Any) -> PodFacts:
    gpus = [
        {"index": n, "name": name, "driver": driver, "compute_cap": "8.9",
         "memory_used_mib": 1, "memory_total_mib": 24564, "utilization_percent": 0}
        for n, name in enumerate(names)
    ]  # fmt: skip
    disk = {"path": "/w", "free_bytes": 2**36, "total_bytes": 2**40, "free_inodes": 10**7, "writable": True}
    pythons = [{"version": "3.11.2", "path": "/usr/bin/python3"}]
    uses = [{"by": None, "unknown": None} for _ in names]
    known = {
        "gpus": gpus,
        "gpu_use": uses,
        "driver_cuda": "12.4",
        "disk": disk,
        "programs": {"rsync": "/usr/bin/rsync", "uv": None},
    }
    return PodFacts({**known, "pythons": pythons, **raw})


@pytest.mark.parametrize(
    ("promise", "found", "fits"),
    [
        ("RTX 4090", "NVIDIA GeForce RTX 4090", True),
        ("RTX 4090", "NVIDIA GeForce RTX 4090 D", False),
        ("rtx 3080", "NVIDIA GeForce RTX 3080 Ti", False),
        ("RTX 3080 Ti", "NVIDIA GeForce RTX 3080 Ti", True),
        ("RTX 3090", "NVIDIA GeForce RTX 4090", False),
        ("A100", "NVIDIA A100-SXM4-80GB", True),
        ("A100 40GB", "NVIDIA A100-SXM4-80GB", False),
        ("L40", "NVIDIA L40S", False),
        ("H100", "NVIDIA H100 80GB HBM3", True),
        ("H100", "NVIDIA H200", False),
        ("RTX 6000", "NVIDIA RTX 6000 Ada Generation", False),
    ],
)
def test_another_model_is_another_model(promise: str, found: str, fits: bool) -> None:
    pod = Pod(name="x", transport="local", gpu=promise)
    if fits:
        assert broken_promises(pod, facts_with(found), allow_different_gpu=False) == []
        return
    with pytest.raises(PodError, match="--allow-different-gpu"):
        broken_promises(pod, facts_with(found), allow_different_gpu=False)
    assert len(broken_promises(pod, facts_with(found), allow_different_gpu=True)) == 1


def test_every_gpu_is_held_against_the_promise() -> None:
    pod = Pod(name="x", transport="local", gpu="RTX 4090")
    with pytest.raises(PodError, match="has NVIDIA H100"):
        broken_promises(pod, facts_with("RTX 4090", "NVIDIA H100"), allow_different_gpu=False)


def test_an_absent_gpu_and_another_driver_are_only_said() -> None:
    pod = Pod(name="x", transport="local", gpu="RTX 4090", driver="570.169")
    assert broken_promises(pod, facts_with(), allow_different_gpu=False) == [
        "pod 'x' promises RTX 4090 and has no CUDA GPU"
    ]
    failed = facts_with(gpu_complaint="NVIDIA-SMI has failed\x1b[2J")
    assert broken_promises(pod, failed, allow_different_gpu=False) == [
        "pod 'x' promises RTX 4090 and has no CUDA GPU that works: nvidia-smi: NVIDIA-SMI has failed"
    ]
    [sentence] = broken_promises(pod, facts_with("RTX 4090"), allow_different_gpu=False)
    assert "570.169" in sentence and "550.163.01" in sentence


def test_a_driver_that_does_not_answer_is_no_pod_without_a_gpu() -> None:
    pod = Pod(name="x", transport="local")
    checks = {check.name: check for check in from_facts(pod, facts_with(gpu_complaint="NVIDIA-SMI has failed"))}
    assert (checks["GPU"].level, checks["driver"].level) == ("warn", "warn")
    assert checks["GPU"].found == "pod 'x' has no CUDA GPU that works: nvidia-smi: NVIDIA-SMI has failed"
    checks = {check.name: check for check in from_facts(pod, facts_with())}
    assert (checks["GPU"].level, checks["driver"].level) == ("ok", "ok")


# trees


def test_a_tree_arrives_and_is_not_sent_again(agent: Agent, git: Git) -> None:
    tree = git("rev-parse", "HEAD^{tree}")
    assert bring(agent, git) == PushStats(4, 1005)
    assert (trees(agent), tree_on_pod(agent, tree)) == ([tree], tree)
    assert bring(agent, git) is None
    assert bring(agent, git, "HEAD~1") is not None


def test_a_change_of_one_file_moves_one_file(agent: Agent, git: Git) -> None:
    bring(agent, git)
    git.commit({"d/b": "B" * 1000})
    assert bring(agent, git) == PushStats(1, 1000)
    tree = git("rev-parse", "HEAD^{tree}")
    assert tree_on_pod(agent, tree) == tree
    assert len(trees(agent)) == 2


def test_the_nearest_tree_is_the_base_whatever_the_order(agent: Agent, git: Git) -> None:
    first = git("rev-parse", "HEAD")
    git.commit({str(n): "x" for n in range(50)})
    bring(agent, git)
    bring(agent, git, first)
    git.commit({"one": "more"})
    assert bring(agent, git) == PushStats(1, 4)


def test_submodules_arrive_with_their_tree(agent: Agent, git: Git, tmp_path: Path) -> None:
    inner = Git(tmp_path / "inner")
    inner.commit({"i": "1", "j": "1"})
    git("submodule", "add", "-q", str(inner.root), "sub")
    git.commit({})
    bring(agent, git)
    inner.commit({"i": "2"})
    git("-C", "sub", "pull", "-q")
    git.commit({})
    assert bring(agent, git) == PushStats(1, 1)
    git("rm", "-qf", "sub")
    git.commit({})
    assert bring(agent, git) == PushStats(1, 0)  # .gitmodules
    assert not Path(agent.workdir, "trees", git("rev-parse", "HEAD^{tree}"), "sub").exists()


def test_a_base_that_somebody_has_changed_is_done_without(agent: Agent, git: Git) -> None:
    tree = git("rev-parse", "HEAD^{tree}")
    bring(agent, git)
    Path(agent.workdir, "trees", tree, "d/b").write_text("tampered")
    git.commit({"a": "changed"})
    assert bring(agent, git) == PushStats(4, 1008)
    assert tree_on_pod(agent, git("rev-parse", "HEAD^{tree}")) == git("rev-parse", "HEAD^{tree}")


@pytest.mark.parametrize("harm", ["edit", "remove", "add", "mode", "submodule"])
def test_a_tree_that_somebody_has_changed_is_replaced(agent: Agent, git: Git, tmp_path: Path, harm: str) -> None:
    inner = Git(tmp_path / "inner")
    inner.commit({"i": "1"})
    git("submodule", "add", "-q", str(inner.root), "sub")
    git.commit({})
    tree = git("rev-parse", "HEAD^{tree}")
    bring(agent, git)
    assert bring(agent, git) is None
    place = Path(agent.workdir, "trees", tree)
    if harm == "remove":
        (place / "d/b").unlink()
    elif harm == "mode":
        (place / "d/b").chmod(0o755)
    else:
        (place / {"edit": "d/b", "add": "d/new", "submodule": "sub/i"}[harm]).write_text("tampered")
    assert bring(agent, git) is not None
    assert bring(agent, git) is None
    assert (place / "d/b").read_text() == "b" * 1000 and not (place / "d/new").exists()
    assert not [name for name in trees(agent) if name != tree]


def test_what_arrives_wrong_gets_no_name(agent: Agent, git: Git) -> None:
    class Careless:
        """Delivers one byte too many."""

        def __getattr__(self, name: str) -> Any:
            return getattr(agent.transport, name)

        def push_tree(self, local: Path, remote: str, **options: Any) -> PushStats:
            stats = agent.transport.push_tree(local, remote, **options)
            with open(f"{remote}/a", "a") as file:
                file.write("!")
            return stats

    with pytest.raises(IntegrityError, match="tree hash"):
        bring(replace(agent, transport=Careless()), git)
    assert trees(agent) == []


def test_what_a_killed_laptop_left_goes_after_a_day(agent: Agent, git: Git) -> None:
    for name, age in (("old", 2 * 86400), ("new", 3600)):
        folder = Path(agent.workdir, "trees", f".incoming-{name}")
        folder.mkdir(parents=True)
        then = folder.stat().st_mtime - age
        os.utime(folder, (then, then))
    bring(agent, git)
    assert trees(agent)[0] == ".incoming-new" and len(trees(agent)) == 2


def test_two_laptops_at_once(sshd: Sshd, git: Git, tmp_path: Path) -> None:
    outcomes: list[object] = []

    def one() -> None:
        with open_transport(sshd.pod(workdir=str(tmp_path / "w"))) as transport:
            outcomes.append(bring(install_agent(transport), git))

    threads = [threading.Thread(target=one) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(outcomes) == 3
    assert os.listdir(tmp_path / "w" / "trees") == [git("rev-parse", "HEAD^{tree}")]


def test_without_rsync_the_same_tree(sshd: Sshd, git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openssh, "_rsync_here", lambda: False)
    with open_transport(sshd.pod(workdir=str(tmp_path / "w"))) as transport:
        agent = install_agent(transport)
        assert bring(agent, git) == PushStats(4, 1005)
        shutil.rmtree(git.root / "d")
        (git.root / "a").unlink()
        git.commit({"a/b": "x"})
        bring(agent, git)
        tree = git("rev-parse", "HEAD^{tree}")
        assert tree_on_pod(agent, tree) == tree


def test_a_sync_that_is_cut_leaves_the_old_state(
    sshd: Sshd, git: Git, tmp_path: Path, proxy_to: Callable[..., Proxy]
) -> None:
    git.commit({"big": os.urandom(3_000_000)})
    proxy = proxy_to(sshd.port)
    with SshTransport(sshd.pod(port=proxy.port, workdir=str(tmp_path / "w"))) as transport:
        agent = install_agent(transport)
        proxy.cut_after(1_000_000)
        with pytest.raises(ContactLost):
            bring(agent, git)
        proxy.cut_after(None)
        assert not any(name for name in trees(agent) if not name.startswith(".incoming-"))
        transport.connect()
        assert bring(agent, git) is not None


def test_a_new_host_key_is_accepted_at_the_first_connection_only(own_sshd: Sshd, tmp_path: Path) -> None:
    """Else whoever stood in between later would be let in by a flag that was meant for the pod as it was."""
    session = PodSession(own_sshd.pod(host_key=None, workdir=str(tmp_path)), Progress(-1), accept_new_host_key=True)
    with session.open() as agent:
        assert agent.transport.fingerprint == own_sshd.fingerprint
    with session.open():
        pass
    own_sshd.new_host_key()
    with pytest.raises(HostKeyError, match="changed its host key"), session.open():
        pass


# the doctor


def level_of(checks: list[Check]) -> dict[str, str]:
    return {check.name: check.level for check in checks}


def test_a_healthy_pod(kind: str, sshd: Sshd, tmp_path: Path) -> None:
    checks = doctor(PodSession(pod_of(kind, sshd, workdir=str(tmp_path / "w")), Progress(-1)))
    levels = level_of(checks)
    assert list(levels)[:4] == ["reachable", "host key", "commands", "file copy"]
    assert {"Python", "GPU", "driver", "disk", "rsync", "installer", "lock"} <= set(levels)
    assert "fail" not in levels.values()
    assert all(set(check.as_dict()) == {"name", "level", "found", "advice"} for check in checks)
    assert [path.name for path in (tmp_path / "w").iterdir() if "doctor" in path.name] == []


def test_a_pod_out_of_reach_and_a_stranger(sshd: Sshd) -> None:
    [check] = doctor(PodSession(sshd.pod(port=1), Progress(-1)))
    assert (check.name, check.level) == ("reachable", "fail") and "refused" in check.found
    [check] = doctor(PodSession(sshd.pod(host_key=None), Progress(-1)))
    assert (check.name, check.level) == ("host key", "fail") and sshd.fingerprint in check.found


def test_a_pod_without_python_says_so_last(sshd: Sshd, tmp_path: Path) -> None:
    checks = doctor(PodSession(sshd.pod(python="/no/such", workdir=str(tmp_path)), Progress(-1)))
    assert level_of(checks) == {"reachable": "ok", "host key": "ok", "commands": "ok", "agent": "fail"}


DISK = {"path": "/w", "free_bytes": 2**36, "total_bytes": 2**40, "free_inodes": 10**7, "writable": True}


@pytest.mark.parametrize(
    ("pod", "facts", "name", "level"),
    [
        ({"gpu": "RTX 4090"}, facts_with("NVIDIA GeForce RTX 4090"), "GPU", "ok"),
        ({"gpu": "RTX 4090"}, facts_with(), "GPU", "fail"),
        ({"gpu": "RTX 4090"}, facts_with("NVIDIA H100"), "GPU", "fail"),
        ({}, facts_with("NVIDIA H100"), "GPU", "ok"),
        ({"driver": "570.169"}, facts_with("NVIDIA H100"), "driver", "warn"),
        ({"driver": "550.163.01"}, facts_with("NVIDIA H100"), "driver", "ok"),
        ({}, facts_with(disk={**DISK, "free_bytes": 2**30}), "disk", "fail"),
        ({}, facts_with(disk={**DISK, "free_bytes": 2**33}), "disk", "warn"),
        ({}, facts_with(disk={**DISK, "free_inodes": 100}), "disk", "fail"),
        ({}, facts_with(disk={**DISK, "free_inodes": None}), "disk", "ok"),
        ({}, facts_with(disk={**DISK, "writable": False}), "disk", "fail"),
        ({}, facts_with(programs={"rsync": None, "uv": "/bin/uv"}), "rsync", "warn"),
        ({}, facts_with(programs={"rsync": None, "uv": "/bin/uv"}, pythons=[]), "installer", "ok"),
        ({}, facts_with(programs={"rsync": None, "uv": None}), "installer", "ok"),
    ],
)
def test_what_the_facts_mean(pod: dict[str, str], facts: PodFacts, name: str, level: str) -> None:
    checks = list(from_facts(Pod(name="x", transport="local", **pod), facts))
    found = next(check for check in checks if check.name == name)
    assert found.level == level
    assert bool(found.advice) == (level != "ok")


@pytest.mark.parametrize(
    ("use", "level", "found"),
    [
        ({"by": None, "unknown": None}, "ok", "idle: 1 of 24564 MiB, 0 % busy"),
        ({"by": "pid 7 (train) holds 20480 MiB on GPU 0", "unknown": None}, "warn", "pid 7 (train) holds 20480 MiB"),
        ({"by": None, "unknown": "the driver does not tell how much"}, "warn", "the driver does not tell how much"),
    ],
)
def test_who_uses_a_gpu_is_shown_as_the_agent_tells_it(use: Any, level: str, found: str) -> None:
    facts = facts_with("NVIDIA H100", gpu_use=[use])
    check = next(c for c in from_facts(Pod(name="x", transport="local"), facts) if c.name == "GPU 0 in use")
    assert (check.level, check.found[: len(found)]) == (level, found)


def test_a_holder_of_the_lock_is_named(sshd: Sshd, tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    lock.write_text('{"holder": "ann@there", "since": "2026-11-21T00:00:00Z", "run_id": "r1"}')
    holding = subprocess.Popen(["flock", str(lock), "sleep", "60"], start_new_session=True)
    try:
        checks = doctor(PodSession(sshd.pod(workdir=str(tmp_path)), Progress(-1)))
    finally:
        os.killpg(holding.pid, 15)
        holding.wait()
    [held] = [check for check in checks if check.name == "lock"]
    assert held.level == "warn" and "ann@there" in held.found and "r1" in held.found


def test_a_transport_that_only_opens_terminals(sshd: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_commands(self: Transport, argv: list[str], **options: Any) -> Any:
        raise PodError("pod 'loop': the login shell does not run commands (Error: no PTY)")

    monkeypatch.setattr(SshTransport, "run", no_commands)
    checks = doctor(PodSession(sshd.pod(), Progress(-1)))
    assert level_of(checks) == {"reachable": "ok", "host key": "ok", "commands": "fail"}
