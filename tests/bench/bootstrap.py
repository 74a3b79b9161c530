"""How long a bootstrap takes, next to bare uv: `python -m tests.bench.bootstrap [--runs N]`.

A CPU pod behind a real OpenSSH server on loopback. From nothing each time (own workdir, cold caches), in turn with bare
`uv pip install` of the same lock, whose order changes from pair to pair; then the same again, warm.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from orchestrator.agent.env.progress import Progress as BuildProgress
from orchestrator.agent.env.store import Store
from orchestrator.agent.env.uv import find_uv
from orchestrator.config.inventory import Pod
from orchestrator.config.runbook import EnvironmentSpec
from orchestrator.pod.client import install_agent
from orchestrator.pod.facts import probe
from orchestrator.shared.wheels.settings import Settings
from orchestrator.store.hostkeys import Trust
from orchestrator.tasks.bootstrap import bootstrap
from orchestrator.transports import open_transport
from orchestrator.ui import Progress
from tests.support.sshd import new_sshd

SPEC = EnvironmentSpec(requires=["torch", "triton"], optional=["flash-attn"], extra=["pytest", "numpy<2.4"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    rows: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory(prefix="nsa-bench-") as folder:
        server = new_sshd(Path(folder) / "sshd").start()
        try:
            pod = server.pod(env=_package_settings())
            environment, _ = _cold(
                pod, Path(folder) / "first", warm=False
            )  # for its lock; files come into the page cache
            for number in range(given.runs):
                rows.append(_pair(pod, environment, Path(folder), bare_first=number % 2 == 1))
                print(", ".join(f"{name.strip()} {value:.2f}" for name, value in rows[-1].items()), flush=True)
        finally:
            server.stop()
    for name in rows[0]:
        values = [row[name] for row in rows]
        shown = " ".join(f"{value:.2f}" for value in values)
        print(f"{name:32} median {statistics.median(values):8.2f}   ({shown})")


def _pair(pod: Pod, environment: dict[str, Any], folder: Path, *, bare_first: bool) -> dict[str, float]:
    """One cold bootstrap and one bare installation of the same lock."""
    bare = _bare(environment, folder / "bare") if bare_first else None
    built, row = _cold(pod, folder / "pod", warm=True)
    assert built["lock"] == environment["lock"], "the index has changed meanwhile"
    bare = _bare(environment, folder / "bare") if bare is None else bare
    return {**row, "bare uv, s": bare, "install phase / bare uv": built["seconds"]["install"] / bare}


def _cold(pod: Pod, workdir: Path, *, warm: bool) -> tuple[dict[str, Any], dict[str, float]]:
    """A bootstrap from nothing, and once more if `warm`."""
    fresh = pod.model_copy(update={"workdir": str(workdir)})
    environment, cold = _timed(lambda: _bootstrap(fresh))
    phases = {f"  of it {phase}, s": seconds for phase, seconds in environment["seconds"].items()}
    row = {"bootstrap from nothing, s": cold, **phases}
    if warm:
        row["again, s"] = _timed(lambda: _bootstrap(fresh))[1]
        shutil.rmtree(workdir)
    return environment, row


def _package_settings() -> dict[str, str]:
    """This machine's, for both sides; who logs in there has a home without any."""
    own = Settings.of(sys.executable).options
    return {f"PIP_{name.upper().replace('-', '_')}": value for name, value in own.items()}


def _bootstrap(pod: Pod) -> dict[str, Any]:
    with Progress(-1) as progress, open_transport(pod, Trust(None, False)) as transport:
        agent = install_agent(transport)
        return bootstrap(agent, probe(agent), SPEC, progress)


def _bare(environment: dict[str, Any], folder: Path) -> float:
    """`uv venv` and `uv pip install` of the environment's lock on this machine, with a cache of its own."""
    folder.mkdir()
    python = str((Path(environment["root"]) / "bin" / "python").resolve())
    (folder / "lock.txt").write_text(environment["lock"])
    uv = find_uv(Store(folder), lambda: Settings.of(python), BuildProgress(folder / "progress.jsonl")).path

    def install() -> None:
        options = ["--cache-dir", str(folder / "cache"), "--quiet"]
        subprocess.run([uv, "venv", *options, "--python", python, str(folder / "venv")], check=True)
        target = ["--python", str(folder / "venv" / "bin" / "python"), "-r", str(folder / "lock.txt")]
        subprocess.run([uv, "pip", "install", *options, "--no-deps", "--require-hashes", *target], check=True)

    seconds = _timed(install)[1]
    shutil.rmtree(folder)
    return seconds


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    began = time.monotonic()
    result = work()
    return result, time.monotonic() - began


if __name__ == "__main__":
    main()
