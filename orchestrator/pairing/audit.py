"""Ask a package index about the pairing table: compare its rows, or lock one of its profiles. Needs uv and the index.

python -m orchestrator.pairing.audit --check [VERSION ...]
python -m orchestrator.pairing.audit --lock rtx4090-torch24 --python 3.10
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence

from orchestrator.config.runbook import EnvironmentSpec
from orchestrator.errors import EnvironmentFailed, NsaPodError
from orchestrator.pairing.choose import choose
from orchestrator.pairing.environment import Environment, Facts, Gpu, Interpreter
from orchestrator.pairing.resolve import platform_of, resolve, resolve_environment
from orchestrator.pairing.table import CPU, MACHINES, Pair, TorchRow, table
from orchestrator.pairing.wanted import FLASH
from orchestrator.shared.wheels.lockfile import make_lockfile

_RUNTIME = re.compile(r"^nvidia-cuda-runtime(?:-cu\d+)?$")
_GLIBC = "2.28"


def main(argv: Sequence[str] | None = None) -> int:
    """0; 1 when a row does not agree with the index; 4 when nothing could be asked."""
    parser = argparse.ArgumentParser(
        prog="python -m orchestrator.pairing.audit", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--check", nargs="*", metavar="VERSION", help="compare all rows, or those of these torch releases"
    )
    what.add_argument("--lock", metavar="PROFILE", help="print the full lock of a profile; nothing is installed")
    parser.add_argument("--python", default="3.12", help="the lock's Python [default: %(default)s]")
    parser.add_argument("--machine", default=MACHINES[0], choices=MACHINES, help="the lock's machine")
    given = parser.parse_args(argv)
    try:
        if given.lock:
            print(lock(given.lock, given.python, given.machine), end="")
            return 0
        return check(given.check)
    except NsaPodError as e:
        print(f"error: {e}", file=sys.stderr)
        return e.exit_code


def check(versions: Sequence[str]) -> int:
    """Compare rows with what plain PyPI says; print a line for each release."""
    problems = 0
    for row in table().torch:
        for torch in row.releases:
            if not versions or torch in versions:
                found = list(_check_release(row, torch))
                problems += len(found)
                print(f"torch {torch}: {'; '.join(found) or 'as in the table'}", flush=True)
    return 1 if problems else 0


def lock(profile: str, python: str, machine: str) -> str:
    """The lock of a profile for a pod that it fits, with this machine's own package indexes.

    Wheels outside the index come last and without a hash: a pod takes it when it fetches them.
    """
    chosen = _chosen(profile, python, machine)
    wheels = resolve_environment(chosen, platform_of(machine, _GLIBC))
    text = make_lockfile(wheels, python, f"linux-{machine}").text()
    return text + "".join(f"{wheel['name']} @ {wheel['url']}\n" for wheel in chosen.wheels)


def _chosen(profile: str, python: str, machine: str) -> Environment:
    """What the profile comes to on a pod with a fitting driver, GPU and Python."""
    cuda = table().profile(profile).cuda if profile in table().profiles else None
    facts = Facts("Linux", machine, _GLIBC, (Interpreter("python", python),), managed=False)
    if cuda:
        gpu = Gpu("any", max(sm for names in table().architectures.values() for sm in names if sm <= 90))
        own = table().runtime(cuda).own_driver
        facts = Facts("Linux", machine, _GLIBC, facts.pythons, managed=False, driver=own, gpus=(gpu,))
    return choose(table(), facts, EnvironmentSpec(requires=["torch", "triton"], optional=[FLASH]), profile)


def _check_release(row: TorchRow, torch: str) -> Iterator[str]:
    for machine, build in row.pypi.items():
        pair = Pair(torch, torch, row.releases[torch], None if build == CPU else build, row)
        for python in dict.fromkeys((row.pythons[0], row.pythons[-1])):
            yield from (f"{machine}, Python {python}: {p}" for p in _check_wheels(pair, machine, python))


def _check_wheels(pair: Pair, machine: str, python: str) -> Iterator[str]:
    """What plain PyPI says of torch's triton and CUDA runtime, against the pair."""
    plain_torch = f"torch=={pair.torch}"
    try:
        packages = {
            wheel.name: wheel.version for wheel in resolve([plain_torch], platform_of(machine, _GLIBC), python, {})
        }
        runtime = next((version for name, version in packages.items() if _RUNTIME.match(name)), None)
        shown = ".".join(runtime.split(".")[:2]) if runtime else None
        if shown != pair.cuda:
            yield f"plain torch brings CUDA {shown}, the table says {pair.cuda}"
        if pair.cuda and packages.get("triton") != pair.triton:
            resolve([plain_torch, f"triton=={pair.triton}"], platform_of(machine, _GLIBC), python, {})
    except EnvironmentFailed as e:
        yield str(e)


if __name__ == "__main__":
    raise SystemExit(main())
