"""`nsa-pod`, also `python -m orchestrator`: one line and 130 also where it is interrupted while modules are loaded."""

import sys

from orchestrator import interrupts


def main() -> None:
    interrupts.heed()
    try:
        from orchestrator import cli
    except KeyboardInterrupt as e:
        print("error: interrupted", file=sys.stderr)
        if "--json" in sys.argv:
            print('{"verdict": "error", "error": "interrupted"}')
        sys.exit(interrupts.exit_code(e))
    cli.main()


if __name__ == "__main__":
    main()
