"""`python -m nsa.sanity`: `nsa.tools.sanity`."""

from nsa.tools.sanity import main

if __name__ == "__main__":
    raise SystemExit(main())
