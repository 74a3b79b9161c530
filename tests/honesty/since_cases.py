"""Against the last passed run: what it showed and this one does not is no failure, and a note says it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.honesty.case import Case, Stage
from tests.honesty.run_cases import path_with
from tests.support import simulated_gpu
from tests.support.project import Outcome, Project, with_pod

LAUNCH = "    CompiledKernel('double_fwd')[(1,)]()\n"
KERNEL = f"from triton.compiler import CompiledKernel\ndef double(x):\n{LAUNCH}    return 2 * x\n"
REFERENCE = "def reference(x): return x + x\n"
PARITY = "from kernels import double, reference\ndef test_parity(): assert double(4) == reference(4)\n"
CLOSE = """\
import pytest
def test_close(): assert [x + 1e-9 for x in range(64)] == pytest.approx([*range(64)], abs=1e-6)
"""
IN_TWO = LAUNCH.replace("_fwd", "_load") + LAUNCH.replace("_fwd", "_add")


def then(**files: str) -> Callable[[Project], Outcome]:
    """Validate on a GPU; commit `files`, by the names of their modules, and validate that."""

    def play(project: Project) -> Outcome:
        with_pod(project, gpu="RTX 4090")
        path = path_with(project, "GeForce RTX 4090", "1")
        assert project.validate("--runbook", "r", PATH=path).exit_code == 0
        project.commit({f"{module}.py": text for module, text in files.items()})
        return project.validate("--runbook", "r", PATH=path)

    return play


def _case(name: str, does: str, play: Callable[[Project], Outcome], note: str = "", honest: str | None = None) -> Case:
    stage: Stage = {"name": name, "run": ["python", "-m", "pytest", "-q", "test_parity.py", "test_close.py"]}
    return Case(name, does, "passed", honest=honest, note=note, stage=stage, files=FILES, play=play)


FILES: Mapping[str, str] = {
    **simulated_gpu.triton("3.7"),
    "kernels.py": KERNEL + REFERENCE,
    "test_parity.py": PARITY,
    "test_close.py": CLOSE,
}
CASES = [
    _case(
        "kernel_in_two",
        "a kernel has become two others",
        then(kernels=KERNEL.replace(LAUNCH, IN_TWO) + REFERENCE),
    ),
    _case("closer", "a test compares with a smaller tolerance", then(test_close=CLOSE.replace("1e-6", "1e-8"))),
    _case(
        "kernel_replaced",
        "the kernel is replaced by the reference that it is compared with",
        then(kernels=REFERENCE + "double = reference\n"),
        "launched double_fwd in .*, and not now: test_parity.py::test_parity",
        "kernel_in_two",
    ),
    _case(
        "tolerance_widened",
        "a test's tolerance was made so large that it holds of wrong results",
        then(test_close=CLOSE.replace("1e-6", "1e2")),
        "tests of tolerance_widened compared with a larger tolerance than in",
        "closer",
    ),
]
