"""The seeds' table of a decode CSV, and whether its rows contradict themselves (then it ends with 1).

cmp%, sel%, win%: shares of the three branches, each timed alone. reads(dec): key rows counted and expected in one
decode step; reads(tot): in all steps of the run.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from nsa.bench import tables

SHARES = ("cmp_pct", "sel_pct", "win_pct")
READS = ("reads", "reads_total")
Texts = Sequence[Mapping[str, str]]


def problems(found: Texts) -> list[str]:
    """A sentence for each thing that cannot be true."""
    return [f"S={row['S']}: {sentence}" for row in found for sentence in _row_problems(row)]


def _row_problems(row: Mapping[str, str]) -> list[str]:
    shares = [float(row[name]) for name in SHARES]
    said = [
        f"{name} {share:.1f} is no share" for name, share in zip(SHARES, shares, strict=True) if not 0 <= share <= 100
    ]
    if not math.isclose(sum(shares), 100, abs_tol=2):
        said.append(f"the shares sum to {sum(shares):.1f}, not 100")
    for name in READS:
        actual, expected = int(row[f"{name}_actual"]), int(row[f"{name}_expected"])
        if actual != expected:
            said.append(f"{name} counted {actual}, expected {expected}")
    if "roofline_frac" in row and not 0 < float(row["roofline_frac"]) <= 1:
        said.append(f"{float(row['roofline_frac']):.2f} of the roofline is impossible")
    return said


def summary(found: Texts) -> str:
    """The table and what is wrong with it."""
    lines = [
        {
            "S": row["S"],
            "total": f"{float(row['ms_total']):.3f}",
            **{f"{name[:3]}%": f"{float(row[name]):.1f}" for name in SHARES},
            "reads(dec)": f"{row['reads_actual']}/{row['reads_expected']}",
            "reads(tot)": f"{row['reads_total_actual']}/{row['reads_total_expected']}",
        }
        for row in found
    ]
    wrong = problems(found)
    last = "\n".join(f"WRONG: {sentence}" for sentence in wrong) or "shares sum to 100, reads as expected"
    return f"{tables.shown(lines, list(lines[0]))}\n{last}"


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m nsa.bench summarize", description=__doc__)
    parser.add_argument("csv", type=Path, help="written by `python -m nsa.bench decode --csv`")
    path = parser.parse_args(argv).csv
    with path.open(newline="") as file:
        found = list(csv.DictReader(file))
    if not found:
        raise ValueError(f"{path} has no rows; nothing can be said about it")
    needed = {"S", "ms_total", *SHARES, *(f"{name}_{kind}" for name in READS for kind in ("actual", "expected"))}
    missing = sorted(needed - set(found[0]))
    if missing:
        raise ValueError(f"{path} is no decode CSV: it lacks the column {missing[0]}")
    print(
        f"{found[0].get('device', '?')}, torch {found[0].get('torch', '?')}, ms by the "
        f"{'GPU' if 'gpu_ms' in found[0] else 'wall'} clock"
    )
    print(summary(found))
    return 1 if problems(found) else 0
