"""Projects as tests/main has them, and pods that are directories as tests/agent has them."""

from tests.agent.conftest import agent, environment, pod
from tests.main.conftest import any_project, project

__all__ = ["agent", "any_project", "environment", "pod", "project"]
