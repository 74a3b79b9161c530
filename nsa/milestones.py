"""`python -m nsa.milestones`: `nsa.tools.milestones`."""

import sys

from nsa.tools.milestones import main

if __name__ == "__main__":
    sys.exit(main())
