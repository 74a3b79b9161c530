"""Files from outside the package index, and uv itself for a pod that has neither uv nor pip."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from .env_progress import Progress, masked
from .failure import Failure

_PYPI = "https://pypi.org/simple"
_PATIENCE_S = 60
_TRIES = 3
_PAUSE_S = 2.0
_PIECE = 1 << 20
_LINK = re.compile(r'href="([^"#]+)(?:#sha256=([0-9a-f]{64}))?"')
_UV_WHEEL = re.compile(r"^uv-(\d+)\.(\d+)\.(\d+)-py3-none-(\S+)\.whl$")


class NotThere(Failure):
    """The server answered, and has no such file."""


class Web:
    """Downloads with the certificate and proxy that the pod's pip uses."""

    def __init__(self, certificate: str = "", proxy: str = "") -> None:
        handlers: list[urllib.request.BaseHandler] = [
            urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=certificate or None))
        ]
        if proxy:
            handlers.append(urllib.request.ProxyHandler({"http": proxy, "https": proxy}))
        self._opener = urllib.request.build_opener(*handlers)

    def fetch(self, url: str, folder: Path, progress: Progress) -> tuple[Path, str]:
        """The file and its sha256, downloaded into `folder` unless it is there. NotThere, or Failure after retries."""
        target = folder / Path(urllib.parse.unquote(urllib.parse.urlsplit(url).path)).name
        if target.exists():
            return target, sha256(target)
        progress.say(f"downloading {url}")
        folder.mkdir(parents=True, exist_ok=True)
        aside = folder / f".{target.name}.{os.getpid()}"
        try:
            self._patiently(url, aside)
            aside.replace(target)
        finally:
            if aside.exists():
                aside.unlink()
        return target, sha256(target)

    def page(self, url: str) -> str:
        """A page of an index. Failure if it cannot be had."""
        try:
            with self._opener.open(url, timeout=_PATIENCE_S) as answer:
                content: bytes = answer.read()
        except OSError as e:
            raise Failure(f"{masked(url)} cannot be read: {e}") from e
        return content.decode("utf-8", "replace")

    def _patiently(self, url: str, target: Path) -> None:
        for attempt in range(1, _TRIES + 1):
            try:
                with self._opener.open(url, timeout=_PATIENCE_S) as answer, target.open("wb") as f:
                    shutil.copyfileobj(answer, f, _PIECE)
                return
            except urllib.error.HTTPError as e:
                if e.code in (403, 404, 410):
                    raise NotThere(f"HTTP {e.code} for {masked(url)}") from e
                reason = f"HTTP {e.code}"
            except OSError as e:
                reason = str(getattr(e, "reason", e))
            if attempt < _TRIES:
                time.sleep(_PAUSE_S * attempt)
        raise Failure(f"{masked(url)} cannot be downloaded: {reason}")


def fetch_uv(web: Web, index: str, find_links: Iterable[str], tools: Path, progress: Progress) -> Path:
    """Put the newest uv for this machine below `tools`; the path of its binary. Failure if none is to be had."""
    wheels = sorted(_uv_wheels(web, index or _PYPI, find_links))
    if not wheels:
        raise Failure(f"no wheel of it is for {platform.machine()}")
    _, url, expected = wheels[-1]
    wheel, found = web.fetch(url, tools, progress)
    if expected not in ("", found):
        wheel.unlink()
        raise Failure(f"{masked(url)} is not what its index says: sha256 {found}")
    binary = tools / "uv"
    aside = tools / f".uv.{os.getpid()}"
    with zipfile.ZipFile(wheel) as archive:
        member = next(name for name in archive.namelist() if name.endswith(".data/scripts/uv"))
        with archive.open(member) as source, aside.open("wb") as f:
            shutil.copyfileobj(source, f)
    aside.chmod(0o755)
    aside.replace(binary)
    wheel.unlink()
    return binary


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as f:
        for piece in iter(lambda: f.read(_PIECE), b""):
            digest.update(piece)
    return digest.hexdigest()


def _uv_wheels(web: Web, index: str, find_links: Iterable[str]) -> Iterator[tuple[tuple[int, ...], str, str]]:
    """(version, address, sha256 or "") of each wheel of uv for this machine."""
    for folder in filter(os.path.isdir, find_links):
        for path in Path(folder).glob("uv-*.whl"):
            version = _uv_version(path.name)
            if version:
                yield version, path.absolute().as_uri(), ""
    page = f"{index.rstrip('/')}/uv/"
    for link, expected in _LINK.findall(web.page(page)):
        version = _uv_version(urllib.parse.unquote(link.rsplit("/", 1)[-1]))
        if version:
            yield version, urllib.parse.urljoin(page, link), expected


def _uv_version(filename: str) -> tuple[int, ...] | None:
    """The version, if this wheel is for a machine like this one."""
    match = _UV_WHEEL.match(filename)
    libc = "manylinux" if platform.libc_ver()[0] == "glibc" else "musllinux"
    if match and libc in match[4] and match[4].endswith(platform.machine()):
        return tuple(map(int, match.groups()[:3]))
    return None
