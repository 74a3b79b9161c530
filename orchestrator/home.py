"""Where this laptop keeps what it remembers, and in whose name it launches."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import click

from orchestrator.shared.user import user


def home() -> Path:
    """$NSA_POD_HOME, else the user's configuration directory."""
    named = os.environ.get("NSA_POD_HOME")
    return Path(os.path.expanduser(named)) if named else Path(click.get_app_dir("nsa-pod"))


def who() -> str:
    """user@laptop, as others on a pod see who holds it."""
    return f"{user() or os.getuid()}@{socket.gethostname()}"
