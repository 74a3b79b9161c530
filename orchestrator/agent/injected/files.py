"""The one way in which a file is looked at; `source`, which asks what stands in it, takes `ast`."""

from __future__ import annotations

import os
from _stat import S_ISFIFO  # without what `stat` adds

COMMAND, STDIN = "<string>", "<stdin>"
"""What Python calls a program that comes in no file: of `-c`, and of its standard input."""
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

unfiled: dict[str, bytes] = {}
"""The text of the one that this process runs, by that name, or by that of the pipe from which it came."""


def text(file: str) -> bytes:
    """OSError where it cannot be read, or has gone."""
    if file in unfiled:
        return unfiled[file]
    with open(file, "rb") as f:
        return f.read()


def is_pipe(file: str) -> bool:
    """Whether what it holds can be read once; or is a here-document's, whose file has no name any more."""
    try:
        status = os.stat(file)
        return S_ISFIFO(status.st_mode) or status.st_nlink == 0
    except OSError:
        return False


def read(file: str) -> bytes:
    """The same, or nothing."""
    try:
        return text(file)
    except OSError:
        return b""


def title(file: str) -> str:
    """How the program is called in a sentence that comes in no file; blank for a file."""
    return {COMMAND: "python -c", STDIN: "python -"}.get(file, file if file in unfiled else "")


def place_of(file: str, line: int) -> dict[str, Any]:
    """Of a line in a note."""
    return {"file": title(file) or os.path.abspath(file), "line": line}


def may_hold_limits(source: bytes) -> bool:
    """Whether a difference, or its size, may be held to a limit in it: few files need be read for that."""
    by_hand = any(size in source for size in (b"abs(", b"norm(")) and any(
        order in source for order in (b" < ", b" > ", b" <= ", b" >= ")
    )
    return by_hand or (b"allclose(" in source and b" if " in source)
