"""What the agent writes is this user's alone; what it starts has the umask that the user has."""

from __future__ import annotations

import os

VARIABLE = "NSA_POD_UMASK"
"""Holds the user's own umask, in octal, for the programs that follow the one that has taken it away."""

_PRIVATE = 0o077
_own: int | None = None


def take_away() -> None:
    """From now on files are this user's alone."""
    global _own
    found = os.umask(_PRIVATE)
    if _own is None:
        told = os.environ.setdefault(VARIABLE, f"{found:o}")
        _own = int(told, 8) & 0o777 if told and set(told) <= set("01234567") else found


def give_back() -> None:
    """In a child, before it becomes another program: what that writes is as the user has it."""
    os.umask(_PRIVATE if _own is None else _own)
