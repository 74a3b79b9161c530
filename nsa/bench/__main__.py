"""`python -m nsa.bench COMMAND [options]`; `python -m nsa.bench COMMAND --help` shows its options."""

from __future__ import annotations

import sys
from importlib import import_module

COMMANDS = {
    "decode": "one decode step and each branch alone, through a filled cache",
    "prefill": "the whole operation and each branch alone, against dense attention",
    "selection": "block selection and selected attention on every backend",
    "window": "window (--mode win) or compressed (--mode cmp) attention: FA-2 and the others against SDPA",
    "accuracy": "every operation and its gradients against the fp64 oracle, over many shapes",
    "autotune": "find launch configurations on this GPU and write them to the kernels' table",
    "host": "what a call costs the host: plain, planned, in a CUDA graph",
    "layer": "an attention layer and its parts, against a dense one, and others' that are named",
    "crossover": "from which length on sparse attention is faster than dense",
    "kernels": "each kernel against the best known implementations",
    "train": "a byte-level language model, sparse against dense",
    "summarize": "the table of a decode CSV",
}


def main(argv: list[str]) -> int:
    """Run a command; 2 for wrong usage."""
    if not argv or argv[0] not in COMMANDS:
        wanted = argv and argv[0] in ("-h", "--help")
        lines = [f"  {name:<10} {meaning}" for name, meaning in COMMANDS.items()]
        text = "\n".join(["usage: python -m nsa.bench COMMAND [options]", *lines])
        print(text, file=sys.stdout if wanted else sys.stderr)
        return 0 if wanted else 2
    module = import_module(f"nsa.bench.{argv[0]}")  # `kernels` imports Triton, `summarize` not even PyTorch
    try:
        return int(module.main(argv[1:]) or 0)
    except _refusals() as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _refusals() -> tuple[type[Exception], ...]:
    """What is said in a sentence; asked for where something is wrong, for it takes PyTorch."""
    from nsa.routing import RoutingError

    return ValueError, OSError, RoutingError


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
