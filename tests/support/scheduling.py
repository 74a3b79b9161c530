"""How pytest-xdist hands out the tests: one at a time, but those that share one long run to one worker."""

from __future__ import annotations

from typing import Any

import pytest

# Modules with a fixture for all of their tests that takes longer than most tests.
TOGETHER = ("tests/agent/run/test_lies.py", "tests/volume/test_disk.py")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        """A scope is what one worker gets; the largest go first."""

        def _split_scope(self, nodeid: str) -> str:
            module = nodeid.split("::")[0]
            return module if module in TOGETHER else nodeid

    return Scheduling(config, log)
