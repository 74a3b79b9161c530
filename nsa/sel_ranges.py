"""`python -m nsa.sel_ranges`: `nsa.tools.sel_ranges`."""

from nsa.tools.sel_ranges import main

if __name__ == "__main__":
    raise SystemExit(main())
