"""What is asked of an environment before it counts: run by its own Python, in a process of its own."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent.env import verify as script
from orchestrator.config.inventory import Pod
from orchestrator.config.runbook import EnvironmentSpec
from orchestrator.pod.facts import probe
from orchestrator.shared.wheels.settings import Settings
from orchestrator.tasks.bootstrap import bootstrap
from tests.support.local_agent import Told, agent_on

SCRIPT = Path(script.__file__)


def installed() -> dict[str, str]:
    """The tests' own torch, which is a CPU build, and what belongs to it."""
    return {name: importlib.metadata.version(name) for name in ("torch", "triton", "numpy")}


def verify(**asked: Any) -> dict[str, Any]:
    """What the script prints for this Python's packages."""
    packages = installed()
    question = {"packages": packages, "pins": {"torch": packages["torch"]}, "cuda": None, **asked}
    done = subprocess.run(
        [sys.executable, "-I", "-B", str(SCRIPT)],
        input=json.dumps(question),
        capture_output=True,
        text=True,
        check=True,
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.mark.torch
def test_a_cpu_pair_is_tried_with_a_matmul_and_a_kernel() -> None:
    found = verify()["ok"]
    assert found["torch_cuda"] is None
    assert found["checks"][-3:] == ["matmul", "triton is torch's own", "Triton kernel in the interpreter"]


@pytest.mark.torch
def test_a_build_without_cuda_does_not_pass_for_one_with() -> None:
    assert "is built for CUDA None, expected 12.8" in verify(cuda="12.8")["error"]


@pytest.mark.torch
@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"triton": "3.0.0"}, "triton is {triton}, expected 3.0.0"),
        ({"no-such-package": "1"}, "no-such-package is not installed"),
    ],
)
def test_other_packages_than_the_locks_are_named(other: dict[str, str], says: str) -> None:
    assert verify(packages={**installed(), **other})["error"] == says.format(**installed())


@pytest.mark.parametrize(
    ("requirement", "triton", "fits"),
    [
        ('triton==3.4.0; platform_system == "Linux"', "3.4.0", True),
        ("triton (==3.4.0)", "3.0.0", False),
        ('triton~=3.9.0; platform_system == "Linux"', "3.9.2", True),
        ("triton~=3.9.0", "3.10.0", False),
        ("tritonclient==2.0", "3.0.0", True),
    ],
)
def test_triton_is_held_against_torchs_own_requirement(
    monkeypatch: pytest.MonkeyPatch, requirement: str, triton: str, fits: bool
) -> None:
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: [requirement])
    if fits:
        script._triton_pin(triton)
    else:
        with pytest.raises(script.Wrong, match=f"triton is {triton}, torch requires triton"):
            script._triton_pin(triton)


def test_an_undefined_symbol_is_shown_as_it_is_with_its_likely_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    symbol = "flash_attn_2_cuda.so: undefined symbol: _ZN3c105ErrorC2ENS_14SourceLocationESs"
    (tmp_path / "flash_broken.py").write_text(f"raise ImportError({symbol!r})\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(script.Wrong) as wrong:
        script._import("flash_broken")
    assert symbol in str(wrong.value)
    assert "another C++ ABI" in str(wrong.value)


@pytest.mark.parametrize(("cuda", "interprets"), [("12.8", "0"), (None, "1")])
def test_a_kernel_for_the_gpu_is_never_interpreted(
    cuda: str | None, interprets: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1" if cuda else "0")
    monkeypatch.setattr(sys, "path", [*sys.path])
    seen: list[str] = []

    def stop(name: str) -> None:
        seen.append(os.environ["TRITON_INTERPRET"])
        raise script.Wrong(name)

    monkeypatch.setattr(script, "_import", stop)
    with pytest.raises(script.Wrong):
        script._triton_kernel(cuda)
    assert seen == [interprets]


@pytest.mark.slow
def test_a_cpu_pod_gets_a_real_torch_and_triton_and_gets_them_back(tmp_path: Path, uv: Path) -> None:
    pod = Pod(name="here", transport="local", workdir=str(tmp_path / "w"))
    spec = EnvironmentSpec(requires=["torch", "triton"], optional=["flash-attn"], extra=["pytest", "numpy<2.4"])
    with agent_on(pod) as agent:
        found = bootstrap(agent, probe(agent), spec, Told())
        assert bootstrap(agent, probe(agent), spec, Told()) == found
    assert (found["profile"], found["torch_cuda"]) == ("cpu", None)
    assert found["packages"]["torch"].endswith("+cpu")
    assert not [name for name in found["packages"] if name.startswith("nvidia-")]
    assert "Triton kernel in the interpreter" in found["verified"]["checks"]
    for change, said in (
        (["install", "triton==3.6.0"], "triton 3.7.1 -> 3.6.0"),
        (["uninstall", "torch"], f"torch {found['packages']['torch']} -> removed"),
    ):
        settings = Settings.of(sys.executable).for_uv()
        command = [str(uv), "pip", change[0], "--python", found["python"], *change[1:]]
        subprocess.run(command, check=True, capture_output=True, env={**os.environ, **settings})
        told = Told()
        with agent_on(pod) as agent:
            again = bootstrap(agent, probe(agent), spec, told)
        assert f"{said}; it is rebuilt" in told.warnings[0]
        assert (again["key"], again["packages"]) == (found["key"], found["packages"])
