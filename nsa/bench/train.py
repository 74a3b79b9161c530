"""Train a byte-level language model with sparse and with dense attention: loss, tokens in a second, memory.

Examples: python -m nsa.bench train
          python -m nsa.bench train --preset 100m --S_list 8192,32768,65536 --steps 300

A line for each attention and length. bf16 is autocast over fp32 weights. Ends with 1 where a run failed, and, where
there is a --target_loss, where the sparse model's loss on text that it has not seen is above that, or it generates
another text with its cache than without. 100m: 98 million parameters, 12 layers of width 768 with 16 query heads over
one KV head of 64 dimensions. The kernels take a token's heads of one KV head as the rows of a tile: 16 fill a tensor
core's tile, and one KV head keeps the choice of blocks, made for each, cheap.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from nsa import routing
from nsa.bench import options, rows, text
from nsa.bench.cases import Where
from nsa.models import ByteLM, LMConfig, generate
from nsa.models.lm import ATTENTIONS

PRESETS = {
    "small": {
        "B": 4, "dim": 64, "depth": 2, "hidden": 128, "heads": 4, "groups": 1, "dk": 16, "dv": 16, "l": 8, "d": 4,
        "l_sel": 16, "n_sel": 4, "w": 32, "phi": "mlp", "S_list": [256], "steps": 120, "rate": 5e-3, "threads": 1,
        "target_loss": 0.5,
    },
    "100m": {
        "dim": 768, "depth": 12, "hidden": 4096, "heads": 16, "groups": 1, "dk": 64, "dv": 64, "phi": "mean",
        "S_list": [8192, 32768, 65536], "steps": 300, "rate": 6e-4,
    },
}  # fmt: skip
"""Defaults of options."""

HELD_OUT = (-1, -2, -3, -4)
"""Seeds of the text that is never trained on."""

WARMUP = 3
"""Steps that are not timed: kernels are compiled, memory is taken."""

LAST = 10
"""Steps whose mean loss is told."""


@dataclass
class Run:
    """A model in training: in so many steps, each on a batch of texts of `length` bytes, at most with this rate."""

    config: LMConfig
    where: Where
    steps: int
    batch: int
    length: int
    rate: float
    step: int = 0

    def __post_init__(self) -> None:
        torch.manual_seed(self.where.seed)
        self.model = ByteLM(self.config).to(self.where.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), betas=(0.9, 0.95), weight_decay=0.01)

    def rate_at(self, step: int) -> float:
        """Rises over the first sixth, then falls to a tenth."""
        return self.rate * min(1.0, 6 * (step + 1) / self.steps) * (1 - 0.9 * step / self.steps)

    def loss(self, seed: int) -> Tensor:
        """Mean cross-entropy in nats for each byte of one batch."""
        device, dtype = self.where.device, self.where.dtype
        tokens = text.batch(seed, self.batch, self.length + 1).to(device)
        with nullcontext() if dtype == torch.float32 else torch.autocast(device.type, dtype=dtype):
            logits = self.model(tokens[:, :-1])
        return F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())

    def train(self, until: int) -> Iterator[float]:
        """The loss of each step up to that one."""
        while self.step < until:
            for group in self.optimizer.param_groups:
                group["lr"] = self.rate_at(self.step)
            loss = self.loss(self.step)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.step += 1
            yield loss.item()

    @torch.no_grad()
    def held_out(self) -> float:
        """The loss on text that no step sees."""
        return sum(self.loss(seed).item() for seed in HELD_OUT) / len(HELD_OUT)


# --- a run ---


def measured(run: Run, seconds: float) -> dict[str, Any]:
    """Train to the end, or until so many seconds of timed steps are over: what it took."""
    device, every = run.where.device, max(1, run.steps // 6)
    losses: list[float] = []
    times: list[float] = []
    with routing.record() as recording:
        losses += run.train(min(WARMUP, run.steps))
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    before = began = time.perf_counter()
    for loss in run.train(run.steps):  # which waits for the device at each step
        now = time.perf_counter()
        times.append(now - before)
        losses.append(loss)
        before = now
        if run.step % every == 0:
            print(f"{run.config.attention:<5} {run.length:>6}  step {run.step:>4}  loss {loss:.4f}", flush=True)
        if now - began > seconds:
            break
    step = statistics.median(times or [float("nan")])
    return {
        "parameters": sum(p.numel() for p in run.model.parameters()),
        "steps": run.step,
        "loss_first": losses[0],
        "loss": statistics.fmean(losses[-LAST:]),
        "ms_step": 1e3 * step,
        "tokens_per_s": run.batch * run.length / step,
        "peak_gb": torch.cuda.max_memory_allocated(device) / 1e9 if device.type == "cuda" else 0.0,
        "routes": {name: sorted(recording.backends(name)) for name in sorted({route.operation for route in recording})},
    }


def same_text(run: Run, length: int = 48) -> bool:
    """Whether the model continues unseen text alike with and without its cache."""
    prompt = text.batch(HELD_OUT[0], 2, run.length // 2).to(run.where.device)
    with_cache, without = (generate(run.model, prompt, length, use_cache=use) for use in (True, False))
    print(f"nsa   continues with {bytes(with_cache[0].tolist()).decode('utf-8', 'replace')!r}")
    return torch.equal(with_cache, without)


def line(config: LMConfig, length: int, where: Where, args: argparse.Namespace) -> dict[str, Any]:
    """One run, named, and what became of it."""
    facts: dict[str, Any] = {
        "attention": config.attention, "length": length, "batch": args.B, "dim": config.dim, "depth": config.depth,
        "heads": config.n_heads, "kv_heads": config.n_kv_heads, "dk": config.dk, "dv": config.dv,
    }  # fmt: skip
    try:
        run = Run(config, where, args.steps, args.B, length, args.rate)
        found = measured(run, args.seconds)
        if args.target_loss is not None:
            found |= {"held_out": run.held_out(), "target_loss": args.target_loss}
            found |= {"same_text": same_text(run)} if config.attention == "nsa" else {}
    except RuntimeError as error:  # out of memory, or no kernel for the shape
        found = {"failed": rows.sentence(error)}
    gc.collect()
    torch.cuda.empty_cache()
    return {**facts, **found, **rows.context(where.device, where.dtype)}


def reached(found: dict[str, Any]) -> bool:
    """Whether a run did what it owes."""
    if "failed" in found or "same_text" not in found:
        return "failed" not in found
    return bool(found["same_text"] and found["held_out"] <= found["target_loss"])


def told(found: dict[str, Any]) -> str:
    """A line in words."""
    name = f"{found['attention']:<5} {found['length']:>6}"
    if "failed" in found:
        return f"{name}  failed: {found['failed']}"
    said = [
        f"{name}  {found['steps']} steps, loss {found['loss_first']:.3f} -> {found['loss']:.3f}, "
        f"{found['tokens_per_s']:,.0f} tokens/s, {found['ms_step']:.1f} ms a step, {found['peak_gb']:.2f} GB",
        "; ".join(f"{step} on {' '.join(taken)}" for step, taken in found["routes"].items()),
    ]
    if "held_out" in found:
        said.append(f"held-out loss {found['held_out']:.4f} nats/byte")
    if "same_text" in found:
        said[-1] += f", {'at most' if found['held_out'] <= found['target_loss'] else 'ABOVE'} {found['target_loss']}"
        said.append(f"text with and without the cache: {'the same' if found['same_text'] else 'DIFFERENT'}")
    return f"\n{'':<14}".join(said)


# --- the command ---


def _parse(argv: list[str]) -> argparse.Namespace:
    to = options.parser("train", __doc__)
    to.add_argument("--preset", choices=PRESETS, default="small", help="sizes, each of which its option overrules")
    options.add_shape(to)
    options.add_where(to)
    to.add_argument("--depth", type=options.positive, help="layers")
    to.add_argument("--hidden", type=options.positive, help="units of a feed-forward layer")
    to.add_argument("--phi", help="compression: mean, weighted or mlp")
    to.add_argument("--attention", type=options.some_of(ATTENTIONS), default="nsa,dense", help="what is trained")
    to.add_argument("--S_list", "--length", type=options.integers, help="bytes of a sequence, with commas")
    to.add_argument("--steps", type=options.positive, help="optimizer steps")
    to.add_argument("--rate", type=float, help="highest learning rate")
    to.add_argument("--seconds", type=float, default=float("inf"), help="end a run after so long")
    to.add_argument("--target_loss", type=float, help="nats per byte that the sparse model must reach")
    to.add_argument("--jsonl", type=Path, default=None, help="write the lines there as JSON")
    to.set_defaults(**PRESETS[to.parse_known_args(argv)[0].preset])
    return to.parse_args(argv)


def _models(args: argparse.Namespace) -> list[LMConfig]:
    config = options.case_at(args, args.S_list[0]).config
    heads = {"n_heads": args.heads, "n_kv_heads": args.groups, "dk": args.dk, "dv": args.dv}
    sizes = {"dim": args.dim, "depth": args.depth, "hidden": args.hidden, "nsa": config, "phi": args.phi}
    return [LMConfig(attention=attention, **sizes, **heads) for attention in args.attention]


def main(argv: list[str]) -> int:
    args = _parse(argv)
    models, where = _models(args), options.where_of(args)
    print(rows.headline(where.device, where.dtype), flush=True)
    found = []
    for length, config in product(args.S_list, models):
        found.append(line(config, length, where, args))
        print(told(found[-1]), flush=True)
        rows.write(found, None, args.jsonl)
    return 0 if all(map(reached, found)) else 1
