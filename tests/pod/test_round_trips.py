"""What a slow line costs: a warm validate asks the pod few things, and one after the other only where it must."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import round_trips
from tests.support.project import new_project
from tests.support.proxy import Proxy
from tests.support.sshd import Sshd

MOST = 14


@pytest.mark.slow
def test_a_warm_validate_takes_few_round_trips(own_sshd: Sshd, proxy_to: Callable[..., Proxy], tmp_path: Path) -> None:
    line = proxy_to(own_sshd.port)
    project = new_project(tmp_path, {"p": own_sshd.entry(port=line.port, workdir=str(tmp_path / "workdir"))})
    project.commit({"runbooks/r.yaml": round_trips.runbook(0.0), "README.md": "tiny\n"})
    project.validate("--runbook", "r", pod="p")
    line.delay = 0.25  # what is sent before an answer can have come is one round trip
    result, found, _ = round_trips.over(line, own_sshd.pod("p", port=line.port), project)
    assert result["verdict"] == "passed" and len(result["stages"]) == round_trips.STAGES
    assert found <= MOST
