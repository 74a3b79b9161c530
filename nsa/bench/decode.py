"""One decode step of a NativeSparseAttention layer at each length S, and each branch alone on the same frozen cache.

The cache is filled by a real prefill of S-1 tokens; every repetition appends token S and is undone before the next.
cmp is compressed attention with the choice of blocks, sel is attention to blocks chosen before, win the window. Ends
with 1 where the rows contradict themselves.
"""

from __future__ import annotations

from argparse import Namespace
from functools import partial

import torch
from torch import Tensor

from nsa import blocks, ops, routing
from nsa.bench import options, rows
from nsa.bench.cases import Case, Where
from nsa.bench.layer import ours
from nsa.bench.roofline import Work, clocks
from nsa.bench.summarize import problems, summary
from nsa.bench.timing import Timing, branch_columns, measure
from nsa.config import BRANCHES

COLUMNS = ("S", "ms_total", "ms_total_iqr", *(f"ms_{name}" for name in BRANCHES), "wall_ms", "host_bound")
PREFILL = 4096
"""Tokens of a prefill chunk."""


class Steps:
    """A layer whose cache holds S tokens, and the step that appended the last of them."""

    def __init__(self, case: Case, where: Where) -> None:
        torch.manual_seed(where.seed)
        self.case, length = case, case.tokens
        self.layer = ours(case, where)
        tokens = torch.randn(case.batch, length, case.dim, device=where.device).to(where.dtype)
        self.cache = self.layer.new_cache(case.batch, length)
        for first in range(0, length - 1, PREFILL):
            self.layer(tokens[:, first : min(first + PREFILL, length - 1)], self.cache)
        self.last = tokens[:, -1:]
        self.counted: list[Tensor] = []
        self.step()

    def step(self) -> Tensor:
        return self.layer(self.last, self.cache)

    def again(self) -> None:
        """Remember what the step read, and undo it."""
        if self.cache.reads is not None:
            self.counted.append(self.cache.reads)
        self.cache.undo()

    def expected_reads(self) -> int:
        """Key rows of one step, by the formula."""
        return self.case.batch * blocks.reads_expected(self.case.tokens - 1, self.case.config)

    def work(self) -> Work:
        """What a step must read at least: its keys and values, and the layer's weights."""
        row = (self.case.dk + self.case.dv) * self.case.kv_heads
        weights = sum(p.numel() for p in self.layer.parameters())
        return Work((int(self.counted[-1].sum()) * row + weights) * self.last.element_size())


@torch.inference_mode()
def run(args: Namespace, case: Case, where: Where) -> list[rows.Row]:
    """The facts of one length."""
    steps = Steps(case, where)
    timed = partial(measure, device=where.device, iters=args.iters, warmup=args.warmup)
    with routing.record() as recording:
        total = timed(steps.step, reset=steps.again)
    row = {
        **branch_columns(total, _branches(steps, timed)), **_reads(steps), **clocks(total, where, steps.work()),
        "route": " ".join(sorted(recording.backends("decode"))),
    }  # fmt: skip
    return [row]


def _branches(steps: Steps, timed: partial[Timing]) -> dict[str, Timing]:
    """Each branch alone: the cache holds the last token, and nothing changes it."""
    q, _, _, gates = steps.layer.project(steps.last, steps.cache.lengths[:, None] - 1)
    _, chosen = ops.cached_attention(q, gates, steps.cache)
    given = {"cmp": None, "sel": chosen, "win": chosen}
    return {
        name: timed(partial(ops.cached_attention, q, gates, steps.cache, branches=(name,), block_indices=given[name]))
        for name in BRANCHES
    }


def _reads(steps: Steps) -> rows.Row:
    """Of one step over all sequences, and of all steps that were made."""
    expected, counted = steps.expected_reads(), torch.stack(steps.counted)
    return {
        "reads_actual": int(counted[-1].sum()),
        "reads_expected": expected,
        "reads_total_actual": int(counted.sum()),
        "reads_total_expected": expected * len(counted),
    }


OLD = "accepted for old command lines: every branch is timed alone (forced gates re-timed the whole step)"


def main(argv: list[str]) -> int:
    to = options.by_length("decode", __doc__)
    to.add_argument("--branch_force_mode", choices=("alone", "env", "gate"), default="alone", help=OLD)
    found = options.measured(to.parse_args(argv), run, COLUMNS)
    as_text = [{name: str(value) for name, value in row.items()} for row in found]
    print(summary(as_text))
    return 1 if problems(as_text) else 0
