"""Addresses of wheels and indexes, as text."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit, urlunsplit

_PASSWORD = re.compile(r"(?<=://)[^/@\s]+@")


def filename(url: str) -> str:
    """The name of the file at an address."""
    return unquote(urlsplit(url).path.rsplit("/", 1)[-1])


def without_credentials(url: str) -> str:
    """The address without a user and password."""
    return urlunsplit(urlsplit(url)._replace(netloc=netloc(url).rpartition("@")[2]))


def masked(text: str) -> str:
    """Text in which addresses do not show their passwords."""
    return _PASSWORD.sub("***@", text)


def netloc(url: str) -> str:
    """The host that an address names, with user, password and port."""
    return urlsplit(url).netloc
