"""From which length on Native Sparse Attention is faster than dense attention, forward and with the gradient.

Example: python -m nsa.bench crossover --heads 64 --kv-heads 4

At each length the whole operation on random and on smooth inputs (those of `python -m nsa.bench kernels`) is timed
beside dense causal attention by the fastest of PyTorch's kernels. Where sparse attention begins to be faster, lengths
in between are halved. The rows of --csv and --jsonl are those of --S_list, for `nsa-pod history`; --crossings writes
where the crossings are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import torch
from torch import Tensor

from nsa import nsa_attention, routing
from nsa.bench import options, rows, tables
from nsa.bench.cases import REGIMES, Case, Where, inputs
from nsa.bench.kernels_parts import SDPA, Tensors, dense_attention
from nsa.bench.timing import Timing, by_name, measure

PASSES = ("fwd", "fwd+bwd")
ANY = "any"
"""The regime of dense attention, whose time does not depend on it."""
LEAVES = ("q", "k", "v", "gates")
STEP = 64
"""Lengths in between are multiples of this."""

NEAR = 1.05
"""A crossing is known when the length that is faster is at most so many times the one that is slower."""

SLOWER = 1.3
"""A kernel of dense attention that takes so many times as long as another is not timed at longer lengths."""

WIDTH, HEIGHT = 64, 13
Points = Sequence[tuple[int, float]]


class Bench:
    """Times of one shape at any length, each measured once.

    Attributes:
        kernels: those of dense attention that are still worth timing, for each pass.
        rows: of what was measured so far.
    """

    def __init__(self, case: Case, where: Where, iters: int, warmup: int) -> None:
        self.case, self.where = case, where
        self.measure = partial(measure, device=where.device, iters=iters, warmup=warmup)
        names = SDPA if where.device.type == "cuda" else ("sdpa",)
        self.kernels = {name: list(names) for name in PASSES}
        self.rows: list[rows.Row] = []

    @cache  # noqa: B019  there is one bench
    def sparse(self, name: str, regime: str, tokens: int) -> Timing:
        """Of our operation."""
        x = self._inputs(tokens, regime)
        with routing.record() as recording, torch.no_grad():
            self._attend(x)
        timing = self._timed(name, x, self._attend, LEAVES)
        return self._noted(name, regime, " ".join(sorted(recording.backends("selected"))), "nsa", tokens, timing)

    @cache  # noqa: B019
    def dense(self, name: str, tokens: int) -> Timing:
        """Of the fastest kernel of dense attention that runs."""
        found: dict[str, Timing] = {}
        for by in self.kernels[name]:
            try:
                x = self._inputs(tokens)
                found[by] = self._timed(name, x, partial(dense_attention, by), LEAVES[:3])
            except RuntimeError as error:  # it does not take this shape
                rows.say(f"{by}: {rows.sentence(error)}")
        if not found:
            raise ValueError(f"no kernel of dense attention runs at {tokens} tokens")
        best = min(found, key=lambda by: found[by].ms)
        self.kernels[name] = [by for by, timing in found.items() if timing.ms < SLOWER * found[best].ms]
        return self._noted(name, ANY, best, "dense", tokens, found[best])

    def speedup(self, name: str, regime: str, tokens: int) -> float:
        """Time of dense attention over that of sparse."""
        return self.dense(name, tokens).ms / self.sparse(name, regime, tokens).ms

    def _inputs(self, tokens: int, regime: str = REGIMES[0]) -> Tensors:
        return inputs(replace(self.case, tokens=tokens, regime=regime), self.where)

    def _attend(self, x: Tensors) -> Tensor:
        return nsa_attention(x["q"], x["k"], x["v"], x["gates"], self.case.config)  # type: ignore[return-value]

    def _timed(self, name: str, x: Tensors, call: Callable[[Tensors], Tensor], leaves: Sequence[str]) -> Timing:
        return self.measure(torch.no_grad()(partial(call, x)) if name == "fwd" else by_name(call, x, leaves))

    def _noted(self, name: str, regime: str, kernel: str, by: str, tokens: int, timing: Timing) -> Timing:
        print(f"S={tokens} {by} {regime} {name}: {timing.ms:.3f} ms", flush=True)
        self.rows.append(
            {
                "S": tokens, "by": by, "regime": regime, "pass": name, **timing.columns(), "wall_ms": timing.wall_ms,
                "host_bound": int(timing.host_bound), "kernel": kernel,
            }
        )  # fmt: skip
        return timing


# --- where they cross ---


@dataclass(frozen=True)
class Crossing:
    """Sparse attention is slower at `slower` and faster from `faster` on; None where no length that was timed is so."""

    slower: int | None
    faster: int | None

    def __str__(self) -> str:
        if self.faster is None:
            return f"not faster up to {self.slower:,} tokens"
        if self.slower is None:
            return f"faster from the shortest on, {self.faster:,} tokens"
        return f"faster from {self.faster:,} tokens on (slower at {self.slower:,})"


def crossing(speedup: Callable[[int], float], lengths: Sequence[int]) -> Crossing:
    """Between the last of the lengths at which it is not faster and the next, narrowed down by halving."""
    slow = [length for length in lengths if speedup(length) <= 1]
    if not slow:
        return Crossing(None, lengths[0])
    slower = slow[-1]
    longer = [length for length in lengths if length > slower]
    if not longer:
        return Crossing(slower, None)
    faster = longer[0]
    while faster > NEAR * slower:
        between = round((slower * faster) ** 0.5 / STEP) * STEP
        if not slower < between < faster:
            break
        slower, faster = (between, faster) if speedup(between) <= 1 else (slower, between)
    return Crossing(slower, faster)


# --- what is shown ---


def plot(series: Mapping[str, Points]) -> str:
    """Speedups over lengths, on logarithmic scales; a series by the first letter of its name, `*` where two meet."""
    lengths = sorted({length for points in series.values() for length, _ in points})
    values = [value for points in series.values() for _, value in points]
    low, high = min(0.5, *values), max(2.0, *values)

    def place(value: float, least: float, most: float, cells: int) -> int:
        return 0 if most == least else round(math.log(value / least) / math.log(most / least) * (cells - 1))

    grid = [[" "] * WIDTH for _ in range(HEIGHT)]
    even = place(1.0, low, high, HEIGHT)
    grid[even] = ["-"] * WIDTH
    for name, points in series.items():
        for length, value in points:
            column, row = place(length, lengths[0], lengths[-1], WIDTH), place(value, low, high, HEIGHT)
            taken = grid[row][column]
            grid[row][column] = name[0] if taken in " -" or taken == name[0] else "*"
    labels = {HEIGHT - 1: f"{high:.3g}x", even: "1x", 0: f"{low:.3g}x"}
    lines = [f"{labels.get(row, ''):>6} |{''.join(grid[row])}" for row in reversed(range(HEIGHT))]
    axis = [" "] * (WIDTH + 8)
    for length in lengths:
        text = f"{length // 1024}k" if length % 1024 == 0 else str(length)
        start = min(place(length, lengths[0], lengths[-1], WIDTH), WIDTH - len(text)) + 8
        if all(cell == " " for cell in axis[start - 1 : start + len(text)]):
            axis[start : start + len(text)] = text
    return "\n".join([*(line.rstrip() for line in lines), "".join(axis).rstrip()])


def main(argv: list[str]) -> int:
    usual = {"heads": 64, "groups": 4, "dk": 128, "dv": 128, "iters": 7, "warmup": 3}
    to = options.by_length("crossover", __doc__, "1024,2048,4096,8192,16384,32768", **usual)
    to.add_argument("--crossings", type=Path, default=None, help="write a CSV of the crossings there")
    args = to.parse_args(argv)
    case, where = options.case_at(args, args.S_list[0]), options.where_of(args)
    if case.batch != 1:
        raise ValueError("crossover: B is 1: a length, not a batch, is what is looked for")
    print(rows.headline(where.device, where.dtype), flush=True)
    lengths, bench, crossings = sorted(set(args.S_list)), Bench(case, where, args.iters, args.warmup), []
    for name in PASSES:
        speedups = {regime: [(length, bench.speedup(name, regime, length)) for length in lengths] for regime in REGIMES}
        where_from = {regime: crossing(partial(bench.speedup, name, regime), lengths) for regime in REGIMES}
        print(f"\n{name}: time of dense attention over that of sparse, (r)andom and (s)mooth inputs\n{plot(speedups)}")
        for regime, at in where_from.items():
            print(f"{name}, {regime}: {at}", flush=True)
            crossings.append({"regime": regime, "pass": name, "slower": at.slower or "", "faster": at.faster or ""})
    found = [options.completed(row, args, case, where) for row in bench.rows if row["S"] in lengths]
    rows.write(found, args.csv, args.jsonl)
    rows.write([{**one, **rows.context(where.device, where.dtype)} for one in crossings], args.crossings, None)
    ordered = sorted(found, key=lambda row: (row["pass"], row["S"], row["regime"]))
    print(f"\n{tables.shown(ordered, ('S', 'pass', 'regime', 'kernel', 'ms', 'ms_iqr', 'wall_ms'))}")
    return 0
