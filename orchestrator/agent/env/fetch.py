"""Files from outside the package index, and uv itself for a pod that has neither uv nor pip."""

from __future__ import annotations

import html
import os
import platform
import re
import shutil
import tempfile
import urllib.parse
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from orchestrator.shared.failure import Failure
from orchestrator.shared.files import sha256
from orchestrator.shared.wheels.lock import Wheel, canonical
from orchestrator.shared.wheels.settings import Settings
from orchestrator.shared.wheels.web import Listener, NotThere, Web, masked

_PYPI = "https://pypi.org/simple"
_LINK = re.compile(r'href="([^"#]+)(?:#sha256=([0-9a-f]{64}))?"')
_SOURCE = re.compile(r"^(.+?)-(\d[^-]*)\.(?:tar\.gz|zip)$")
_UV_WHEEL = re.compile(r"^uv-(\d+)\.(\d+)\.(\d+)-py3-none-(\S+)\.whl$")


def hashed(wheel: Wheel, web: Web, folder: Path, progress: Listener) -> Wheel:
    """`wheel` with its hash: that of the file, where its index tells none."""
    return wheel if wheel.sha256 else replace(wheel, sha256=web.fetch(wheel.url, folder, progress)[1])


def at_hand(wheels: Iterable[Wheel], folders: Sequence[Path]) -> dict[str, str]:
    """Wheels that need no download: address -> the address of the same file in one of `folders`."""
    found: dict[str, str] = {}
    for wheel in wheels:
        for path in (folder / wheel.filename for folder in folders):
            if path.is_file() and sha256(path) == wheel.sha256:
                found[wheel.url] = path.absolute().as_uri()
                break
    return found


def find_source(name: str, version: str, settings: Settings, folder: Path, progress: Listener) -> tuple[Path, str]:
    """The source distribution of a package and its sha256, out of a directory of the pod's or from its indexes.

    NotThere if nobody has it.
    """
    for place in filter(os.path.isdir, settings.find_links):
        for path in sorted(Path(place).iterdir()):
            if _is_source(path.name, name, version):
                return path, sha256(path)
    web = settings.web()
    for index in () if settings.offline else [settings.options.get("index-url", _PYPI), *settings.extra_indexes]:
        for url, expected in _links(web, index, name):
            if _is_source(_filename(url), name, version):
                path, found = web.fetch(url, folder, progress)
                if expected not in ("", found):
                    raise Failure(f"{masked(url)} is not what its index says: sha256 {found}")
                return path, found
    raise NotThere(f"no source distribution of {name} {version} is to be found")


def fetch_uv(settings: Settings, tools: Path, progress: Listener) -> Path:
    """Put the newest uv for this machine below `tools`; the path of its binary. Failure if none is to be had."""
    wheels = sorted(_uv_wheels(settings))
    if not wheels:
        raise Failure(f"no wheel of it is for {platform.machine()}")
    _, url, expected = wheels[-1]
    tools.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=tools) as folder:  # another builder may fetch it just then
        wheel, found = settings.web().fetch(url, Path(folder), progress)
        if expected not in ("", found):
            raise Failure(f"{masked(url)} is not what its index says: sha256 {found}")
        unpacked = Path(folder) / "uv"
        with zipfile.ZipFile(wheel) as archive:
            member = next(name for name in archive.namelist() if name.endswith(".data/scripts/uv"))
            with archive.open(member) as source, unpacked.open("wb") as f:
                shutil.copyfileobj(source, f)
        unpacked.chmod(0o755)
        return unpacked.replace(tools / "uv")


def _uv_wheels(settings: Settings) -> Iterator[tuple[tuple[int, ...], str, str]]:
    """(version, address, sha256 or "") of each wheel of uv for this machine."""
    for path in (path for folder in settings.find_links for path in Path(folder).glob("uv-*.whl")):
        version = _uv_version(path.name)
        if version:
            yield version, path.absolute().as_uri(), ""
    index = settings.options.get("index-url", _PYPI)
    for url, expected in () if settings.offline else _links(settings.web(), index, "uv"):
        version = _uv_version(_filename(url))
        if version:
            yield version, url, expected


def _links(web: Web, index: str, project: str) -> Iterator[tuple[str, str]]:
    """(address, sha256 or "") of each file that an index has of a project; none for one that it does not know."""
    page = f"{index.rstrip('/')}/{project}/{'index.html' if index.startswith('file:') else ''}"
    try:
        content = web.page(page)
    except NotThere:
        return
    for link, expected in _LINK.findall(content):
        yield urllib.parse.urljoin(page, html.unescape(link)), expected


def _filename(url: str) -> str:
    return urllib.parse.unquote(urllib.parse.urlsplit(url).path.rsplit("/", 1)[-1])


def _is_source(filename: str, name: str, version: str) -> bool:
    match = _SOURCE.match(filename)
    return match is not None and (canonical(match[1]), match[2]) == (canonical(name), version)


def _uv_version(filename: str) -> tuple[int, ...] | None:
    """The version, if this wheel is for a machine like this one."""
    match = _UV_WHEEL.match(filename)
    libc = "manylinux" if platform.libc_ver()[0] == "glibc" else "musllinux"
    if match and libc in match[4] and match[4].endswith(platform.machine()):
        return tuple(map(int, match.groups()[:3]))
    return None
