"""Programs that compute on CUDA are seen from outside; those that only ask which GPUs there are, are not."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from orchestrator.agent.host.cuda_watch import CudaWatch
from orchestrator.agent.injected import cuda


@pytest.mark.process
@pytest.mark.parametrize(("program", "computes"), [("solver", True), ("nvidia-smi", False), ("python3.12", False)])
def test_who_has_the_device_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, computes: bool) -> None:
    device = tmp_path / "nvidia-uvm"
    device.touch()
    monkeypatch.setattr(cuda, "COMPUTE_DEVICES", (str(device),))
    shutil.copy(str(shutil.which("cat")), tmp_path / program)
    watch = CudaWatch()
    with (
        device.open() as opened,
        subprocess.Popen([tmp_path / program], stdin=subprocess.PIPE, stdout=opened) as process,
    ):
        watch.look(lambda: [process.pid])
        process.communicate()
    assert watch.seen is computes


def test_it_does_not_look_all_the_time() -> None:
    looks: list[int] = []
    watch = CudaWatch()
    for _ in range(3):
        watch.look(lambda: looks.append(1) or ())
    assert looks == [1] and watch.wait() > 0 and not watch.seen
