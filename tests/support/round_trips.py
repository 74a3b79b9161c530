"""What a command of the tool costs a slow line: the round trips after its connection is made."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

from orchestrator.config.inventory import Pod
from orchestrator.transports.ssh.transport import SshTransport
from tests.support import ROOT
from tests.support.project import Project
from tests.support.proxy import Proxy

# The tool, but for its heartbeats: how many of them there are says how long the stages take.
_WITHOUT_HEARTBEATS = """\
from orchestrator.cli import main
from orchestrator.transports.ssh import connection
connection._PROBE_EVERY_S = 3600.0
main()
"""
STAGES = 16


def runbook(seconds: float) -> str:
    """As many stages as cpu-smoke has, each of which owes what it prints."""
    stages = [
        {
            "name": f"s{number}",
            "run": ["python", "-c", f"import time; time.sleep({seconds}); print('done')"],
            "expect": {"artifacts": [{"path": f"s{number}.txt", "from": "stdout"}]},
        }
        for number in range(STAGES)
    ]
    return json.dumps({"name": "r", "environment": {"python": "system"}, "stages": stages})


def over(line: Proxy, pod: Pod, project: Project) -> tuple[dict[str, Any], int, float]:
    """A validate over the line: its result, its round trips after authentication, its seconds over its stages."""
    with SshTransport(pod):
        pass  # its key is known from now on
    before = line.round_trips
    with SshTransport(pod):
        pass
    connecting, before, began = line.round_trips - before, line.round_trips, time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_HEARTBEATS, "validate", "--pod", pod.name, "--runbook", "r", "--json"],
        cwd=project.root,
        env=project.environment(PYTHONPATH=str(ROOT)),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=280,
    )
    wall = time.monotonic() - began
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result, line.round_trips - before - connecting, wall - sum(stage["seconds"] for stage in result["stages"])
