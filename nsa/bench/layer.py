"""A whole attention layer at each length: ours, dense attention with the same projections and RoPE, and others'.

Example: python -m nsa.bench layer --dim 2048 --heads 64 --kv-heads 4 --dk 128 --dv 128 --S_list 8192,65536

`fwd` is without gradients, `fwd+bwd` with those of the input and of all parameters, `peak_gb` what a call takes beyond
what is there. The parts of ours are timed alone, each with its backward: projection, rope (q and the selected and
window keys), compression, op, output. The mean is a part of the op too: its own row is what the op saves.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from nsa import NativeSparseAttention, nsa_attention, ops, routing
from nsa.bench import options, peers, rows
from nsa.bench.cases import Case, Where
from nsa.bench.kernels_parts import SDPA, kernel_of
from nsa.bench.peers import BASE
from nsa.bench.timing import measure, peak_bytes, with_gradients
from nsa.layer import COMPRESSIONS
from nsa.models.dense import DenseAttention

STEPS = ("rotate", "compress", "compressed", "select", "selected", "window")
"""The operations whose routes a row names."""
DENSE = tuple(by.replace("sdpa", "dense") for by in SDPA)


@dataclass(frozen=True)
class Part:
    """Something that is timed: whose it is, which part (`layer` is the whole), and a call of leaves, which get
    gradients beside `parameters`.
    """

    by: str
    part: str
    call: Callable[..., Any]
    leaves: tuple[Tensor, ...]
    parameters: tuple[nn.Parameter, ...] = ()

    def passes(self) -> dict[str, Callable[[], Any]]:
        """What is timed, by name."""
        both = with_gradients(self.call, self.leaves, self.parameters)
        return {"fwd": torch.no_grad()(partial(self.call, *self.leaves)), "fwd+bwd": both}


# --- what is timed ---


def ours(case: Case, where: Where, phi: str = "mean") -> NativeSparseAttention:
    return NativeSparseAttention(
        case.dim, case.heads, case.kv_heads, case.config, dk=case.dk, dv=case.dv, phi=phi, rope_base=BASE
    ).to(where.device, where.dtype)


def contender(by: str, case: Case, where: Where, x: Tensor) -> Part:
    """A layer of others, or dense attention by one of PyTorch's kernels."""
    if by in peers.LAYERS:
        layer, call = peers.LAYERS[by][0](case, where)
        return Part(by, "layer", call, (x,), tuple(layer.parameters()))
    layer = DenseAttention(case.dim, case.heads, case.kv_heads, case.dk, case.dv, BASE).to(where.device, x.dtype)

    def dense(x: Tensor) -> Any:
        with kernel_of(by.replace("dense", "sdpa")):
            return layer(x)

    return Part(by, "layer", dense, (x,), tuple(layer.parameters()))


def parts(by: str, layer: NativeSparseAttention, x: Tensor) -> Iterator[Part]:
    """Our layer, whole and part by part on what the parts before it give."""
    config, heads, own = layer.config, layer.n_kv_heads, tuple(layer.parameters())
    at = torch.arange(x.shape[1], device=x.device)[None]
    yield Part(by, "layer", layer, (x,), own)

    def project(x: Tensor) -> tuple[Tensor, ...]:
        return layer.to_q(x), layer.to_k(x), layer.to_v(x), layer.gates(x)

    def branches(projected: Tensor, dim: int) -> tuple[Tensor, ...]:
        return projected.unflatten(-1, (3, heads, dim)).unbind(2)

    def rope(q: Tensor, k: Tensor) -> tuple[Tensor, ...]:
        _, k_sel, k_win = branches(k, layer.dk)
        return tuple(ops.rotate(y, at, BASE) for y in (q.unflatten(-1, (-1, layer.dk)), k_sel, k_win))

    def compression(k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        k_cmp, v_cmp = (
            ops.compress(branches(y, dim)[0], config, phi=learned and learned.phi(y.dtype))
            for y, dim, learned in ((k, layer.dk, layer.compress_k), (v, layer.dv, layer.compress_v))
        )
        return ops.rotate(k_cmp, at[:, : k_cmp.shape[1]] * config.d, BASE), v_cmp

    def op(q: Tensor, k: Tensor, k_sel: Tensor, k_win: Tensor, v: Tensor, gates: Tensor, *compressed: Tensor) -> Tensor:
        keys = branches(k, layer.dk)[0], k_sel, k_win
        o = nsa_attention(
            q, keys, branches(v, layer.dv), gates, config, compressed=compressed or None,
            compressed_rope=None if compressed else BASE,
        )  # fmt: skip
        assert isinstance(o, Tensor)
        return o

    with torch.no_grad():
        q, k, v, gates = project(x)
        turned = rope(q, k)
        means = compression(k, v) if layer.compress_k is not None else ()
        o = op(turned[0], k, *turned[1:], v, gates, *means)
    projections = (layer.to_q, layer.to_k, layer.to_v, layer.to_gates)
    maps = (layer.compress_k, layer.compress_v)
    yield Part(by, "projection", project, (x,), _parameters(projections))
    yield Part(by, "rope", rope, (q, k))
    yield Part(by, "compression", compression, (k, v), _parameters(maps))
    yield Part(by, "op", op, (turned[0], k, *turned[1:], v, gates, *means))
    yield Part(by, "output", lambda o: layer.to_out(o.flatten(2)), (o,), tuple(layer.to_out.parameters()))


def _parameters(modules: tuple[nn.Module | None, ...]) -> tuple[nn.Parameter, ...]:
    return tuple(p for module in modules if module is not None for p in module.parameters())


# --- rows ---


def run(args: Namespace, case: Case, where: Where) -> list[rows.Row]:
    """The facts of one length; a sentence for each contender that failed."""
    torch.manual_seed(where.seed)
    x = torch.randn(case.batch, case.tokens, case.dim, device=where.device, dtype=where.dtype)
    found: list[rows.Row] = []
    for phi in args.phi:
        for part in parts("nsa" if phi == "mean" else f"nsa-{phi}", ours(case, where, phi), x):
            found += _rows(part, case, where, args)
    for by in [*(DENSE if where.device.type == "cuda" else ["dense"]), *args.peer]:
        try:
            found += _rows(contender(by, case, where, x), case, where, args)
        except (RuntimeError, ValueError, TypeError, AssertionError, ImportError) as error:  # others' own kinds
            print(f"failed: S={case.tokens} {by}: {rows.sentence(error)}", flush=True)
    for name in ("fwd", "fwd+bwd"):
        of_pass = [row for row in found if row["pass"] == name and row["part"] == "layer"]
        dense = [row["ms"] for row in of_pass if str(row["by"]).startswith("dense")]
        for row in of_pass if dense else ():
            row["speedup_over_dense"] = min(dense) / row["ms"]  # type: ignore[operator]
    torch.cuda.empty_cache()
    return found


def _rows(part: Part, case: Case, where: Where, args: Namespace) -> Iterator[rows.Row]:
    passes = part.passes()
    with routing.record() as recording:
        passes["fwd"]()
    for name, call in passes.items():
        timing = measure(call, where.device, iters=args.iters, warmup=args.warmup)
        print(f"S={case.tokens} {part.by} {part.part} {name}: {timing.ms:.3f} ms", flush=True)
        yield {
            "by": part.by, "part": part.part, "pass": name, **timing.columns(), "wall_ms": timing.wall_ms,
            "peak_gb": peak_bytes(call, where.device) / 1e9, "speedup_over_dense": "",
            **{f"route_{step}": " ".join(sorted(recording.backends(step))) for step in STEPS},
        }  # fmt: skip


def main(argv: list[str]) -> int:
    usual = {"dim": 2048, "heads": 64, "groups": 4, "dk": 128, "dv": 128, "iters": 10, "warmup": 3}
    to = options.by_length("layer", __doc__, "8192,16384,32768,65536", **usual)
    to.add_argument("--phi", type=options.some_of(COMPRESSIONS), default="mean", help="compressions of ours")
    peer = f"also time one of {', '.join(peers.LAYERS)}"
    to.add_argument("--peer", type=peers.named, action="append", default=[], metavar="NAME=PATH", help=peer)
    args = to.parse_args(argv)
    shown = ("S", "by", "part", "pass", "ms", "ms_iqr", "wall_ms", "peak_gb", "speedup_over_dense")
    options.measured(args, run, shown)
    for name in args.peer:
        print(f"{name}: {peers.LAYERS[name][1]}")
    return 0
