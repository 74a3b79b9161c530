"""From the laptop: the pod's facts become a choice, the choice an environment, and a lost connection loses nothing."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from orchestrator.config.inventory import Pod
from orchestrator.config.runbook import EnvironmentSpec
from orchestrator.errors import EnvironmentFailed, HostKeyError, InputError, Unreachable
from orchestrator.files import Writer
from orchestrator.git.folder import Folder
from orchestrator.pairing.environment import Environment
from orchestrator.pod.facts import PodFacts, probe
from orchestrator.pod.session import PodSession
from orchestrator.shared.environment_request import AskedWheel
from orchestrator.tasks import wheelhouse
from orchestrator.tasks.bootstrap import Options, bootstrap, facts_for_pairing
from orchestrator.tasks.wheelhouse import download
from tests.support import proc
from tests.support.local_agent import Told, agent_on
from tests.support.project import Project, with_pod
from tests.support.source_package import make_source
from tests.support.sshd import Sshd, new_sshd
from tests.support.wheels import make_wheel

TOOL = EnvironmentSpec(extra=["tool<2"])


def raw_facts(**other: Any) -> dict[str, Any]:
    """What the agent's probe says of a plain machine; `other` replaces parts of it."""
    python = {
        "path": sys.executable,
        "executable": sys.executable,
        "version": sys.version.split()[0],
        "implementation": "cpython",
        "soabi": "cpython-311-x86_64-linux-gnu",
        "headers": None,
    }
    plain = {"os": "Linux", "arch": "x86_64", "libc": ["glibc", "2.36"], "gpus": [], "driver_cuda": None}
    return {**plain, "programs": {"gcc": "/usr/bin/gcc"}, "built": [], "pythons": [python], **other}


def gpu(cap: str | None, name: str = "NVIDIA GeForce RTX 4090") -> dict[str, Any]:
    return {"name": name, "compute_cap": cap, "driver": "550.163.01"}


@pytest.fixture
def variables(uv: Path, index: str) -> dict[str, str]:
    """A pod's `env`: its package index, and the directory of its uv."""
    return {"PIP_INDEX_URL": index, "PATH": f"{uv.parent}:/usr/bin:/bin"}


@pytest.fixture
def here(tmp_path: Path, variables: dict[str, str]) -> Pod:
    return Pod(name="here", transport="local", workdir=str(tmp_path / "w"), env=variables)


def test_facts_become_what_the_choice_depends_on() -> None:
    facts = facts_for_pairing(raw_facts(gpus=[gpu("8.9"), gpu("8.9")], driver_cuda="12.4"), Pod(transport="local"), "p")
    assert (facts.system, facts.machine, facts.glibc, facts.driver) == ("Linux", "x86_64", "2.36", "550.163.01")
    assert [g.sm for g in facts.gpus] == [89, 89]
    assert [p.path for p in facts.pythons] == [sys.executable]
    assert (facts.managed, facts.compiler) == (True, True)


def test_a_gpu_whose_driver_does_not_tell_its_capability_is_known_by_name() -> None:
    raw = raw_facts(gpus=[gpu(None, "NVIDIA A100-PCIE-40GB"), gpu(None, "Voodoo 2")])
    assert [g.sm for g in facts_for_pairing(raw, Pod(transport="local"), "p").gpus] == [80, 0]


def test_only_usual_cpythons_count_and_a_named_python_is_the_only_one() -> None:
    plain = raw_facts()["pythons"][0]
    free = {**plain, "executable": "/usr/bin/python3.13t", "soabi": "cpython-313t-x86_64-linux-gnu"}
    pypy = {**plain, "executable": "/usr/bin/pypy3", "implementation": "pypy"}
    other = {**plain, "executable": "/opt/python", "version": "3.10.1"}
    raw = raw_facts(pythons=[free, pypy, plain, other], libc=["", ""])
    facts = facts_for_pairing(raw, Pod(transport="local"), "p")
    assert [p.path for p in facts.pythons] == [sys.executable, "/opt/python"]
    assert facts.glibc is None
    pinned = facts_for_pairing(raw, Pod(transport="local", python="/opt/python"), "/opt/python")
    assert ([p.path for p in pinned.pythons], pinned.managed) == (["/opt/python"], False)


@pytest.mark.parametrize(
    ("programs", "known"),
    [
        ({"gcc": None}, None),
        ({"gcc": None, "cc": None, "clang": None}, False),
        ({"gcc": None, "cc": None, "clang": "/usr/bin/clang"}, True),
    ],
)
def test_no_compiler_is_only_said_where_all_were_looked_for(
    programs: dict[str, str | None], known: bool | None
) -> None:
    assert facts_for_pairing(raw_facts(programs=programs), Pod(transport="local"), "p").compiler is known


def test_an_environment_is_built_once_and_then_found(here: Pod) -> None:
    with agent_on(here) as agent:
        told = Told()
        first = bootstrap(agent, PodFacts(raw_facts()), TOOL, told)
        assert first["kind"] == "managed"
        assert first["python"] == f"{first['root']}/bin/python" and os.access(first["python"], os.X_OK)
        assert first["packages"]["tool"] == "1.0"
        assert [line for line in told.lines if line.startswith("environment: installing 2 packages with uv")]
        again = Told()
        assert bootstrap(agent, PodFacts(raw_facts()), TOOL, again) == first
        assert again.warnings == [] and not [line for line in again.lines if line.startswith("environment")]


def test_a_changed_environment_is_said_and_rebuilt(here: Pod) -> None:
    with agent_on(here) as agent:
        first = bootstrap(agent, PodFacts(raw_facts()), TOOL, Told())
        next(Path(first["root"]).glob("lib/python*/site-packages/tool/__init__.py")).unlink()
        told = Told()
        second = bootstrap(agent, PodFacts(raw_facts()), TOOL, told)
    assert second["key"] == first["key"]
    assert len(told.warnings) == 1
    assert "pod 'here'" in told.warnings[0] and "tool/__init__.py" in told.warnings[0] and "rebuilt" in told.warnings[0]


def test_a_build_that_fails_is_one_sentence_that_names_the_pod(here: Pod) -> None:
    with agent_on(here) as agent, pytest.raises(EnvironmentFailed) as failed:
        bootstrap(agent, PodFacts(raw_facts()), EnvironmentSpec(extra=["tool==7"]), Told())
    assert str(failed.value).startswith("pod 'here': environment: nothing fits: ")
    assert failed.value.exit_code == 4


def test_a_pin_that_means_nothing_is_bad_input(here: Pod) -> None:
    pod = here.model_copy(update={"environment": "torch82"})
    with agent_on(pod) as agent, pytest.raises(InputError, match="did you mean torch28"):
        bootstrap(agent, PodFacts(raw_facts()), EnvironmentSpec(requires=["torch"]), Told())


def test_a_wheelhouse_is_carried_once(here: Pod, tmp_path: Path) -> None:
    make_wheel(tmp_path / "house", "tool", "0.5")
    pod = here.model_copy(update={"env": {**here.env, "PIP_INDEX_URL": "http://127.0.0.1:9/simple"}})
    options = Options(wheelhouse=tmp_path / "house")
    with agent_on(pod) as agent:
        assert bootstrap(agent, PodFacts(raw_facts()), TOOL, Told(), options)["packages"] == {"tool": "0.5"}
        bootstrap(agent, PodFacts(raw_facts()), TOOL, Told(), options)
        assert len(list(Path(here.workdir, "wheelhouses").iterdir())) == 1
        with pytest.raises(InputError, match="expected a directory with wheels"):
            bootstrap(agent, PodFacts(raw_facts()), TOOL, Told(), Options(wheelhouse=tmp_path))
        # What a source build takes from there counts too.
        make_source(tmp_path / "house")
        bootstrap(agent, PodFacts(raw_facts()), TOOL, Told(), options)
        assert list(Path(here.workdir, "wheelhouses").glob("*/flash_attn-2.8.3.tar.gz"))


def test_one_wheelhouse_carried_by_many_at_once_arrives_whole(here: Pod, tmp_path: Path) -> None:
    make_wheel(tmp_path / "house", "tool", "0.5", files={f"tool/{n}.bin": "x" * 100_000 for n in range(30)})

    def carried(_: int) -> dict[str, Any]:
        with agent_on(here) as agent:
            return bootstrap(agent, PodFacts(raw_facts()), TOOL, Told(), Options(wheelhouse=tmp_path / "house"))

    with ThreadPoolExecutor(6) as pool:
        assert len({found["created"] for found in pool.map(carried, range(6))}) == 1
    assert len(list(Path(here.workdir, "wheelhouses").iterdir())) == 1


def test_a_wheelhouse_that_arrived_in_part_is_not_used_offline(
    here: Pod, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_wheel(tmp_path / "house", "tool", "0.5")
    with agent_on(here) as agent:
        bootstrap(agent, PodFacts(raw_facts()), TOOL, Told(), Options(wheelhouse=tmp_path / "house"))
        monkeypatch.setattr(Folder, "write_blobs", _cut_off)
        make_wheel(tmp_path / "house", "tool", "0.6")
        with pytest.raises(Unreachable):
            bootstrap(agent, PodFacts(raw_facts()), TOOL, Told(), Options(wheelhouse=tmp_path / "house"))
        other = EnvironmentSpec(extra=["tool<1"])
        found = bootstrap(agent, PodFacts(raw_facts()), other, Told(), Options(offline=True))
        assert found["packages"] == {"tool": "0.5"}


def _cut_off(self: Folder, blobs: Sequence[str], out: Writer, skip: int = 0) -> None:
    out.write(f"{blobs[0]} blob {self.sizes(blobs)[0]}\nPK".encode())
    raise Unreachable("the connection is gone")


def test_a_wheelhouse_does_without_what_the_pod_has_compiled(
    here: Pod, tmp_path: Path, uv: Path, index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: AskedWheel = {
        "name": "flash-attn",
        "version": "2.8.3+src.sm90",
        "url": None,
        "required": False,
        "source": None,
    }
    chosen = Environment("newest", "3.11", None, ("tool",), wheels=(compiled,))
    monkeypatch.setattr(wheelhouse, "explain", lambda *_: chosen)
    monkeypatch.setenv("PATH", f"{uv.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", index)
    told = Told()
    assert download(PodSession(here, told), TOOL, tmp_path / "house")["wheels"] == 3
    assert told.warnings == ["flash-attn 2.8.3+src.sm90 was compiled on the pod, and is not carried there"]


def without_network(folder: Path) -> str | None:
    """For a server's configuration: each command runs in a network namespace of its own, where every interface is down.

    None where the kernel does not let this user make one.
    """
    unshare = shutil.which("unshare") or ""
    for options in ("-n", "-rn") if unshare else ():
        if subprocess.run([unshare, options, "true"], capture_output=True).returncode == 0:
            (folder / "cut").write_text(f'#!/bin/sh\nexec {unshare} {options} sh -c "$SSH_ORIGINAL_COMMAND"\n')
            (folder / "cut").chmod(0o755)
            return f"ForceCommand {folder / 'cut'}"
    return None


@pytest.mark.slow
def test_a_pod_without_network_and_tools_gets_what_the_laptop_fetched_for_it(
    tmp_path: Path, uv: Path, index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    isolated = without_network(tmp_path)
    # Where there is no such namespace, no index or proxy that the pod is set up with answers.
    sshd = new_sshd(tmp_path / "sshd", isolated or "").start()
    try:
        _from_a_wheelhouse(sshd, isolated is not None, tmp_path, uv, index, monkeypatch)
    finally:
        sshd.stop()


def _from_a_wheelhouse(
    sshd: Sshd, isolated: bool, tmp_path: Path, uv: Path, index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = tmp_path / "house"
    nowhere = "http://127.0.0.1:9"
    cut = {"PIP_INDEX_URL": f"{nowhere}/simple", "ALL_PROXY": nowhere, "HTTPS_PROXY": nowhere, "HTTP_PROXY": nowhere}
    cut.update(PIP_RETRIES="0", UV_HTTP_RETRIES="0")
    pod = sshd.pod(workdir=str(tmp_path / "w"), env={**cut, "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)})
    monkeypatch.setenv("PATH", f"{uv.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", index)
    told = Told()
    made = download(PodSession(pod, told), TOOL, house)
    assert made["wheels"] == 3
    assert [path.name.split("-")[0] for path in sorted(house.iterdir())] == ["part", "tool", "uv"]
    with agent_on(pod) as agent:
        if isolated:
            connect = f"import socket; socket.create_connection(('127.0.0.1', {sshd.port}))"
            assert "unreachable" in agent.transport.run([sys.executable, "-c", connect]).complaint()
        with pytest.raises(EnvironmentFailed):
            bootstrap(agent, probe(agent), TOOL, Told())
        shutil.rmtree(tmp_path / "w" / "tools")  # uv was carried there: the wheelhouse alone is enough, too
        found = bootstrap(agent, probe(agent), TOOL, Told(), Options(wheelhouse=house))
        assert (found["packages"], found["installer"].split()[0]) == ({"part": "1.5", "tool": "1.0"}, "uv")
        # Changed by hand, it is rebuilt from what was carried there, without being told to be offline or not.
        next(Path(found["root"]).glob("lib/python*/site-packages/tool/__init__.py")).unlink()
        assert bootstrap(agent, probe(agent), TOOL, Told())["key"] == found["key"]
        # Another environment, of the same wheels.
        part = EnvironmentSpec(extra=["part"])
        assert bootstrap(agent, probe(agent), part, Told(), Options(offline=True))["packages"] == {"part": "1.5"}


def test_the_pods_own_python_is_used_as_it_is_or_refused(here: Pod) -> None:
    pod = here.model_copy(update={"environment": "system", "python": sys.executable})
    with agent_on(pod) as agent:
        found = bootstrap(agent, PodFacts(raw_facts()), EnvironmentSpec(extra=["pytest>=7"]), Told())
        assert (found["kind"], found["packages"]["pytest"]) == ("system", pytest.__version__)
        with pytest.raises(EnvironmentFailed, match=r"does not have pytest<1, no-such-thing"):
            bootstrap(agent, PodFacts(raw_facts()), EnvironmentSpec(extra=["pytest<1", "no-such-thing"]), Told())
        with pytest.raises(EnvironmentFailed, match=r"the runbook asks for 3\.5"):
            bootstrap(agent, PodFacts(raw_facts()), EnvironmentSpec(python="3.5"), Told())
    assert not Path(here.workdir, "envs").exists()


def test_a_pin_that_the_runbook_overrules_is_said(project: Project) -> None:
    stage = "{name: a, run: [echo, '1'], when: ['has:pluggy'], expect: {artifacts: [{path: a.txt, from: stdout}]}}"
    project.commit({"runbooks/r.yaml": f"name: r\nenvironment: {{python: system}}\nstages: [{stage}]\n"})
    said = "pins the environment torch28, but the runbook asks for `python: system`"
    assert said not in project.validate("--runbook", "r").stderr
    with_pod(project, environment="torch28")
    outcome = project.validate("--runbook", "r")
    # The condition is about the Python's own package, which nothing else names.
    assert (outcome.exit_code, [stage["name"] for stage in outcome.json["stages"]]) == (0, ["a"])
    assert said in outcome.stderr and said in project.run("bootstrap", "--pod", "local", "--explain").stdout
    assert "pins the environment torch28" in (project.root / outcome.json["path"] / "report.md").read_text()


def slow_uv(folder: Path, uv: Path, seconds: float) -> str:
    """A PATH whose uv takes its time for the first thing that it installs."""
    folder.mkdir()
    script = folder / "uv"
    first = '[ "$2" = install ] && mkdir "$0.slept" 2>/dev/null'
    script.write_text(f'#!/bin/sh\n{first} && sleep {seconds}\nexec {uv} "$@"\n')
    script.chmod(0o755)
    return f"{folder}:/usr/bin:/bin"


@contextmanager
def while_it_installs(told: Told, happens: Callable[[], None]) -> Iterator[None]:
    """`happens` beside what is done here, once the packages are being installed."""

    def wait() -> None:
        while not any("installing" in line for line in told.lines):
            time.sleep(0.05)
        happens()

    saboteur = threading.Thread(target=wait, daemon=True)
    saboteur.start()
    yield
    saboteur.join()


def test_a_lost_connection_loses_no_build(own_sshd: Sshd, tmp_path: Path, uv: Path, variables: dict[str, str]) -> None:
    env = {**variables, "PATH": slow_uv(tmp_path / "slow", uv, 3)}
    pod = own_sshd.pod(workdir=str(tmp_path / "w"), python=sys.executable, env=env)
    told = Told()

    def cut() -> None:
        own_sshd.stop()
        own_sshd.start()

    with agent_on(pod) as agent, while_it_installs(told, cut):
        found = bootstrap(agent, PodFacts(raw_facts()), TOOL, told)
    assert found["packages"]["tool"] == "1.0"
    assert any("contact lost" in line for line in told.lines)


def test_another_machine_that_answers_after_a_lost_connection_is_refused(
    own_sshd: Sshd, tmp_path: Path, uv: Path, variables: dict[str, str]
) -> None:
    env = {**variables, "PATH": slow_uv(tmp_path / "slow", uv, 3)}
    pod = own_sshd.pod(workdir=str(tmp_path / "w"), python=sys.executable, host_key=None, env=env)
    told = Told()
    session = PodSession(pod, told, accept_new_host_key=True)
    changed = pytest.raises(HostKeyError, match="changed its host key")
    with session.open() as agent, while_it_installs(told, own_sshd.new_host_key), changed:
        bootstrap(agent, PodFacts(raw_facts()), TOOL, told)


def test_a_build_that_was_killed_is_started_again(here: Pod, tmp_path: Path, uv: Path) -> None:
    env = {**here.env, "PATH": slow_uv(tmp_path / "slow", uv, 4)}
    pod = here.model_copy(update={"env": env})
    told = Told()

    def kill() -> None:
        for builder in proc.saying("\0build\0", f"\0{pod.workdir}\0"):
            os.kill(builder, signal.SIGKILL)

    with agent_on(pod) as agent, while_it_installs(told, kill):
        found = bootstrap(agent, PodFacts(raw_facts()), TOOL, told)
    assert found["packages"]["tool"] == "1.0"
    assert "the build was cut off: starting it again" in told.lines
