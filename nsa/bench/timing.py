"""Time of a call: by the wall clock, and on a GPU also the time that the GPU itself was busy."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, TypeVar

import torch
from torch import Tensor

Result = TypeVar("Result")
HOST_BOUND = 0.5
"""Below this share of the wall time the GPU mostly waited for the host."""


@dataclass(frozen=True)
class Timing:
    """Milliseconds of each repetition; `gpu` is empty without a GPU."""

    wall: tuple[float, ...]
    gpu: tuple[float, ...] = ()

    @property
    def samples(self) -> tuple[float, ...]:
        """What `ms` is the median of: the GPU's own times if there are any, else the wall clock's."""
        return self.gpu or self.wall

    @property
    def ms(self) -> float:
        return statistics.median(self.samples)

    @property
    def iqr(self) -> float:
        """The spread: distance between the quartiles of the samples."""
        if len(self.samples) < 2:
            return 0.0
        first, _, third = statistics.quantiles(self.samples, n=4, method="inclusive")
        return third - first

    def columns(self, name: str = "ms") -> dict[str, float | list[float]]:
        """The median, the spread and the samples as columns of these names."""
        return {name: self.ms, f"{name}_iqr": self.iqr, f"{name}_samples": [*self.samples]}

    @property
    def wall_ms(self) -> float:
        """The median by the wall clock."""
        return statistics.median(self.wall)

    @property
    def host_bound(self) -> bool:
        """Whether the GPU waited for the host most of the time."""
        return bool(self.gpu) and self.ms < HOST_BOUND * self.wall_ms


def branch_columns(total: Timing, alone: Mapping[str, Timing]) -> dict[str, float | list[float]]:
    """The columns of the whole, and of each branch timed alone, with its share of the time of all of them."""
    together = sum(timing.ms for timing in alone.values())
    columns = total.columns("ms_total")
    for name, timing in alone.items():
        columns |= {**timing.columns(f"ms_{name}"), f"{name}_pct": 100 * timing.ms / together}
    return {**columns, "branches_over_total": together / total.ms}


# --- what is timed of a call ---


def with_gradients(
    call: Callable[..., Any], inputs: Sequence[Tensor], parameters: Sequence[Tensor] = (), *,
    upstream: Tensor | None = None, alone: bool = False,
) -> Callable[[], tuple[Tensor, ...]]:  # fmt: skip
    """Computes call(*inputs) and the gradients of these and of parameters under `upstream`, or ones; `alone`: only
    the gradients, of results that are computed here and now.
    """
    leaves = [x.detach().requires_grad_() for x in inputs]

    def results() -> list[Tensor]:
        found = call(*leaves)
        return [found] if isinstance(found, Tensor) else [*found]

    def gradients(found: list[Tensor]) -> tuple[Tensor, ...]:
        given = [torch.ones_like(x) for x in found] if upstream is None else [upstream]
        return torch.autograd.grad(found, [*leaves, *parameters], given, retain_graph=alone, allow_unused=True)

    return partial(gradients, results()) if alone else lambda: gradients(results())


def by_name(
    call: Callable[[dict[str, Tensor]], Tensor], x: dict[str, Tensor], leaves: Sequence[str], *, alone: bool = False
) -> Callable[[], tuple[Tensor, ...]]:
    """`with_gradients` of a call of tensors by name, of which these get theirs, under the upstream gradient x["do"]."""

    def called(*given: Tensor) -> Tensor:
        return call({**x, **dict(zip(leaves, given, strict=True))})

    return with_gradients(called, [x[name] for name in leaves], upstream=x["do"], alone=alone)


# --- timing ---


def _nothing() -> None:
    return None


def measure(
    call: Callable[[], object], device: torch.device, *, iters: int, warmup: int, reset: Callable[[], None] = _nothing
) -> Timing:
    """Time `call` again and again, with `reset` (not timed) before each.

    On a GPU each repetition for the GPU's time begins with an empty L2 cache and with all launches queued behind a
    pause, so that the host does not show in it (unless the call itself waits for the device).
    """
    for _ in range(warmup):
        reset()
        call()
    wall = tuple(_wall(call, device, reset) for _ in range(iters))
    if device.type != "cuda":
        return Timing(wall)
    return Timing(wall, queued(call, device, iters, statistics.median(wall), reset))


def _wall(call: Callable[[], object], device: torch.device, reset: Callable[[], None]) -> float:
    reset()
    _wait(device)
    start = time.perf_counter()
    call()
    _wait(device)
    return (time.perf_counter() - start) * 1e3


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def queued(
    call: Callable[[], object], device: torch.device, iters: int, wall_ms: float, reset: Callable[[], None] = _nothing
) -> tuple[float, ...]:
    """Milliseconds of each call on a GPU, launched behind a pause of about twice the `wall_ms` that one takes."""
    pause = int(2e6 * (2 * wall_ms + 0.1))  # cycles, at about 2 GHz
    events = []
    for _ in range(iters):
        reset()
        empty_cache(device)
        torch.cuda._sleep(pause)
        events.append(_between(call))
    torch.cuda.synchronize(device)
    return tuple(start.elapsed_time(end) for start, end in events)


def cold(call: Callable[[], object], device: torch.device) -> float:
    """Milliseconds of one call, host included, on a GPU with an empty L2 cache; on a CPU as it comes."""
    if device.type != "cuda":
        return _wall(call, device, _nothing)
    empty_cache(device)
    start, end = _between(call)
    torch.cuda.synchronize(device)
    return float(start.elapsed_time(end))


def empty_cache(device: torch.device) -> None:
    """Empty the L2 cache by reading 256 MB."""
    _sweep(device).sum()


@lru_cache
def _sweep(device: torch.device) -> Tensor:
    return torch.zeros(64 << 20, device=device)


def _between(call: Callable[[], object]) -> tuple[torch.cuda.Event, torch.cuda.Event]:
    """Events before and after what the call launches."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    call()
    end.record()
    return start, end


def captured(call: Callable[[], Result]) -> tuple[torch.cuda.CUDAGraph, Result]:
    """The call as a graph, and where it leaves its output. The call has run before."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = call()
    return graph, result


def peak_bytes(call: Callable[[], object], device: torch.device) -> float:
    """Device memory that one call takes at most, beyond what is there; 0 on a CPU, where it is not measured."""
    if device.type != "cuda":
        return 0.0
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    call()
    torch.cuda.synchronize(device)
    return float(torch.cuda.max_memory_allocated(device) - before)
