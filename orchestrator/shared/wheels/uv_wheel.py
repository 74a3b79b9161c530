"""The wheel of uv for a machine, and the binary in it: for a pod that has none, and for the laptop that carries one."""

from __future__ import annotations

import platform
import re
import shutil
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from orchestrator.shared.failure import Failure
from orchestrator.shared.wheels.addresses import filename
from orchestrator.shared.wheels.settings import Settings
from orchestrator.shared.wheels.web import Listener, NotThere

LEAST = (0, 7)  # writes pylock.toml
_WHEEL = re.compile(r"^uv-(\d+)\.(\d+)\.(\d+)-py3-none-(\S+)\.whl$")
_GLIBC = re.compile(r"^manylinux_(\d+)_(\d+)_")
_BINARY = ".data/scripts/uv"


@dataclass(frozen=True)
class Machine:
    """What a binary has to run on: `system`, `arch`, `libc` and its version, each as Python's `platform` says it."""

    system: str
    arch: str
    libc: str
    libc_version: str

    @classmethod
    def here(cls) -> Machine:
        return cls(platform.system(), platform.machine(), *platform.libc_ver())


def fetch(settings: Settings, machine: Machine, near: Iterable[Path], folder: Path, progress: Listener) -> Path:
    """The newest wheel of uv that runs on `machine`, in `folder`: out of the directories `near` and those of the
    settings, else from an index. NotThere if nobody has one, Failure if it cannot be had.
    """
    web = settings.web()
    at_hand = (path for place in [*near, *map(Path, settings.find_links)] for path in sorted(place.glob("uv-*.whl")))
    found = [(path.absolute().as_uri(), "") for path in at_hand if _rank(path.name, machine)]
    found = found or [link for index in settings.indexes for link in web.links(index, "uv")]
    ranked = [(rank, url, sha256) for url, sha256 in found for rank in _rank(filename(url), machine)]
    if not ranked:
        raise NotThere(f"no index or directory has a wheel of uv for {machine.system} on {machine.arch}")
    _, url, sha256 = max(ranked)
    return web.fetch(url, folder, progress, sha256)[0]


def unpack(wheel: Path, target: Path) -> None:
    """Write the binary in `wheel` to `target`. Failure for a file that is no such wheel."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            member = next(name for name in archive.namelist() if name.endswith(_BINARY))
            with archive.open(member) as source, target.open("wb") as f:
                shutil.copyfileobj(source, f)
    except (zipfile.BadZipFile, StopIteration) as e:
        raise Failure(f"{wheel} is no wheel of uv: remove it") from e
    target.chmod(0o755)


def _rank(name: str, machine: Machine) -> list[tuple[tuple[int, ...], bool]]:
    """[(version, whether it was built for this machine's own libc)]; empty for a wheel that does not run there.

    What is built for musl is static, and runs on any Linux.
    """
    match = _WHEEL.match(name)
    version = tuple(map(int, match.groups()[:3])) if match else ()
    tags = [tag for tag in match[4].split(".") if tag.endswith("_" + machine.arch)] if match else []
    if version < LEAST:
        return []
    if machine.system != "Linux":
        return [(version, True)] if machine.system == "Darwin" and any(t.startswith("macosx_") for t in tags) else []
    own = machine.libc == "glibc" and any(_fits(tag, machine.libc_version) for tag in tags)
    return [(version, own)] if own or any(tag.startswith("musllinux_") for tag in tags) else []


def _fits(tag: str, glibc: str) -> bool:
    match = _GLIBC.match(tag)
    return match is not None and tuple(map(int, match.groups())) <= tuple(map(int, glibc.split(".")[:2]))
