"""Who this process is."""

from __future__ import annotations

import getpass


def user() -> str | None:
    """The user's name; None for a user id without one, as containers have it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return None
