"""`python -m nsa.sanity`: `nsa.tools.sanity`."""

import sys

from nsa.tools.sanity import main

if __name__ == "__main__":
    sys.exit(main())
