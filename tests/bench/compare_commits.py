"""`python -m tests.bench.compare_commits`: `nsa-pod compare` on the local pod, of commits of which the truth is known.

Commit B has `--planted` more work than A (0: none, a commit against itself), in a repository made for it. The whole
way: trees, environments, evidence, a process with its imports for each of 3 x `--blocks` runs of the bench. Prints
comparison.json with how long it took. The pod's Python is this one: on a GPU it needs torch and triton.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path

import click

from tests.bench.comparisons import MEASURES
from tests.support import ROOT
from tests.support.project import local_pod, new_project

BENCH = """\
import code_of
{imports}
from planted_bench import measure

measure("bench.jsonl", "{device}", code_of.PART, {seconds})
"""


@click.command()
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True)
@click.option("--planted", default=0.02, show_default=True, help="Part of more work in B.")
@click.option("--blocks", default=8, show_default=True)
@click.option("--seconds", default=0.1, show_default=True, help="Of samples for each row of a run.")
@click.option("--most-seconds", default=240.0, show_default=True, help="End the run after so long.")
def main(device: str, planted: float, blocks: int, seconds: float, most_seconds: float) -> None:
    """Compare, and print what was found."""
    on_gpu = device == "cuda"
    stage = {
        "name": "bench",
        "run": ["python", "bench.py"],
        "env": {"PYTHONPATH": "."},
        "expect": {
            "artifacts": [
                {
                    "path": "bench.jsonl",
                    "kind": "jsonl",
                    "figures": {"keys": ["case"], "measures": MEASURES[device], "flags": "flags"},
                }
            ]
        },
        **({"exclusive": "gpu"} if on_gpu else {}),
    }
    runbook = {
        "name": "r",
        "requires": ["cuda"] if on_gpu else [],
        "environment": {"python": "system"},
        "limits": {"wall": 120, "silence": 120},
        "stages": [stage],
    }
    bench = BENCH.format(imports="import torch\nimport triton" if on_gpu else "", device=device, seconds=seconds)
    with tempfile.TemporaryDirectory(prefix="nsa-pod-bench-") as folder:
        project = new_project(Path(folder), {"local": local_pod(Path(folder))})
        planted_bench = Path(ROOT, "tests/bench/planted_bench.py").read_text()
        files = {"runbooks/r.yaml": json.dumps(runbook), "bench.py": bench, "planted_bench.py": planted_bench}
        a = project.commit({**files, "code_of.py": "PART = 0.0\n"})
        b = project.commit({"code_of.py": f"PART = {planted}\n"}) if planted else a
        began = time.monotonic()
        limits = ("--blocks", str(blocks), "--max-time", f"{most_seconds:.0f}")
        done = project.run("compare", a, b, "--pod", "local", *limits, "--json", timeout=most_seconds + 60)
    told = json.loads(done.stdout or '{"error": "nothing was printed"}')
    end = {"exit_code": done.exit_code, "seconds": round(time.monotonic() - began, 1), "stderr": done.stderr[-2000:]}
    click.echo(json.dumps({"planted": planted, **end, **told}, indent=1))


if __name__ == "__main__":
    main()
