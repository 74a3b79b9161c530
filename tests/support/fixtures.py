"""The fixtures that tests of several rooms share."""

from __future__ import annotations

import hashlib
import itertools
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent.env.progress import Progress
from orchestrator.agent.env.store import Store
from orchestrator.agent.env.uv import find_uv
from orchestrator.config.inventory import Pod as InventoryPod
from orchestrator.shared.wheels.settings import Settings
from tests.support.agent_pod import Pod, make_environment
from tests.support.compiled import compiled_agent
from tests.support.env_pod import tiny_index
from tests.support.project import Project, local_pod, new_project
from tests.support.proxy import Proxy
from tests.support.sshd import Sshd, new_sshd

_SSH = pytest.param("ssh", marks=pytest.mark.ssh)
_TRANSPORTS = ["local", _SSH]

# the laptop


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Names of folders that are not there yet: most tests need none, and a `tmp_path` for each takes milliseconds."""
    folder = tmp_path_factory.mktemp("homes")
    return (folder / str(n) for n in itertools.count())


@pytest.fixture
def laptop(homes: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """$NSA_POD_HOME; no agent and no other configuration of the user takes part."""
    home = next(homes)
    monkeypatch.setenv("NSA_POD_HOME", str(home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return home


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """An empty repository with one pod, `local`."""
    return new_project(tmp_path, {"local": local_pod(tmp_path)})


@pytest.fixture
def other(project: Project, tmp_path: Path) -> Project:
    """Another laptop: the same inventory, a home of its own, a place for a clone of the repository."""
    return replace(project, root=tmp_path / "other" / "repo", home=tmp_path / "other" / "home")


@pytest.fixture(params=[pytest.param("local", marks=pytest.mark.slow), _SSH])  # most tests are of `project`, local
def any_project(request: pytest.FixtureRequest, tmp_path: Path) -> Project:
    """An empty repository with one pod, `p`: this machine, and the same behind SSH."""
    if request.param == "local":
        return new_project(tmp_path, {"p": local_pod(tmp_path)})
    sshd: Sshd = request.getfixturevalue("sshd")
    return new_project(tmp_path, {"p": sshd.entry(workdir=str(tmp_path / "workdir"))})


@pytest.fixture(params=_TRANSPORTS)
def pod_of(request: pytest.FixtureRequest) -> Callable[..., InventoryPod]:
    """Makes pods as the inventory has them, on this interpreter: this machine, and the same behind SSH."""
    if request.param == "local":
        return lambda **keys: InventoryPod(name="here", transport="local", **{"python": sys.executable, **keys})
    sshd: Sshd = request.getfixturevalue("sshd")
    return sshd.pod


# a pod that is a directory


@pytest.fixture(scope="session")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The zipapp as it is shipped, with its modules compiled for this Python: a pod compiles them at each start."""
    data = compiled_agent().read_bytes()
    path = tmp_path_factory.mktemp("agent") / f"agent-{hashlib.sha256(data).hexdigest()[:16]}.pyz"
    path.write_bytes(data)
    return path


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A managed environment that holds nothing but pytest, so that stages start fast."""
    return make_environment(tmp_path_factory.mktemp("envs") / "tiny")


@pytest.fixture
def pod(tmp_path: Path, agent: Path, environment: dict[str, Any]) -> Pod:
    workdir = tmp_path / "w"
    workdir.mkdir()
    return Pod(workdir, agent, environment)


# what a pod installs from


@pytest.fixture(scope="session")
def uv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real uv, alone in its directory: this machine's, or one that is fetched as a pod would fetch it."""
    folder = tmp_path_factory.mktemp("uv")
    python = shutil.which("python3") or "python3"
    found = find_uv(Store(folder), lambda: Settings.of(python), Progress(folder / "progress.jsonl"))
    (folder / "bin").mkdir()
    (folder / "bin" / "uv").symlink_to(found.path)
    return folder / "bin" / "uv"


@pytest.fixture(scope="session")
def index(tmp_path_factory: pytest.TempPathFactory) -> str:
    return tiny_index(tmp_path_factory.mktemp("index"))


# a pod behind SSH


@pytest.fixture(scope="session")
def sshd() -> Iterator[Sshd]:
    """One server for all tests; a test that stops, restarts or rekeys it takes `own_sshd`."""
    with tempfile.TemporaryDirectory(prefix="nsa-sshd-") as folder:
        server = new_sshd(Path(folder)).start()
        yield server
        server.stop()


@pytest.fixture
def own_sshd(tmp_path: Path) -> Iterator[Sshd]:
    """A server that the test may do anything to."""
    server = new_sshd(tmp_path / "sshd").start()
    yield server
    server.stop()


@pytest.fixture
def proxy_to() -> Iterator[Callable[[int], Proxy]]:
    """Makes proxies to a port; they end with the test."""
    proxies: list[Proxy] = []

    def make(port: int, delay: float = 0.0) -> Proxy:
        proxies.append(Proxy(port, delay).start())
        return proxies[-1]

    yield make
    for proxy in proxies:
        proxy.stop()
