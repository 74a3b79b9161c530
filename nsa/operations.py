"""Between a call and its kernels: find the plan of its kind, look at what its borders hold, call the backend.

An operation is declared by a signature (`nsa.functional`). The operator's schema, the key of a call, the request that
routing sees, the arguments of backend and oracle are derived from it, here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from inspect import signature
from operator import itemgetter
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

from nsa import checks, flags, library, reference, routing
from nsa.blocks import num_compressed
from nsa.config import NSAConfig
from nsa.host import int32_on
from nsa.library import Arguments
from nsa.phi import MlpPhi, WeightedPhi
from nsa.plans import PLANS, Key, Plan, layout
from nsa.routing import How, Request, registry

P = ParamSpec("P")
R = TypeVar("R")

OPERATIONS: dict[str, Operation] = {}
"""By the function's name."""

TENSORS = frozenset((Tensor, torch.nn.Parameter))
SCALARS = frozenset((type(None), bool, int, float, str, NSAConfig))
"""Types of settings that are facts as they are: told at once, as those of tensors."""

BORDERS = ("cu_seqlens", "cu_seqlens_k")
"""Keywords that say where packed sequences begin."""

FOR_BACKENDS = ("phi", "cu_seqlens", "lse")
"""Keywords that a backend's function takes by themselves, where the operation has them."""


class Followed(Exception):
    """A tensor of a subclass, which may follow what is done with it, or one without memory."""


class Operation(library.Operator):
    """A public function: how its calls are told apart, planned and computed. What it demands is `nsa.checks.NAME`.

    In all methods `x` are the function's arguments by name; `keep`: give what the gradient needs, too, as the operator
    `nsa::NAME` does for `nsa::NAME_backward`; `looked`: what borders, positions and blocks hold was looked at before.

    Args:
        function: the signature.
        routed: its name for routing and backends.
        operands: the parameters like q [B,T,Hq,Dk], k [B,Tk,Hkv,Dk] and v [B,Tk,Hkv,Dv]; the last may be missing.
        judged: whether `nsa.reference.NAME` takes `rows`.
        differentiable: whether it has a gradient, of its first result.
    """

    def __init__(
        self, function: Callable[..., Any], routed: str, operands: Sequence[str], *, judged: bool = False,
        differentiable: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(function, differentiable)
        self.title, self.routed, self.operands = function.__name__, routed, operands
        self.differentiable = differentiable
        self.demands: Callable[[str, Arguments], None] = getattr(checks, self.title)
        self.oracle: Callable[..., Any] | None = getattr(reference, self.title) if judged else None
        self._judged = [name for name in self.kinds if judged and name in signature(self.oracle).parameters]
        self._signature = signature(function)
        named = [name for name, x in self._signature.parameters.items() if x.kind is x.KEYWORD_ONLY]
        self._count, self._order = len(self.kinds), itemgetter(*self.kinds)
        self._inputs = [name for name in self.kinds if name not in named]
        self._attends = "scale" in named
        own = [name for name in FOR_BACKENDS if name in named and not (self._attends and name in How._fields)]
        self._given = [*self._inputs, *own]
        self._switches = [name for name, kind in self.kinds.items() if kind is library.KINDS["bool"]]

    # --- a call ---

    def __call__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """What the function returns: by its plan; by the operator where something follows the call; under autocast by
        the plan of narrower tensors.
        """
        x = self.bound(args, kwargs)
        if library.followed():
            return self.returned(self.dispatched(x), x)
        try:
            key = self.key(x, False)
            if library.any_autocast():
                return self.returned(self.autocasted(x), x)
            plan = self.plan(x, False, key)
        except Followed:
            return self.returned(self.dispatched(x), x)
        return self.returned(self.computed(plan, x, False), x)

    def bound(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Arguments:
        """The arguments by name, with defaults."""
        given = dict(zip(self._inputs, args, strict=False))
        given.update(kwargs)
        x = {**self.defaults, **given}
        if len(given) != len(args) + len(kwargs) or len(x) != self._count:
            try:
                self._signature.bind(*args, **kwargs)  # which says what is wrong
            except TypeError as error:
                raise TypeError(f"{self.title}: {error}") from None
        return x

    def run(self, keep: bool = False, looked: bool = False, **x: Any) -> list[Tensor]:
        """All results, plainly computed."""
        x = {**self.defaults, **x}
        return self.computed(self.plan(x, keep, self.key(x, keep)), x, keep, looked)

    def returned(self, results: list[Tensor], x: Arguments) -> Any:
        """What the function returns of its results."""
        if self.routed == "compressed" or x.get("return_lse"):
            return results[0], results[1]
        return results[0]

    def dispatched(self, x: Arguments) -> list[Tensor]:
        checks.dense(self.title, x)  # nested tensors know no operator of others'
        return super().dispatched(x)

    # --- its plan ---

    def key(self, x: Arguments, keep: bool) -> Key | None:
        """What tells kinds of calls apart; None where something has no such facts.

        Raises:
            Followed: see there.
        """
        facts: list[Any] = [self.title, keep, id(flags.current()), torch.are_deterministic_algorithms_enabled()]
        try:
            wanted = _note(self._order(x), facts, {})
        except (AttributeError, RuntimeError):  # what is no ordinary tensor
            return None
        facts.append(keep or (wanted and self.differentiable and torch.is_grad_enabled()))
        return tuple(facts)

    def plan(self, x: Arguments, keep: bool, key: Key | None) -> Plan:
        """The plan of the call's kind, made where there is none.

        Raises:
            ValueError, TypeError: arguments that do not go together; the sentence says which.
            nsa.routing.RoutingError: as `nsa.routing.decided`.
            RuntimeError: under `torch.jit.trace`.
            Followed: see there.
        """
        try:
            plan = PLANS.get(key) if key else None
        except TypeError:  # something has no hash
            plan = key = None
        if plan is None:
            if torch._C._is_tracing():  # where shapes are tensors, so that no plan is ever found
                raise RuntimeError(
                    f"{self.title}: torch.jit.trace is not supported; torch.export and torch.compile are"
                )
            plan = self.planned(x, keep, key)
            if plan.device.type == "meta":
                raise Followed
            if key:
                PLANS.add(plan)
        return plan

    def planned(self, x: Arguments, keep: bool, key: Key | None) -> Plan:
        """A new plan: the arguments are looked at, and a backend is decided for."""
        self.demands(self.title, x)
        for name in self._switches:
            checks.switch(self.title, name, x[name])
        request = self.request(x, keep)
        decision = self.decided(request, x)
        scale = checks.scale(self.title, x["q"], x["scale"]) if "scale" in x else 0.0
        return Plan(key or (), request, decision, flags.current(), scale)

    def decided(self, request: Request, x: Arguments) -> routing.Decision | None:
        """The backend of a request; None: each part is routed by itself."""
        return routing.decided(request, x["backend"], x["strict"])

    def request(self, x: Arguments, keep: bool) -> Request:
        """The facts that routing decides by."""
        q, *others = (y if isinstance(y, Tensor) else y[-1] for y in (x[name] for name in self.operands))
        batch, tokens, heads, dim = q.shape
        keys, kv_heads = others[0].shape[1:3] if others else (0, heads)
        dk, dv = (dim, others[1].shape[3] if len(others) > 1 else 0) if others else (0, dim)
        phi = x.get("phi")
        tensors = [*library.flat(x.values()), *(vars(phi).values() if phi else ())]
        wanted = torch.is_grad_enabled() and any(y.requires_grad for y in tensors)
        return Request(
            self.routed, q.device, q.dtype, batch, tokens, keys, heads, kv_heads, dk, dv, x.get("config"),
            x.get("cu_seqlens") is not None, x.get("q_start") is not None or x.get("cu_seqlens_k") is not None,
            self.differentiable and (wanted or keep),
            x.get("deterministic", False) or torch.are_deterministic_algorithms_enabled(),
            x.get("return_lse", False) or keep, self.map_of(x),
        )  # fmt: skip

    def map_of(self, x: Arguments) -> str:
        """What makes compressed tokens here."""
        return checks.PHIS[type(x["phi"])] if "phi" in x else ""

    # --- computing ---

    def computed(self, plan: Plan, x: Arguments, keep: bool, looked: bool = False) -> list[Tensor]:
        """All results of a call of the plan's kind."""
        request, x = plan.request, self.placed(plan, x)
        if not looked and (request.packed or request.offset or x.get("block_indices") is not None):
            k_cmp = x.get("k_cmp") if x.get("compressed") is None else x["compressed"][0]
            keys = request.keys if "k" in x else None
            checks.values(self.title, x, x[self.operands[0]], keys, k_cmp)
        return plan.within(lambda: self.compute(plan, x, keep))

    @staticmethod
    def placed(plan: Plan, x: Arguments) -> Arguments:
        """The arguments with their borders, if any, int32 on the plan's device."""
        borders = {name: x[name] for name in BORDERS if x.get(name) is not None}
        return {**x, **{name: int32_on(y, plan.device) for name, y in borders.items()}} if borders else x

    def compute(self, plan: Plan, x: Arguments, keep: bool) -> list[Tensor]:
        """By the backend that was decided for."""
        assert plan.decision is not None
        judge = partial(self.judge, plan, x) if self.oracle else None
        arguments = self._arguments(plan, x)
        found = routing.carry_out(
            plan.decision, plan.request, lambda module: getattr(module, self.routed)(*arguments), judge
        )
        return [found] if isinstance(found, Tensor) else [y for y in found if y is not None]

    def judge(self, plan: Plan, x: Arguments, rows: list[int]) -> Tensor:
        """The oracle's first result for some query rows."""
        given = {name: widened(x[name]) for name in self._judged}
        found = self.oracle(**{**given, "scale": plan.scale}, rows=rows)  # type: ignore[misc]
        return found if isinstance(found, Tensor) else found[0]

    def gradient(self, grad: Tensor, results: list[Tensor], x: Arguments) -> Sequence[Tensor] | None:
        plan = self.plan(x, True, self.key(x, True))
        assert plan.decision is not None
        known = getattr(registry.load(plan.decision.backend), f"{self.routed}_gradient", None)
        if known is None:
            return None
        arguments = self._arguments(plan, self.placed(plan, x))
        return plan.within(lambda: known(grad, *results[:2], *arguments))  # type: ignore[no-any-return]

    def _arguments(self, plan: Plan, x: Arguments) -> list[Any]:
        """Those that a backend's function takes."""
        given = [x[name] for name in self._given]
        if self._attends:
            where = (x[name] for name in (*BORDERS, "q_start"))
            given.append(How(plan.scale, *where, plan.request.deterministic))
        return given

    # --- as an operator ---

    def results(self, x: Arguments, keep: bool) -> list[Tensor]:
        return self.run(keep, **x)[: self.count(x, keep)]

    def count(self, x: Arguments, keep: bool) -> int:
        """How many results there are."""
        return 2 if self.routed == "compressed" or ("return_lse" in x and (keep or x["return_lse"])) else 1

    def shapes(self, x: Arguments, keep: bool) -> list[Tensor]:
        first = x[self.operands[0]]
        if self.routed in ("combine", "rotate"):
            return [first.new_empty(first.shape)]
        if self.routed == "compress":
            count = num_compressed(first.shape[1], x["config"])
            if x["cu_seqlens"] is not None:
                count = torch.library.get_ctx().new_dynamic_size()
            return [first.new_empty(first.shape[0], count, *first.shape[2:])]
        if self.routed == "select":
            return [first.new_empty(*first.shape[:2], x["k_cmp"].shape[2], x["config"].n_sel, dtype=torch.int32)]
        return attention_shapes(first, x[self.operands[2]])[: self.count(x, keep)]


def operation(
    routed: str, operands: Sequence[str], of: type[Operation] = Operation, **how: bool
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a signature an operation; arguments as `Operation`'s."""

    def made(function: Callable[P, R]) -> Callable[P, R]:
        known = OPERATIONS[function.__name__] = of(function, routed, operands, **how)

        @wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> R:
            return known(args, kwargs)  # type: ignore[no-any-return]

        return library.in_graphs(called)

    return made


def attention_shapes(q: Tensor, v: Tensor) -> list[Tensor]:
    """New tensors for o [B,T,Hq,Dv] and lse [B,T,Hq] of q [B,T,Hq,Dk] and v [B,Tk,Hkv,Dv]."""
    wide = torch.promote_types(q.dtype, torch.float32)
    return [q.new_empty(*q.shape[:3], v.shape[-1]), q.new_empty(q.shape[:3], dtype=wide)]


def widened(x: Any) -> Any:
    """A copy in fp64 without gradients, of floating tensors, for the oracle."""
    if isinstance(x, (tuple, list)):
        return tuple(map(widened, x))
    return x.detach().double() if isinstance(x, Tensor) and x.is_floating_point() else x


def _note(values: Sequence[Any], facts: list[Any], places: dict[int, int]) -> bool:
    """Add what tells calls with these arguments from others; whether a tensor asks for a gradient.

    It matters which tensors are one and the same, as in `nsa.plans.sharing`; `places` are those of the tensors so far.
    """
    wanted = False
    for x in values:
        kind = type(x)
        if kind in TENSORS:
            facts += layout(x)
            facts.append(places.setdefault(id(x), len(places)))
            wanted = wanted or x.requires_grad
        elif kind in SCALARS:  # by the type, too: 1, 1.0 and True are equal
            facts += kind, x
        elif isinstance(x, (tuple, list)):
            facts += kind, len(x)
            wanted = _note(x, facts, places) or wanted
        elif kind is WeightedPhi or kind is MlpPhi:
            facts.append(kind)
            wanted = _note(tuple(vars(x).values()), facts, places) or wanted
        elif isinstance(x, Tensor):
            raise Followed
        else:
            facts += [kind, tuple(x.items()) if isinstance(x, Mapping) else x]
    return wanted
