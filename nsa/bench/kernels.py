"""Each part of Native Sparse Attention and the whole, forward and backward, against dense attention and peers.

Example: python -m nsa.bench kernels --shapes P128,L128 --tokens 8192,65536 --json kernels.json
With --decode it times decode steps instead (see its --help).

Every case is first judged by the oracle on sampled queries; nothing is timed that is wrong. Times are medians of CUDA
events around each call, with the L2 cache emptied before it; `floor` is the larger of the least arithmetic and the
least traffic over the card's measured ceilings, `roofline` is floor over median. `queued` is the median of short
calls launched behind a pause, in which the host does not show.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from nsa import nsa_attention, reference
from nsa.bench import peers, tables
from nsa.bench import rows as table_rows
from nsa.bench.cases import REGIMES, SHAPES, Case, Where, case_of, inputs
from nsa.bench.judge import REGRET, Operation, judge, sampled_rows
from nsa.bench.kernels_parts import Part, Tensors, our_parts, prepare
from nsa.bench.options import add_sizes, add_where, config_of, integers, parser, positive, some_of, where_of
from nsa.bench.roofline import Work, floor_ms
from nsa.bench.timing import by_name, cold, peak_bytes, queued

COLUMNS = ("case", "part", "by", "pass", "ms", "min", "max", "queued", "floor", "roofline", "peak_gb")
PARTS = ("whole", "compressed", "select", "selected", "window", "combine")
PASSES = ("fwd", "bwd", "fwd+bwd")
AT_LEAST_MS = 100.0
"""That a pass is timed for, whatever the repetitions."""
SHORT_MS = 10.0
"""Up to so long a call may wait for the host."""
Row = dict[str, Any]


# --- timing ---


def timed(call: Callable[[], object], device: torch.device, repeats: int, least: float = 0.0) -> list[float]:
    """Milliseconds of `repeats` calls or more, each `timing.cold`, after two calls that compile and warm up.

    Together they take `least` ms at least: of a short call, where the host's moments show, a few have no stable median.
    """
    call()
    call()
    times: list[float] = []
    while len(times) < repeats or sum(times) < least:
        times.append(cold(call, device))
    return times


# --- what is called ---


def check(case: Case, x: Tensors, backend: str, count: int, seed: int = 0) -> Row:
    """Judge `nsa_attention` and its gradients on x (from `kernels_parts.prepare`) at `count` queries.

    Both sides get the blocks that the kernel chose; that choice is judged alone, by its regret.
    """
    rows = sampled_rows(case.tokens, count, seed).to(x["q"].device)
    operation = Operation(
        "attention",
        {name: x[name] for name in ("q", "k", "v", "gates")},
        lambda **t: nsa_attention(**t, config=case.config, backend=backend, strict=True),
        lambda **t: reference.nsa_attention(**t, config=case.config, block_indices=x["indices"]),
    )
    found = judge(operation, rows, seed)
    scores = reference.block_scores(x["q"].double(), x["k_cmp"].double(), case.config, rows=rows)
    regret = reference.selection_regret(x["indices"][:, rows], scores, rows[None], case.config)
    passed = found.passed and regret <= REGRET
    return {
        "case": case.name, "rows": len(rows), "errors": found.errors, "plain": found.plain, "regret": regret,
        "passed": passed,
    }  # fmt: skip


def passes(part: Part, x: Tensors) -> Iterator[tuple[str, Callable[[], object], Work]]:
    """The passes of a part that can be timed: their names, calls and least work."""
    yield "fwd", torch.no_grad()(partial(part.call, x)), part.forward
    if part.part == "whole":
        yield "fwd+bwd", by_name(part.call, x, part.leaves), part.forward + part.backward
    elif part.leaves:
        yield "bwd", by_name(part.call, x, part.leaves, alone=True), part.backward


def measure(
    case: Case, part: Part, ours: Part, x: Tensors, device: torch.device, args: argparse.Namespace
) -> Iterator[Row]:
    """A row for each wanted pass, a peer's with how far its answer is from ours; one that refuses the shape gives one
    row that says why."""
    base: Row = {"case": case.name, "shape": case.shape, "tokens": case.tokens, "regime": case.regime}
    try:
        if part is not ours and part.part != "whole":  # the whole of others is another question
            base["differs"] = _difference(part, ours, x)
        for name, call, work in passes(part, x):
            if name in args.passes:
                figures = _figures(part, name, timed(call, device, args.repeats, AT_LEAST_MS), work, device)
                alone = _queued(call, figures["ms"], args.repeats, device)
                yield {**base, **figures, "queued": alone, "peak_gb": peak_bytes(call, device) / 1e9}
    except (RuntimeError, ValueError, TypeError, AssertionError, ImportError) as error:  # a peer's own kinds
        if part.by == args.backend:
            raise
        yield {**base, "part": part.part, "by": part.by, "pass": "-", "failed": table_rows.sentence(error)}


@torch.no_grad()
def _difference(part: Part, ours: Part, x: Tensors) -> float:
    """Of the outputs, relative to the size of ours: |theirs - ours| / |ours|, 2-norms."""
    expected = ours.call(x).float()
    return float((part.call(x).float() - expected).norm() / expected.norm())


def _queued(call: Callable[[], object], ms: float, repeats: int, device: torch.device) -> float | None:
    """The median without the host, of a short call on a GPU."""
    if device.type != "cuda" or ms > SHORT_MS:
        return None
    return statistics.median(queued(call, device, repeats, ms))


def _figures(part: Part, name: str, times: list[float], work: Work, device: torch.device) -> Row:
    median = statistics.median(times)
    floor = floor_ms(device, work)
    return {
        "part": part.part, "by": part.by, "pass": name,
        "ms": median, "min": min(times), "max": max(times), "n": len(times),
        "flops": work.flops, "bytes": work.bytes, "floor": floor, "roofline": floor and floor / median,
        **({"note": part.note} if part.note else {}),
    }  # fmt: skip


def mean_union(case: Case, x: Tensors) -> tuple[float, int]:
    """Distinct blocks of a 64-row tile of neighbouring queries, on average; and how many there can be."""
    tokens = max(1, 64 * case.kv_heads // case.heads)
    chosen = x["indices"][0, : case.tokens // tokens * tokens].unflatten(0, (-1, tokens)).transpose(1, 2).flatten(2)
    ordered = chosen.sort(-1).values
    distinct = ((ordered[..., 1:] != ordered[..., :-1]) & (ordered[..., 1:] >= 0)).sum(-1) + (ordered[..., 0] >= 0)
    return float(distinct.double().mean()), chosen.shape[-1]


# --- the command ---


def parse(argv: list[str]) -> argparse.Namespace:
    """The options; lists are written with commas."""
    to = parser("kernels", __doc__)
    to.add_argument("--shapes", default="P128,P192,L128", help=f"of {', '.join(SHAPES)} or heads/kv_heads/dk/dv")
    to.add_argument("--tokens", type=integers, default="8192,16384,65536", help="sequence lengths")
    to.add_argument("--regimes", type=some_of(REGIMES), default=",".join(REGIMES), help="of neighbouring queries")
    to.add_argument("--parts", type=some_of(PARTS), default=",".join(PARTS), help="what is timed")
    to.add_argument("--passes", type=some_of(PASSES), default=",".join(PASSES), help="fwd+bwd is of the whole only")
    to.add_argument("--backend", default="triton", help="of ours")
    to.add_argument("--deterministic", action="store_true", help="time gradients that are bitwise repeatable")
    to.add_argument("--no-peers", action="store_true", help="ours only")
    to.add_argument("--check-rows", type=int, default=64, help="queries judged by the oracle; 0 times unjudged")
    to.add_argument("--repeats", type=positive, default=7, help="timed calls, at least; more of short ones")
    to.add_argument("--seconds", type=float, default=float("inf"), help="begin no case after so long")
    to.add_argument("--json", type=Path, default=None, help="write everything there")
    add_sizes(to)
    add_where(to)
    return to.parse_args(argv)


def run_case(case: Case, args: argparse.Namespace, where: Where) -> tuple[list[Row], Row]:
    """Judge a case and time its parts: the rows, and what was found out about the case."""
    x = prepare(case, inputs(case, where), args.backend)
    union, most = mean_union(case, x)
    facts: Row = {"case": case.name, "union": union, "union_most": most}
    if args.check_rows:
        facts["check"] = check(case, x, args.backend, args.check_rows, where.seed)
    table_rows.say(f"{case.name}: mean union {union:.1f} of {most} blocks; {_verdict(facts)}")
    if args.check_rows and not facts["check"]["passed"]:
        return [], facts
    ours = our_parts(case, x, args.backend, args.deterministic)
    every = [*ours.values(), *([] if args.no_peers else peers.parts(case, x, ours))]
    chosen = [part for part in every if part.part in args.parts]
    return [row for part in chosen for row in measure(case, part, ours[part.part], x, where.device, args)], facts


def _verdict(facts: Row) -> str:
    if "check" not in facts:
        return "not judged"
    found = facts["check"]
    ratios = {name: found["errors"][name] / max(found["plain"][name], 1e-30) for name in found["errors"]}
    worst = max(ratios, key=lambda name: ratios[name])
    said = f"worst error {ratios[worst]:.2f} of plain PyTorch's ({worst}), regret {found['regret']:.1e}"
    return ("right: " if found["passed"] else "WRONG: ") + said


def main(argv: list[str]) -> int:
    """Run the bench; 1 if a case was judged wrong."""
    if "--decode" in argv:
        from nsa.bench import kernels_decode

        return kernels_decode.main([argument for argument in argv if argument != "--decode"])
    args = parse(argv)
    where, config = where_of(args), config_of(args)
    table_rows.say(table_rows.headline(where.device, where.dtype))
    cases = [
        replace(case_of(shape, tokens, regime), config=config)
        for tokens in args.tokens
        for shape in args.shapes.split(",")
        for regime in args.regimes
    ]
    asked = {"deterministic": args.deterministic, "sizes": asdict(config)}
    context = {**table_rows.context(where.device, where.dtype), **asked}
    absent = {} if args.no_peers else peers.absent()
    began, rows, facts = time.monotonic(), [], []
    for case in cases:
        if time.monotonic() - began > args.seconds:
            table_rows.say(f"{case.name}: left out, {args.seconds:.0f} s are over")
            continue
        found, fact = run_case(case, args, where)
        rows, facts = rows + found, [*facts, fact]
        table_rows.write_json(args.json, context=context, absent=absent, cases=facts, rows=rows)
        torch.cuda.empty_cache()
    right = all(fact.get("check", {"passed": True})["passed"] for fact in facts)
    timed = [row for row in rows if "ms" in row]
    if right and not timed:
        raise ValueError("kernels: nothing was timed: no case was begun in time, or no part of these has such a pass")
    if timed:
        print(tables.shown(timed, COLUMNS))
    for row in rows:
        if "failed" in row:
            print(f"{row['case']} {row['part']} by {row['by']}: {row['failed']}")
    for note in dict.fromkeys(f"{row['part']} by {row['by']}: {row['note']}" for row in rows if "note" in row):
        print(note)
    for peer, why in absent.items():
        print(f"{peer}: absent: {why}")
    return 0 if right else 1
