"""NumPy's files, as NumPy documents them: whether any number stands in them that is none but NaN."""

from __future__ import annotations

import ast
import contextlib
import re
import struct
import zipfile
from typing import IO, BinaryIO, Iterator, Optional

MAGIC = b"\x93NUMPY"
_PACKED = b"PK\x03\x04"
_FLOAT = re.compile(r"([<>=|]?)([fc])(\d+)")
_CODES = {2: "e", 4: "f", 8: "d"}
_PIECE = 1 << 16
_LONGEST_HEADER = 1 << 16
_MOST_BYTES = 1 << 30


def holds_only_nan(f: BinaryIO) -> bool:
    """Whether there are floating-point numbers in a `.npy` or `.npz`, and all of them are NaN; not of other files."""
    f.seek(0)
    start = f.read(len(MAGIC))
    f.seek(0)
    found = []
    # Of what is no such file, or is damaged, nothing is said.
    with contextlib.suppress(
        ValueError, SyntaxError, struct.error, zipfile.BadZipFile, OSError, RuntimeError, EOFError
    ):
        if start == MAGIC:
            found = [_is_all_nan(f)]
        elif start.startswith(_PACKED):
            found = list(_members(f))
    return True in found and False not in found


def _members(f: BinaryIO) -> Iterator[Optional[bool]]:
    with zipfile.ZipFile(f) as packed:
        names = [name for name in packed.namelist() if name.endswith(".npy")]
        for name in names:
            with packed.open(name) as member:
                is_all_nan = _is_all_nan(member)
            yield is_all_nan
            if is_all_nan is False:
                return


def _is_all_nan(f: IO[bytes]) -> Optional[bool]:
    """None of an array that has no floating-point numbers."""
    magic, (major, _) = f.read(len(MAGIC)), f.read(2)
    if magic != MAGIC:
        return None
    (length,) = struct.unpack("<H", f.read(2)) if major == 1 else struct.unpack("<I", f.read(4))
    header = ast.literal_eval(f.read(min(length, _LONGEST_HEADER)).decode("latin-1"))
    kind = _FLOAT.fullmatch(header["descr"]) if isinstance(header["descr"], str) else None
    width = int(kind[3]) // (2 if kind[2] == "c" else 1) if kind else 0
    if kind is None or width not in _CODES:
        return None
    number = struct.Struct(("" if kind[1] == "|" else kind[1]) + _CODES[width])
    is_empty = True
    for n, piece in enumerate(iter(lambda: f.read(_PIECE), b"")):
        numbers = number.iter_unpack(piece[: len(piece) // width * width])
        if n * _PIECE > _MOST_BYTES or any(value == value for (value,) in numbers):
            return False
        is_empty = False
    return None if is_empty else True
