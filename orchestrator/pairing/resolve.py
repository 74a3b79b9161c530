"""Resolve on this machine, with its own package indexes, what another machine is to install. Nothing is installed."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence

from orchestrator.errors import EnvironmentFailed
from orchestrator.pairing.environment import Environment
from orchestrator.shared.wheels.lockfile import ANY, RESOLVE, Wheel, from_pylock, from_sdists, of_torchs_build
from orchestrator.shared.wheels.settings import Settings
from orchestrator.text import plain

_LIMIT_S = 300
# The platforms of wheels that uv knows by name, by the glibc that they need.
_GLIBC = ((2, 28), (2, 17))


def platform_of(machine: str, glibc: str) -> str:
    """How uv calls a Linux machine with this C library."""
    has = tuple(map(int, glibc.split(".")[:2]))
    major, minor = next((least for least in _GLIBC if least <= has), _GLIBC[-1])
    return f"{machine}-manylinux_{major}_{minor}"


def resolve_environment(chosen: Environment, platform: str) -> list[Wheel]:
    """The wheels of an environment, but for those outside the package index; by the table's index where this machine's
    own ones have not got the build.
    """
    own = Settings.of(sys.executable)
    added = own.adding(chosen.indexes)
    narrowed = chosen.sdists, chosen.hashes
    try:
        found = resolve(chosen.requirements, platform, chosen.python, own.for_uv(), *narrowed)
    except EnvironmentFailed:
        if not chosen.indexes:
            raise
        found = resolve(chosen.requirements, platform, chosen.python, added.for_uv(), *narrowed)
    beside_torch = of_torchs_build(found, chosen.pins.get("torch", ""))
    if beside_torch:
        with contextlib.suppress(EnvironmentFailed):  # the pod says of what it is given that it is another build
            return resolve([*chosen.requirements, *beside_torch], platform, chosen.python, added.for_uv(), *narrowed)
    return found


def resolve(
    wanted: Sequence[str],
    platform: str,
    python: str,
    variables: Mapping[str, str],
    sdists: Sequence[str] = (),
    hashes: Mapping[str, Sequence[str]] = ANY,
) -> list[Wheel]:
    """The wheels that `wanted` comes to, and the source distributions of `sdists`; of a package that `hashes` names,
    only those files count. EnvironmentFailed with uv's complaint. `variables` set uv up.
    """
    uv = shutil.which("uv")
    if uv is None:
        raise EnvironmentFailed("uv is not on the PATH: the package index cannot be asked (pip install uv)")
    command = [uv, *RESOLVE, "--quiet", "--no-python-downloads", *from_sdists(sdists)]
    command += ["--python-version", python, "--python-platform", platform]
    try:
        done = subprocess.run(
            command,
            input="\n".join(wanted),
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
            env={**os.environ, **variables},
        )
    except subprocess.TimeoutExpired as e:
        raise EnvironmentFailed(f"the package index did not answer within {_LIMIT_S} s") from e
    if done.returncode != 0:
        raise EnvironmentFailed(f"uv: {plain(done.stderr)}")
    return from_pylock(done.stdout, hashes)
