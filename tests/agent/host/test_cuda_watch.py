"""Programs that compute on CUDA are seen from outside; those that only ask which GPUs there are, are not."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from orchestrator.agent.host.cuda_watch import CudaWatch
from orchestrator.agent.injected.kernels import cuda


@pytest.mark.process
@pytest.mark.parametrize(
    ("program", "maps", "computes"),
    [("solver", True, True), ("nvidia-smi", False, False), ("python3.12", True, False)],
)
def test_who_computes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, maps: bool, computes: bool
) -> None:
    """What a program has mapped here is its own code."""
    copy, device = tmp_path / program, tmp_path / "nvidia-uvm"
    device.touch()
    shutil.copy(str(shutil.which("cat")), copy)
    monkeypatch.setattr(cuda, "MAPPED", str(copy if maps else device))
    watch = CudaWatch()
    with device.open() as opened:
        process = subprocess.Popen([copy], stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[opened.fileno()])
    with process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(b"ready\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"ready\n"  # its code is mapped
        watch.look(lambda: [process.pid])
        process.stdin.close()
    assert watch.seen is computes


def test_it_does_not_look_all_the_time() -> None:
    looks: list[int] = []
    watch = CudaWatch()
    for _ in range(3):
        watch.look(lambda: looks.append(1) or ())
    assert looks == [1] and watch.wait() > 0 and not watch.seen
