"""`python -m nsa.fa2_probe`: `nsa.tools.fa2_probe`."""

from nsa.tools.fa2_probe import main

if __name__ == "__main__":
    raise SystemExit(main())
