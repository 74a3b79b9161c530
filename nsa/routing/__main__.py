"""`python -m nsa.routing [--json]`: the dispatch table's answer for one shape, default the paper's."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from nsa import NSAConfig, explain_routing, flags
from nsa.device import DTYPES


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m nsa.routing", description=__doc__)
    for name, default in (("B", 1), ("S", 8192), ("heads", 64), ("groups", 4), ("dk", 192), ("dv", 128)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--dtype", choices=DTYPES, default="bf16")
    parser.add_argument("--device", help="default: the GPU if there is one")
    parser.add_argument("--backend", help="as if the call had asked for it")
    parser.add_argument("--grad", action="store_true", help="gradients are needed")
    parser.add_argument("--deterministic", action="store_true", help="gradients are to be bitwise repeatable")
    parser.add_argument("--packed", action="store_true", help="packed sequences")
    parser.add_argument("--json", action="store_true", help="JSON on stdout")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the explanation; 2 where an argument or a flag is not understood."""
    asked = parse(argv)
    try:
        found = explain_routing(
            NSAConfig(), batch=asked.B, tokens=asked.S, heads=asked.heads, kv_heads=asked.groups, dk=asked.dk,
            dv=asked.dv, dtype=DTYPES[asked.dtype], device=asked.device, packed=asked.packed, needs_grad=asked.grad,
            deterministic=asked.deterministic, backend=asked.backend,
        )  # fmt: skip
    except (ValueError, flags.FlagError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(json.dumps(found.as_json(), indent=2) if asked.json else found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
