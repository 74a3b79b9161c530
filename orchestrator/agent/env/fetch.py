"""Files that no installer fetches: wheels from outside the index, wheels that are here already, sources."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from orchestrator.shared.files import sha256
from orchestrator.shared.wheels.addresses import filename
from orchestrator.shared.wheels.lockfile import Wheel, canonical
from orchestrator.shared.wheels.settings import Settings
from orchestrator.shared.wheels.web import Listener, NotThere, Web

_SOURCE = re.compile(r"^(.+?)-(\d[^-]*)\.(?:tar\.gz|zip)$")


def hashed(wheel: Wheel, web: Web, folder: Path, progress: Listener) -> Wheel:
    """`wheel` with its hash: that of the file, where its index tells none."""
    return wheel if wheel.sha256 else replace(wheel, sha256=web.fetch(wheel.url, folder, progress)[1])


def at_hand(wheel: Wheel, folders: Sequence[Path]) -> Wheel:
    """`wheel` at the address of the same file in one of `folders`, where it needs no download."""
    for path in (folder / wheel.filename for folder in folders):
        if path.is_file() and sha256(path) == wheel.sha256:
            return replace(wheel, url=path.absolute().as_uri())
    return wheel


def find_source(name: str, version: str, settings: Settings, folder: Path, progress: Listener) -> tuple[Path, str]:
    """The source distribution of a package and its sha256, out of a directory of the pod's or from its indexes.

    NotThere if nobody has it.
    """
    for place in filter(os.path.isdir, settings.find_links):
        for path in sorted(Path(place).iterdir()):
            if _is_source(path.name, name, version):
                return path, sha256(path)
    web = settings.web()
    for url, expected in (link for index in settings.indexes for link in web.links(index, name)):
        if _is_source(filename(url), name, version):
            return web.fetch(url, folder, progress, expected)
    raise NotThere(f"no source distribution of {name} {version} is to be found")


def _is_source(file: str, name: str, version: str) -> bool:
    match = _SOURCE.match(file)
    return match is not None and (canonical(match[1]), match[2]) == (canonical(name), version)
