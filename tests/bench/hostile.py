"""`python -m tests.bench.hostile [NAME]...`: what hostile pods cost the laptop, each by the real command line.

Printed: how the command ended, after how long, and the largest memory of its process, which stays below 100 MiB.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from tests.support.hostile import CASES, MOST_MIB, NO_SERVERS, Ended, Laptop, no_server
from tests.support.sshd import Sshd, new_sshd

# What a login script says before anything of ours: a server of its own for each.
GREETINGS = {"a greeting without end": "ForceCommand yes", "a greeting on stderr without end": "ForceCommand yes >&2"}
_NAMES = [*CASES, *NO_SERVERS, *GREETINGS]


def measured(laptop: Laptop, names: Sequence[str]) -> Iterator[tuple[str, Ended]]:
    """Each case, or those of `names`."""
    for name in names or _NAMES:
        if name in CASES:
            yield name, laptop.meets(name)
        elif name in NO_SERVERS:
            with no_server(NO_SERVERS[name]) as port:
                yield name, laptop.ends("runs", laptop.server.entry(port=port))
        else:
            with _greeting(laptop.folder / name.replace(" ", "-"), GREETINGS[name]) as server:
                yield name, laptop.ends("runs", server.entry())


class _greeting:
    def __init__(self, folder: Path, extra: str) -> None:
        self._server = new_sshd(folder, extra)

    def __enter__(self) -> Sshd:
        return self._server.start()

    def __exit__(self, *_: object) -> None:
        self._server.stop()


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...", type=click.Choice(_NAMES), required=False)
@click.pass_context
def main(context: click.Context, names: Sequence[str]) -> None:
    """What hostile pods cost the laptop: all of them, or those called NAME."""
    print("| what the pod does | exit code | seconds | peak MiB | what is said |\n|---|---|---|---|---|")
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder:
        server = new_sshd(Path(folder) / "sshd").start()
        try:
            for name, ended in measured(Laptop(Path(folder) / "laptop", server), names):
                worst = max(worst, ended.peak_mib)
                said = ended.said if len(ended.said) < 160 else f"{ended.said[:80]} ... {ended.said[-75:]}"
                print(
                    f"| {name} | {ended.exit_code} | {ended.seconds:.1f} | {ended.peak_mib:.0f} | {said} |", flush=True
                )
        finally:
            server.stop()
    context.exit(0 if worst < MOST_MIB else 1)


if __name__ == "__main__":
    main()
