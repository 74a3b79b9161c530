"""`python -m tests.support.as_pip UV ARGUMENT...`: uv, which finds packages where this Python's pip does.

For `./check`, whose packages pip takes a minute and a half to install, and uv some seconds.
"""

from __future__ import annotations

import os
import sys

from orchestrator.shared.wheels.settings import Settings

if __name__ == "__main__":
    os.environ.update(Settings.of(sys.executable).for_uv())
    os.execv(sys.argv[1], sys.argv[1:])
