"""The runbooks plant a fault in each kernel of the library: one that nobody planted would be believed unproved."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
KERNELS = ROOT / "nsa/kernels"


def _launched(path: Path) -> Iterator[str]:
    """The kernels that the host launches, as `kills` names them."""
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef) and any(ast.unparse(x) == "launched" for x in node.decorator_list):
            yield f"{module}:{node.name}"


def _planted(*runbooks: str) -> set[str]:
    stages = (
        stage for name in runbooks for stage in yaml.safe_load((ROOT / f"runbooks/{name}.yaml").read_text())["stages"]
    )
    return {name for stage in stages for name in stage.get("expect", {}).get("kills", ())}


@pytest.mark.parametrize("kernel", [kernel for path in sorted(KERNELS.rglob("*.py")) for kernel in _launched(path)])
def test_a_fault_is_planted_in_each_kernel(kernel: str) -> None:
    assert kernel in _planted("nsa-validate", "cpu-sabotage")
