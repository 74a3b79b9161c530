"""`nsa-pod` as tests start it: `python -m tests.support.command_line FILE ARGUMENT...` ships the agent in that file."""

from __future__ import annotations

import sys
from pathlib import Path

from orchestrator.__main__ import main
from orchestrator.pod import bundle
from tests.support.compiled import content_of

shipped = content_of(Path(sys.argv.pop(1)))
bundle.build = lambda: shipped
main()
