"""Host time of the whole operation by tokens: what Python does until its launches are queued, the GPU not waited for.

Of each call plainly (nothing recorded), planned (as of the third call), by a plan of one's own (`nsa.plan`), and in a
CUDA graph. Without a GPU launches and PyTorch's operations are left out, and what is left is the library's own part.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any
from unittest import mock

import torch
from torch import Tensor

import nsa
from nsa import nsa_attention, routing
from nsa.bench import options, rows
from nsa.bench.tensors import Tensors
from nsa.kernels import recorded
from nsa.kernels.common import tma
from nsa.kernels.ranges import fused
from nsa.kernels.tuning import lookup

Call = Callable[[], object]
COLUMNS = ("S", "pass", "plain_us", "planned_us", "own_plan_us", "graph_us")


def microseconds(call: Call, device: torch.device, iters: int) -> float:
    """A time that a fifth of the calls stay below: of the host alone, with nothing queued before."""
    found = []
    for _ in range(iters):
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        start = time.perf_counter()
        call()
        found.append(1e6 * (time.perf_counter() - start))
    return sorted(found)[iters // 5]


def run(shape: options.Shape, where: options.Where, tokens: int, iters: int) -> Iterator[rows.Row]:
    """The rows of one length: forward, forward and backward."""
    x = Tensors.random(shape, where, tokens)
    for grad in (False, True):
        leaves = [y.detach().requires_grad_(grad) for y in (x.q, x.k, x.v, x.gates)]
        up = torch.ones(*x.q.shape[:3], shape.dv, dtype=where.dtype, device=where.device)

        def called(attend: Callable[..., Any], leaves: list[Tensor] = leaves, up: Tensor = up) -> Any:
            o = attend(*leaves)
            return torch.autograd.grad(o, leaves, up) if o.requires_grad else o

        whole = partial(nsa_attention, config=shape.config, backend="triton", strict=True)
        timed = partial(microseconds, device=where.device, iters=iters)
        row: rows.Row = {**dict.fromkeys(COLUMNS, "-"), "S": tokens, "pass": "both" if grad else "forward"}
        if where.device.type == "cuda" or not grad:  # whose operations of PyTorch would take a CPU's time
            with mock.patch.object(recorded, "repeated", _called):  # in autograd's thread, too
                called(whole)
                row["plain_us"] = timed(partial(called, whole))
        for _ in range(3):
            called(whole)
        own = nsa.plan(*leaves, shape.config, backend="triton", strict=True)
        row |= {"planned_us": timed(partial(called, whole)), "own_plan_us": timed(partial(called, own.run))}
        if where.device.type == "cuda":
            row["graph_us"] = timed(_captured(partial(called, own.run)).replay)
        yield {**row, **shape.columns(), "iters": iters, **rows.context(where.device, where.dtype)}


def _called(name: str, function: Callable[..., Any], tensors: Any, settings: Any, kind: Any = ()) -> Any:
    """As `recorded.repeated`, without anything that was recorded."""
    return function(*tensors, *settings)


def _captured(call: Call) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph


@contextmanager
def without_a_gpu() -> Iterator[None]:
    """Kernels as for an H100, whose launches do nothing; recorded operations of PyTorch give what they gave before."""
    from triton.runtime.jit import JITFunction

    from nsa.kernels.ranges import fused_gluon

    name = recorded.Recorder._name

    def named(self: recorded.Recorder, x: Any, like: Any = None) -> str:
        operation = isinstance(getattr(x, "func", x), torch._ops.OpOverload)
        return name(self, _once(x) if operation else x, like)

    with (
        mock.patch.object(JITFunction, "run", lambda self, *args, **kwargs: _Compiled()),
        mock.patch.object(recorded.Recorder, "_name", named),
        mock.patch.object(lookup, "architecture_for", lambda x: "sm_90"),
        mock.patch.object(tma, "architecture_for", lambda x: "sm_90"),
        mock.patch.object(routing.request, "capability", lambda device: (9, 0)),
        mock.patch.object(fused, "_target", lambda device: "sm_90"),
        mock.patch.object(fused, "_launcher", lambda q: fused_gluon.launch),
    ):
        yield


def _once(operation: Callable[..., Any]) -> Callable[..., Any]:
    """Gives at each call what it gave at the first."""
    found: list[Any] = []

    def called(*args: Any) -> Any:
        if not found:
            found.append(operation(*args))
        return found[0]

    return called


class _Compiled:
    """A kernel whose launches do nothing."""

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return lambda *args: None


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = options.parser("host", __doc__)
    options.add_shape(parser, heads=64, groups=4, dk=128, dv=128)
    options.add_where(parser, threads=1)
    options.add_measure(parser, "1024,4096,8192,16384")
    parser.set_defaults(dtype="bf16")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    """`python -m nsa.bench host`."""
    args = _parse(argv)
    shape, where = options.shape_of(args), options.where_of(args)
    print(rows.headline(where.device, where.dtype), flush=True)
    found: list[rows.Row] = []
    with nullcontext() if where.device.type == "cuda" else without_a_gpu():
        for length in args.S_list:
            found += run(shape, where, length, args.iters)
    rows.write(found, args.csv, args.jsonl)
    print(rows.shown(found, COLUMNS))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
