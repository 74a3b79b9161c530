"""Find launch configurations on this GPU and write them, with their times, to the table of the kernels.

Example: python -m nsa.bench autotune --shapes 64/4/128/128,32/8/128/128 --parts window,selected --seconds 500

For each part and shape, every kernel that the part launches is tuned in turn: from the table's tile, the neighbours
(half and twice the rows, keys and warps, one stage more or less) are timed, the best becomes the next start, until none
is better by 2 %; others compile them meanwhile. A tile counts only if it compiles, fits and gives the result of
the table's. The best is written as the entry of that head dimension, dtype and group size; `--dry-run` lists what would
be timed first, on any machine.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path

import torch
import triton
from torch import Tensor
from triton.compiler.errors import CompilationError
from triton.runtime.errors import OutOfResources

from nsa import ops
from nsa.bench import rows as table_rows
from nsa.bench.cases import Case, Where, case_of, inputs
from nsa.bench.judge import relative_error
from nsa.bench.options import parser, positive, some_of
from nsa.bench.timing import Timing, measure
from nsa.cache import NSACache
from nsa.config import BRANCHES, NSAConfig
from nsa.device import DTYPES
from nsa.kernels.common.backward_preprocess import backward_preprocess
from nsa.kernels.common.sizes import pad_group
from nsa.kernels.decode.step import cached_attention
from nsa.kernels.ranges.backward import ranges_backward
from nsa.kernels.ranges.forward import FEWEST_ROWS, ranges_forward
from nsa.kernels.ranges.key_ranges import of_compressed, of_window
from nsa.kernels.selected.backward import selected_backward
from nsa.kernels.selected.forward import selected_forward
from nsa.kernels.selected.tile_scheduler import ALWAYS, NEVER, Schedule, can_gather
from nsa.kernels.selection.select import select_blocks
from nsa.kernels.tuning import lookup
from nsa.kernels.tuning.ahead_of_time import compiling, pretending
from nsa.kernels.tuning.lookup import Table, Tile

BETTER = 0.98
"""A neighbour replaces a tile when its time is at most this part of it."""

SAME = 2e-2
"""Results of two tiles may differ by so much, relative in the norm: they add up in another order."""

SLOW = 30.0
"""Seconds after which a tile that is still being compiled is left out: of what takes so long most spills."""

LSE = 8.0
"""About that of random inputs: p is neither nothing nor infinite."""

PARTS = ("window", "compressed", "select", "selected", "decode")
Call = Callable[[], tuple[Tensor, ...]]
Milliseconds = Callable[[Tile], float | None]


# --- the search ---


def neighbours(tile: Tile) -> list[Tile]:
    """The tiles one step away."""
    found = [
        *(replace(tile, BM=rows) for rows in (tile.BM // 2, tile.BM * 2) if 16 <= rows <= 256),
        *(replace(tile, BN=keys) for keys in (tile.BN // 2, tile.BN * 2) if 16 <= keys <= 256),
        *(replace(tile, num_warps=warps) for warps in (tile.num_warps // 2, tile.num_warps * 2) if 1 <= warps <= 8),
        *(replace(tile, num_stages=n) for n in (tile.num_stages - 1, tile.num_stages + 1) if 1 <= n <= 5),
    ]
    return [*found, replace(tile, BM=tile.BM * 2, num_warps=tile.num_warps * 2)] if tile.num_warps <= 4 else found


@dataclass(frozen=True)
class Found:
    """The best tile, its time and that of the start; how many were timed."""

    tile: Tile
    ms: float
    before: float
    timed: int


def climb(
    start: Tile, milliseconds: Milliseconds, until: float = float("inf"), expect: Callable[[list[Tile]], object] = len
) -> Found:
    """Go from tile to better neighbour. `milliseconds` says None for a tile that cannot be used.

    Args:
        start: the tile of the table; it can be used.
        milliseconds: times a tile.
        until: when to stop, by `time.monotonic`.
        expect: told of the tiles that are timed next, before the first of them is.
    """
    times: dict[Tile, float | None] = {start: milliseconds(start)}
    before = times[start]
    if before is None:
        raise ValueError(f"the table's own tile cannot be timed: {start}")
    best, ms = start, before
    while True:
        expect(neighbours(best))
        for tile in neighbours(best):
            if tile not in times and time.monotonic() < until:
                times[tile] = milliseconds(tile)
        usable = [(taken, tile) for tile, taken in times.items() if taken is not None]
        taken, tile = min(usable, key=lambda pair: pair[0])
        if tile == best or taken > BETTER * ms:
            return Found(best, ms, before, len(times))
        best, ms = tile, taken


# --- what is timed ---


def calls(x: Mapping[str, Tensor], config: NSAConfig, scale: float) -> dict[str, Call]:
    """The passes of every part, each launching few kernels; the schedules of the selected branch one by one.

    Forward over ranges has few rows, and the choice of blocks is also of packed sequences, so that sm_90 takes the
    kernels of the table too.
    """
    q, k, v, do, lse, stats = (x[name] for name in ("q", "k", "v", "do", "lse", "stats"))
    k_cmp, v_cmp, indices = x["k_cmp"], x["v_cmp"], x["indices"]
    of_win, of_cmp = of_window(q, k, config.w, None), of_compressed(q, k_cmp, config, None)
    few = q[:, -((FEWEST_ROWS - 1) // q.shape[2]) :]
    first = torch.tensor([q.shape[1] - few.shape[1]], device=q.device)
    few_win, few_cmp = of_window(few, k, config.w, None, first), of_compressed(few, k_cmp, config, None, first)
    borders = torch.tensor([0, q.shape[1]], dtype=torch.int32, device=q.device)
    cache = NSACache(config, 1, k.shape[2], k.shape[3], v.shape[3], capacity=k.shape[1], dtype=k.dtype, device=k.device)
    if k.device.type != "meta":
        cache.append(k, v)
    found: dict[str, Call] = {
        "window forward": lambda: ranges_forward(few, k, v, few_win, scale),
        "window backward": lambda: ranges_backward(do, q, k, v, stats, of_win, scale),
        "compressed forward": lambda: ranges_forward(few, k_cmp, v_cmp, few_cmp, scale),
        "compressed backward": lambda: ranges_backward(do, q, k_cmp, v_cmp, stats, of_cmp, scale),
        "select": lambda: (select_blocks(q, k_cmp, config, scale, None, lse),),
        "select packed": lambda: (select_blocks(q, k_cmp, config, scale, borders, lse),),
        "decode": lambda: cached_attention(
            q[:, -1:], x["gates"][:, -1:], cache, scale=scale, branches=BRANCHES, block_indices=None
        ),
    }
    sizes = config.l_sel, max(k.shape[3], v.shape[3]), k.element_size()
    for name, how in ways(q.shape[2] // k.shape[2]).items():
        if name != "gather" or can_gather(*sizes, backward=False):
            found[f"selected forward {name}"] = partial(selected_forward, q, k, v, indices, config, scale, schedule=how)
        if name != "gather" or can_gather(*sizes, backward=True):
            found[f"selected backward {name}"] = partial(
                selected_backward, do, q, k, v, stats, indices, config, scale, schedule=how
            )
    return found


def ways(group: int) -> dict[str, Schedule]:
    """Each way to share the selected branch's work, by itself, so that all of its kernels run.

    The tile comes first: the others ask the table for it too, for its size alone.
    """
    tokens = 64 // pad_group(group)
    if tokens == 1:
        return {"token": Schedule(most=NEVER)}
    return {"tile": Schedule(most=ALWAYS), "token": Schedule(most=NEVER), "gather": Schedule(0, max(2, tokens // 2))}


def problem(case: Case, dtype: torch.dtype, device: torch.device, seed: int) -> dict[str, Tensor]:
    """Tensors for `calls`, without memory on the device "meta"."""
    x, config = inputs(case, Where(device, dtype, seed)), case.config
    k_cmp, v_cmp = (ops.compress(x[name], config) for name in "kv")
    lse = torch.full(x["q"].shape[:3], LSE, dtype=torch.float32, device=device)
    indices = select_blocks(x["q"], k_cmp, config, case.dk**-0.5, None, lse)
    stats = backward_preprocess(x["do"], x["do"], lse)
    return {**x, "k_cmp": k_cmp, "v_cmp": v_cmp, "indices": indices, "lse": lse, "stats": stats}


@dataclass(frozen=True)
class Job:
    """One kernel to tune, by one call that launches it."""

    part: str
    kernel: str
    key: str
    group: int
    call: Call

    @property
    def own_key(self) -> str:
        """The key of the entry for this group size."""
        return f"{self.key}/{self.group}"


def jobs(found: Mapping[str, Call], parts: Collection[str]) -> Iterator[Job]:
    """The kernels that the calls of these parts launch, each once."""
    done: set[str] = set()
    for part, call in found.items():
        if part.split()[0] not in parts:
            continue
        with lookup.trying({}) as asked:
            call()
        for kernel, key, group in sorted(asked):
            if kernel not in done:
                done.add(kernel)
                yield Job(part, kernel, key, group, call)


def stopwatch(job: Job, usual: Sequence[Tensor], timer: Callable[[Call], Timing]) -> Milliseconds:
    """Times a tile of a job; None where it does not compile, does not fit or gives another result than `usual`."""

    def milliseconds(tile: Tile) -> float | None:
        with lookup.trying({job.kernel: tile}):
            try:
                results = job.call()
                if any(
                    relative_error(x, y) > SAME or bool(x.isnan().any()) for x, y in zip(results, usual, strict=True)
                ):
                    return None
                return timer(job.call).ms
            except (OutOfResources, CompilationError, RuntimeError):
                if usual[0].is_cuda:
                    torch.cuda.synchronize()  # an error of the device itself goes on
                return None

    return milliseconds


# --- compiling ahead ---


@dataclass(frozen=True)
class Compilation:
    """The kernels that the call of a part launches, as a process without a GPU compiles them."""

    case: Case
    dtype: str
    architecture: str
    part: str
    kernel: str = ""
    tile: Tile | None = None
    """What `kernel` takes; None: what the table has, as all others do."""


@lru_cache(maxsize=2)
def _calls_without_memory(case: Case, dtype: str, architecture: str) -> dict[str, Call]:
    with pretending(architecture):
        return calls(problem(case, DTYPES[dtype], torch.device("meta"), seed=0), case.config, case.dk**-0.5)


def calls_of(case: Case, dtype: str, architecture: str) -> list[str]:
    """The names of `calls`."""
    return list(_calls_without_memory(case, dtype, architecture))


def compile_only(what: Compilation) -> None:
    """Leave in Triton's cache what the call launches. A tile that does not compile fails again where it is timed."""
    call = _calls_without_memory(what.case, what.dtype, what.architecture)[what.part]
    tiles = {} if what.tile is None else {what.kernel: what.tile}
    fails = suppress(OutOfResources, CompilationError, RuntimeError)
    with compiling(what.architecture), lookup.trying(tiles), fails:
        call()


class CompiledAhead:
    """Processes that compile tiles while others are timed: compiling takes seconds, timing milliseconds."""

    def __init__(self, processes: int) -> None:
        self._pool = ProcessPoolExecutor(processes, mp_context=get_context("spawn"))
        self._compiled: dict[Compilation, Future[None]] = {}

    def __enter__(self) -> CompiledAhead:
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def expect(self, several: Iterable[Compilation]) -> None:
        """Begin with what is timed soon; each is compiled once."""
        for one in several:
            if one not in self._compiled:
                self._compiled[one] = self._pool.submit(compile_only, one)

    def usual(self, case: Case, dtype: str, architecture: str, parts: Collection[str]) -> None:
        """Compile what these parts launch with the table's tiles; returns when it is done."""
        names = self._pool.submit(calls_of, case, dtype, architecture).result()
        several = [Compilation(case, dtype, architecture, name) for name in names if name.split()[0] in parts]
        self.expect(several)
        wait([self._compiled[one] for one in several])

    def compiled(self, one: Compilation) -> bool:
        """Wait for it, at most SLOW seconds."""
        return bool(wait([self._compiled[one]], SLOW).done)


# --- the command ---


def parse(argv: list[str]) -> argparse.Namespace:
    to = parser("autotune", __doc__)
    to.add_argument("--shapes", default="64/4/128/128,64/4/192/128,32/8/128/128", help="heads/kv_heads/dk/dv")
    to.add_argument(
        "--dtypes", type=some_of(DTYPES), default="bf16", help=f"of {', '.join(DTYPES)}; half precisions share entries"
    )
    to.add_argument("--tokens", type=positive, default=16384, help="length of the sequence")
    to.add_argument("--parts", type=some_of(PARTS), default=",".join(PARTS), help="what is tuned")
    to.add_argument("--repeats", type=positive, default=9, help="timed calls of each tile")
    to.add_argument("--seconds", type=float, default=float("inf"), help="time no further tile after so long")
    to.add_argument("--processes", type=positive, default=os.cpu_count(), help="compile so many tiles at once")
    to.add_argument("--table", type=Path, default=lookup.PATH, help="the table to read and write")
    to.add_argument("--dry-run", action="store_true", help="list the kernels and the first tiles; write nothing")
    to.add_argument("--architecture", choices=lookup.ARCHITECTURES, default=None, help="of a dry run without a GPU")
    to.add_argument("--seed", type=int, default=0, help="of the inputs")
    return to.parse_args(argv)


def cases(args: argparse.Namespace) -> Iterator[tuple[Case, str]]:
    """The shapes and dtypes that are tuned."""
    for shape, dtype in product(args.shapes.split(","), args.dtypes):
        yield case_of(shape, args.tokens, "random"), dtype


def starts(
    args: argparse.Namespace, case: Case, dtype: str, device: torch.device, architecture: str
) -> list[tuple[Job, Tile]]:
    """The kernels to tune, each with the tile of the table that its search begins with."""
    found = calls(problem(case, DTYPES[dtype], device, args.seed), case.config, case.dk**-0.5)
    return [
        (job, lookup.tile_of(job.kernel, architecture, case.dk, case.dv, job.group, DTYPES[dtype]))
        for job in jobs(found, args.parts)
    ]


def plan(args: argparse.Namespace) -> Iterator[str]:
    """What a run would time first: one line for each kernel of each shape."""
    architecture = args.architecture or lookup.architecture_of(torch.device("cuda"))
    with pretending(architecture):
        for case, dtype in cases(args):
            for job, start in starts(args, case, dtype, torch.device("meta"), architecture):
                yield (
                    f"{case.shape} {dtype}: {job.kernel} [{architecture}, {job.own_key}] by {job.part}: "
                    f"{short(start)}, then {' '.join(map(short, neighbours(start)))}"
                )


def short(tile: Tile) -> str:
    """128x64w8s3: rows x keys, warps, stages."""
    return f"{tile.BM}x{tile.BN}w{tile.num_warps}s{tile.num_stages}"


def tune(args: argparse.Namespace, table: Table) -> Iterator[str]:
    """Tune on this GPU, writing the table after each kernel; yields what was found."""
    device, until = torch.device("cuda"), time.monotonic() + args.seconds
    timer = partial(measure, device=device, iters=args.repeats, warmup=2)
    architecture = lookup.architecture_of(device)
    on = f"{table_rows.card(device)}, triton {triton.__version__}"
    with CompiledAhead(args.processes) as ahead:
        for case, dtype in cases(args):
            if time.monotonic() > until:
                yield f"{case.shape} {dtype}: left out, {args.seconds:.0f} s are over"
                return
            ahead.usual(case, dtype, architecture, args.parts)
            searches = [
                Search(case, dtype, architecture, job, start)
                for job, start in starts(args, case, dtype, device, architecture)
            ]
            for search in searches:
                ahead.expect(map(search.compilation, [search.start, *neighbours(search.start)]))
            for search in searches:
                if time.monotonic() > until:
                    break
                found, job = search.best(timer, ahead, until), search.job
                of = f"{job.part} {case.shape} {case.tokens} {dtype}"
                measured = {"ms": round(found.ms, 4), "of": of, "on": on}
                table[job.kernel][architecture][job.own_key] = found.tile.entry() | measured
                lookup.write(table, args.table)
                yield (
                    f"{case.shape} {dtype}: {job.kernel}: {short(search.start)} {found.before:.3f} ms -> "
                    f"{short(found.tile)} {found.ms:.3f} ms, {found.timed} timed ({job.part})"
                )


@dataclass(frozen=True)
class Search:
    """For the best tile of a job, from `start` on."""

    case: Case
    dtype: str
    architecture: str
    job: Job
    start: Tile

    def compilation(self, tile: Tile) -> Compilation:
        """Of the job's kernel with another tile."""
        return Compilation(self.case, self.dtype, self.architecture, self.job.part, self.job.kernel, tile)

    def best(self, timer: Callable[[Call], Timing], ahead: CompiledAhead, until: float) -> Found:
        """Each tile is compiled by another process before it is timed here."""
        watch = stopwatch(self.job, self.job.call(), timer)

        def milliseconds(tile: Tile) -> float | None:
            return watch(tile) if ahead.compiled(self.compilation(tile)) else None

        return climb(self.start, milliseconds, until, lambda tiles: ahead.expect(map(self.compilation, tiles)))


def main(argv: list[str]) -> int:
    """Tune, or say what would be tuned."""
    args = parse(argv)
    if not torch.cuda.is_available() and not (args.dry_run and args.architecture):
        raise ValueError(
            "autotune times kernels on a CUDA device, and there is none (--dry-run --architecture: a list)"
        )
    for line in plan(args) if args.dry_run else tune(args, lookup.read(args.table)):
        print(line, flush=True)
    return 0
