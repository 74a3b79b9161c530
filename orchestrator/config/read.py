"""Files of a repository that nobody vouches for, read within limits: what cannot be read says nothing."""

from __future__ import annotations

import ast
import codecs
import configparser
import re
import warnings
from collections.abc import Sequence
from pathlib import Path

_MOST_BYTES = 1 << 20
_COMMENT = re.compile(r"(^|\s)#.*$")


def text_of(path: Path) -> str:
    try:
        if not path.is_file():  # a pipe would be waited for
            return ""
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES)
    except (OSError, ValueError):
        return ""
    encoding = "utf-16" if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
    return data.decode(encoding, "replace")


def parsed(text: str) -> Sequence[ast.stmt]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what it thinks of their escapes is not for who calls init
            return ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # MemoryError: nested too deep for the parser
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
    lines = (_COMMENT.sub("", line).strip(" \t\\") for line in text.splitlines())
    return [line for line in lines if line]
