"""`python -m nsa.check_env`: `nsa.tools.check_env`."""

import sys

from nsa.tools.check_env import main

if __name__ == "__main__":
    sys.exit(main())
