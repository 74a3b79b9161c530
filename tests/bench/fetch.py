"""`python -m tests.bench.fetch`: a run with many files fetched, beside `rsync -a` of the same files over the same sshd.

Prints one JSON object: seconds (medians of --rounds), their ratio, the largest memory of the laptop's process, and
what a fetch takes that goes on after its process was killed at half.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from pathlib import Path

import click

from tests.support.many_files import ManyFiles
from tests.support.sshd import new_sshd


@click.command()
@click.option("--files", default=100_000, show_default=True)
@click.option("--megabytes", default=2000, show_default=True)
@click.option("--rounds", default=3, show_default=True)
@click.option(
    "--folder", type=click.Path(path_type=Path, file_okay=False), help="Where to work [default: a temporary one]."
)
def main(files: int, megabytes: int, rounds: int, folder: Path | None) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(prefix="nsa-pod-bench-", dir=folder) as name:
        server = new_sshd(Path(name, "sshd")).start()
        try:
            click.echo(json.dumps(measure(ManyFiles(Path(name), server, files, megabytes * 10**6), rounds), indent=1))
        finally:
            server.stop()


def measure(many: ManyFiles, rounds: int) -> dict[str, object]:
    """Alternating fetches and rsyncs, then one that is killed at half and resumed."""
    ours, bare, memory = [], [], []
    for _ in range(rounds):
        bare.append(many.rsync("bare"))
        many.drop("bare")
        fetched = many.fetch("ours")
        assert fetched.exit_code == 0 and fetched.result["verdict"] == "passed", fetched
        many.drop("ours")
        ours.append(fetched.seconds)
        memory.append(fetched.peak_mib)
    many.fetch_killed_at("resumed", 0.5)
    resumed = many.fetch("resumed")
    assert resumed.exit_code == 0 and resumed.result["verdict"] == "passed", resumed
    many.drop("resumed")
    return {
        "files": many.files,
        "bytes": many.files * many.size,
        "fetch_s": round(statistics.median(ours), 2),
        "bare_rsync_s": round(statistics.median(bare), 2),
        "fetch_over_rsync": round(statistics.median(ours) / statistics.median(bare), 2),
        "fetches_s": [round(x, 2) for x in ours],
        "bare_rsyncs_s": [round(x, 2) for x in bare],
        "resumed_at_half_s": round(resumed.seconds, 2),
        "laptop_peak_mib": round(max(memory), 1),
    }


if __name__ == "__main__":
    main()
