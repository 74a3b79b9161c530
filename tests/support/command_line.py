"""`nsa-pod` as tests start it: `python -m tests.support.command_line FILE ARGUMENT...` ships the agent in that file."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from orchestrator.__main__ import main
from orchestrator.pod import bundle


def build() -> tuple[bytes, str]:
    """What `bundle.build` says, of that file."""
    content = agent.read_bytes()
    return content, hashlib.sha256(content).hexdigest()


agent = Path(sys.argv.pop(1))
bundle.build = build
main()
