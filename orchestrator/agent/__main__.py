"""`python3 agent-<hash>.pyz COMMAND ...`"""

from __future__ import annotations

import sys

from orchestrator.agent.commands import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
