"""Every operation of the library on one case, each beside the oracle."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from nsa import blocks, ops, reference, routing
from nsa.bench.accuracy_cases import HOLES
from nsa.bench.cases import Case, Where, inputs
from nsa.bench.judge import REGRET, Judgement, Operation, Outcome, judge, sampled_rows
from nsa.cache import NSACache
from nsa.device import DTYPES
from nsa.phi import MlpPhi, WeightedPhi

BASE = 1e4
"""Of the rotary embedding."""

MLP = 64
"""Hidden units of the compression by an MLP."""

COMPRESSIONS = ("compress", "compress weighted", "compress mlp")
Row = dict[str, object]


class Problem:
    """The tensors of a case, and what its operations take from each other: compressed keys and values, blocks."""

    def __init__(self, case: Case, device: torch.device, seed: int, rows: int, backend: str) -> None:
        self.case, self.device, self.seed = case, device, seed
        self.x = inputs(case, Where(device, DTYPES[case.dtype], seed))
        del self.x["do"]  # what is judged draws its own
        self.rows = sampled_rows(case.tokens, rows, seed).to(device)
        self.where = {"cu_seqlens": case.cu_seqlens(device), "q_start": case.q_start(device)}
        self.how = {"backend": routing.per_operation(backend), "strict": True}
        with torch.no_grad():
            self.k_cmp, self.v_cmp = (
                ops.compress(self.x[name], case.config, cu_seqlens=self.where["cu_seqlens"], **self.how)
                for name in "kv"
            )
            self.chosen = ops.select_blocks(self.x["q"], self.k_cmp, case.config, **self.where, **self.how)
        self.indices = self.chosen.clone()
        if case.holes:
            self.indices[:, HOLES - 1 :: HOLES] = -1

    def operations(self) -> Iterator[Operation]:
        """All that have gradients."""
        case, x, config, where = self.case, self.x, self.case.config, self.where
        at = blocks.token_positions(*x["q"].shape[:2], **where).to(self.device)
        compress = partial(self.compress, config=config, cu_seqlens=where["cu_seqlens"])
        yield self.beside("rotate", "rotate", {"x": x["q"]}, at, BASE, whole=True)
        yield compress("compress", None, {})
        yield compress("compress weighted", WeightedPhi, self.parameters(config.l))
        yield compress("compress mlp", MlpPhi, self.parameters(config.l, MLP))
        cmp, own = ({"q": x["q"], "k": k, "v": v} for k, v in ((self.k_cmp, self.v_cmp), (x["k"], x["v"])))
        yield self.beside("compressed", "compressed_attention", cmp, config, **where)
        yield self.beside("selected", "selected_attention", own, self.indices, config, **where)
        yield self.beside("window", "sliding_window_attention", own, config.w, **where)
        generator = torch.Generator(self.device).manual_seed(self.seed + 1)
        shape = (*x["q"].shape[:3], case.dv)
        branches = (torch.randn(shape, device=self.device, generator=generator).to(x["q"].dtype) for _ in range(3))
        yield Operation(
            "combine",
            {**dict(zip(("o_cmp", "o_sel", "o_win"), branches, strict=True)), "gates": x["gates"]},
            lambda **t: ops.gated_combine(**t, **self.how),
            lambda rows, **t: reference.gated_combine(**{name: y[:, rows] for name, y in t.items()}),
        )
        # with the case's blocks: the choice is judged by itself, near-ties shall decide nothing
        yield self.beside("attention", "nsa_attention", x, config, block_indices=self.indices, **where)

    def beside(
        self, name: str, function: str, leaves: dict[str, Tensor], *rest: object, whole: bool = False, **named: Any
    ) -> Operation:
        """A function of leaves and more beside the oracle's, which computes the judged rows alone unless `whole`."""
        ours, oracle = getattr(ops, function), getattr(reference, function)

        def judged(rows: Tensor, **t: Tensor) -> Tensor | tuple[Tensor, ...]:
            given = (*t.values(), *rest)
            return oracle(*given, **named)[:, rows] if whole else oracle(*given, **named, rows=rows)

        return Operation(name, leaves, lambda **t: ours(*t.values(), *rest, **named, **self.how), judged)

    def compress(
        self, name: str, kind: type[WeightedPhi] | type[MlpPhi] | None, phi: dict[str, Tensor], **named: Any
    ) -> Operation:
        """Of the case's keys, by a map of this kind."""
        return Operation(
            name,
            {"x": self.x["k"], **phi},
            lambda x, **t: ops.compress(x, phi=kind and kind(**t), **named, **self.how),
            lambda x, rows, **t: reference.compress(x, phi=kind and kind(**t), **named)[:, rows],
        )

    def parameters(self, span: int, hidden: int | None = None) -> dict[str, Tensor]:
        """Those of a weighted sum, or with hidden units of an MLP, whose results are as large as what they are of."""
        heads, dim = self.case.kv_heads, self.case.dk
        if hidden is None:
            shapes = {"weight": (heads, span)}
        else:
            flat = heads, span * dim, hidden
            shapes = {"position": (heads, span, dim), "w_in": flat, "b_in": (heads, hidden)}
            shapes |= {"w_out": (heads, hidden, dim), "b_out": (heads, dim)}
        generator = torch.Generator(self.device).manual_seed(self.seed + 2)
        return {
            name: (torch.randn(shape, device=self.device, generator=generator) * shape[1] ** -0.5).to(self.x["k"].dtype)
            for name, shape in shapes.items()
        }

    # --- what is judged otherwise ---

    def selection(self) -> float:
        """The regret of the chosen blocks by the oracle's scores of the same compressed keys; infinite if unlawful."""
        at = blocks.token_positions(*self.x["q"].shape[:2], **self.where).to(self.device)[:, self.rows]
        scores = reference.block_scores(
            self.x["q"].double(), self.k_cmp.double(), self.case.config, **self.where, rows=self.rows
        )
        return reference.selection_regret(self.chosen[:, self.rows], scores, at, self.case.config)

    def decode(self) -> Operation:
        """A step after the case's keys, of its last query."""
        case, (k, v) = self.case, (self.x["k"], self.x["v"])
        cache = NSACache(
            case.config, case.batch, case.kv_heads, case.dk, case.dv,
            capacity=case.keys, dtype=k.dtype, device=self.device,
        )  # fmt: skip
        cache.append(k, v)
        last = {name: self.x[name][:, -1:] for name in ("q", "gates")}
        o, indices = ops.cached_attention(**last, cache=cache, **self.how)
        where = {"q_start": torch.full((case.batch,), case.keys - 1), "block_indices": indices}
        return Operation(
            "decode",
            {**last, "k": k, "v": v},
            lambda **t: o,
            lambda rows, **t: reference.nsa_attention(**t, config=case.config, **where),
            gradients=False,
        )

    def differing_runs(self, runs: int) -> int:
        """How many of `runs` calls with deterministic=True differ in a bit from the first: output and gradients."""
        leaves = {name: x.clone().requires_grad_() for name, x in self.x.items()}
        how = {"config": self.case.config, "deterministic": True, **self.where, **self.how}
        upstream = torch.randn_like(self.x["q"][..., :1]).expand(*self.x["q"].shape[:3], self.case.dv)

        def run() -> Outcome:
            o = ops.nsa_attention(**leaves, **how)
            grads = torch.autograd.grad(o, list(leaves.values()), upstream)
            return {"o": o.detach(), **dict(zip(leaves, grads, strict=True))}

        first = run()
        return sum(any(not torch.equal(x, first[name]) for name, x in run().items()) for _ in range(runs - 1))


def judged(case: Case, device: torch.device, seed: int, rows: int, repeats: int, backend: str) -> Iterator[Row]:
    """One row for each operation of the case."""
    problem = Problem(case, device, seed, rows, backend)
    for operation in problem.operations():
        with routing.record() as recording:
            at = torch.arange(problem.k_cmp.shape[1], device=device) if operation.name in COMPRESSIONS else problem.rows
            found = judge(operation, at, seed)
        yield {"case": case.name, "op": operation.name, "by": _by(recording), **_facts(found)}
    regret = problem.selection()
    yield {"case": case.name, "op": "select", "by": backend, "regret": regret, "passed": regret <= REGRET}
    if case.lengths is None and case.starts is None:
        with routing.record() as recording:
            step = problem.decode()
        found = judge(step, torch.zeros(1, dtype=torch.int64, device=device), seed)
        yield {"case": case.name, "op": "decode", "by": _by(recording), **_facts(found)}
    differing = problem.differing_runs(repeats)
    yield {
        "case": case.name, "op": "deterministic", "by": backend,
        "runs": repeats, "differing": differing, "passed": differing == 0,
    }  # fmt: skip


def _by(recording: routing.Recording) -> str:
    """The routes that ran, which prove what was judged."""
    return ",".join(sorted({str(route) for route in recording}))


def _facts(found: Judgement) -> Row:
    worst = found.worst
    return {
        "worst": worst, "error": found.errors[worst], "plain": found.plain[worst],
        "errors": found.errors, "plains": found.plain, "finite": found.finite, "zeros": found.zeros,
        "passed": found.passed,
    }  # fmt: skip
