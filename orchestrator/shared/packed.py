"""Compressed files: the bytes that they begin with, and what unpacks them."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from typing import Any, BinaryIO, Callable, Optional, Sequence, Tuple

OPENERS: Sequence[Tuple[bytes, Callable[..., Any]]] = [
    (b"\x1f\x8b", gzip.open), (b"BZh", bz2.open), (b"\xfd7zXZ", lzma.open),
]  # fmt: skip
ERRORS = (OSError, EOFError, ValueError, lzma.LZMAError, zlib.error)
_MARKS = (*(mark for mark, _ in OPENERS), b"\x28\xb5\x2f\xfd")  # zstd too


def is_packed(start: bytes) -> bool:
    return start.startswith(_MARKS)


def unpacked(f: BinaryIO, start: bytes, most_bytes: int) -> Optional[bytes]:
    """The first bytes in a compressed file; None of what cannot be unpacked here. `start` is what it begins with."""
    unpack = next((unpack for mark, unpack in OPENERS if start.startswith(mark)), None)
    if unpack is None:
        return None
    f.seek(0)
    try:
        with unpack(f, "rb") as content:
            found: bytes = content.read(most_bytes)
    except ERRORS:
        return None
    return found
