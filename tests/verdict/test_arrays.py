"""NumPy's files: whether they hold any number, and one that is not NaN, read without NumPy."""

from __future__ import annotations

import io
import struct
import zipfile

import pytest

from orchestrator.verdict.artifacts.arrays import holds_no_number

NAN = float("nan")


def array(kind: str, code: str, *numbers: float, major: int = 1) -> bytes:
    header = repr({"descr": kind, "fortran_order": False, "shape": (len(numbers),)}).encode() + b"\n"
    length = struct.pack("<H" if major == 1 else "<I", len(header))
    return b"\x93NUMPY" + bytes([major, 0]) + length + header + struct.pack(f"{kind[0]}{len(numbers)}{code}", *numbers)


def packed(**arrays: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as written:
        for name, content in arrays.items():
            written.writestr(zipfile.ZipInfo(name.replace("_", ".")), content, zipfile.ZIP_DEFLATED)
    return file.getvalue()


SIZES = array("<i8", "q", 1, 2)


@pytest.mark.parametrize(
    ("content", "holds_none"),
    [
        (array("<f8", "d", NAN, NAN), True),
        (array("<f8", "d", NAN, 0.0), False),
        (array("<f8", "d", NAN, float("inf")), False),
        (array(">f4", "f", *[NAN] * 50000), True),
        (array("<f4", "f", *[NAN] * 50000, 1.0), False),
        (array("<f2", "e", NAN, major=2), True),
        (array("<c8", "f", NAN, NAN), True),
        (array("<f8", "d"), True),
        (array("<i8", "q"), True),
        (packed(a_npy=array("<f4", "f"), b_npy=array("<i8", "q")), True),
        (packed(a_npy=array("<f4", "f"), sizes_npy=SIZES), False),
        (packed(sizes_npy=SIZES), False),
        (SIZES, False),
        (array("<f8", "d", NAN).replace(b"<f8", b"|O8"), False),
        (array("<f8", "d", NAN)[:30], False),
        (b"\x93NUMPY\x01\x00\x05\x00{{{{{", False),
        (packed(a_npy=array("<f4", "f", NAN), sizes_npy=SIZES), True),
        (packed(a_npy=array("<f4", "f", NAN), b_npy=array("<f4", "f", 1.0)), False),
        (packed(sizes_npy=SIZES, data_pkl=b"nan"), False),
        (packed(a_npy=array("<f4", "f", NAN))[:-60], False),
        (b"nan nan\n", False),
        (b"", False),
    ],
)
def test_whether_there_is_no_number_but_nan(content: bytes, holds_none: bool) -> None:
    assert holds_no_number(io.BytesIO(content)) == holds_none
