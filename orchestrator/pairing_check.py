"""Compare pairing.yaml with the wheels' own metadata, as uv resolves it for each row.

Only a machine with uv and a package index can do it, so it is a command and no part of a bootstrap:
`python -m orchestrator.pairing --check [VERSION ...]`.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence

from orchestrator.pairing_table import CPU, Pair, TorchRow, table

_LIMIT_S = 120
_RUNTIME = re.compile(r"^nvidia-cuda-runtime(?:-cu\d+)?$")
_PLATFORM = "{machine}-manylinux_2_28"


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0 when every row agrees, 1 when one does not, 2 when nothing could be asked."""
    parser = argparse.ArgumentParser(prog="python -m orchestrator.pairing", description=__doc__)
    parser.add_argument(
        "--check", action="store_true", required=True, help="compare the table with the index"
    )
    parser.add_argument("versions", nargs="*", metavar="VERSION", help="only these torch releases")
    wanted = parser.parse_args(argv).versions
    uv = shutil.which("uv")
    if uv is None:
        print("uv is not on the PATH: the index cannot be asked", file=sys.stderr)
        return 2
    problems = 0
    for row in table().torch:
        for torch in row.releases:
            if not wanted or torch in wanted:
                found = list(_check_release(uv, row, torch))
                problems += len(found)
                print(f"torch {torch}: {'; '.join(found) or 'as in the table'}")
    return 1 if problems else 0


def _check_release(uv: str, row: TorchRow, torch: str) -> Iterator[str]:
    for machine, build in row.pypi.items():
        cuda = None if build == CPU else build
        pair = Pair(torch, torch, row.releases[torch], cuda, row)
        for python in {row.pythons[0], row.pythons[-1]}:
            yield from (f"{machine}, Python {python}: {p}" for p in _check_wheels(uv, pair, machine, python))


def _check_wheels(uv: str, pair: Pair, machine: str, python: str) -> Iterator[str]:
    """What the plain index says of torch's triton and CUDA runtime, against the pair."""
    packages = resolve(uv, [f"torch=={pair.torch}"], machine, python)
    if isinstance(packages, str):
        yield packages
        return
    runtime = next((v for name, v in packages.items() if _RUNTIME.match(name)), None)
    shown = ".".join(runtime.split(".")[:2]) if runtime else None
    if shown != pair.cuda:
        yield f"plain torch brings CUDA {shown}, the table says {pair.cuda}"
    if pair.cuda and packages.get("triton") != pair.triton:
        both = resolve(uv, [f"torch=={pair.torch}", f"triton=={pair.triton}"], machine, python)
        if isinstance(both, str):
            yield f"it requires triton {packages.get('triton')}, the table says {pair.triton}"


def resolve(uv: str, requirements: Sequence[str], machine: str, python: str) -> dict[str, str] | str:
    """Name -> version of what `requirements` resolve to, wheels only, or uv's complaint."""
    command = [uv, "pip", "compile", "-", "--quiet", "--no-header", "--no-annotate", "--only-binary", ":all:"]
    command += ["--no-python-downloads", "--python-version", python]
    command += ["--python-platform", _PLATFORM.format(machine=machine)]
    try:
        done = subprocess.run(
            command,
            input="\n".join(requirements),
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"the index did not answer within {_LIMIT_S} s"
    if done.returncode != 0:
        return " ".join(line.strip() for line in done.stderr.splitlines() if line.strip())[:300]
    pins = (line.split(";")[0].strip() for line in done.stdout.splitlines() if "==" in line)
    return dict(pin.split("==") for pin in pins)
