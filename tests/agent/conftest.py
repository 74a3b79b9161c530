from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.pod import bundle
from tests.agent.pod import Pod, make_environment


@pytest.fixture(scope="session")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The zipapp as it is shipped."""
    data, digest = bundle.build()
    path = tmp_path_factory.mktemp("agent") / f"agent-{digest}.pyz"
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
