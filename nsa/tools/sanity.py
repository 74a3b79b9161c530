"""`python -m nsa.sanity`: every branch runs once on this machine's device and is compared with the oracle.

One line for each operation: its route, the largest error of output and gradients against fp64, and the limit. The last
line is `sanity: OK`, and the exit code 0, only if all are within it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType

import torch
from torch import Tensor

from nsa import NSAConfig, blocks, ops, reference, routing
from nsa.device import named_device

LIMITS = {torch.float32: 1e-5, torch.bfloat16: 3e-2}
CONFIG = NSAConfig(l=32, d=16, l_sel=64, n_sel=3, w=70)
TOKENS, HEADS, KV_HEADS, DK, DV = 200, 4, 2, 32, 16


@dataclass(frozen=True)
class Finding:
    """One operation's route and its largest error, relative to values above 1."""

    name: str
    route: str
    error: float
    limit: float

    @property
    def ok(self) -> bool:
        return self.error <= self.limit

    def __str__(self) -> str:
        verdict = "ok" if self.ok else "WRONG"
        return f"{self.name:<11} {self.route:<28} max error {self.error:.2e} (limit {self.limit:.0e})  {verdict}"


def findings(device: torch.device) -> Iterator[Finding]:
    """Every operation on seeded inputs, in bf16 on a GPU and in fp32 on a CPU."""
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    random = torch.Generator().manual_seed(0)
    shapes = ((HEADS, DK), (KV_HEADS, DK), (KV_HEADS, DV), (HEADS, 3))
    made = [torch.randn(1, TOKENS, *shape, generator=random).to(device, dtype) for shape in shapes]
    q, k, v, gates = made[0], made[1], made[2], made[3].sigmoid()
    k_cmp, v_cmp = (reference.compress(x, CONFIG) for x in (k, v))
    chosen = reference.select_blocks(q.double(), k_cmp.double(), CONFIG)

    def compare(name: str, call: Callable[..., Tensor], *inputs: Tensor) -> Finding:
        with routing.record() as recording:
            actual = _with_gradients(call, ops, inputs)
        expected = _with_gradients(call, reference, tuple(x.double() for x in inputs))
        error = max(_error(a, e) for a, e in zip(actual, expected, strict=True))
        return Finding(name, "+".join(sorted({str(route) for route in recording})), error, LIMITS[dtype])

    yield compare("compress", lambda m, x: m.compress(x, CONFIG), k)
    yield compare("compressed", lambda m, q, k, v: m.compressed_attention(q, k, v, CONFIG)[0], q, k_cmp, v_cmp)
    yield _selection(q, k_cmp, LIMITS[dtype])
    yield compare("selected", lambda m, q, k, v: m.selected_attention(q, k, v, chosen, CONFIG), q, k, v)
    yield compare("window", lambda m, q, k, v: m.sliding_window_attention(q, k, v, CONFIG.w), q, k, v)
    yield compare(
        "attention",
        lambda m, q, k, v, gates: m.nsa_attention(q, k, v, gates, CONFIG, block_indices=chosen),
        q, k, v, gates,
    )  # fmt: skip


def _selection(q: Tensor, k_cmp: Tensor, limit: float) -> Finding:
    """The selection's error is the score lost against the oracle's choice, relative."""
    with routing.record() as recording:
        indices = ops.select_blocks(q, k_cmp, CONFIG)
    scores = reference.block_scores(q.double(), k_cmp.double(), CONFIG)
    positions = blocks.token_positions(1, TOKENS)
    return Finding("select", str(recording[-1]), reference.selection_regret(indices, scores, positions, CONFIG), limit)


def _with_gradients(call: Callable[..., Tensor], module: ModuleType, inputs: tuple[Tensor, ...]) -> list[Tensor]:
    """Output and gradients of `call(module, *inputs)`; `nsa.ops` and `nsa.reference` have the same functions."""
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    o = call(module, *leaves)
    return [o.detach(), *torch.autograd.grad(o.square().sum(), leaves)]


def _error(actual: Tensor, expected: Tensor) -> float:
    return float(((actual.double() - expected) / expected.abs().clamp(min=1)).abs().max())


def main(argv: Sequence[str] | None = None) -> int:
    """Run on the GPU in bf16 if there is one, else on the CPU in fp32; 2 where a flag cannot be understood or met."""
    argparse.ArgumentParser(prog="python -m nsa.sanity", description=__doc__).parse_args(argv)
    try:
        found = list(findings(named_device(None)))
    except (ValueError, routing.RoutingError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for finding in found:
        print(finding)
    bad = [finding.name for finding in found if not finding.ok]
    print(f"sanity: WRONG ({', '.join(bad)})" if bad else "sanity: OK")
    return 1 if bad else 0
