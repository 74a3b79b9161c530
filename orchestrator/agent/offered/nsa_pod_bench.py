"""Times a function as a comparison needs it: samples kept, inputs fresh, caches cold, results checked.

One file, on the path of every stage, and to be copied.

    from nsa_pod_bench import Bench

    bench = Bench("decode.jsonl")                  # below $NSA_POD_ARTIFACTS, else in the current folder
    bench.time({"S": 4096}, make=lambda: inputs(4096), call=attention, check=close_to_reference)

A row holds its keys, `ms` (samples: CUDA events on a GPU, else the wall clock), `wall_ms`, `cpu_ms` and `flags`. A
runbook says so: `figures: {keys: [S], measures: {ms: {unit: ms, better: lower}}, flags: flags}`. Without a GPU it also
holds `turns`: how many turns of a loop in plain Python take as long, which is timed just before and after each call. A
machine that others use slows both alike, so that `turns: {unit: turns, better: lower}` tells commits apart where `ms`
cannot. Needs Python 3.8; PyTorch where it was imported and sees a GPU.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import statistics
import sys
import time
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

_WARM_WITHIN = 0.02  # two groups of calls whose medians are this near are warm
_WARM_GROUP = 5
_MOST_WARM_S = 10.0
_INPUT_SETS = 3
_AWAKE_S = 0.3
_LAUNCHES_BEHIND = 2.0  # what a call's launches are queued behind takes so many times as long as they
_L2_BYTES = 256 << 20  # of a flush, where the device does not tell: more than any L2 cache there is
_LEAST_TURNS, _MOST_TURNS = 500, 200_000
# A call whose launch takes so large a part of its time on the device waits for the host wherever nothing is queued.
_HOST_BOUND = 0.8


class Sample(NamedTuple):
    """A call in ms: on the device, by the wall clock until its end, until it returned, and of this process's CPU; and
    in turns of a loop."""

    device: float
    wall: float
    launch: float
    cpu: float
    turns: float = 0.0


class WrongResult(AssertionError):
    """A timed call did not compute what it is to compute: its time is that of something else."""


class Bench:
    """Rows of a JSON lines file; each sample takes one call, and a row at least `least` of them and `seconds`."""

    def __init__(self, path: str, seconds: float = 0.5, least: int = 20, most: int = 1000) -> None:
        folder = os.environ.get("NSA_POD_ARTIFACTS")
        self.path = os.path.join(folder, path) if folder else path
        self._seconds, self._least, self._most = seconds, least, most
        self._clock = _clock()
        with open(self.path, "w"):
            pass  # a row that is written later is of this run

    def time(
        self,
        keys: Mapping[str, Any],
        make: Callable[[], Sequence[Any]],
        call: Callable[..., Any],
        check: Optional[Callable[..., None]] = None,
        floor_ms: Optional[float] = None,
    ) -> Dict[str, Any]:
        """Time `call(*make())`, write the row, and return it.

        `make` gives fresh inputs: several sets of them, at addresses of their own, are used in turn. `check(result,
        *inputs)` raises for a wrong result; it sees the last timed one of each set, whose memory held NaN before.
        A median below `floor_ms`, what the roofline allows, is flagged `impossible`.
        """
        sets = [_arguments(make()) for _ in range(_INPUT_SETS)]
        for inputs in sets:
            self._checked(call(*inputs), inputs, check)
        self._warm_up(call, sets)
        samples, results = self._samples(call, sets)
        for inputs, result in zip(sets, results):
            self._checked(result, inputs, check)
        row = {
            **keys,
            "ms": [round(sample.device, 6) for sample in samples],
            "wall_ms": [round(sample.wall, 6) for sample in samples],
            "cpu_ms": [round(sample.cpu, 6) for sample in samples],
            **({} if self._clock.on_device else {"turns": [round(sample.turns, 3) for sample in samples]}),
            "flags": _flags(samples, self._clock.on_device, floor_ms),
        }
        with open(self.path, "a") as f:
            f.write(json.dumps(row) + "\n")
        return row

    def _warm_up(self, call: Callable[..., Any], sets: Sequence[Tuple[Any, ...]]) -> None:
        """Until two groups of calls in a row take as long; for some seconds at most."""
        end = time.monotonic() + _MOST_WARM_S
        before = math.inf
        while time.monotonic() < end:
            timed = (self._clock.sample(call, sets[i % len(sets)])[0] for i in range(_WARM_GROUP))
            now = statistics.median(sample.device for sample in timed)
            if abs(now - before) <= _WARM_WITHIN * now:
                return
            before = now

    def _samples(self, call: Callable[..., Any], sets: Sequence[Tuple[Any, ...]]) -> Tuple[List[Sample], List[Any]]:
        samples: List[Sample] = []
        results: List[Any] = [None] * len(sets)
        end = time.monotonic() + self._seconds
        while len(samples) < self._least or (time.monotonic() < end and len(samples) < self._most):
            turn = len(samples) % len(sets)
            _poison(results[turn])
            results[turn] = None  # its memory is the next result's, where a caching allocator hands it out
            sample, results[turn] = self._clock.sample(call, sets[turn])
            samples.append(sample)
        return samples, results

    @staticmethod
    def _checked(result: Any, inputs: Tuple[Any, ...], check: Optional[Callable[..., None]]) -> None:
        if check is not None:
            check(result, *inputs)
        elif any(_is_poisoned(tensor) for tensor in _tensors(result)):
            raise WrongResult("a result holds NaN: the call did not write it, or `check` has to say that this is right")


def _arguments(made: object) -> Tuple[Any, ...]:
    if isinstance(made, (tuple, list)):  # a tensor would be taken apart
        return tuple(made)
    raise TypeError(f"make gives a {type(made).__name__}: expected a tuple of what call takes, such as (x,)")


class _WallClock:
    """The wall clock around a call, and around a loop before and after it that takes about as long."""

    on_device = False

    def __init__(self) -> None:
        self._turns = 1000

    def sample(self, call: Callable[..., Any], inputs: Tuple[Any, ...]) -> Tuple[Sample, Any]:
        loop = self._loop()
        cpu, began = time.process_time(), time.perf_counter()
        result = call(*inputs)
        wall = (time.perf_counter() - began) * 1e3
        spent = (time.process_time() - cpu) * 1e3
        loop = (loop + self._loop()) / 2
        turns = wall / loop * self._turns
        self._turns = min(max(int(turns), _LEAST_TURNS), _MOST_TURNS)
        return Sample(wall, wall, wall, spent, turns), result

    def _loop(self) -> float:
        """How many ms its turns take now."""
        total, began = 0, time.perf_counter()
        for turn in range(self._turns):
            total += turn * turn % 7
        return (time.perf_counter() - began) * 1e3


class _DeviceClock:
    """A call twice, each time with the L2 cache empty: alone, by the wall clock; then with CUDA events around it, its
    launches queued behind other work, so that no launch shows in its time (unless it waits for the device itself).
    """

    on_device = True

    def __init__(self, torch: Any) -> None:
        self._cuda = torch.cuda
        size = 2 * int(getattr(torch.cuda.get_device_properties(torch.cuda.current_device()), "L2_cache_size", 0))
        self._scratch = torch.empty(max(size, _L2_BYTES), dtype=torch.int8, device="cuda")
        with contextlib.suppress(OSError):
            self._driver: Any = ctypes.CDLL("libcuda.so.1")
        self._flush_ms = self._awake()

    def sample(self, call: Callable[..., Any], inputs: Tuple[Any, ...]) -> Tuple[Sample, Any]:
        self._flush(1)
        self._cuda.synchronize()
        cpu, began = time.process_time(), time.perf_counter()
        result = call(*inputs)
        launched = (time.perf_counter() - began) * 1e3
        self._cuda.synchronize()
        wall = (time.perf_counter() - began) * 1e3
        spent = (time.process_time() - cpu) * 1e3
        _poison(result)
        result = None  # its memory is the next result's
        begin, end = (self._cuda.Event(enable_timing=True) for _ in range(2))
        self._flush(1 + math.ceil(_LAUNCHES_BEHIND * launched / self._flush_ms))
        begin.record()
        result = call(*inputs)
        end.record()
        self._cuda.synchronize()
        return Sample(begin.elapsed_time(end), wall, launched, spent), result

    def _flush(self, times: int) -> None:
        """Fill the L2 cache with something else; several times where that is to take so long."""
        for _ in range(times):
            self._scratch.zero_()
        with contextlib.suppress(AttributeError):
            self._driver.cuCtxResetPersistingL2Cache()

    def _awake(self) -> float:
        """How many ms a flush takes when the device has raised its clocks, which it does only under load."""
        end, took = time.monotonic() + _AWAKE_S, 0.0
        while time.monotonic() < end:
            self._cuda.synchronize()
            began = time.perf_counter()
            self._flush(_WARM_GROUP)
            self._cuda.synchronize()
            took = (time.perf_counter() - began) * 1e3 / _WARM_GROUP
        return took


def _clock() -> Any:
    torch = sys.modules.get("torch")
    return _DeviceClock(torch) if torch is not None and torch.cuda.is_available() else _WallClock()


def _flags(samples: Sequence[Sample], on_device: bool, floor_ms: Optional[float]) -> List[str]:
    device = statistics.median(sample.device for sample in samples)
    found = []
    if on_device and statistics.median(sample.launch for sample in samples) > _HOST_BOUND * device:
        found.append("host_bound")
    if floor_ms is not None and device < floor_ms:
        found.append("impossible")
    return found


def _tensors(result: Any) -> Iterator[Any]:
    """Floating-point tensors in a result."""
    if isinstance(result, (list, tuple)):
        for part in result:
            yield from _tensors(part)
    elif isinstance(result, dict):
        yield from _tensors(list(result.values()))
    elif hasattr(result, "is_floating_point") and result.is_floating_point():
        yield result


def _poison(result: Any) -> None:
    torch = sys.modules.get("torch")
    for tensor in _tensors(result):
        with torch.no_grad() if torch is not None else contextlib.nullcontext():
            tensor.detach().fill_(math.nan)


def _is_poisoned(tensor: Any) -> bool:
    return bool(tensor.isnan().any())
