"""The faults that the runbooks plant in the library can be planted: functions have their names, patches apply; and each
kernel has one.
"""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
EXPECTED = [
    stage["expect"]
    for path in sorted((ROOT / "runbooks").glob("*.yaml"))
    for stage in yaml.safe_load(path.read_text()).get("stages", [])
    if "expect" in stage
]
KILLS = {name for asked in EXPECTED for name in asked.get("kills", ())}
PATCHES = sorted((ROOT / "runbooks/mutants").glob("*.patch"))


def defined(body: list[ast.stmt], before: str = "") -> Iterator[str]:
    """The names of functions and methods."""
    for node in body:
        if isinstance(node, ast.FunctionDef):
            yield before + node.name
        elif isinstance(node, ast.ClassDef):
            yield from defined(node.body, f"{before}{node.name}.")


def launched(path: Path) -> Iterator[str]:
    """The kernels of a file that the host launches, as `kills` names them."""
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef) and any(
            ast.unparse(x).startswith("launched") for x in node.decorator_list
        ):
            yield f"{module}:{node.name}"


@pytest.mark.parametrize("name", sorted(KILLS))
def test_a_function_to_spoil_is_there(name: str) -> None:
    module, _, function = name.partition(":")
    path = ROOT / (module.replace(".", "/") + ".py")
    assert function in set(defined(ast.parse(path.read_text()).body))


@pytest.mark.parametrize("patch", PATCHES, ids=lambda path: path.stem)
def test_a_patch_applies(patch: Path) -> None:
    done = subprocess.run(["git", "apply", "--check", patch], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_patch_is_planted_by_a_runbook() -> None:
    planted = {mutant["patch"] for asked in EXPECTED for mutant in asked.get("mutants", ())}
    assert planted == {path.relative_to(ROOT).as_posix() for path in PATCHES}


@pytest.mark.parametrize(
    "kernel", [name for path in sorted(ROOT.glob("nsa/kernels/**/*.py")) for name in launched(path)]
)
def test_a_fault_is_planted_in_each_kernel(kernel: str) -> None:
    assert kernel in KILLS


def test_what_one_card_has_is_asked_of_no_other() -> None:
    """Tests that skip themselves on other cards, and kernels in Gluon, are in runbooks that require that card."""
    tests = {path for path in ROOT.glob("nsa/tests/test_kernels_*.py") if "sm_90 is needed" in path.read_text()}
    assert len(tests) >= 2
    for path in sorted((ROOT / "runbooks").glob("*.yaml")):
        runbook = yaml.safe_load(path.read_text())
        if "cuda" in runbook.get("requires", ()) and "sm==90" not in runbook["requires"]:
            for stage in runbook["stages"]:
                assert not tests & {ROOT / str(word).partition("::")[0] for word in stage["run"]}, stage["name"]
                assert not [x for x in stage.get("expect", {}).get("kills", ()) if "_gluon:" in x], stage["name"]
