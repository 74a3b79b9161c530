"""`explain_routing`: the dispatch table's answer for a shape, without running anything."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch

from nsa import checks, flags
from nsa.blocks import num_compressed
from nsa.config import NSAConfig
from nsa.device import device_name, named_device
from nsa.profiles import Profile
from nsa.routing.policy import PARTS, WHOLE, BackendChoice, decide, per_operation, profile_for
from nsa.routing.request import Decision, Request


@dataclass(frozen=True)
class Explanation:
    """What each operation would run on."""

    device: str
    profile: str
    decisions: dict[str, Decision]
    note: str

    def as_json(self) -> dict[str, Any]:
        """A JSON object: one key for each operation, and `device`, `profile`, `note`."""
        found = {name: asdict(decision) for name, decision in self.decisions.items()}
        return {"device": self.device, "profile": self.profile, "note": self.note, **found}

    def __str__(self) -> str:
        lines = [f"device {self.device}, profile {self.profile}"]
        for name, decision in self.decisions.items():
            said = "REFUSED: " if decision.refused else "FALLBACK: " if decision.fallback else ""
            lines.append(f"  {name:<11} {'-' if decision.refused else decision.backend:<7} {said}{decision.reason}")
            ways = {"forward": decision.forward, "gradient": decision.gradient}
            lines += [f"  {'':<19} {name}: {way}" for name, way in ways.items() if way]
        return "\n".join([*lines, self.note])


def explain_routing(
    config: NSAConfig = NSAConfig(), *, tokens: int, heads: int, kv_heads: int, dk: int, dv: int | None = None,
    batch: int = 1, dtype: torch.dtype = torch.bfloat16, device: torch.device | str | None = None, packed: bool = False,
    needs_grad: bool = False, deterministic: bool = False, backend: BackendChoice = None,
) -> Explanation:  # fmt: skip
    """Which backend `nsa_attention` would use for this shape, operation by operation, and why.

    Args:
        config: the sizes.
        tokens, heads, kv_heads, dk, dv, batch, dtype: of q [B,T,Hq,Dk] and v [B,T,Hkv,Dv].
        device: default: the GPU if there is one.
        packed, needs_grad, deterministic: as in the call.
        backend: as in the call.

    Raises:
        ValueError: a device that this machine does not have, or what no call could have.
        TypeError: an argument of another type.
    """
    name, device, dv = "explain_routing", named_device(device), dk if dv is None else dv
    checks.sizes(name, config)
    checks.counts(name, batch=batch, tokens=tokens, heads=heads, kv_heads=kv_heads, dk=dk, dv=dv)
    if heads % kv_heads:
        raise ValueError(f"{name}: heads={heads} must be a multiple of kv_heads={kv_heads}")
    checks.dtype(name, "dtype", dtype)

    def request(operation: str) -> Request:
        keys = num_compressed(tokens, config) if operation in ("compressed", "select") else tokens
        shape = (batch, tokens, keys, heads, kv_heads, dk, dv)
        return Request(operation, device, dtype, *shape, config, packed, False, needs_grad, deterministic)

    active, choice, whole = flags.current(), per_operation(backend), request(WHOLE)
    found = {name: decide(request(name), choice, active) for name in (WHOLE, "rotate", "compress", *PARTS)}
    decisions = {name: decision for name, decision in found.items() if decision is not None}
    profile = profile_for(whole, active)
    note = f"{_dense_note(whole, profile)}\nTriton kernels: {profile.kernels_timed}"
    return Explanation(device_name(device), profile.name, decisions, note)


def _dense_note(request: Request, profile: Profile) -> str:
    """What is known about dense attention at this length."""
    crossover = profile.dense_crossover(request.group_size, request.needs_grad)
    if not crossover:
        return f"dense attention: no crossover measured (profile {profile.name})"
    of = "forward and backward" if request.needs_grad else "forward"
    faster = (
        f"faster below {crossover} tokens" if request.tokens < crossover else f"not faster from {crossover} tokens on"
    )
    return f"dense attention, {of}: {faster}"
