"""Downloads of the tool's own, by what pip is set up with: certificates, proxy, trusted hosts, passwords."""

from __future__ import annotations

import base64
import html
import os
import re
import shutil
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urljoin

from orchestrator.shared.failure import Failure
from orchestrator.shared.files import sha256
from orchestrator.shared.wheels.addresses import filename, masked, netloc, without_credentials

_PATIENCE_S = 60
_TRIES = 3
_PAUSE_S = 2.0
_PIECE = 1 << 20
_NOT_THERE = (403, 404, 410)
_LINK = re.compile(r'href="([^"#]+)(?:#sha256=([0-9a-f]{64}))?')


class Listener(Protocol):
    """Is told what happens, a line at a time."""

    def say(self, text: str) -> None: ...


class NotThere(Failure):
    """The server answered, and has no such file."""


class Web:
    """`certificate` and `client_certificate` are files, `proxy` is an address; each may be "".

    The `trusted` hosts ("host" or "host:port") need no certificate. The users and passwords in `addresses` are sent
    with all that is asked of their hosts.
    """

    def __init__(
        self,
        certificate: str = "",
        client_certificate: str = "",
        proxy: str = "",
        trusted: Iterable[str] = (),
        addresses: Iterable[str] = (),
    ) -> None:
        self._trusted = frozenset(trusted)
        parts = (netloc(address).rpartition("@") for address in addresses)
        self._users = {host: user for user, _, host in parts if user}
        strict, lenient = (ssl.create_default_context(cafile=certificate or None) for _ in range(2))
        lenient.check_hostname, lenient.verify_mode = False, ssl.CERT_NONE
        for context in (strict, lenient) if client_certificate else ():
            context.load_cert_chain(client_certificate)
        self._openers = {False: _opener(strict, proxy), True: _opener(lenient, proxy)}

    def fetch(self, url: str, folder: Path, progress: Listener, expected: str | None = None) -> tuple[Path, str]:
        """The file and its sha256, downloaded into `folder` unless it is there.

        NotThere; Failure after retries, and for a file that is not the `expected` one, which is removed.
        """
        target = folder / filename(url)
        if not target.exists():
            progress.say(f"downloading {masked(url)}")
            folder.mkdir(parents=True, exist_ok=True)
            aside = folder / f".{target.name}.{os.getpid()}"
            try:
                self._patiently(url, aside)
                aside.replace(target)
            finally:
                if aside.exists():
                    aside.unlink()
        found = sha256(target)
        if expected and found != expected:
            target.unlink()
            raise Failure(f"{masked(url)} is not what its index says (sha256 {found}), and was removed: try again")
        return target, found

    def links(self, index: str, project: str) -> Iterator[tuple[str, str]]:
        """(address, sha256 or "") of each file that an index has of a project; none for one that it does not know.

        Failure for an index that cannot be read.
        """
        page = f"{index.rstrip('/')}/{project}/{'index.html' if index.startswith('file:') else ''}"
        try:
            with self._open(page) as answer:
                content = answer.read().decode("utf-8", "replace")
        except (OSError, HTTPException) as e:
            if _is_absent(e):
                return
            raise Failure(f"{masked(page)} cannot be read: {_reason(e)}") from e
        for link, expected in _LINK.findall(content):
            yield urljoin(page, html.unescape(link)), expected

    def _patiently(self, url: str, target: Path) -> None:
        for attempt in range(1, _TRIES + 1):
            try:
                with self._open(url) as answer, target.open("wb") as f:
                    shutil.copyfileobj(answer, f, _PIECE)
                return
            except (OSError, HTTPException) as e:
                reason = _reason(e)
                if _is_absent(e):
                    raise NotThere(f"{reason} for {masked(url)}") from e
            if attempt < _TRIES:
                time.sleep(_PAUSE_S * attempt)
        raise Failure(f"{masked(url)} cannot be downloaded: {reason}")

    def _open(self, url: str) -> Any:
        """The answer, as a file. OSError or HTTPException."""
        user, _, host = netloc(url).rpartition("@")
        request = urllib.request.Request(without_credentials(url))
        user = user or self._users.get(host, "")
        if user:
            name, _, password = user.partition(":")
            sent = base64.b64encode(f"{unquote(name)}:{unquote(password)}".encode()).decode()
            request.add_unredirected_header("Authorization", f"Basic {sent}")
        trusted = not self._trusted.isdisjoint((host, host.partition(":")[0]))
        return self._openers[trusted].open(request, timeout=_PATIENCE_S)


def _opener(context: ssl.SSLContext, proxy: str) -> urllib.request.OpenerDirector:
    proxies = [urllib.request.ProxyHandler({"http": proxy, "https": proxy})] if proxy else []
    return urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), *proxies)


def _is_absent(error: Exception) -> bool:
    """Whether nothing is at an address: the server says so, or it was a file's (indexes may be directories)."""
    status = error.code if isinstance(error, urllib.error.HTTPError) else None
    return status in _NOT_THERE or isinstance(getattr(error, "reason", error), FileNotFoundError)


def _reason(error: Exception) -> str:
    status = error.code if isinstance(error, urllib.error.HTTPError) else None
    return f"HTTP {status}" if status else masked(str(getattr(error, "reason", error)))
