"""Send files of a run: for each one that is asked for, in order, a line and then the bytes that were asked for.

The line is `+`, and the bytes follow; or `-` with the reason why this file is not sent.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any, BinaryIO, Iterable, Tuple

from orchestrator.shared.files import Refused, clause, open_inside

_PIECE = 1 << 17


def send(run_dir: Path, wanted: Iterable[Tuple[str, int, int]], out: BinaryIO) -> None:
    """Write the files `wanted`, as (path in the run's directory, its size as recorded, first byte), to `out`."""
    for name, size, begin in wanted:
        with contextlib.ExitStack() as opened:
            try:
                f = opened.enter_context(open_inside(run_dir, name))
                found = os.fstat(f.fileno()).st_size
                if found != size:
                    raise Refused(f"has {found} bytes now, {size} were recorded")
            except (Refused, OSError) as e:
                out.write(f"-{clause(e)}\n".encode())
                continue
            out.write(b"+\n")
            f.seek(begin)
            _copy(f, size - begin, out)


def asked(request: Any) -> Iterable[Tuple[str, int, int]]:
    """The files that a request, a list of [path, size, begin], names."""
    return ((str(name), int(size), int(begin)) for name, size, begin in request)


def _copy(f: BinaryIO, size: int, out: BinaryIO) -> None:
    """Exactly `size` bytes; a file that loses some meanwhile is filled up, and its hash will tell."""
    while size > 0:
        piece = _read(f, min(_PIECE, size))
        out.write(piece)
        size -= len(piece)


def _read(f: BinaryIO, most: int) -> bytes:
    try:
        return f.read(most) or b"\0" * most
    except OSError:  # a bad sector, say
        return b"\0" * most
