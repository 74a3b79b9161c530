"""Runs that measured one bench, commit by commit, as they are kept: written by hand, in no time."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path

from orchestrator.plan.plan import to_json
from orchestrator.shared.plan import plan_hash
from tests.support.run_files import make_run

BENCH = """\
  - name: bench
    run: [python, -m, bench]
    expect:
      artifacts:
        - path: bench.csv
          kind: csv
          figures:
            keys: [S, backend]
            measures: {ms: {unit: ms, better: lower}}
"""
BEGAN = datetime(2026, 1, 1, tzinfo=timezone.utc)
Bench = Callable[[int], dict[tuple[int, str], float]]
"""From the number of a run to ms by S and backend."""


def many_runs(folder: Path, count: int, bench: Bench, gpu: str = "NVIDIA H200", status: str = "passed") -> Path:
    """`count` runs of as many commits, an hour apart; the folder that `--artifacts` takes."""
    _, plan = make_run(folder / "first", {}, BENCH)
    runner = folder / "artifacts" / "runner"
    for n in range(count):
        moment = BEGAN + timedelta(hours=n)
        commit = f"{n:07x}".ljust(40, "0")
        about = f"tree {'7' * 40}\ncommitter a <a@b> {moment.timestamp():.0f} +0000\n\nchange {n}\n"
        of_run = {**plan, "commit": commit, "commit_object": base64.b64encode(about.encode()).decode()}
        of_run |= {"facts": {**plan["facts"], "gpus": [{"name": gpu, "uuid": "GPU-1"}]}}
        run_id = f"{moment:%Y%m%d-%H%M%S}-{commit[:7]}-{plan_hash(of_run)[:8]}"
        directory = runner / commit / run_id
        (directory / "artifacts").mkdir(parents=True)
        (directory / "plan.json").write_text(to_json({**of_run, "run_id": run_id}))  # type: ignore[arg-type]
        result = {"state": "ended", "verdict": "passed", "stages": [{"name": "bench", "status": status}]}
        (directory / "result.json").write_text(json.dumps(result))
        rows = "".join(f"{s},{backend},{ms!r}\n" for (s, backend), ms in bench(n).items())
        (directory / "artifacts" / "bench.csv").write_text("S,backend,ms\n" + rows)
    return folder / "artifacts"
