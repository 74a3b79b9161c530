"""Where an environment's editable installations lead: folders outside of it, whose code is the environment's too."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import FrozenSet, Iterable, Iterator, List
from urllib.parse import unquote, urlsplit


def targets(sites: Iterable[str]) -> List[str]:
    """The folders outside `sites` that what is installed there has Python import from."""
    inside = [os.path.realpath(site) for site in sites]
    found = (os.path.realpath(target) for site in inside for target in _targets(Path(site)))
    outside = (target for target in found if os.path.isdir(target) and not _overlaps(target, inside))
    return sorted(set(outside))


def packages(target: str) -> FrozenSet[str]:
    """Names of what can be imported from a project's folder."""
    names = {entry.name for folder in (target, os.path.join(target, "src")) for entry in _entries(Path(folder))}
    return frozenset(name.partition(".")[0] for name in names)


def _overlaps(target: str, sites: Iterable[str]) -> bool:
    """An environment may lie in the project that is installed into it; a path may lead from one site to another."""
    return any(os.path.commonpath([target, site]) == site for site in sites) or target == os.sep


def _targets(site: Path) -> Iterator[str]:
    for info in site.glob("*.dist-info/direct_url.json"):
        yield from _direct_url(info)
    for link in site.glob("*.egg-link"):
        yield from _lines(link)[:1]
    for paths in site.glob("*.pth"):
        yield from (line for line in _lines(paths) if line.startswith(os.sep))
    for entry in _entries(site):
        if entry.is_symlink() and entry.is_dir():
            yield entry.path


def _direct_url(info: Path) -> Iterator[str]:
    try:
        said = json.loads(info.read_text(encoding="utf-8"))
        if said.get("dir_info", {}).get("editable"):
            yield unquote(urlsplit(said["url"]).path)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return


def _lines(path: Path) -> List[str]:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return []


def _entries(site: Path) -> "List[os.DirEntry[str]]":
    try:
        with os.scandir(site) as entries:
            return list(entries)
    except OSError:
        return []
