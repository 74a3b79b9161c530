"""The GPU: it is claimed, and something else computed. The pod's GPU, and Triton on it, are simulated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.honesty.case import Case, Stage
from tests.honesty.run_cases import OUT, on_gpu, path_with
from tests.support import simulated_gpu
from tests.support.project import Outcome, Project, with_pod

ON_POD = on_gpu("GeForce RTX 4090")
NO_GPU = 'case "$*" in *) echo "No devices were found"; exit 6 ;; esac'
HEAD = """\
from triton.compiler import CompiledKernel
def routed(record_property, backend="triton", device="cuda:0"):
    record_property("route.selected", f"{backend}@{device}")
"""
LAUNCH = "    CompiledKernel('selected_fwd')[(1,)]()\n"
TEST = "def test_{name}(record_property):\n    routed(record_property)\n{body}"
BOTH = TEST.format(name="a", body=LAUNCH) + TEST.format(name="b", body=LAUNCH)
ONE_TYPED = TEST.format(name="a", body=LAUNCH) + TEST.format(name="b", body="")
ONE_EMPTY = TEST.format(name="a", body=LAUNCH) + TEST.format(name="b", body=LAUNCH.replace("(1,)", "(4, 0)"))
ONE_SILENT = TEST.format(name="a", body=LAUNCH) + "def test_b(): pass\n"
INTERPRETER = """
class GridExecutor:
    def __init__(self, fn): self.fn = fn
    def __call__(self): self.fn()
"""
INTERPRETED = """
from triton.runtime.interpreter import GridExecutor
def selected_fwd(): pass
def test_a(record_property):
    routed(record_property)
    GridExecutor(selected_fwd)()
    CompiledKernel('other')[(1,)]()
"""
ONLY_ASKS = "import torch\ntorch.started = True\nprint(torch.cuda.device_count(), 'GPU, 1.5 ms')\n"
WORKS = "import torch\ntorch.work()\nprint('1.5 ms')\n"
SAYS_CUDA = "import torch\ndel torch._C._cuda_memoryStats\ntorch.cuda.is_initialized = lambda: True\nprint('1.5 ms')\n"


def _files(source: str) -> dict[str, str]:
    package = {**simulated_gpu.triton("3.7"), **simulated_gpu.torch()}
    runtime = package.pop("triton/runtime.py")
    inside = {"triton/runtime/__init__.py": runtime, "triton/runtime/interpreter.py": INTERPRETER}
    return {**package, **inside, "t/test_gpu.py": HEAD + source}


def _tests(name: str, source: str, routes: Any = "triton", **more: Any) -> dict[str, Any]:
    stage = {
        "name": name, "when": ["cuda"], "run": ["python", "-m", "pytest", "-q", "t/test_gpu.py"],
        "expect": {"routes": {"selected": routes} if routes else {}, **more},
    }  # fmt: skip
    return {"stage": stage, "files": _files(source), "play": ON_POD}


def _script(name: str, code: str, **more: Any) -> dict[str, Any]:
    stage: Stage = {"name": name, "when": ["cuda"], "run": ["python", "-c", code], "expect": {**OUT, **more}}
    return {"stage": stage, "files": _files(""), "play": ON_POD}


def _promises_only(project: Project) -> Outcome:
    """Validate on a pod that promises a GPU, and whose driver finds none."""
    with_pod(project, gpu="RTX 4090")
    path = path_with(project, "", "")
    (project.root.parent / "programs" / "nvidia-smi").write_text(f"#!/bin/sh\n{NO_GPU}\n")
    return project.validate("--runbook", "r", PATH=path)


def _lie(name: str, pretends: str, reason: str, honest: str, made: Mapping[str, Any], status: str = "invalid") -> Case:
    return Case(name, pretends, status, reason, honest, **made)


HONEST = [
    Case("launches", "each test launches the kernel that it names", "passed", **_tests("launches", BOTH)),
    Case(
        "one_owes",
        "one test is about the kernel, and launches it; the runbook says which",
        "passed",
        **_tests("one_owes", ONE_SILENT, {"backend": "triton", "tests": "test_a$", "kernels": "^selected_"}),
    ),
    Case("computes", "a script allocates and computes on the GPU", "passed", **_script("computes", WORKS)),
    Case(
        "only_asks", "a probe says that it computes nothing", "passed", **_script("only_asks", ONLY_ASKS, device="any")
    ),
]
LIES = [
    _lie(
        "cuda_unused", "a CUDA stage's tests never touch the GPU", "launched no kernel on the GPU", "launches",
        _tests("cuda_unused", "def test_a(): pass\n", None),
    ),
    _lie(
        "route_typed", "one of two tests types the route that it did not take",
        "test_b launched no kernel of Triton's on the GPU", "launches", _tests("route_typed", ONE_TYPED),
    ),
    _lie(
        "route_silent", "one of two tests records no route", "test_b passed and recorded no route.selected", "launches",
        _tests("route_silent", ONE_SILENT),
    ),
    _lie(
        "other_kernel", "another kernel than the one it is about was launched", "launched no kernel that matches",
        "one_owes", _tests("other_kernel", BOTH, {"backend": "triton", "kernels": "^selected_bwd"}),
    ),
    _lie(
        "nobody_owes", "the pattern names no test that passed", "no passed test that matches", "one_owes",
        _tests("nobody_owes", BOTH, {"backend": "triton", "tests": "test_c"}),
    ),
    _lie(
        "interpreted_beside", "the kernel in question runs in the interpreter, another one on the GPU",
        "Triton's interpreter ran its kernels on the CPU: selected_fwd", "launches",
        _tests("interpreted_beside", INTERPRETED),
    ),
    _lie(
        "asks_and_times", "a bench asks which GPUs there are, and measures elsewhere", "launched no kernel on the GPU",
        "only_asks", _script("asks_and_times", ONLY_ASKS),
    ),
    _lie(
        "cuda_replaced", "torch's CUDA is replaced, on a torch that has none", "launched no kernel on the GPU",
        "computes",
        _script("cuda_replaced", SAYS_CUDA),
    ),
    _lie(
        "grid_of_nothing", "one of two tests launches the kernel on a grid of nothing",
        "test_b launched no kernel of Triton's on the GPU", "launches", _tests("grid_of_nothing", ONE_EMPTY),
    ),
    _lie(
        "promise_broken", "the pod promises a GPU, has none, and the stage needs none",
        "promises RTX 4090, and nvidia-smi lists no GPU", "promised_gpu",
        {"stage": {"name": "promise_broken", "run": ["echo", "1"], "expect": OUT}, "play": _promises_only}, "blocked",
    ),
    _lie(
        "promise_broken_on_cuda", "the same for a CUDA stage, which is not merely left out",
        "promises RTX 4090, and nvidia-smi lists no GPU", "promised_gpu",
        {
            "stage": {"name": "promise_broken_on_cuda", "when": ["cuda"], "run": ["echo", "1"], "expect": OUT},
            "play": _promises_only,
        },
        "blocked",
    ),
]  # fmt: skip
CASES = [*HONEST, *LIES]
