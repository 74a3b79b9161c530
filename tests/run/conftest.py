"""A pod for the agent alone, and laptops with a repository that share one pod."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.agent.conftest import agent, environment, pod  # noqa: F401
from tests.main.conftest import project  # noqa: F401
from tests.main.project import Project


@pytest.fixture
def other(project: Project, tmp_path: Path) -> Project:  # noqa: F811
    """Another laptop: the same inventory, a home of its own, a place for a clone of the repository."""
    return replace(project, root=tmp_path / "other" / "repo", home=tmp_path / "other" / "home")
