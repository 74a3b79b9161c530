"""How long a bootstrap takes, next to bare uv: `python -m tests.env.bench_bootstrap [--pod P] [--runs N]`.

From nothing each time (own workdir, cold caches), over the transport of the pod; then the same again, warm.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from orchestrator.agent.env_progress import Progress as BuildProgress
from orchestrator.agent.env_settings import Settings
from orchestrator.agent.env_tools import find_uv
from orchestrator.hostkeys import Trust
from orchestrator.inventory import Pod, load_inventory
from orchestrator.runbook import EnvironmentSpec
from orchestrator.tasks.bootstrap import bootstrap
from orchestrator.tasks.probe import arrive, probe
from orchestrator.transports import open_transport
from orchestrator.ui import Progress

SPEC = EnvironmentSpec(requires=["torch", "triton"], optional=["flash-attn"], extra=["pytest", "numpy<2.4"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--pod", default="local")
    parser.add_argument("--inventory")
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    pod = load_inventory(given.inventory).pod(given.pod)
    rows = [_measure(pod) for _ in range(given.runs)]
    for name in rows[0]:
        values = [row[name] for row in rows]
        shown = " ".join(f"{value:.2f}" for value in values)
        print(f"{name:32} median {statistics.median(values):8.2f}   ({shown})")


def _measure(pod: Pod) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="nsa-bench-") as folder:
        fresh = pod.model_copy(update={"workdir": f"{folder}/w"})
        environment, cold = _timed(lambda: _bootstrap(fresh))
        _, warm = _timed(lambda: _bootstrap(fresh))
        shutil.rmtree(f"{folder}/w/cache", ignore_errors=True)
        bare = _bare(environment, Path(folder))
    phases = {f"  of it {phase}, s": seconds for phase, seconds in environment["seconds"].items()}
    ratio = {"install phase / bare uv": environment["seconds"]["install"] / bare}
    return {"bootstrap from nothing, s": cold, **phases, "bare uv, s": bare, **ratio, "warm, s": warm}


def _bootstrap(pod: Pod) -> dict[str, Any]:
    with Progress(-1) as progress, open_transport(pod, Trust(None, False)) as transport:
        agent = arrive(transport)
        return bootstrap(agent, probe(agent), SPEC, progress)


def _bare(environment: dict[str, Any], folder: Path) -> float:
    """`uv venv` and `uv pip install` of the environment's lock on this machine, with a cache of its own."""
    python = str((Path(environment["root"]) / "bin" / "python").resolve())
    (folder / "lock.txt").write_text(environment["lock"])
    settings, said = Settings.of_pod(python), BuildProgress(folder / "progress.jsonl")
    uv = find_uv(folder / "tools", folder / "other", settings, said).path

    def install() -> None:
        options = ["--cache-dir", str(folder / "bare-cache"), "--quiet"]
        subprocess.run([uv, "venv", *options, "--python", python, str(folder / "bare")], check=True)
        target = ["--python", str(folder / "bare" / "bin" / "python"), "-r", str(folder / "lock.txt")]
        subprocess.run([uv, "pip", "install", *options, "--no-deps", "--require-hashes", *target], check=True)

    return _timed(install)[1]


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    began = time.monotonic()
    result = work()
    return result, time.monotonic() - began


if __name__ == "__main__":
    main()
