"""Pods with an index of tiny wheels, with uv and without."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.env_pod import EnvPod


@pytest.fixture
def pod(tmp_path: Path, agent: Path, uv: Path, index: str) -> EnvPod:
    """A pod with uv whose pip is set up with the tiny index and nothing else."""
    return EnvPod(tmp_path / "w", agent, uv, {"PIP_INDEX_URL": index})


@pytest.fixture
def pod_without_uv(tmp_path: Path, agent: Path, index: str) -> EnvPod:
    """The same without uv, and without a way to get one: its index has none."""
    return EnvPod(tmp_path / "without-uv", agent, None, {"PIP_INDEX_URL": index})
