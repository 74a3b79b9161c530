"""Fetch, on the laptop, every wheel that a pod without network needs: a directory for `bootstrap --wheelhouse`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypedDict

from orchestrator.config.runbook import EnvironmentSpec
from orchestrator.errors import EnvironmentFailed
from orchestrator.pairing.environment import Environment
from orchestrator.pairing.resolve import platform_of, resolve_environment
from orchestrator.pod.session import PodSession
from orchestrator.shared.failure import Failure
from orchestrator.shared.plan import Environment as Planned
from orchestrator.shared.wheels.lockfile import Wheel, canonical
from orchestrator.shared.wheels.settings import Settings
from orchestrator.shared.wheels.web import NotThere
from orchestrator.tasks.bootstrap import Options, explain
from orchestrator.tasks.carry import fetch_uv
from orchestrator.tasks.layers import build_requirements
from orchestrator.tasks.needs import Installation
from orchestrator.text import plain, size
from orchestrator.ui import Progress

_AT_ONCE = 4


class Wheelhouse(TypedDict):
    """What a directory of wheels was filled with."""

    wheelhouse: str
    profile: str | None
    wheels: int
    size: str


def download(
    session: PodSession, spec: EnvironmentSpec, folder: Path, installations: Sequence[Installation] = ()
) -> Wheelhouse:
    """Fill `folder` with the wheels of the environment that fits the pod, of what the repository's own
    `installations` are built with, and with uv; what it holds then.

    The pod is asked for its facts only. Files that are there are kept. EnvironmentFailed for what cannot be had.
    """
    progress = session.progress
    with session.open() as agent:
        facts = session.facts(agent)
        chosen = explain(agent, facts, spec, Options(offline=True))
    libc, glibc = facts.raw["libc"]
    if facts.raw["os"] != "Linux" or libc != "glibc":
        raise EnvironmentFailed(
            f"pod {session.pod.name!r}: a wheelhouse is for Linux with glibc, it has {libc or 'none'}"
        )
    platform = platform_of(facts.raw["arch"], glibc)
    settings = Settings.of(sys.executable)
    wheels = _with_tools(chosen, installations, platform)
    number = len(wheels) + len(chosen.wheels) + 1
    progress.say(f"{number} wheels for {platform}, Python {chosen.python}: {chosen.profile}")
    folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        files = list(pool.map(lambda wheel: _fetch_wheel(wheel, settings, folder, progress), wheels))
    files += [*_fetch_extra(chosen, settings, folder, progress), fetch_uv(facts, folder, progress)]
    total = sum(file.stat().st_size for file in files)
    return {"wheelhouse": str(folder), "profile": chosen.profile, "wheels": len(files), "size": size(total)}


def _with_tools(chosen: Environment, installations: Sequence[Installation], platform: str) -> list[Wheel]:
    """The environment's wheels, and those of the build requirements that it lacks."""
    wheels = resolve_environment(chosen, platform)
    packages = {canonical(wheel.name): wheel.version for wheel in wheels}
    over: Planned = {"kind": "managed", "python_version": chosen.python, "packages": packages}
    for each in installations:
        tools = tuple(build_requirements(each, over))
        wheels += resolve_environment(Environment(None, chosen.python, None, tools), platform) if tools else []
    return list({wheel.filename: wheel for wheel in wheels}.values())


def _fetch_wheel(wheel: Wheel, settings: Settings, folder: Path, progress: Progress) -> Path:
    """A wheel in `folder`; of a source distribution the one that is built from it here, if it is for any machine."""
    if not wheel.is_sdist:
        return _fetch(wheel, settings, folder, progress)
    with tempfile.TemporaryDirectory() as place:
        source = _fetch(wheel, settings, Path(place), progress)
        command = ["uv", "build", "--wheel", "--quiet", "--out-dir", f"{place}/built", str(source)]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env={**os.environ, **settings.for_uv()}
        )
        if done.returncode != 0:
            raise EnvironmentFailed(f"{wheel.name}: its wheel cannot be built: {plain(done.stderr)}")
        built = next(Path(place, "built").glob("*.whl"))
        if not built.name.endswith("-none-any.whl"):
            raise EnvironmentFailed(f"{wheel.name}: what is built here, {built.name}, is for this machine only")
        return Path(shutil.copy(built, folder / built.name))


def _fetch(wheel: Wheel, settings: Settings, folder: Path, progress: Progress) -> Path:
    try:
        return settings.web().fetch(wheel.url, folder, progress, wheel.sha256)[0]
    except Failure as e:
        raise EnvironmentFailed(f"{wheel.name}: {e}") from e


def _fetch_extra(chosen: Environment, settings: Settings, folder: Path, progress: Progress) -> list[Path]:
    """Wheels outside the index; one that is not required and not there is said."""
    found = []
    for extra in chosen.wheels:
        name, url = extra["name"], extra["url"]
        if url is None:  # the pod takes the one that it compiled
            progress.warn(f"{name} {extra['version']} was compiled on the pod, and is not carried there")
            continue
        try:
            found.append(_fetch(Wheel(name, url, None), settings, folder, progress))
        except EnvironmentFailed as e:
            if extra["required"] or not isinstance(e.__cause__, NotThere):
                raise
            progress.warn(f"{name} is left out: {e}")
    return found
