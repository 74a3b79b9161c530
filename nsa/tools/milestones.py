"""`python -m nsa.milestones`: the milestones of the first validation reports, each executed once on this device.

M0 every branch equals the oracle; M1 FlashAttention-2 equals it too; M2 a layer learns; M3 a cached decode equals the
whole and reads what the formula says. One line each: `ok`, `WRONG`, or `not run` with the reason, which is no pass. The
exit code is 0 only if nothing is wrong.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

import torch

from nsa import NativeSparseAttention, NSAConfig, blocks, ops, reference, routing
from nsa.device import named_device
from nsa.providers.flash import Flash, provider
from nsa.tools.sanity import LIMITS, findings

CONFIG = NSAConfig(l=16, d=8, l_sel=16, n_sel=4, w=24)
TOKENS, STEPS, DIM = 90, 40, 32

Outcome = tuple[str, str]


def branches(device: torch.device) -> Outcome:
    """M0: every operation against the oracle, with gradients (`nsa.tools.sanity`)."""
    found = list(findings(device))
    wrong = [finding.name for finding in found if not finding.ok]
    worst = max(finding.error for finding in found)
    told = f"{len(found)} operations, largest error {worst:.1e} {' '.join(wrong)}"
    return "WRONG" if wrong else "ok", told.rstrip()


def flash(device: torch.device) -> Outcome:
    """M1: the window branch through FlashAttention-2 against the oracle."""
    found = provider()
    if not isinstance(found, Flash):
        return "not run", found
    q, k, v = (torch.randn(1, TOKENS, 4, 64, device=device, dtype=torch.bfloat16) for _ in range(3))
    with routing.record() as recording:
        o = ops.sliding_window_attention(q, k, v, CONFIG.w, backend="fa2", strict=True)
    expected = reference.sliding_window_attention(q.double(), k.double(), v.double(), CONFIG.w)
    error = float((o.double() - expected).abs().max())
    return ("ok" if error <= LIMITS[torch.bfloat16] else "WRONG"), f"{recording[-1]}, largest error {error:.1e}"


def learning(device: torch.device) -> Outcome:
    """M2: a layer learns to repeat its input, by plain gradient descent."""
    layer = NativeSparseAttention(DIM, 4, 2, CONFIG, phi="mlp").to(device)
    x = torch.randn(2, TOKENS, DIM, device=device)
    optimizer = torch.optim.Adam(layer.parameters(), lr=1e-2)
    losses = []
    for _ in range(STEPS):
        loss = (layer(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return ("ok" if losses[-1] < 0.5 * losses[0] else "WRONG"), f"loss {losses[0]:.3f} to {losses[-1]:.3f}"


@torch.no_grad()
def decoding(device: torch.device) -> Outcome:
    """M3: prefill and steps across block borders equal the whole; reads counted equal reads expected at each step."""
    layer = NativeSparseAttention(DIM, 4, 2, CONFIG).to(device)
    x = torch.randn(1, TOKENS, DIM, device=device)
    cache = layer.new_cache(1)
    parts = [layer(x[:, : TOKENS - STEPS], cache)]
    wrong_reads = 0
    for t in range(TOKENS - STEPS, TOKENS):
        parts.append(layer(x[:, t : t + 1], cache))
        assert cache.reads is not None  # after a step of one token there is a count
        wrong_reads += int(cache.reads[0]) != blocks.reads_expected(t, CONFIG)
    error = float((torch.cat(parts, 1) - layer(x)).abs().max())
    right = error <= LIMITS[torch.float32] and wrong_reads == 0
    told = f"{STEPS} steps, largest difference {error:.1e}, {wrong_reads} steps with other reads than expected"
    return ("ok" if right else "WRONG"), told


MILESTONES: dict[str, Callable[[torch.device], Outcome]] = {
    "M0 branches": branches,
    "M1 flash": flash,
    "M2 learning": learning,
    "M3 decoding": decoding,
}


NUMBERS = tuple(name.split()[0] for name in MILESTONES)


def _numbers(text: str) -> tuple[str, ...]:
    asked = tuple(text.split(","))
    if not set(asked) <= set(NUMBERS):
        raise argparse.ArgumentTypeError(f"expected some of {','.join(NUMBERS)}, got {text!r}")
    return asked


def main(argv: Sequence[str] | None = None) -> int:
    """Run all of them, or those that are asked for, on the GPU if there is one."""
    parser = argparse.ArgumentParser(prog="python -m nsa.milestones", description=__doc__)
    parser.add_argument("--only", type=_numbers, default=NUMBERS, help="such as M0,M2; default: all")
    only = parser.parse_args(argv).only
    torch.manual_seed(0)
    device = named_device(None)
    outcomes = {name: milestone(device) for name, milestone in MILESTONES.items() if name.split()[0] in only}
    for name, (status, told) in outcomes.items():
        print(f"{name:<12} {status:<8} {told}")
    wrong = [name for name, (status, _) in outcomes.items() if status == "WRONG"]
    print(f"milestones on {device.type}: {'WRONG ' + ', '.join(wrong) if wrong else 'nothing wrong'}")
    return 1 if wrong else 0
