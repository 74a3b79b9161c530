"""Which kernels lie behind what a test calls."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

from orchestrator.agent.injected.kernels.behind import Behind

pytestmark = pytest.mark.unit

CODE = """
def scale(x): ...
kernel, library = Kernel(scale), Kernel(other_scale)
def launch(x): return kernel[(1,)](x)
class Op:
    def __call__(self, x): return launch(x)
    @staticmethod
    def go(x): return launch(x)
op = Op()
def run(x): return op(x)
def plain(x): return library[(1,)](x)
def again(x): return again(x) if x else run(x)
"""
TESTS = """
import lib
from lib import Op, plain
TABLE = {"fast": [lib]}
def helper(): return Op.go(1)
"""


class Kernel:
    """As Triton's."""

    def __init__(self, fn: Any) -> None:
        self.fn = fn


Kernel.__module__ = "triton.runtime.jit"


@pytest.mark.parametrize(
    ("body", "called"),
    [
        ("lib.run(1)", ["run"]),
        ("lib.again(1)", ["again"]),
        ("from lib import run\n    run(1)", ["run"]),
        ("import lib as ours\n    ours.run(1)", ["run"]),
        ("TABLE['fast'][0].run(1)", ["run"]),
        ("helper()", ["Op.__call__", "Op.go"]),
        ("Op()(1)", ["Op.__call__", "Op.go"]),
        ("lib.plain(1)", []),  # of which the kernel is a library's
        ("plain(1), lib", []),
        ("lib.absent", []),
        ("len('run')", []),
    ],
)
def test_the_functions_that_a_test_names(monkeypatch: pytest.MonkeyPatch, body: str, called: list[str]) -> None:
    lib, names = types.ModuleType("lib"), {"__name__": "test_it"}
    vars(lib).update(Kernel=Kernel, other_scale=test_the_functions_that_a_test_names, __file__="/tree/lib.py")
    monkeypatch.setitem(sys.modules, "lib", lib)
    exec(compile(CODE, "/tree/lib.py", "exec"), vars(lib))
    exec(compile(f"{TESTS}def test():\n    {body}\n", "/tree/tests/test_it.py", "exec"), names)
    behind = Behind(lambda file: file.startswith("/tree/"), lambda file: "/tests/" in file)
    found = dict(behind.called_by(names["test"]))  # type: ignore[arg-type]
    assert found == {f"lib.{name}": frozenset({"scale"}) for name in called}
