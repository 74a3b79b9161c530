"""`nsa-pod`, also `python -m orchestrator`: one line and 130 also where it is interrupted while modules are loaded."""

import sys

_INTERRUPTED = 130


def main() -> None:
    try:
        from orchestrator import cli
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        if "--json" in sys.argv:
            print('{"verdict": "error", "error": "interrupted"}')
        sys.exit(_INTERRUPTED)
    cli.main()


if __name__ == "__main__":
    main()
