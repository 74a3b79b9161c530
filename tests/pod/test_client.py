"""Arriving at a pod, and what it promised; over each transport."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.config.inventory import Pod
from orchestrator.errors import HostKeyError, PodError
from orchestrator.pod import client
from orchestrator.pod.client import Agent, install_agent
from orchestrator.pod.facts import broken_promises, probe
from orchestrator.pod.session import PodSession
from orchestrator.shared.answers import Cancelling
from orchestrator.transports import open_transport
from orchestrator.ui import Progress
from tests.support.machines import facts_with
from tests.support.sshd import Sshd, new_sshd


def test_the_agent_is_brought_once(pod_of: Callable[..., Pod], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_transport(pod_of(workdir=str(tmp_path / "w"))) as transport:
        agent = install_agent(transport)
        [archive] = (tmp_path / "w").glob("agent-*.pyz")
        whole = archive.read_bytes()
        monkeypatch.setattr(transport, "put", lambda *_: pytest.fail("it is there already"))
        assert install_agent(transport) == agent
        monkeypatch.undo()
        archive.write_bytes(whole[:1000])  # what a pod that lost its power may have of it
        install_agent(transport)
        assert archive.read_bytes() == whole


@pytest.mark.ssh
def test_a_server_with_one_session_at_a_time(tmp_path: Path) -> None:
    server = new_sshd(tmp_path / "one", extra="MaxSessions 1\n").start()
    try:
        with open_transport(server.pod(workdir=str(tmp_path / "w"))) as transport:
            assert probe(install_agent(transport)).raw["pythons"]
    finally:
        server.stop()


@pytest.mark.ssh
@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("read answer\n", r"pod 'loop' runs no command: a login script of the pod \(.bashrc\) reads the input"),
        ("cat > /dev/null\n", r"let it return where there is no terminal, by `\[ -t 0 \] \|\| return` at its top"),
        ("sleep 60\n", "there is no answer: does a login script of the pod wait for input, or never end"),
        ("[ -e ~/been ] || { touch ~/been; sleep 1.5; }\n", None),  # only slow, and the first time alone
        ("[ -t 0 ] || return\nread answer\n", None),
    ],
)
def test_a_login_script_that_reads_is_told_from_one_that_is_slow(
    own_sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, said: str | None
) -> None:
    monkeypatch.setattr(client, "_LOGIN_S", 1.0)
    monkeypatch.setattr(client, "_PLACE_LIMIT_S", 4.0)
    (own_sshd.home / ".bashrc").write_text(script)
    with open_transport(own_sshd.pod(workdir=str(tmp_path / "w"))) as transport:
        if said is None:
            assert install_agent(transport).python
            return
        with pytest.raises(PodError, match=said):
            install_agent(transport)


@pytest.mark.process
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
    with open_transport(sshd.pod(python=str(shim), workdir=str(tmp_path / "w"))) as transport:
        assert install_agent(transport).python == sys.executable


@pytest.mark.parametrize(("workdir", "expected"), [("~/a b", "{home}/a b"), ("{tmp}/x", "{tmp}/x")])
def test_the_workdir_is_absolute(sshd: Sshd, tmp_path: Path, workdir: str, expected: str) -> None:
    places = {"home": sshd.home, "tmp": tmp_path}
    with open_transport(sshd.pod(workdir=workdir.format(**places))) as transport:
        assert install_agent(transport).workdir == expected.format(**places)


def test_a_pod_without_a_usable_python_is_said(pod_of: Callable[..., Pod], tmp_path: Path) -> None:
    old = tmp_path / "python2"
    old.write_text("#!/bin/sh\nexit 0\n")
    old.chmod(0o755)
    for python in ("/no/such/python", str(old)):
        with (
            open_transport(pod_of(python=python, workdir=str(tmp_path / "w"))) as transport,
            pytest.raises(PodError, match=r"has no Python 3\.8 or newer: looked for"),
        ):
            install_agent(transport)
    assert not (tmp_path / "w").exists()


def test_a_failure_of_the_agent_is_one_sentence(agent: Agent) -> None:
    with pytest.raises(PodError, match=r"^pod '\w+': .*no/such"):
        agent.call(Cancelling, "cancel", "/no/such")
    with pytest.raises(PodError, match="the agent's nonsense failed"):
        agent.call(Cancelling, "nonsense")


def test_the_facts_are_of_the_pod(agent: Agent) -> None:
    facts = probe(agent)
    assert facts.raw["workdir"] == agent.workdir and facts.raw["hostname"] and facts.raw["pythons"]
    assert (facts.gpu, facts.sm, facts.driver) == (None, None, None) or facts.gpu is not None


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
