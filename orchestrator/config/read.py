"""Files of a repository that nobody vouches for, read within limits: what cannot be read says nothing."""

from __future__ import annotations

import ast
import configparser
from collections.abc import Sequence
from pathlib import Path

_MOST_BYTES = 1 << 20


def text_of(path: Path) -> str:
    try:
        return path.read_bytes()[:_MOST_BYTES].decode("utf-8", "replace")
    except OSError:
        return ""


def parsed(text: str) -> Sequence[ast.stmt]:
    try:
        return ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError):
        return ()


def ini(text: str) -> configparser.ConfigParser:
    found = configparser.ConfigParser(interpolation=None)
    try:
        found.read_string(text)
    except configparser.Error:
        return configparser.ConfigParser(interpolation=None)
    return found


def lines_of(text: str) -> list[str]:
    """Those of a list in an ini or requirements file, without comments."""
    lines = (f"{line} ".split(" #")[0].strip(" \t\\") for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]
