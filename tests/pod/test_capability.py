"""A GPU whose driver does not tell its compute capability is a CUDA GPU all the same; nvidia-smi is a script."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from orchestrator.agent import probe
from orchestrator.plan.plan import Capabilities, unmet
from orchestrator.pod.facts import PodFacts
from orchestrator.verdict import routes

# As drivers before 510 answer.
SMI = """#!/bin/sh
case "$*" in
*compute_cap*) echo 'Field "compute_cap" is not a valid field to query.'; exit 2 ;;
*query-compute-apps*) ;;
*query-gpu*) echo "0, GPU-0, {name}, 470.82.01, 24576, 3, 0" ;;
*) echo "CUDA Version: 11.4" ;;
esac
"""


@pytest.mark.process
@pytest.mark.parametrize(
    ("name", "sm", "reason"),
    [
        ("NVIDIA A100-PCIE-40GB", 80, None),
        ("NVIDIA GeForce RTX 3090", 86, None),
        ("Tesla T4", 75, "sm>=80: the pod has SM 75"),
        (
            "NVIDIA Graphics Device",
            0,
            "sm>=80: the pod has a CUDA GPU whose compute capability the driver does not tell",
        ),
    ],
)
def test_an_old_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, sm: int, reason: str | None) -> None:
    (tmp_path / "nvidia-smi").write_text(SMI.format(name=name))
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    facts = PodFacts(json.loads(json.dumps(probe.probe(str(tmp_path)))))
    have = Capabilities(sm=facts.sm, packages=frozenset())
    assert (facts.sm, have.cuda) == (sm, True)
    assert unmet(["cuda"], have) is None
    assert unmet(["sm>=80"], have) == reason
    # A test's route names a device of the pod; which it can be is not known, and so it is not held against it.
    assert routes.devices({"promises": {"cuda": have.cuda}, "facts": facts.summary()}) is None
