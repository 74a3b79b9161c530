"""NumPy's files, as NumPy documents them: whether any number stands in them, and one that is not NaN."""

from __future__ import annotations

import ast
import contextlib
import re
import struct
import zipfile
from typing import IO, BinaryIO, Iterator, List, Literal

MAGIC = b"\x93NUMPY"
_PACKED = b"PK\x03\x04"
_FLOAT = re.compile(r"([<>=|]?)([fc])(\d+)")
_CODES = {2: "e", 4: "f", 8: "d"}
_PIECE = 1 << 16
_LONGEST_HEADER = 1 << 16
_MOST_BYTES = 1 << 30

Content = Literal["numbers", "nan", "nothing", "other"]
"""Of an array: a floating-point number stands in it; none but NaN; it has no elements; it is of another kind."""


def holds_no_number(f: BinaryIO) -> bool:
    """Whether a `.npy` or `.npz` has no elements, or of floating-point numbers none but NaN; not of other files."""
    f.seek(0)
    start = f.read(len(MAGIC))
    f.seek(0)
    found: List[Content] = []
    # Of what is no such file, or is damaged, nothing is said.
    with contextlib.suppress(
        ValueError, TypeError, KeyError, SyntaxError, struct.error, zipfile.BadZipFile, OSError, RuntimeError, EOFError
    ):
        if start == MAGIC:
            found = [_content(f)]
        elif start.startswith(_PACKED):
            found = list(_members(f))
    return ("nan" in found and "numbers" not in found) or set(found) == {"nothing"}


def _members(f: BinaryIO) -> Iterator[Content]:
    with zipfile.ZipFile(f) as packed:
        names = [name for name in packed.namelist() if name.endswith(".npy")]
        for name in names:
            with packed.open(name) as member:
                content = _content(member)
            yield content
            if content == "numbers":
                return


def _content(f: IO[bytes]) -> Content:
    magic, (major, _) = f.read(len(MAGIC)), f.read(2)
    if magic != MAGIC:
        return "other"
    (length,) = struct.unpack("<H", f.read(2)) if major == 1 else struct.unpack("<I", f.read(4))
    header = ast.literal_eval(f.read(min(length, _LONGEST_HEADER)).decode("latin-1"))
    if 0 in header["shape"]:
        return "nothing"
    kind = _FLOAT.fullmatch(header["descr"]) if isinstance(header["descr"], str) else None
    width = int(kind[3]) // (2 if kind[2] == "c" else 1) if kind else 0
    if kind is None or width not in _CODES:
        return "other"
    number = struct.Struct(("" if kind[1] == "|" else kind[1]) + _CODES[width])
    for n, piece in enumerate(iter(lambda: f.read(_PIECE), b"")):
        numbers = number.iter_unpack(piece[: len(piece) // width * width])
        if n * _PIECE > _MOST_BYTES or any(value == value for (value,) in numbers):
            return "numbers"
    return "nan"
