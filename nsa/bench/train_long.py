"""Train a model on long sequences with sparse and with dense attention: loss, tokens in a second, memory.

Example: python -m nsa.bench train --preset 100m --S_list 8192,32768,65536 --steps 300

One JSON line on stdout for each attention and length, progress on stderr. bf16 is autocast over fp32 weights. 100m: 98
million parameters, 12 layers of width 768 with 16 query heads over one KV head of 64 dimensions. The kernels take a
token's heads of one KV head as the rows of a tile: 16 fill a tensor core's tile, and one KV head keeps the choice of
blocks, made for each, cheap. Ends with 1 where a run failed.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from typing import Any

import torch

from nsa import routing
from nsa.bench import options, rows
from nsa.bench.train import Plan, Run, add_training, models_of
from nsa.models.lm import ATTENTIONS

PRESETS = {"100m": {"dim": 768, "depth": 12, "hidden": 4096, "heads": 16, "groups": 1, "dk": 64, "dv": 64}}
"""Defaults of the options that say how large the model is."""

WARMUP = 3
"""Steps that are not timed: kernels are compiled, memory is taken."""

LAST = 10
"""Steps whose mean loss is told."""


def measured(plan: Plan, seconds: float) -> dict[str, Any]:
    """Train as planned, or until so many seconds of timed steps are over: what it took."""
    device = plan.where.device
    run = Run(plan)
    losses: list[float] = []
    times: list[float] = []
    with routing.record() as recording:
        losses += run.train(min(WARMUP, plan.steps))
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    before = began = time.perf_counter()
    for loss in run.train(plan.steps):  # which waits for the device at each step
        now = time.perf_counter()
        times.append(now - before)
        losses.append(loss)
        before = now
        if now - began > seconds:
            break
    step = statistics.median(times or [float("nan")])
    return {
        "parameters": sum(p.numel() for p in run.model.parameters()),
        "steps": run.step,
        "loss_first": losses[0],
        "loss": statistics.fmean(losses[-LAST:]),
        "ms_step": 1e3 * step,
        "tokens_per_s": plan.batch * plan.length / step,
        "peak_gb": torch.cuda.max_memory_allocated(device) / 1e9 if device.type == "cuda" else 0.0,
        "routes": {name: sorted(recording.backends(name)) for name in sorted({route.operation for route in recording})},
    }


def line(plan: Plan, seconds: float) -> dict[str, Any]:
    """One run, named, and what became of it."""
    model = plan.model
    facts: dict[str, Any] = {
        "attention": model.attention, "length": plan.length, "batch": plan.batch, "dim": model.dim,
        "depth": model.depth, "heads": model.n_heads, "kv_heads": model.n_kv_heads, "dk": model.dk, "dv": model.dv,
        "checkpointing": plan.checkpointing,
    }  # fmt: skip
    try:
        found = measured(plan, seconds)
    except RuntimeError as error:  # out of memory, or no kernel for the shape
        found = {"failed": rows.sentence(error)}
    gc.collect()
    torch.cuda.empty_cache()
    return {**facts, **found, **rows.context(plan.where.device, plan.where.dtype)}


def _parse(argv: list[str]) -> argparse.Namespace:
    first = argparse.ArgumentParser(prog="python -m nsa.bench train", add_help=False)
    first.add_argument("--preset", choices=PRESETS, required=True, help="sizes, each of which its option overrules")
    preset = PRESETS[first.parse_known_args(argv)[0].preset]
    parser = options.parser("train", __doc__, parents=[first])
    options.add_shape(parser, **{name: size for name, size in preset.items() if name not in ("depth", "hidden")})
    options.add_where(parser)
    add_training(parser, depth=preset["depth"], steps=300, rate=6e-4)
    parser.add_argument(
        "--hidden", type=options.positive, default=preset["hidden"], help="units of a feed-forward layer"
    )
    parser.add_argument("--phi", default="mean", help="compression: mean, weighted or mlp")
    parser.add_argument(
        "--attention", type=options.some_of(ATTENTIONS), default="nsa,dense", help="what is trained, with commas"
    )
    parser.add_argument(
        "--S_list", type=options.integers, default="8192,32768,65536", help="bytes of a sequence, with commas"
    )
    parser.add_argument("--seconds", type=float, default=float("inf"), help="end a run after so long")
    parser.add_argument("--checkpointing", action="store_true", help="compute each layer again for its gradient")
    return parser.parse_args(argv)


def _plans(args: argparse.Namespace) -> list[Plan]:
    shape, where = options.shape_of(args), options.where_of(args)
    models = models_of(args, shape, args.attention, hidden=args.hidden, phi=args.phi)
    return [
        Plan(model, where, args.steps, shape.batch, length, args.rate, float("inf"), args.checkpointing)
        for length in args.S_list
        for model in models
    ]


def main(argv: list[str]) -> int:
    args = _parse(argv)
    plans = _plans(args)
    rows.say(rows.headline(plans[0].where.device, plans[0].where.dtype))
    found = []
    for plan in plans:
        found.append(line(plan, args.seconds))
        print(json.dumps(found[-1]), flush=True)
        rows.say(_told(found[-1]))
        rows.write(found, None, args.jsonl)
    return 1 if any("failed" in one for one in found) else 0


def _told(found: dict[str, Any]) -> str:
    name = f"{found['attention']:<5} {found['length']:>6}"
    if "failed" in found:
        return f"{name}  failed: {found['failed']}"
    return (
        f"{name}  {found['steps']} steps, loss {found['loss_first']:.3f} -> {found['loss']:.3f}, "
        f"{found['tokens_per_s']:,.0f} tokens/s, {found['ms_step']:.1f} ms a step, {found['peak_gb']:.2f} GB"
    )
