"""Host time of the whole operation by tokens: what Python does until its launches are queued, the GPU not waited for.

Of each call plainly (nothing recorded), planned (as of the third call), by a plan of one's own (`nsa.plan`), and in a
CUDA graph. A gradient is computed on a thread of autograd's own, on a processor that has nothing of the call in its
caches: "one thread" is with `torch.autograd.set_multithreading_enabled(False)`.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest import mock

import torch
from torch import Tensor

import nsa
from nsa import nsa_attention
from nsa.bench import options, rows
from nsa.bench.cases import Case, Where, inputs
from nsa.bench.timing import captured
from nsa.kernels import recorded

Call = Callable[[], object]
COLUMNS = ("S", "pass", "plain_us", "planned_us", "own_plan_us", "graph_us")
PASSES = ("forward", "both", "both, one thread")


def microseconds(call: Call, device: torch.device, iters: int) -> float:
    """A time that a fifth of the calls stay below: of the host alone, with nothing queued before."""
    found = []
    for _ in range(iters):
        torch.cuda.synchronize(device)
        start = time.perf_counter()
        call()
        found.append(1e6 * (time.perf_counter() - start))
    return sorted(found)[iters // 5]


def run(args: Namespace, case: Case, where: Where) -> Iterator[rows.Row]:
    """The facts of one length.

    Raises:
        ValueError: the device is no GPU.
    """
    if where.device.type != "cuda":
        raise ValueError(f"host: time until a GPU's work is queued is measured on a GPU, got --device {where.device}")
    x = inputs(case, where)
    up = x.pop("do")
    whole = partial(nsa_attention, config=case.config, backend="triton", strict=True)
    timed = partial(microseconds, device=where.device, iters=args.iters)
    for name in PASSES:
        leaves = [y.detach().requires_grad_(name != "forward") for y in x.values()]

        def called(attend: Callable[..., Any], leaves: list[Tensor] = leaves) -> Any:
            o = attend(*leaves)
            return torch.autograd.grad(o, leaves, up) if o.requires_grad else o

        with torch.autograd.set_multithreading_enabled(name != PASSES[-1]):
            with mock.patch.object(recorded, "repeated", _called):  # in autograd's thread, too
                called(whole)
                row: rows.Row = {"pass": name, "plain_us": timed(partial(called, whole))}
            for _ in range(3):
                called(whole)
            own = nsa.plan(*leaves, case.config, backend="triton", strict=True)
            row |= {"planned_us": timed(partial(called, whole)), "own_plan_us": timed(partial(called, own.run))}
            row["graph_us"] = timed(captured(partial(called, own.run))[0].replay)
        yield row


def _called(name: str, function: Callable[..., Any], tensors: Any, settings: Any, kind: Any = ()) -> Any:
    """As `recorded.repeated`, without anything that was recorded."""
    return function(*tensors, *settings)


def main(argv: list[str]) -> int:
    usual = {"heads": 64, "groups": 4, "dk": 128, "dv": 128, "dtype": "bf16", "threads": 1}
    options.measured(options.by_length("host", __doc__, "1024,4096,8192,16384", **usual).parse_args(argv), run, COLUMNS)
    return 0
