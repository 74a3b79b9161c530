"""Compile kernels for a GPU that is not there, and read what they need.

    python -m nsa.kernels.tuning.ahead_of_time --help

A kernel's launch code runs as always, on tensors without memory (device "meta"), while a stand-in driver names the
target and every launch only compiles. So what is checked is what a user's call would compile. It needs a process
without TRITON_INTERPRET=1, which decides how kernels are defined.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction

from nsa.cache import NSACache
from nsa.compressors import MeanCompressor
from nsa.config import NSAConfig
from nsa.contexts import held
from nsa.device import DTYPES
from nsa.kernels import backend, combine, rotary
from nsa.kernels.common.backward_preprocess import backward_preprocess
from nsa.kernels.compression import mean
from nsa.kernels.decode.step import decode_step
from nsa.kernels.ranges import fused
from nsa.kernels.ranges.backward import ranges_backward
from nsa.kernels.ranges.forward import ranges_forward
from nsa.kernels.ranges.key_ranges import KeyRanges, of_compressed, of_window, pack
from nsa.kernels.selected.attention import selected_attention
from nsa.kernels.selected.backward import selected_backward
from nsa.kernels.selected.forward import selected_forward
from nsa.kernels.selection.select import select_blocks
from nsa.kernels.tuning import lookup
from nsa.phi import MlpPhi, WeightedPhi

TOKENS = 8192
MANY_TOKENS = 65536
"""So many that each way to share the work of selected attention is taken by one of the group sizes."""


@dataclass(frozen=True)
class Resources:
    """What one compiled kernel takes: bytes of shared memory for a block, registers and stack bytes for a thread.

    A stack means that registers were spilled to local memory.
    """

    kernel: str
    shared: int
    registers: int
    stack: int


@dataclass(frozen=True)
class Shape:
    """The shape of one entry of the table."""

    architecture: str
    dk: int
    dv: int
    group: int
    dtype: str


@contextmanager
def compiling(architecture: str) -> Iterator[list[Any]]:
    """Inside the block every launch compiles for `architecture` and does not run; yields the compiled kernels."""
    compiled: list[Any] = []
    run = JITFunction.run

    def compile_only(self: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        compiled.append(run(self, *args, grid=grid, warmup=True, **options))
        return compiled[-1]

    with _instead(compile_only, architecture):
        yield compiled


@contextmanager
def pretending(architecture: str) -> Iterator[None]:
    """Inside the block launches for `architecture` neither compile nor run: what they ask for can be watched."""
    with _instead(lambda self, *args, **options: None, architecture):
        yield


@contextmanager
def _instead(launch: Callable[..., Any], architecture: str) -> Iterator[None]:
    """`launch` takes the place of every launch, on a machine that seems to have this architecture."""
    run, before = JITFunction.run, dict(vars(driver))
    number = int(architecture.removeprefix("sm_"))
    target = GPUTarget("cuda", number, 32)
    # The device's number names the target, because kernels remember by it what was compiled and for what.
    driver.set_active(
        SimpleNamespace(
            get_current_target=lambda: target, get_current_device=lambda: number, get_current_stream=lambda device: 0
        )
    )
    JITFunction.run = launch
    try:
        with held(lookup.COMPILING_FOR, lookup.tiles_of(*divmod(number, 10))):
            yield
    finally:
        JITFunction.run = run
        vars(driver).update(before)


def resources(kernel: Any) -> Resources:
    """Of one compiled kernel, by the disassembler that Triton carries."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        text = subprocess.run(
            [_cuobjdump(), "-res-usage", file.name], check=True, capture_output=True, text=True
        ).stdout
    registers, stack = (int(re.search(rf"{name}:(\d+)", text)[1]) for name in ("REG", "STACK"))
    return Resources(kernel.metadata.name, kernel.metadata.shared, registers, stack)


def _cuobjdump() -> str:
    carried = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    found = str(carried) if carried.exists() else shutil.which("cuobjdump")
    if found is None:
        raise FileNotFoundError("cuobjdump is neither in Triton's package nor on the PATH")
    return found


# --- the launches of each part ---


def _attention(shape: Shape, tokens: int = TOKENS) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """q, k, v, do and lse of two KV heads, without memory."""

    def made(heads: int, size: int) -> Tensor:
        return torch.empty(1, tokens, heads, size, dtype=DTYPES[shape.dtype], device="meta")

    q, do = (made(2 * shape.group, size) for size in (shape.dk, shape.dv))
    k, v = (made(2, size) for size in (shape.dk, shape.dv))
    return q, k, v, do, torch.empty(q.shape[:3], dtype=torch.float32, device="meta")


def _ranges(tensors: tuple[Tensor, ...], where: KeyRanges, dq: Tensor | None) -> None:
    q, k, v, do, lse = tensors
    for rows in (q, q[:, :64]):  # sm_90 takes another kernel for few
        ranges_forward(rows, k, v, where, 1.0)
    ranges_backward(do, q, k, v, backward_preprocess(do, do, lse), where, 1.0, dq)
    fused.gradients(do, q, k, v, do, lse, where, 1.0, False)


def _window(shape: Shape) -> None:
    q, k, *others = _attention(shape)
    _ranges((q, k, *others), of_window(q, k, 512, None), torch.empty_like(q))


def _compressed(shape: Shape) -> None:
    q, k, v, do, lse = _attention(shape)
    config = NSAConfig()
    k, v = k[:, : TOKENS // config.d - 1], v[:, : TOKENS // config.d - 1]
    _ranges((q, k, v, do, lse), of_compressed(q, k, config, None), None)
    for borders in (None, torch.empty(3, dtype=torch.int32, device="meta")):  # sm_90 takes other kernels for each
        select_blocks(q, k, config, 1.0, borders, lse)


def _selected(shape: Shape) -> None:
    q, k, v, do, lse = _attention(shape, MANY_TOKENS)
    config = NSAConfig()
    indices = torch.empty(1, MANY_TOKENS, 2, config.n_sel, dtype=torch.int32, device="meta")
    selected_forward(q, k, v, indices, config, 1.0)
    selected_backward(do, q, k, v, backward_preprocess(do, do, lse), indices, config, 1.0, dq=torch.empty_like(q))
    selected_attention.backward(do, q, k, v, indices, None, None, None, do, lse, config, 1.0, False)


def _compression(shape: Shape) -> None:
    for integers in (torch.int32, torch.int64):
        pack(torch.empty(4, dtype=integers, device="meta"), TOKENS, TOKENS, 512, NSAConfig())
    _, k, v, _, _ = _attention(shape)
    for rope, others in ((None, None), (1e4, ((k, v), (k, v)))):
        means = mean.forward(k, v, NSAConfig(), None, rope=rope)
        mean.backward(*means, TOKENS, NSAConfig(), None, others, rope=rope)


def _learned(shape: Shape) -> None:
    _, k, _, _, _ = _attention(shape)
    config, (heads, dim) = NSAConfig(), k.shape[2:]

    def made(*sizes: int) -> Tensor:
        return k.new_empty(heads, *sizes).requires_grad_()

    flat = made(config.l, dim), made(config.l * dim, dim), made(dim), made(dim, dim), made(dim)
    for phi in (WeightedPhi(made(config.l)), MlpPhi(*flat)):
        x = k.detach().requires_grad_()
        backend.compress(x, config, phi, None).sum().backward()


def _rotary(shape: Shape) -> None:
    q, _, _, _, _ = _attention(shape)
    rotary.forward(q, torch.empty(q.shape[:2], dtype=torch.int64, device="meta"), 1e4)


def _combine(shape: Shape) -> None:
    _, _, _, do, lse = _attention(shape)
    gates = torch.empty(*do.shape[:3], 3, dtype=do.dtype, device="meta")
    combine.forward(do, do, do, gates)
    combine.stats(do, (do, do, do), (lse, lse, lse), gates)


def _decode(shape: Shape) -> None:
    dtype = DTYPES[shape.dtype]
    for page_size in (None, 128):
        cache = NSACache(
            NSAConfig(), 1, 2, shape.dk, shape.dv, capacity=TOKENS, dtype=dtype, device="meta", page_size=page_size,
            compress=MeanCompressor(NSAConfig(), None if shape.dk % 2 else 1e4),
        )  # fmt: skip
        for tokens in (1, 4):
            q, k, v, _, _ = (x[:, :tokens] for x in _attention(shape))
            gates = torch.empty(*q.shape[:3], 3, dtype=dtype, device="meta")
            decode_step(q, (k, k, k), (v, v, v), gates, cache, scale=1.0, counts=None)


PARTS: dict[str, Callable[[Shape], None]] = {
    "window": _window,
    "compressed": _compressed,
    "selected": _selected,
    "combine": _combine,
    "compression": _compression,
    "learned": _learned,
    "rotary": _rotary,
    "decode": _decode,
}
"""What is compiled: each part launches all of its kernels for a shape."""


def compile_part(part: str, shape: Shape) -> list[Resources]:
    """The resources of all kernels that a part launches for a shape."""
    with compiling(shape.architecture) as kernels:
        PARTS[part](shape)
    return [resources(kernel) for kernel in {id(kernel): kernel for kernel in kernels}.values()]


def main(argv: list[str] | None = None) -> int:
    """Print one JSON line for each kernel of each part and shape given."""
    parser = argparse.ArgumentParser(prog="python -m nsa.kernels.tuning.ahead_of_time", description=main.__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--shapes", nargs="+", metavar="ARCH,DK,DV,GROUP,DTYPE", default=["sm_90,128,128,16,bf16"])
    arguments = parser.parse_args(argv)
    if os.environ.get("TRITON_INTERPRET") == "1":
        parser.error("kernels cannot be compiled while TRITON_INTERPRET=1")
    for text in arguments.shapes:
        architecture, dk, dv, group, dtype = text.split(",")
        shape = Shape(architecture, int(dk), int(dv), int(group), dtype)
        for part in arguments.parts:
            for found in compile_part(part, shape):
                print(json.dumps({"part": part, **asdict(shape), **asdict(found)}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
