"""Processes as the kernel shows them."""

from __future__ import annotations

import subprocess

import pytest

from orchestrator.agent.host import processes
from tests.support import proc
from tests.support.waiting import wait_for


@pytest.mark.process
def test_a_process_that_nobody_reaps_is_not_alive() -> None:
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    assert processes.is_alive(child.pid) and proc.is_alive(child.pid)
    child.stdin.close()  # type: ignore[union-attr]
    wait_for(lambda: not proc.is_alive(child.pid))
    assert not processes.is_alive(child.pid) and child.poll() == 0
