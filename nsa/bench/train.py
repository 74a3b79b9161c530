"""Train a byte-level language model with sparse and with dense attention, side by side.

Half-way each run is written to a checkpoint and goes on in a new model that is read from it. Ends with 1 where the
sparse model's loss on text that it has not seen is above --target_loss, or where it generates another text with its
cache than without. With --preset 100m it trains larger models on long sequences instead (see its --help).
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from nsa import routing
from nsa.bench import options, rows, text
from nsa.models import ByteLM, LMConfig, generate

AGAIN = partial(checkpoint, use_reentrant=False)
"""Computes a layer again for its gradient."""

HELD_OUT = (-1, -2, -3, -4)
"""Seeds of the text that is never trained on."""


@dataclass(frozen=True)
class Plan:
    """How a model is trained."""

    model: LMConfig
    where: options.Where
    steps: int
    batch: int
    length: int
    rate: float
    target_loss: float
    checkpointing: bool = False

    def rate_at(self, step: int) -> float:
        """Rises over the first sixth, then falls to a tenth."""
        return self.rate * min(1.0, 6 * (step + 1) / self.steps) * (1 - 0.9 * step / self.steps)

    def schedule(self) -> str:
        """What two runs must share for one to go on with the other's checkpoint."""
        return repr((self.model, self.steps, self.batch, self.length, self.rate, self.where.seed))

    def autocast(self) -> AbstractContextManager[Any]:
        """Low-precision arithmetic on fp32 weights, where asked for."""
        if self.where.dtype == torch.float32:
            return nullcontext()
        return torch.autocast(self.where.device.type, dtype=self.where.dtype)


@dataclass
class Run:
    """A model in training; everything that a checkpoint holds."""

    plan: Plan
    step: int = 0
    model: ByteLM = field(init=False)
    optimizer: torch.optim.Optimizer = field(init=False)

    def __post_init__(self) -> None:
        torch.manual_seed(self.plan.where.seed)
        self.model = ByteLM(self.plan.model).to(self.plan.where.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), betas=(0.9, 0.95), weight_decay=0.01)

    def loss(self, seed: int) -> Tensor:
        """Mean cross-entropy in nats for each byte of one batch."""
        plan = self.plan
        tokens = text.batch(seed, plan.batch, plan.length + 1).to(plan.where.device)
        with plan.autocast():
            logits = self.model(tokens[:, :-1], checkpoint=AGAIN if plan.checkpointing else None)
        return F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())

    def train(self, until: int) -> Iterator[float]:
        """The loss of each step up to that one."""
        while self.step < until:
            for group in self.optimizer.param_groups:
                group["lr"] = self.plan.rate_at(self.step)
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

    def save(self, path: Path) -> None:
        """Write a checkpoint; a reader sees the old file or the whole new one."""
        state = {
            "schedule": self.plan.schedule(),
            "step": self.step,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }
        aside = path.with_suffix(".part")
        torch.save(state, aside)
        aside.replace(path)

    def load(self, path: Path) -> None:
        """Go on where the checkpoint was written.

        Raises:
            ValueError: it belongs to another model or schedule.
        """
        state = torch.load(path, map_location=self.plan.where.device, weights_only=True)
        if state["schedule"] != self.plan.schedule():
            raise ValueError(f"{path} is of another model or schedule: {state['schedule']}")
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step = state["step"]


Log = Callable[..., None]


def logged(file: TextIO | None, sentence: str, **facts: Any) -> None:
    """A line for people on stdout, its facts as a JSON line in the file if there is one."""
    print(sentence, flush=True)
    if file is not None and facts:
        print(json.dumps(facts), file=file, flush=True)


def train(plan: Plan, path: Path, log: Log) -> Run:
    """Train to the end: on from the checkpoint if there is one, and through it half-way."""
    name, run = plan.model.attention, Run(plan)
    if path.exists():
        run.load(path)
        log(f"{name:<5} step {run.step:>4}  resumed from {path.name}", attention=name, resumed=run.step)
    half = plan.steps // 2
    if run.step < half:
        _stretch(run, half, log)
        run.save(path)
        run = Run(plan)
        run.load(path)
        log(f"{name:<5} step {run.step:>4}  checkpoint written, resumed in a new model", attention=name, resumed=half)
    _stretch(run, plan.steps, log)
    run.save(path)
    return run


def _stretch(run: Run, until: int, log: Log) -> None:
    name, start = run.plan.model.attention, time.perf_counter()
    every, first = max(1, run.plan.steps // 6), run.step
    for loss in run.train(until):
        if run.step == 1 or run.step % every == 0:
            seconds = time.perf_counter() - start
            rate = (run.step - first) * run.plan.batch * run.plan.length / seconds
            log(
                f"{name:<5} step {run.step:>4}  loss {loss:.4f}  {rate:,.0f} bytes/s",
                attention=name, step=run.step, loss=loss, bytes_per_s=rate,
            )  # fmt: skip


def same_text(run: Run, log: Log, length: int = 48) -> bool:
    """Whether the model continues unseen text alike with and without its cache."""
    prompt = text.batch(HELD_OUT[0], 2, run.plan.length // 2).to(run.plan.where.device)
    with_cache, without = (generate(run.model, prompt, length, use_cache=use) for use in (True, False))
    same = torch.equal(with_cache, without)
    shown = bytes(with_cache[0].tolist()).decode("utf-8", "replace")
    log(f"nsa   continues with {shown!r}")
    log(f"nsa   {length} bytes with and without the cache: {'the same' if same else 'DIFFERENT'}", same_text=same)
    return same


def showcase(plans: list[Plan], directory: Path, log: Log) -> bool:
    """Train each plan; whether the sparse model did what it owes."""
    where, target = plans[0].where, plans[0].target_loss
    log(rows.headline(where.device, where.dtype))
    runs = {plan.model.attention: _trained(plan, directory, log) for plan in plans}
    losses = {name: run.held_out() for name, run in runs.items()}
    same = same_text(runs["nsa"], log)
    reached = losses["nsa"] <= target
    shown = ", ".join(f"{name} {loss:.4f}" for name, loss in losses.items())
    log(
        f"held-out loss, nats/byte: {shown}; nsa is {'at most' if reached else 'ABOVE'} {target}",
        **losses, target_loss=target,
    )  # fmt: skip
    return same and reached


def _trained(plan: Plan, directory: Path, log: Log) -> Run:
    """A trained run, with one line about what it took and what ran."""
    name, start = plan.model.attention, time.perf_counter()
    with routing.record() as recording:
        run = train(plan, directory / f"{name}.pt", log)
    routes = {step: sorted(recording.backends(step)) for step in ("compressed", "selected", "window")}
    facts: dict[str, Any] = {
        "attention": name,
        "steps": plan.steps,
        "seconds": time.perf_counter() - start,
        "parameters": sum(p.numel() for p in run.model.parameters()),
        "routes": {step: taken for step, taken in routes.items() if taken},
        **rows.context(plan.where.device, plan.where.dtype),
    }
    ran = "; ".join(f"{step} on {' '.join(taken)}" for step, taken in facts["routes"].items())
    size = f"{facts['parameters']:,} parameters"
    log(f"{name:<5} {plan.steps} steps in {facts['seconds']:.1f} s, {size}{'; ' + ran if ran else ''}", **facts)
    return run


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = options.parser("train", __doc__)
    options.add_shape(parser, B=4, dim=64, heads=4, groups=1, dk=16, dv=16, l=8, d=4, l_sel=16, n_sel=4, w=32)
    options.add_where(parser, threads=1)
    add_training(parser, depth=2, steps=120, rate=5e-3)
    parser.add_argument("--length", type=options.positive, default=256, help="bytes of a training sequence")
    parser.add_argument("--target_loss", type=float, default=0.5, help="nats per byte that the sparse model must reach")
    parser.add_argument("--checkpoint", type=Path, default=None, help="directory to resume from; default: a new one")
    return parser.parse_args(argv)


def add_training(to: argparse.ArgumentParser, depth: int, steps: int, rate: float) -> None:
    """--depth --steps --rate --jsonl"""
    to.add_argument("--depth", type=options.positive, default=depth, help="layers")
    to.add_argument("--steps", type=options.positive, default=steps, help="optimizer steps")
    to.add_argument("--rate", type=float, default=rate, help="highest learning rate")
    to.add_argument("--jsonl", type=Path, default=None, help="write JSON lines there too")


def _plans(args: argparse.Namespace) -> list[Plan]:
    shape, where = options.shape_of(args), options.where_of(args)
    models = models_of(args, shape, ("nsa", "dense"), hidden=2 * shape.dim)
    return [Plan(model, where, args.steps, shape.batch, args.length, args.rate, args.target_loss) for model in models]


def models_of(
    args: argparse.Namespace, shape: options.Shape, attentions: Sequence[str], **others: Any
) -> list[LMConfig]:
    """The model that was asked for, with each of these attentions."""
    heads = {"n_heads": shape.heads, "n_kv_heads": shape.kv_heads, "dk": shape.dk, "dv": shape.dv}
    sizes = {"dim": shape.dim, "depth": args.depth, "nsa": shape.config, **heads, **others}
    return [LMConfig(attention=attention, **sizes) for attention in attentions]


def main(argv: list[str]) -> int:
    if any(argument.startswith("--preset") for argument in argv):
        from nsa.bench import train_long

        return train_long.main(argv)
    args = _parse(argv)
    with ExitStack() as stack:
        directory = args.checkpoint or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        directory.mkdir(parents=True, exist_ok=True)
        file = stack.enter_context(args.jsonl.open("w")) if args.jsonl else None
        return 0 if showcase(_plans(args), directory, partial(logged, file)) else 1
