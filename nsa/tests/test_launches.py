"""What calls launch on a GPU, from there being none: the same kernels, grids and arguments when they are repeated."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from nsa.kernels.common.launch import REPEATS

MOST_ON = "sm_90"
"""Where the kernels load by descriptor, and one of them is Gluon's."""

SAMPLE = ("both", "packed", "group", "decode")
FORWARD_BESIDE = ("group", "packed group", "chunk of many")
"""Cases whose forward pass takes two streams, on any architecture."""
BESIDE = (*FORWARD_BESIDE, "both", "apart", "packed", "chunk", "packed chunks", "means", "half")
"""Those that take two streams on sm_90: a gradient of half precision of the whole, of few queries, does."""


@pytest.mark.triton
@pytest.mark.skipif(not REPEATS, reason="this Triton launches no compiled kernel with all of its arguments")
@pytest.mark.parametrize(
    ("architecture", "cases"),
    [
        (MOST_ON, SAMPLE),
        pytest.param(MOST_ON, (), marks=[pytest.mark.slow, pytest.mark.timeout(1200)]),
        pytest.param("sm_80", (), marks=[pytest.mark.slow, pytest.mark.timeout(1200)]),
        pytest.param("sm_89", (), marks=[pytest.mark.slow, pytest.mark.timeout(1200)]),
    ],
)
def test_repetitions_launch_what_calls_launch(architecture: str, cases: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "nsa.tests.launches", architecture, *cases]
    environment = {**os.environ, "TRITON_INTERPRET": "0", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert not cases or {each["case"] for each in found} == set(cases)
    for each in found:
        assert each["differences"] == [], each["case"]
        assert each["repeated"] == each["launches"] > 0, each["case"]
        expected = each["case"] in (BESIDE if architecture == MOST_ON else FORWARD_BESIDE)
        assert (each["beside"] > 0) == expected, each["case"]
