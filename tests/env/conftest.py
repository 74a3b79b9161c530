from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from orchestrator.agent.env.installers import find_uv
from orchestrator.agent.env.progress import Progress
from orchestrator.pod import bundle
from orchestrator.shared.wheels.settings import Settings
from tests.env.pod import EnvPod, tiny_index


@pytest.fixture(scope="session")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The zipapp as it is shipped."""
    data, digest = bundle.build()
    path = tmp_path_factory.mktemp("agent") / f"agent-{digest}.pyz"
    path.write_bytes(data)
    return path


@pytest.fixture(scope="session")
def uv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real uv, alone in its directory: this machine's, or one that is fetched as a pod would fetch it."""
    folder = tmp_path_factory.mktemp("uv")
    settings = Settings.of_pod(shutil.which("python3") or "python3")
    found = find_uv(folder / "tools", folder / "cache", settings, Progress(folder / "progress.jsonl"))
    (folder / "bin").mkdir()
    (folder / "bin" / "uv").symlink_to(found.path)
    return folder / "bin" / "uv"


@pytest.fixture(scope="session")
def index(tmp_path_factory: pytest.TempPathFactory) -> str:
    return tiny_index(tmp_path_factory.mktemp("index"))


@pytest.fixture
def pod(tmp_path: Path, agent: Path, uv: Path, index: str) -> EnvPod:
    """A pod with uv whose pip is set up with the tiny index and nothing else."""
    return EnvPod(tmp_path / "w", agent, uv, {"PIP_INDEX_URL": index})


@pytest.fixture
def pod_without_uv(tmp_path: Path, agent: Path, index: str) -> EnvPod:
    """The same without uv, and without a way to get one: its index has none."""
    return EnvPod(tmp_path / "without-uv", agent, None, {"PIP_INDEX_URL": index})
