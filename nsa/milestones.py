"""`python -m nsa.milestones`: `nsa.tools.milestones`."""

from nsa.tools.milestones import main

if __name__ == "__main__":
    raise SystemExit(main())
