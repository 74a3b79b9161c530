"""`python -m nsa.check_env`: `nsa.tools.check_env`."""

from nsa.tools.check_env import main

if __name__ == "__main__":
    raise SystemExit(main())
