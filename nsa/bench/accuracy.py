"""Every operation against the fp64 oracle on fresh random inputs: outputs and all gradients, over many shapes.

Example: python -m nsa.bench accuracy --jobs 8 --json accuracy.json

An error may be at most twice that of the oracle's own formula in the inputs' dtype (plus 1e-5). Long cases are judged
at sampled queries, with an upstream gradient that is zero elsewhere, so the oracle stays exact. The choice of blocks
is judged by the score that it lacks to the oracle's on the same compressed keys, at most 1e-3 of it, forced blocks
included. `deterministic` counts repeated runs of the whole operation that differ in any bit.
"""

from __future__ import annotations

import argparse
import multiprocessing
import secrets
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import nullcontext
from fnmatch import fnmatch
from pathlib import Path

import torch

from nsa.bench import rows as table_rows
from nsa.bench import tables
from nsa.bench.accuracy_cases import ODD, TABLE
from nsa.bench.accuracy_ops import Row, judged
from nsa.bench.cases import Case
from nsa.bench.judge import allowance
from nsa.bench.options import parser, positive
from nsa.device import DTYPES, named_device

COLUMNS = ("case", "op", "by", "worst", "error", "plain", "of_bar", "passed")


def parse(argv: list[str]) -> argparse.Namespace:
    to = parser("accuracy", __doc__)
    to.add_argument("--cases", default="table,odd", help="`table`, `odd` or patterns of names, with commas")
    to.add_argument("--rows", type=positive, default=256, help="queries judged in each case")
    to.add_argument("--runs", type=positive, default=10, help="runs that must be bitwise equal")
    to.add_argument("--backend", default="triton", help="the backend under test; no fallback is taken")
    to.add_argument("--device", default=None, help="default: cuda where there is one, else cpu")
    to.add_argument("--seed", type=int, default=None, help="of everything random; default: a fresh one, printed")
    to.add_argument("--jobs", type=positive, default=1, help="processes beside this one, for the odd cases")
    to.add_argument("--json", type=Path, default=None, help="write everything there")
    to.add_argument("--list", action="store_true", help="print the cases and judge nothing")
    return to.parse_args(argv)


def wanted(text: str) -> list[Case]:
    """The cases that `--cases` names, those of the table first.

    Raises:
        ValueError: a name that fits no case.
    """
    groups = {"table": TABLE, "odd": ODD}
    found: dict[str, Case] = {}
    for name in text.split(","):
        fitting = groups.get(name) or [case for case in TABLE + ODD if fnmatch(case.name, name)]
        if not fitting:
            raise ValueError(f"--cases: {name!r} is neither table nor odd, and fits no case (see --list)")
        found |= {case.name: case for case in fitting}
    return list(found.values())


def run_case(case: Case, device: str, seed: int, args: argparse.Namespace) -> list[Row]:
    """All rows of a case, with the seconds that they took in the first."""
    began = time.monotonic()
    rows = list(judged(case, torch.device(device), seed, args.rows, args.runs, args.backend))
    torch.cuda.empty_cache()
    rows[0]["seconds"] = time.monotonic() - began
    return rows


def run_all(cases: Sequence[Case], device: str, seed: int, args: argparse.Namespace) -> Iterator[list[Row]]:
    """The rows of each case: those of the table, which need memory, here; the others beside, in `--jobs` processes."""
    beside = [case for case in cases if args.jobs > 1 and case not in TABLE]
    jobs, spawn = min(args.jobs, len(beside)), multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, spawn) if jobs else nullcontext() as pool:
        pending: list[Future[list[Row]]] = [pool.submit(run_case, case, device, seed, args) for case in beside]
        yield from (run_case(case, device, seed, args) for case in cases if case not in beside)
        yield from (future.result() for future in pending)


def shown(row: Row) -> Row:
    """A row as the table shows it. `of_bar` is the part of what is allowed: 1 is the limit."""
    found = {**row, "passed": "yes" if row["passed"] else "NO"}
    if "error" in row:
        found["of_bar"] = float(row["error"]) / allowance(float(row["plain"]))  # type: ignore[arg-type]
    elif "regret" in row:
        found |= {"worst": "regret", "error": row["regret"]}
    else:
        found["worst"] = f"{row['differing']} of {row['runs']} runs differ"
    return found


def main(argv: list[str]) -> int:
    """Judge; 1 if a bar was missed."""
    args = parse(argv)
    cases = wanted(args.cases)
    if args.list:
        print("\n".join(f"{case.name}: {case}" for case in cases))
        return 0
    device = str(named_device(args.device))
    seed = secrets.randbelow(1 << 31) if args.seed is None else args.seed
    torch.set_num_threads(1 if device == "cpu" else torch.get_num_threads())
    context = {**table_rows.context(torch.device(device), DTYPES["bf16"]), "seed": seed, "rows": args.rows}
    context.pop("dtype")  # each case has its own
    table_rows.say(" ".join(f"{key}={value}" for key, value in context.items()))
    rows: list[Row] = []
    for found in run_all(cases, device, seed, args):
        rows += found
        missed = sum(not row["passed"] for row in found)
        table_rows.say(f"{found[0]['case']}: {f'{missed} MISSED' if missed else 'ok'}, {found[0]['seconds']:.1f} s")
        table_rows.write_json(args.json, context=context, rows=rows)
    print(tables.shown([shown(row) for row in rows], COLUMNS, digits=3))
    missed = sum(not row["passed"] for row in rows)
    print(f"{len(rows)} judged in {len(cases)} cases, {missed} missed their bar")
    return 1 if missed else 0
