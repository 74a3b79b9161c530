"""Where this laptop keeps what it remembers, and in whose name it launches."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path

import click

from orchestrator.shared.user import user


def home() -> Path:
    """$NSA_POD_HOME, else the user's configuration directory; made for nobody else to look into, whatever the umask."""
    named = os.environ.get("NSA_POD_HOME")
    path = Path(os.path.expanduser(named)) if named else Path(click.get_app_dir("nsa-pod"))
    with suppress(OSError):  # whoever writes there says what is wrong
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def who() -> str:
    """user@laptop, as others on a pod see who holds it."""
    return f"{user() or os.getuid()}@{socket.gethostname()}"
