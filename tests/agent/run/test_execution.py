"""What the agent sees a stage compute, end to end: on a GPU that is simulated, and in Triton's own interpreter."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support import simulated_gpu
from tests.support.agent_pod import SYSTEM, Pod, Run, pytest_stage, said, script

ROUTED = """
import sys, subprocess
from triton.compiler import CompiledKernel
def launch(name): CompiledKernel(name)[(1,)]()
def test_launches(record_property):
    record_property("route.selected", "triton@cuda:sm_90")
    launch("fwd"); launch("fwd")
def test_in_a_child(record_property):
    record_property("route.selected", "triton@cuda:sm_90")
    code = "from test_gpu import launch; import os; launch('bwd'); os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, '-c', code])
def test_says_so(record_property):
    record_property("route.selected", "triton@cuda:sm_90")
"""
CUDA = {"device": "cuda"}
SILENT = "import triton\ndef test_a(): pass\n"
INTERPRETED = """
import torch, triton, triton.language as tl
@triton.jit
def double(x, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i) * 2)
def test_a():
    x = torch.ones(16)
    double[(1,)](x, BLOCK=16)
    assert (x == 2).all()
"""


def run_on_gpu(pod: Pod, source: str, *stages: dict[str, Any], **over: Any) -> Run:
    files = {"test_gpu.py": source, **simulated_gpu.triton("3.7"), **simulated_gpu.torch()}
    return pod.run(files, *stages, promises={"cuda": True}, **over)


def on_gpu(name: str, *arguments: str, routes: Any = None) -> dict[str, Any]:
    expect = {**CUDA, **({"routes": {"selected": routes}} if routes else {})}
    tests = {"allow_skips": ["^deselected"]}
    return pytest_stage(name, "test_gpu.py", *arguments, cuda=True, expect=expect, tests=tests)


def test_launches_are_known_by_test(pod: Pod) -> None:
    honest = on_gpu("honest", "-k", "launches", routes={"backend": "triton", "kernels": "^fwd$"})
    child = on_gpu("child", "-k", "child", routes={"backend": "triton", "kernels": "^bwd$"})
    wrong = on_gpu("wrong", "-k", "launches", routes={"backend": "triton", "kernels": "^bwd$"})
    typed = on_gpu("typed", routes="triton")
    run = run_on_gpu(pod, ROUTED, honest, child, wrong, typed)
    judged = run.judge()
    assert [j.status for j in judged.values()] == ["passed", "passed", "invalid", "invalid"], judged
    assert judged["honest"].executed == {"cuda:0": {"launches": 2, "kernels": ["fwd"]}}
    assert judged["honest"].routes == {"selected": {"triton@cuda:sm_90": 1}}
    assert "launched no kernel that matches '^bwd$'" in judged["wrong"].reason
    assert "test_gpu.py::test_says_so launched no kernel of Triton's on the GPU" in judged["typed"].reason


def test_a_cuda_stage_that_launched_nothing_is_invalid(pod: Pod) -> None:
    allocates = script("import torch; torch.work(); print(1)")
    asks = script("import torch; torch.started = True; print(torch.cuda.is_initialized())")
    stages = [
        on_gpu("tests"),
        {**said("works", allocates), "cuda": True},
        {**said("asks", asks), "cuda": True},
        {**said("anywhere", asks), "cuda": True},
    ]
    for made in stages[1:3]:
        made["expect"] = {**made["expect"], **CUDA}
    judged = run_on_gpu(pod, SILENT, *stages).judge()
    assert [j.status for j in judged.values()] == ["invalid", "passed", "invalid", "passed"], judged
    assert judged["tests"].reason == judged["asks"].reason == "it is for CUDA, and launched no kernel on the GPU"
    assert judged["works"].used_cuda and judged["works"].executed == {"cuda": {"launches": 0, "kernels": []}}


def test_a_compiled_program_is_seen_from_outside(
    pod: Pod,
) -> None:
    """The device is a file here, which one program has mapped, for it is its code; the others only sleep, or have it
    open, as nvidia-smi has.
    """
    uvm = Path("/dev/nvidia-uvm")
    if uvm.exists() or not Path("/dev/shm").is_dir():
        pytest.skip("this machine has the device itself")
    if os.statvfs("/dev").f_flag & os.ST_NOEXEC:
        pytest.skip("no program can stand there")
    try:
        shutil.copy(str(shutil.which("sleep")), uvm)
    except OSError:
        pytest.skip("only root can make a device's file")
    try:
        stages = []
        for name, line in (
            ("computes", "/dev/nvidia-uvm 1; echo done"),
            ("asks", "exec 5< /dev/nvidia-uvm; sleep 1; echo done"),
            ("sleeps", "sleep 1; echo done"),
        ):
            made = said(name, ["sh", "-c", line], cuda=True)
            made["expect"] = {**made["expect"], **CUDA}
            stages.append(made)
        judged = pod.run({}, *stages, promises={"cuda": True}).judge()
    finally:
        uvm.unlink()
    assert [j.status for j in judged.values()] == ["passed", "invalid", "invalid"], judged


@pytest.mark.torch
def test_kernels_in_tritons_interpreter_are_none_on_the_gpu(pod: Pod) -> None:
    env = {"TRITON_INTERPRET": "1"}
    claimed = pytest_stage("claimed", "test_it.py", cuda=True, expect=CUDA, env=env)
    inside = pytest_stage("inside", "test_inside.py", cuda=True, expect=CUDA)
    honest = pytest_stage("honest", "test_it.py", env=env)
    files = {
        "test_it.py": INTERPRETED,
        "test_inside.py": f"import os\nos.environ['TRITON_INTERPRET'] = '1'\n{INTERPRETED}",
    }
    run = pod.run(files, honest, claimed, inside, promises={"cuda": True}, environment=SYSTEM)
    judged = run.judge()
    assert [j.status for j in judged.values()] == ["passed", "invalid", "invalid"], judged
    assert judged["honest"].executed == {"cpu:interpreted": {"launches": 1, "kernels": ["double"]}}
    assert "Triton's interpreter ran its kernels on the CPU: double" in judged["inside"].reason
