"""Every entry of the configuration table compiles for its architecture, within its shared memory and without spills.

Compiling needs no GPU, but a process without the interpreter; the slow part of this file takes many minutes.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nsa.kernels.common import hopper
from nsa.kernels.tuning import lookup
from nsa.kernels.tuning.ahead_of_time import PARTS
from nsa.kernels.tuning.lookup import ARCHITECTURES, SHARED_MEMORY, tiles_of

SPILL = 256
"""Bytes of stack for a thread that are not worth naming: a few values, outside the main loop."""

SAMPLE = ("128,128,16,bf16",)
SIZES = ("64,64", "128,128", "192,128", "64,128", "256,256", "80,96", "40,40")
GROUPS = {"bf16": (1, 4, 6, 12, 16, 32, 64), "fp32": (1, 4, 6, 12, 16, 32)}
OLD_TRITON = "triton==3.0.0"


def _resources(
    architecture: str, shapes: tuple[str, ...], environment: dict[str, str] | None, parts: tuple[str, ...]
) -> Iterator[dict[str, object]]:
    command = [
        sys.executable,
        "-m",
        "nsa.kernels.tuning.ahead_of_time",
        "--parts",
        *parts,
        "--shapes",
        *(f"{architecture},{s}" for s in shapes),
    ]
    environment = {**os.environ, "TRITON_INTERPRET": "0", **(environment or {})}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "error:" not in done.stderr, done.stderr[-2000:]  # Triton 3.0 may go on after one
    return map(json.loads, done.stdout.splitlines())


def _judge(
    architecture: str,
    shapes: tuple[str, ...],
    environment: dict[str, str] | None = None,
    parts: tuple[str, ...] = tuple(PARTS),
) -> None:
    found = list(_resources(architecture, shapes, environment, parts))
    most = SHARED_MEMORY[tiles_of(*divmod(int(architecture.removeprefix("sm_")), 10))]
    assert found
    wrong = [row for row in found if row["shared"] > most or row["stack"] > SPILL]
    assert not wrong, wrong


def _shapes(size: str, dtype: str) -> tuple[str, ...]:
    return tuple(f"{size},{group},{dtype}" for group in GROUPS[dtype])


@pytest.mark.parametrize("architecture", [*ARCHITECTURES, pytest.param("sm_120", marks=pytest.mark.slow)])
def test_sample_fits(architecture: str) -> None:
    """Learned maps, whose tiles are the same everywhere, for the least shared memory alone."""
    _judge(architecture, SAMPLE, parts=tuple(part for part in PARTS if part != "learned" or architecture == "sm_89"))


@pytest.mark.parametrize(
    ("architecture", "shapes"),
    [
        ("sm_89", ("128,128,128,bf16",)),
        *(
            pytest.param(name, ("192,128,128,bf16", "192,128,96,bf16", "64,128,65,fp32"), marks=pytest.mark.slow)
            for name in ARCHITECTURES
        ),
    ],
)
def test_a_step_of_a_group_in_parts_fits(architecture: str, shapes: tuple[str, ...]) -> None:
    _judge(architecture, shapes, parts=("decode",))


@pytest.mark.slow
def test_one_process_compiles_for_each_architecture_in_turn() -> None:
    code = (
        "from nsa.kernels.tuning.ahead_of_time import PARTS, Shape, compiling\n"
        f"for architecture in {ARCHITECTURES}:\n"
        "    with compiling(architecture) as kernels:\n"
        "        PARTS['combine'](Shape(architecture, 64, 64, 4, 'bf16'))\n"
        "    print(architecture, *{f'sm_{kernel.metadata.target.arch}' for kernel in kernels})\n"
    )
    environment = {**os.environ, "TRITON_INTERPRET": "0"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines() == [f"{architecture} {architecture}" for architecture in ARCHITECTURES]


@pytest.mark.skipif(hopper.lacking() is not None, reason=str(hopper.lacking()))
@pytest.mark.parametrize(
    ("part", "dk", "name", "least", "most"),
    [
        ("window", 128, "_backward_qkv", 24, 8),
        *(pytest.param("window", dk, "_backward_qkv", 24, 8, marks=pytest.mark.slow) for dk in (64, 192)),
        pytest.param("window", 128, "_attention", 72, 12, marks=pytest.mark.slow),
        pytest.param("window", 192, "_attention", 96, 12, marks=pytest.mark.slow),
        pytest.param("selected", 128, "_backward_selected", 32, 5, marks=pytest.mark.slow),
        pytest.param("selected", 64, "_backward_selected", 20, 5, marks=pytest.mark.slow),
        pytest.param("selected", 192, "_backward_selected", 44, 5, marks=pytest.mark.slow),
        *(pytest.param("compressed", dk, "_sums", 3 * dk // 16, 3, marks=pytest.mark.slow) for dk in (64, 128, 192)),
    ],
)
def test_products_of_the_gluon_kernels_are_under_way_together(
    part: str, dk: int, name: str, least: int, most: int
) -> None:
    """The compiler may wait for each of them where it cannot follow their registers: correct, at half the speed."""
    code = (
        "from nsa.kernels.tuning.ahead_of_time import PARTS, Shape, compiling\n"
        "with compiling('sm_90') as kernels:\n"
        f"    PARTS['{part}'](Shape('sm_90', {dk}, 128, 16, 'bf16'))\n"
        f"(found,) = {{kernel.asm['sass'] for kernel in kernels if kernel.metadata.name == '{name}'}}\n"
        "print(found.count('HGMMA'), found.count('WARPGROUP.DEPBAR'))\n"
    )
    environment = {**os.environ, "TRITON_INTERPRET": "0"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    products, waits = map(int, done.stdout.split())
    assert products >= least
    assert waits <= most


def test_the_key_of_a_compiled_kernel_does_not_depend_on_what_was_launched_before() -> None:
    """Else what one process compiled, another whose first call was of another operation compiles again."""
    code = """
from importlib import import_module
from pkgutil import walk_packages
import nsa.kernels
from nsa.kernels.common.launch import Launched, hash_callees_first
from triton.runtime.jit import JITFunction

found = [x for m in walk_packages(nsa.kernels.__path__, "nsa.kernels.") for x in vars(import_module(m.name)).values()]
launched = list({id(x): x.kernel for x in found if isinstance(x, Launched)}.values())
functions = [*launched, *(x for x in found if isinstance(x, JITFunction))]

def keys(kernels):
    for function in functions:
        function.hash, function.used_global_vals = None, {}
    for kernel in kernels:
        hash_callees_first(kernel)
    return {kernel.cache_key for kernel in launched}

one, other = keys(launched), keys(launched[::-1])
print(len(launched), len(one), len(one - other))
"""
    environment = {**os.environ, "TRITON_INTERPRET": "0"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    kernels, keys, others = map(int, done.stdout.split())
    assert kernels == keys > 40
    assert not others


def test_no_kernel_chains_operators() -> None:
    """Triton before 3.3 compiles no `a and b and c`; on all versions that are not installed here nothing else tells."""
    for path in Path(lookup.__file__).parents[1].rglob("*.py"):
        for function in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)):
            if any("triton.jit" in ast.unparse(decorator) for decorator in function.decorator_list):
                chains = [x.lineno for x in ast.walk(function) if isinstance(x, ast.BoolOp) and len(x.values) > 2]
                assert not chains, f"{path.name}, {function.name}: lines {chains}"


@pytest.mark.slow
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_entry_fits(architecture: str, size: str, dtype: str) -> None:
    _judge(architecture, _shapes(size, dtype))


@pytest.fixture(scope="session")
def old_triton(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment in which Python finds Triton 3.0: in $TRITON_3_0_PATH, or installed from the package index."""
    given = os.environ.get("TRITON_3_0_PATH")
    place = Path(given) if given else tmp_path_factory.mktemp("triton")
    if given is None:
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(place), OLD_TRITON]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr.strip() or "pip said nothing").splitlines()[-1]
            pytest.skip(f"{OLD_TRITON} cannot be installed for this Python: {last}")
    paths = [str(place), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {"PYTHONPATH": os.pathsep.join(paths), "TRITON_CACHE_DIR": str(tmp_path_factory.mktemp("cache"))}
    command = [sys.executable, "-c", "import triton; print(triton.__version__)"]
    found = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "3.0.0", f"{place} holds Triton {found.stdout.strip()}"
    return environment


@pytest.mark.slow
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("size", SIZES)
def test_every_ada_entry_fits_under_triton_3_0(size: str, dtype: str, old_triton: dict[str, str]) -> None:
    """The stack of a rented RTX 4090: torch 2.4 with Triton 3.0.0."""
    _judge("sm_89", _shapes(size, dtype), old_triton)
