"""Where packages come from on a machine: what its pip is set up with, for uv and for downloads of the tool's own."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from orchestrator.shared.query import ask
from orchestrator.shared.wheels.web import Web

# Of pip's settings, those that say where packages come from; others may say where they go, which is not theirs to say.
_SOURCES = "index-url extra-index-url find-links no-index cert client-cert proxy trusted-host timeout retries".split()
_ASK_LIMIT_S = 120
_PYPI = "https://pypi.org/simple"


@dataclass(frozen=True)
class Settings:
    """Where packages come from, by pip's `options`, and the indexes that a request has `added`.

    `folders` are directories of wheels; with `cut_off` nothing but these and what was kept is used, and no network.
    """

    options: Mapping[str, str] = field(default_factory=dict)
    added: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    cut_off: bool = False

    @classmethod
    def of(cls, python: str) -> Settings:
        """What the `pip config` of `python` says; where there is no pip, what PIP_* variables say."""
        listing = ask([python, "-m", "pip", "config", "list"], _ASK_LIMIT_S) or ""
        variables = {n[4:].lower().replace("_", "-"): v for n, v in os.environ.items() if n.startswith("PIP_")}
        known = {**_options(listing), **variables}
        known.setdefault("timeout", known.get("default-timeout", ""))
        return cls({name: known[name] for name in _SOURCES if known.get(name)})

    def adding(self, indexes: Sequence[str]) -> Settings:
        return replace(self, added=tuple(indexes))

    @classmethod
    def of_folders(cls, folders: Sequence[str]) -> Settings:
        """Nothing but the wheels in these directories."""
        return cls(folders=tuple(folders), cut_off=True)

    def in_folders(self, filename: str) -> Path | None:
        """The file of that name in one of the directories, if there is one."""
        paths = (Path(folder, filename) for folder in self.folders)
        return next((path for path in paths if path.is_file()), None)

    @property
    def extra_indexes(self) -> list[str]:
        return [*self._all("extra-index-url"), *self.added]

    @property
    def indexes(self) -> list[str]:
        """All that may be asked, the main one first."""
        return [] if self.offline else [self.options.get("index-url", _PYPI), *self.extra_indexes]

    @property
    def find_links(self) -> list[str]:
        return [*self.folders, *self._all("find-links")]

    def for_uv(self) -> dict[str, str]:
        """As uv's environment variables, since an address may carry a password and arguments are public."""
        found = {
            "UV_DEFAULT_INDEX": self.options.get("index-url", ""),
            "UV_INDEX": " ".join(self.extra_indexes),
            "UV_FIND_LINKS": ",".join(self.find_links),
            "SSL_CERT_FILE": self.options.get("cert", ""),
            "SSL_CLIENT_CERT": self.options.get("client-cert", ""),
            "ALL_PROXY": self.options.get("proxy", ""),
            "UV_INSECURE_HOST": " ".join(self._all("trusted-host")),
            "UV_HTTP_TIMEOUT": self.options.get("timeout", ""),
            "UV_HTTP_RETRIES": self.options.get("retries", ""),
            # pip takes the best version from all indexes together. Where a pod has more than one, uv's own rule, the
            # first index that knows the name, would find less than the pod's owner has set up.
            "UV_INDEX_STRATEGY": "unsafe-best-match" if self.extra_indexes else "",
        }
        return {name: value for name, value in found.items() if value}

    def web(self) -> Web:
        """For downloads of the tool's own."""
        certificate, client, proxy = (self.options.get(name, "") for name in ("cert", "client-cert", "proxy"))
        return Web(certificate, client, proxy, self._all("trusted-host"), self.indexes)

    @property
    def offline(self) -> bool:
        """No index at all, only directories of wheels. uv knows this as an argument only."""
        return self.cut_off or self.options.get("no-index", "").lower() in ("1", "true", "yes", "on")

    def _all(self, option: str) -> list[str]:
        return self.options.get(option, "").split()


def _options(listing: str) -> dict[str, str]:
    """`pip config list` -> option: value; a command's section beats the global one, a variable beats both."""
    found: dict[str, tuple[int, str]] = {}
    ranks = {"global": 0, "install": 1, ":env:": 2}
    for line in listing.splitlines():
        match = re.match(r"^(global|install|:env:)\.([a-z-]+)=(.*)$", line)
        if match and ranks[match[1]] >= found.get(match[2], (0, ""))[0]:
            found[match[2]] = ranks[match[1]], " ".join(str(ast.literal_eval(match[3])).split())
    return {option: value for option, (_, value) in found.items()}
