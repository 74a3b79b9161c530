"""Each of MKL's vector functions is first called by one thread, whoever imports what uses them, in whatever mode."""

import subprocess
import sys

import pytest

CODE = """
import torch
called = []
class Watch(torch.utils._python_dispatch.TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        called.extend((function.name(), x.dtype, x.numel()) for x in args if isinstance(x, torch.Tensor))
        return function(*args, **(kwargs or {}))
with Watch(), torch.device("meta"):
    import nsa.MODULE
for name in ("exp", "log", "cos", "sin"):
    for dtype in (torch.float32, torch.float64):
        assert (f"aten::{name}", dtype, 1) in called, (name, dtype, called)
"""


@pytest.mark.parametrize(
    "module", ["reference", *(pytest.param(name, marks=pytest.mark.slow) for name in ("rope", "fallback.tiles"))]
)
def test_importing_what_uses_them_calls_each_with_one_value(module: str) -> None:
    done = subprocess.run([sys.executable, "-c", CODE.replace("MODULE", module)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
