"""Much output: little memory on both sides, a bounded log that says what was cut, a later line soon on the screen."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.flood import flood
from tests.support.sshd import Sshd

MOST_MIB = 100
SOON_S = 5.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("total", "log_bytes"),
    [
        pytest.param(30 << 20, 1 << 20, id="30 MiB"),
        pytest.param(1 << 30, 64 << 20, id="1 GiB", marks=[pytest.mark.slow, pytest.mark.timeout(900)]),
    ],
)
def test_a_flood_of_output(tmp_path: Path, sshd: Sshd, total: int, log_bytes: int) -> None:
    found = flood(tmp_path, sshd, total, log_bytes)
    assert found.result["verdict"] == "passed", found
    for log in (
        found.home / "stages/flood/stdout",
        tmp_path / "workdir/runs" / found.home.name / "stages/flood/stdout",
    ):
        content = log.read_bytes()
        assert len(content) <= log_bytes + 100
        (cut,) = re.findall(rb"\n\[nsa-pod: (\d+) bytes are cut here\]\n", content)
        note = len(b"\n[nsa-pod:  bytes are cut here]\n") + len(cut)
        assert int(cut) + len(content) - note >= total
        assert content.endswith(b"THE LATER LINE\n")
    assert 0 < found.agent_peak_mib < MOST_MIB and found.laptop_peak_mib < MOST_MIB, found
    assert 0 <= found.latency_s < SOON_S, found
