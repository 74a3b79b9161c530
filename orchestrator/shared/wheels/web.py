"""Downloads of the agent's own, with the certificate and the proxy that the pod's pip uses."""

from __future__ import annotations

import os
import re
import shutil
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Protocol

from orchestrator.shared.failure import Failure
from orchestrator.shared.files import sha256

_PATIENCE_S = 60
_TRIES = 3
_PAUSE_S = 2.0
_PIECE = 1 << 20
_NOT_THERE = (403, 404, 410)
_PASSWORD = re.compile(r"(?<=://)[^/@\s]+@")


class Listener(Protocol):
    """Is told what happens, a line at a time."""

    def say(self, text: str) -> None: ...


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

    def fetch(self, url: str, folder: Path, progress: Listener) -> tuple[Path, str]:
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
        """A page of an index. NotThere if the server has none, Failure if it cannot be had."""
        try:
            with self._opener.open(url, timeout=_PATIENCE_S) as answer:
                content: bytes = answer.read()
        except urllib.error.HTTPError as e:
            kind = NotThere if e.code in _NOT_THERE else Failure
            raise kind(f"{masked(url)} cannot be read: HTTP {e.code}") from e
        except OSError as e:
            kind = NotThere if _no_file(e) else Failure
            raise kind(f"{masked(url)} cannot be read: {e}") from e
        return content.decode("utf-8", "replace")

    def _patiently(self, url: str, target: Path) -> None:
        for attempt in range(1, _TRIES + 1):
            try:
                with self._opener.open(url, timeout=_PATIENCE_S) as answer, target.open("wb") as f:
                    shutil.copyfileobj(answer, f, _PIECE)
                return
            except urllib.error.HTTPError as e:
                if e.code in _NOT_THERE:
                    raise NotThere(f"HTTP {e.code} for {masked(url)}") from e
                reason = f"HTTP {e.code}"
            except OSError as e:
                reason = str(getattr(e, "reason", e))
                if _no_file(e):
                    raise NotThere(f"{masked(url)} is not there") from e
            if attempt < _TRIES:
                time.sleep(_PAUSE_S * attempt)
        raise Failure(f"{masked(url)} cannot be downloaded: {reason}")


def _no_file(error: OSError) -> bool:
    """Whether the address was a file's that does not exist; indexes may be directories too."""
    return isinstance(getattr(error, "reason", error), FileNotFoundError)


def masked(text: str) -> str:
    """Addresses without the passwords in them."""
    return _PASSWORD.sub("***@", text)
