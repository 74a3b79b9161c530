"""The command line in the tests' own process: half a second less each time, of which Python's start and imports are."""

from __future__ import annotations

import contextlib
import io
from typing import NamedTuple

import pytest

from orchestrator.cli import main


class Said(NamedTuple):
    """How a command ended and what it wrote."""

    code: int
    out: str
    err: str


def command(*arguments: str) -> Said:
    """It ends by an exit code, never by another exception."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as ended:
        main(list(arguments))
    out.seek(0)
    err.seek(0)
    code = ended.value.code
    assert isinstance(code, int)
    return Said(code, out.read(), err.read())
