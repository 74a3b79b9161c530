"""`python -m tests.bench.comparisons`: how often a comparison cries wolf, and how often it finds what was planted.

Sessions as `nsa-pod compare` plans them (blocks in random order, a control, a process for each run of the bench), timed
by `nsa_pod_bench`, read and judged by `orchestrator.figures`. In each session one half of the rows is the same on both
sides, and in the other B has `--planted` more to do; each half is one comparison (with `--planted 0` both are of a
commit with itself). What a run of `nsa-pod` does around
the bench (trees, environments, evidence) is left out, so that this needs the standard library alone, and on a GPU torch
and triton. Prints one JSON object; `power` is of the planted rows, `false_alarms` of the others.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.agent import offered
from orchestrator.figures import Figure, Identity
from orchestrator.figures.comparison import Comparison, Row, Trial, compare
from orchestrator.plan.blocks import trials
from orchestrator.verdict.artifacts.asked import kind_of

sys.path.append(str(Path(offered.__file__).parent))  # as a stage has it

STAGE = "bench"
SAME, PLANTED = "same", "planted"
MEASURES = {"cpu": {"turns": {"unit": "turns", "better": "lower"}}, "cuda": {"ms": {"unit": "ms", "better": "lower"}}}


def main() -> None:
    """Measure and print."""
    asked = _arguments()
    if asked.device == "cuda":
        import torch  # noqa: F401  # before the processes are forked: each then makes a context of its own
        import triton  # noqa: F401
    from tests.bench import planted_bench  # noqa: F401

    began = time.monotonic()
    found: dict[str, list[Comparison]] = {SAME: [], PLANTED: []}
    spent: list[float] = []
    with tempfile.TemporaryDirectory(prefix="nsa-pod-bench-") as folder:
        while len(spent) < asked.sessions and time.monotonic() - began + max(spent, default=0) < asked.most_seconds:
            start = time.monotonic()
            timed = list(session(asked, Path(folder), random.Random(asked.seed + len(spent))))
            for half, comparisons in found.items():
                comparisons.append(compare([_only(trial, half) for trial in timed], asked.threshold))
            spent.append(time.monotonic() - start)
            print(f"session {len(spent)}: {spent[-1]:.1f} s", file=sys.stderr)
    if not asked.planted:
        found = {SAME: found[SAME] + found[PLANTED], PLANTED: []}
    print(json.dumps({**_setting(asked, spent), "comparisons": len(found[SAME]), **_told(found)}, indent=1))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.comparisons", description=__doc__)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--sessions", type=int, default=40, help="at most [40]")
    parser.add_argument("--most-seconds", type=float, default=240.0, help="begin no session that would end later [240]")
    parser.add_argument("--blocks", type=int, default=20, help="in each session [20]")
    parser.add_argument("--planted", type=float, help="part of more work in B [0.05 on a CPU, 0.02 on a GPU]")
    parser.add_argument("--threshold", type=float, default=0.01, help="least part that is called [0.01]")
    parser.add_argument("--seconds", type=float, default=0.05, help="of samples for each row of a run [0.05]")
    parser.add_argument("--seed", type=int, default=20, help="of the orders [20]")
    asked = parser.parse_args()
    if asked.planted is None:
        asked.planted = 0.05 if asked.device == "cpu" else 0.02
    return asked


def session(asked: argparse.Namespace, folder: Path, order: random.Random) -> Iterator[Trial]:
    """Runs of the bench as a plan orders them."""
    for trial, _ in trials([STAGE], asked.blocks, order):
        path = folder / "rows.jsonl"
        _in_a_process(path, asked, asked.planted if trial["side"] == "b" else 0.0)
        yield Trial(trial["block"], trial["side"], read(path, asked.device))


def _in_a_process(path: Path, asked: argparse.Namespace, part: float) -> None:
    child = os.fork()
    if child == 0:
        try:
            from tests.bench.planted_bench import measure

            for half, of_half in ((SAME, 0.0), (PLANTED, part)):
                measure(f"{path}.{half}", asked.device, of_half, asked.seconds, half=half)
            path.write_text("".join(Path(f"{path}.{half}").read_text() for half in (SAME, PLANTED)))
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if status != 0:
        sys.exit("a run of the bench failed: what it wrote stands above")


def read(path: Path, device: str) -> dict[Identity, Figure]:
    """The rows of a run of the bench."""
    asked: Mapping[str, Any] = {
        "path": path.name,
        "kind": "jsonl",
        "figures": {"keys": ["half", "case"], "measures": MEASURES[device], "flags": "flags"},
    }
    found = {}
    with path.open("rb") as f:
        for reading in kind_of(asked).figures(asked, f, lambda name: None):
            name = Identity(STAGE, path.name, reading.row, reading.column)
            found[name] = Figure(name, reading.unit, reading.better, reading.samples, reading.flags)
    return found


def _only(trial: Trial, half: str) -> Trial:
    figures = {name: figure for name, figure in trial.figures.items() if dict(name.row)["half"] == half}
    return Trial(trial.block, trial.side, figures)


def _setting(asked: argparse.Namespace, spent: Sequence[float]) -> dict[str, Any]:
    device = platform.processor() or platform.machine()
    if asked.device == "cuda":
        import torch

        device = torch.cuda.get_device_name()
    return {
        "device": device,
        "python": platform.python_version(),
        "sessions": len(spent),
        "blocks": asked.blocks,
        "planted": asked.planted,
        "threshold": asked.threshold,
        "minutes": round(sum(spent) / 60, 2),
        "median_session_s": round(statistics.median(spent), 1) if spent else None,
        "load": os.getloadavg(),
    }


def _told(found: Mapping[str, Sequence[Comparison]]) -> dict[str, Any]:
    same, planted = ([row for each in found[half] for row in each.rows] for half in (SAME, PLANTED))
    called = [row for row in same if row.answer in ("faster", "slower")]
    slower = [row for row in planted if row.answer == "slower"]
    return {
        "same_rows": len(same),
        "false_alarms": len(called),
        "false_alarm_rate": _share(len(called), len(same)),
        "control_alarms": sum(each.false_alarms for each in found[SAME]),
        "planted_rows": len(planted),
        "found": len(slower),
        "power": _share(len(slower), len(planted)),
        "wrong_way": sum(row.answer == "faster" for row in planted),
        "answers": {half: dict(Counter(row.answer for each in found[half] for row in each.rows)) for half in found},
        "samples_a_row": min((row.samples for row in same), default=0),
        "cases": {half: _cases([row for each in found[half] for row in each.rows]) for half in found},
    }


def _cases(rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """Of each case: what it takes, the middle ratio, how wide its interval is, and why what was not told was not."""
    names = dict.fromkeys(dict(row.identity.row)["case"] for row in rows)
    return {name: _case([row for row in rows if dict(row.identity.row)["case"] == name]) for name in names}


def _case(rows: Sequence[Row]) -> dict[str, Any]:
    measured = [row.measured for row in rows if row.measured]
    return {
        "a": _middle([row.a for row in rows if row.a is not None]),
        "unit": rows[0].unit,
        "ratio": _middle([one.ratio for one in measured]),
        "interval_width": _middle([one.high - one.low for one in measured]),
        "answers": dict(Counter(row.answer for row in rows)),
        "why": dict(Counter(row.why.partition(" is ")[0] for row in rows if row.why)),
    }


def _middle(values: Sequence[float]) -> float | None:
    return round(statistics.median(values), 5) if values else None


def _share(part: int, of: int) -> float | None:
    return round(part / of, 4) if of else None


if __name__ == "__main__":
    main()
