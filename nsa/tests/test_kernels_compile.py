"""Every entry of the configuration table compiles for its architecture, within its shared memory and without spills.

Compiling needs no GPU, but a process without the interpreter; the slow part of this file takes many minutes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from nsa.kernels.configs import ARCHITECTURES, SHARED_MEMORY

SPILL = 256
"""Bytes of stack for a thread that are not worth naming: a few values, outside the main loop."""

SAMPLE = ("128,128,16,bf16",)
SHAPES = [
    f"{dk},{dv},{group},{dtype}"
    for dk, dv in ((64, 64), (128, 128), (192, 128), (256, 256), (80, 96))
    for group in (1, 4, 6, 16)
    for dtype in ("bf16", "fp32")
]


def _resources(architecture: str, shapes: tuple[str, ...]) -> Iterator[dict[str, object]]:
    command = [sys.executable, "-m", "nsa.kernels.compile", "--shapes", *(f"{architecture},{s}" for s in shapes)]
    environment = {**os.environ, "TRITON_INTERPRET": "0"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return map(json.loads, done.stdout.splitlines())


def _judge(architecture: str, shapes: tuple[str, ...]) -> None:
    found = list(_resources(architecture, shapes))
    assert found
    for row in found:
        assert row["shared"] <= SHARED_MEMORY[architecture], row
        assert row["stack"] <= SPILL, row


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_sample_fits(architecture: str) -> None:
    _judge(architecture, SAMPLE)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_entry_fits(architecture: str, shape: str) -> None:
    _judge(architecture, (shape,))
