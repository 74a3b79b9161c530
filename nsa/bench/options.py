"""The command-line options that the benches share: the seeds' names."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from nsa.bench import rows, tables
from nsa.bench.cases import Case, Where
from nsa.config import NSAConfig
from nsa.device import DTYPES, named_device


def parser(command: str, about: str | None) -> argparse.ArgumentParser:
    """An argument parser whose help shows the defaults."""
    prog, shows = f"python -m nsa.bench {command}", argparse.ArgumentDefaultsHelpFormatter
    return argparse.ArgumentParser(prog=prog, description=about, formatter_class=shows)


def add_shape(to: argparse.ArgumentParser) -> None:
    """--B --dim --heads --groups (or --kv-heads) --dk --dv, and as `add_sizes`"""
    sizes = {
        "B": (1, "sequences"), "dim": (256, "model width"), "heads": (8, "query heads"), "groups": (2, "KV heads"),
        "dk": (32, "key dimension"), "dv": (32, "value dimension"),
    }  # fmt: skip
    for name, (usual, meaning) in sizes.items():
        names = [f"--{name}", *(["--kv-heads"] if name == "groups" else [])]
        to.add_argument(*names, type=positive, default=usual, help=meaning)
    add_sizes(to)


def add_sizes(to: argparse.ArgumentParser) -> None:
    """--l --d --l_sel --n_sel --w"""
    meanings = {
        "l": "span of a compressed token", "d": "stride of compressed tokens", "l_sel": "selection block",
        "n_sel": "selected blocks", "w": "window",
    }  # fmt: skip
    for name, meaning in meanings.items():
        to.add_argument(f"--{name}", type=positive, default=getattr(NSAConfig(), name), help=meaning)


def config_of(args: argparse.Namespace) -> NSAConfig:
    """The sizes that were asked for by `add_sizes`.

    Raises:
        ValueError: sizes that do not go together.
    """
    return NSAConfig(l=args.l, d=args.d, l_sel=args.l_sel, n_sel=args.n_sel, w=args.w)


def add_where(to: argparse.ArgumentParser) -> None:
    """--device --dtype --seed --threads"""
    to.add_argument("--device", default=None, help="default: cuda where there is one, else cpu")
    to.add_argument("--dtype", choices=DTYPES, default=None, help="default: bf16 on cuda, fp32 on a CPU")
    to.add_argument("--seed", type=int, default=0, help="of everything random")
    to.add_argument("--threads", type=positive, default=None, help="CPU threads; default: as PyTorch finds")


def case_at(args: argparse.Namespace, tokens: int) -> Case:
    """The case of this length with the shape that was asked for.

    Raises:
        ValueError: sizes that do not go together.
    """
    if args.heads % args.groups:
        raise ValueError(f"--heads {args.heads} must be a multiple of --groups {args.groups}")
    shape = args.heads, args.groups, args.dk, args.dv
    return Case("", *shape, tokens, args.B, config=config_of(args), dim=args.dim)


def where_of(args: argparse.Namespace) -> Where:
    """The device, dtype and seed that were asked for; sets the number of threads.

    Raises:
        ValueError: a device that this machine does not have.
    """
    device = named_device(args.device)
    if args.threads is not None:
        torch.set_num_threads(args.threads)
    dtype = args.dtype or ("bf16" if device.type == "cuda" else "fp32")
    return Where(device, DTYPES[dtype], args.seed)


LENGTHS = "512,1024,2048,4096"


def by_length(command: str, about: str | None, lengths: str = LENGTHS, **defaults: Any) -> argparse.ArgumentParser:
    """The options of a bench that measures at each length of --S_list; the bench adds its own.

    Args:
        lengths: by default.
        defaults: of the others, by name, where they are not the usual ones.
    """
    to = parser(command, about)
    add_shape(to)
    add_where(to)
    to.add_argument("--S_list", type=integers, default=lengths, help="sequence lengths, with commas")
    to.add_argument("--iters", type=positive, default=64, help="timed repetitions")
    to.add_argument("--warmup", type=int, default=8, help="repetitions before them")
    to.add_argument("--csv", type=Path, default=None, help="write the rows there")
    to.add_argument("--jsonl", type=Path, default=None, help="write the rows there as JSON lines")
    to.set_defaults(**defaults)
    return to


def completed(facts: rows.Row, args: argparse.Namespace, case: Case, where: Where) -> rows.Row:
    """A row of these facts, with how and where they were measured."""
    how = {"iters": args.iters, "warmup": args.warmup}
    return {**facts, **case.columns(), **how, **rows.context(where.device, where.dtype)}


Run = Callable[[argparse.Namespace, Case, Where], Iterable[rows.Row]]
"""Gives the facts of one length, which `completed` makes rows."""


def measured(args: argparse.Namespace, run: Run, shown: Sequence[str]) -> list[rows.Row]:
    """The rows of each length that `by_length` was asked for: written, too, and the columns `shown` printed."""
    cases, where = [case_at(args, length) for length in args.S_list], where_of(args)
    torch.manual_seed(where.seed)
    print(rows.headline(where.device, where.dtype), flush=True)
    found = [
        completed({"S": case.tokens, **facts}, args, case, where) for case in cases for facts in run(args, case, where)
    ]
    rows.write(found, args.csv, args.jsonl)
    print(tables.shown(found, [name for name in shown if any(name in row for row in found)]))
    return found


def some_of(known: Collection[str]) -> Callable[[str], list[str]]:
    """Takes names of `known`, with commas."""

    def names(text: str) -> list[str]:
        unknown = [name for name in text.split(",") if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: expected some of {', '.join(known)}")
        return text.split(",")

    return names


def integers(text: str) -> list[int]:
    """Takes whole numbers of at least 1, with commas."""
    return [positive(part) for part in text.split(",")]


def positive(text: str) -> int:
    """Takes a whole number of at least 1."""
    if not text.strip().isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least 1")
    return int(text)
