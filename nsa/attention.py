"""The whole operation: one fused function where a backend has it, else the branches composed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nsa import blocks, host, library, routing
from nsa.checks import Triple
from nsa.config import NSAConfig
from nsa.library import Arguments
from nsa.operations import BORDERS, OPERATIONS, Operation, attention_shapes
from nsa.plans import Plan, capturing, layout, sharing
from nsa.routing import Request, registry

GIVEN = ("q", "k", "v", "gates", "compressed", "cu_seqlens", "cu_seqlens_k", "q_start", "block_indices")
"""What a plan takes in each call."""


class Call(NamedTuple):
    """A call whose arguments go together.

    Attributes:
        request: its facts.
        q, gates: [B,T,Hq,Dk], [B,T,Hq,3].
        k, v: of the branches (cmp, sel, win).
        config, compressed, compressed_rope, scale, block_indices: as given.
        where: cu_seqlens, cu_seqlens_k and q_start as given.
    """

    request: Request
    q: Tensor
    k: Triple
    v: Triple
    gates: Tensor
    config: NSAConfig
    compressed: tuple[Tensor, Tensor] | None
    compressed_rope: float | None
    scale: float
    where: tuple[Tensor | None, Tensor | None, Tensor | None]
    block_indices: Tensor | None

    @classmethod
    def of(cls, plan: Plan, x: Arguments) -> Call:
        """The call of a plan's kind with these arguments."""
        k, v = ((y, y, y) if isinstance(y, Tensor) else tuple(y) for y in (x["k"], x["v"]))
        return cls(
            plan.request, x["q"], k, v, x["gates"], x["config"],  # type: ignore[arg-type]
            x["compressed"], x["compressed_rope"], plan.scale,
            (x["cu_seqlens"], x["cu_seqlens_k"], x["q_start"]), x["block_indices"],
        )  # fmt: skip


class Attention(Operation):
    """`nsa.nsa_attention`. Its results are o, then the lse of each branch, then what is kept beside them: o of each
    branch, and the blocks where they are chosen here.
    """

    def decided(self, request: Request, x: Arguments) -> routing.Decision | None:
        return routing.decided(request, routing.per_operation(x["backend"]), x["strict"])

    def map_of(self, x: Arguments) -> str:
        return "mean" if x["compressed"] is None else ""

    def computed(self, plan: Plan, x: Arguments, keep: bool, looked: bool = False) -> list[Tensor]:
        """Borders on a device are not waited for where the backend may take them unseen: `nsa.host.raise_noted` says
        later what is wrong with them. Strict calls and those that NSA_DEBUG_* observes wait.
        """
        if not looked and plan.request.packed and self._unseen(plan, x):
            host.raise_noted(plan.device)
            return plan.within(lambda: self.compute(plan, x, keep))
        return super().computed(plan, x, keep, looked)

    def _unseen(self, plan: Plan, x: Arguments) -> bool:
        given = [x[name] for name in BORDERS if x[name] is not None]
        beside = all(host.waits_for(y) and y.device == plan.device for y in given)
        if plan.decision is None or not (beside and x["compressed"] is None and x["block_indices"] is None):
            return False
        observed = x["strict"] or plan.flags.strict or routing.observing(plan.flags)
        module = registry.load(plan.decision.backend)
        return getattr(module, "ORDERS_BORDERS", False) and (capturing(plan.device) or not observed)

    def compute(self, plan: Plan, x: Arguments, keep: bool) -> list[Tensor]:
        call, lse = Call.of(plan, x), x["return_lse"]
        if plan.decision is None:
            return self._composed(call, x, keep, lse)
        return routing.carry_out(
            plan.decision, plan.request, lambda module: module.attention(call, lse, keep), partial(self.judge, plan, x)
        )

    def _composed(self, call: Call, x: Arguments, keep: bool, lse: bool) -> list[Tensor]:
        """The operations one after another: all results, with all that is kept."""
        how: dict[str, Any] = {
            "keep": keep, "looked": True, "backend": routing.per_operation(x["backend"]), "strict": x["strict"]
        }  # fmt: skip
        cu_seqlens, cu_seqlens_k, q_start = call.where
        where = {"scale": call.scale, "cu_seqlens": cu_seqlens, "cu_seqlens_k": cu_seqlens_k, "q_start": q_start, **how}
        of_keys = cu_seqlens if cu_seqlens_k is None else cu_seqlens_k
        attend = {**where, "deterministic": call.request.deterministic}
        q, config, chosen = call.q, call.config, call.block_indices
        k_cmp, v_cmp = call.compressed or (
            OPERATIONS["compress"].run(x=y[0], config=config, cu_seqlens=of_keys, **how)[0] for y in (call.k, call.v)
        )
        if call.compressed_rope is not None:
            at = blocks.compressed_positions(k_cmp.shape[1], config, of_keys, q.device)
            (k_cmp,) = OPERATIONS["rotate"].run(x=k_cmp, positions=at, base=call.compressed_rope, **how)
        o_cmp, lse_cmp = OPERATIONS["compressed_attention"].run(q=q, k_cmp=k_cmp, v_cmp=v_cmp, config=config, **attend)
        if chosen is None:
            (chosen,) = OPERATIONS["select_blocks"].run(q=q, k_cmp=k_cmp, config=config, lse=lse_cmp, **where)
        o_sel, *lse_sel = OPERATIONS["selected_attention"].run(
            q=q, k=call.k[1], v=call.v[1], block_indices=chosen, config=config, return_lse=lse, **attend
        )
        o_win, lse_win = OPERATIONS["sliding_window_attention"].run(
            q=q, k=call.k[2], v=call.v[2], window=config.w, **attend
        )
        (o,) = OPERATIONS["gated_combine"].run(o_cmp=o_cmp, o_sel=o_sel, o_win=o_win, gates=call.gates, **how)
        given = call.block_indices is not None
        return [o, lse_cmp, *(lse_sel or [lse_win]), lse_win, o_cmp, o_sel, o_win, *([] if given else [chosen])]

    def returned(self, results: list[Tensor], x: Arguments) -> Any:
        return (results[0], (results[1], results[2], results[3])) if x["return_lse"] else results[0]

    # --- as an operator ---

    def count(self, x: Arguments, keep: bool) -> int:
        return (7 if x["block_indices"] is not None else 8) if keep else 4 if x["return_lse"] else 1

    def shapes(self, x: Arguments, keep: bool) -> list[Tensor]:
        q, k, v = (y if isinstance(y, Tensor) else y[-1] for y in (x["q"], x["k"], x["v"]))
        o, lse = attention_shapes(q, v)
        chosen = q.new_empty(*q.shape[:2], k.shape[2], x["config"].n_sel, dtype=torch.int32)
        found = [o, lse, *(lse.new_empty(lse.shape) for _ in range(2)), *(o.new_empty(o.shape) for _ in range(3))]
        return [*found, chosen][: self.count(x, keep)]

    def gradient(self, grad: Tensor, results: list[Tensor], x: Arguments) -> Sequence[Tensor] | None:
        """By the gradient of the backend that computed the whole."""
        plan = self.plan(x, True, self.key(x, True))
        if plan.decision is None:
            return None
        module = registry.load(plan.decision.backend)
        if plan.request.packed and not self._unseen(plan, x):
            x = self.placed(plan, x)
        return plan.within(lambda: module.attention_gradient(grad, results, Call.of(plan, x)))  # type: ignore[no-any-return]


class AttentionPlan:
    """Calls of `nsa.nsa_attention` of one kind, planned by their owner (`nsa.plan`)."""

    def __init__(self, x: Arguments) -> None:
        self._operation = operation = OPERATIONS["nsa_attention"]
        self._x = {name: None if name in GIVEN else y for name, y in x.items()}
        self._plan = operation.planned(x, False, None)
        self._layouts = {name: layouts(x[name]) for name in GIVEN}
        self._shared = sharing(library.flat(x[name] for name in GIVEN))
        leaves = [y for y in library.flat(x.values()) if y.requires_grad]
        for _ in range(2):  # compiled and made, then recorded
            o = library.flat([self.run(**{name: x[name] for name in GIVEN})])[0]
            if o.requires_grad:
                torch.autograd.grad(o, leaves, torch.ones_like(o), allow_unused=True)

    @property
    def request(self) -> Request:
        """What is computed."""
        return self._plan.request

    @property
    def decision(self) -> routing.Decision | None:
        """What computes it, and why; None: each operation is routed by itself."""
        return self._plan.decision

    def run(
        self, q: Tensor, k: Tensor | Triple, v: Tensor | Triple, gates: Tensor, *,
        compressed: tuple[Tensor, Tensor] | None = None, cu_seqlens: Tensor | None = None,
        cu_seqlens_k: Tensor | None = None, q_start: Tensor | None = None, block_indices: Tensor | None = None,
    ) -> Any:  # fmt: skip
        """What `nsa.nsa_attention` returns for these tensors and the plan's settings, differentiable.

        Raises:
            ValueError: a tensor that is not laid out as the one that was planned with, or gradients that were not
                planned; the sentence says which.
        """
        given = {
            "q": q, "k": k, "v": v, "gates": gates, "compressed": compressed, "cu_seqlens": cu_seqlens,
            "cu_seqlens_k": cu_seqlens_k, "q_start": q_start, "block_indices": block_indices,
        }  # fmt: skip
        x = {**self._x, **given}
        if self._plan.device.type == "meta" or library.intercepted(given.values()) or library.any_autocast():
            return self._operation((), x)
        for name, planned in self._layouts.items():
            if (found := layouts(given[name])) != planned:
                raise ValueError(f"plan.run: {name} must be laid out as planned, {_said(planned)}, got {_said(found)}")
        tensors = library.flat(given.values())
        shared = sharing(tensors)
        if any(shared[at] != shared[first] for at, first in enumerate(self._shared)):
            raise ValueError("plan.run: tensors that were one and the same when it was planned must be so now")
        wanted = torch.is_grad_enabled() and any(y.requires_grad for y in tensors)
        if wanted and not self.request.needs_grad:
            raise ValueError("plan.run: gradients are wanted, and the plan was made for a call without them")
        if torch.are_deterministic_algorithms_enabled() and not self.request.deterministic:
            raise ValueError("plan.run: gradients are to be repeatable now, and the plan was made for others")
        return self._operation.returned(self._operation.computed(self._plan, x, False), x)


def layouts(x: Any) -> Any:
    """Of a tensor, or of several in a list, and which of them are the same one."""
    if isinstance(x, (tuple, list)):
        return [*map(layouts, x), tuple(y is x[0] for y in x)]
    return layout(x) if isinstance(x, Tensor) else x


def _said(found: Any) -> str:
    """A layout in words."""
    if isinstance(found, list):
        return f"({', '.join(map(_said, found[:-1]))})"
    if not isinstance(found, tuple):
        return repr(found)
    shape, stride, dtype, device, offset = found
    off = f", {offset} bytes off" if offset else ""
    return f"{list(shape)} with strides {list(stride)} in {dtype} on {device}{off}"
