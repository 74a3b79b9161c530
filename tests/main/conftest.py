"""A fresh repository, inventory and pod for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.main.project import Project, local_pod, new_project
from tests.sshd import Sshd


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """An empty repository with one pod, `local`."""
    return new_project(tmp_path, {"local": local_pod(tmp_path)})


@pytest.fixture(params=["local", "ssh"])
def any_project(request: pytest.FixtureRequest, tmp_path: Path, sshd: Sshd) -> Project:
    """An empty repository with one pod, `p`: this machine, and the same behind SSH."""
    pod = local_pod(tmp_path) if request.param == "local" else sshd.entry(workdir=str(tmp_path / "workdir"))
    return new_project(tmp_path, {"p": pod})
