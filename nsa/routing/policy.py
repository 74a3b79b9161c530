"""The dispatch table: request, flags and profile -> backend, with the reason. Pure: nothing runs here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from nsa import profiles
from nsa.blocks import num_compressed
from nsa.flags import Flags
from nsa.profiles import Profile
from nsa.routing import registry
from nsa.routing.request import Decision, Request

BackendChoice = str | Mapping[str, str] | None
"""A backend for all operations that it implements, or one for each operation named."""

WHOLE = "attention"
PARTS = ("compressed", "select", "selected", "window", "combine")
"""What the fused operation `WHOLE` stands for."""

SELECTING = ("select", "selected", WHOLE)
"""The operations that flags and profiles mean by Triton selection."""

FEWEST_SPANS = 64
"""Spans below which an MLP's products, a few rows at a time such as in a step of decode, are left to PyTorch's."""

# The order in which backends are considered when nobody asks for one.
PREFERENCE = {"cuda": ("triton", "fa2", "torch"), "cpu": ("torch",)}


def profile_for(request: Request, flags: Flags) -> Profile:
    """The profile of the request's device, unless a flag names another."""
    return profiles.load(flags.profile) if flags.profile else profiles.for_device(request.device)


def _first(flag: int | None, otherwise: int) -> int:
    return otherwise if flag is None else flag


# --- what flags and profiles say about each backend ---


@dataclass(frozen=True)
class Off:
    """Why a backend is not considered; `by_profile`: nobody but a profile says so."""

    reason: str
    by_profile: bool = False


def _triton(request: Request, flags: Flags, profile: Profile) -> Off | None:
    if request.operation == "compress" and request.phi == "mlp" and request.config is not None:
        spans = request.batch * num_compressed(request.keys, request.config)
        return Off(f"an MLP of {spans} spans, fewer than {FEWEST_SPANS}") if spans < FEWEST_SPANS else None
    if request.operation not in SELECTING or flags.triton_sel_force:
        return None
    if flags.use_triton_sel is False:
        return Off("NSA_USE_TRITON_SEL=0")
    if flags.sel_triton_group is False:
        return Off("NSA_SEL_TRITON_GROUP=0, and all of its schedules are group-centric")
    measured = profile.sel_triton_min_L
    if measured.value is None:
        return Off(f"profile {profile.name} keeps Triton selection off ({measured.source})", by_profile=True)
    if request.needs_grad and flags.sel_triton_allow_grad is False:
        return Off("NSA_SEL_TRITON_ALLOW_GRAD=0 and gradients are needed")
    least = _first(flags.sel_triton_min_l, measured.value)
    few = Off(f"{request.tokens} tokens, fewer than sel_triton_min_L={least}", flags.sel_triton_min_l is None)
    return few if request.tokens < least else None


def _fa2(request: Request, flags: Flags, profile: Profile) -> Off | None:
    if flags.fa2_force:
        return None
    if not flags.use_fa2:
        return Off("NSA_USE_FA2=0" if flags.use_fa2 is False else "not asked for (NSA_USE_FA2=1)")
    name = "fa2_min_len_win" if request.operation == "window" else "fa2_min_len_cmp"
    least = _first(getattr(flags, name), getattr(profile, name).value)
    return Off(f"{request.tokens} tokens, fewer than {name}={least}") if request.tokens < least else None


def _cuda(request: Request, flags: Flags, profile: Profile) -> Off | None:
    return None if flags.use_cuda_sel else Off("not asked for (NSA_USE_CUDA_SEL=1)")


POLICIES: dict[str, Callable[[Request, Flags, Profile], Off | None]] = {"triton": _triton, "fa2": _fa2, "cuda": _cuda}


def _flag_request(operation: str, flags: Flags) -> str | None:
    """The backend that a flag asks for."""
    if operation in SELECTING and (flags.use_triton_sel or flags.triton_sel_force):
        return "triton"
    if operation == "selected" and flags.use_cuda_sel:
        return "cuda"
    if operation in ("window", "compressed") and (flags.use_fa2 or flags.fa2_force):
        return "fa2"
    return flags.backend if flags.backend and registry.implements(flags.backend, operation) else None


# --- the decision ---


def per_operation(choice: BackendChoice) -> dict[str, str]:
    """The caller's choice for `nsa_attention`, by operation: one name stands for the operations that it has.

    Raises:
        TypeError, ValueError: it is no choice.
    """
    if choice is None:
        return {}
    if isinstance(choice, str):
        return dict(_all_of(choice))
    if not isinstance(choice, Mapping):
        raise TypeError(
            f"backend must be a name, a mapping from operation to name, or None, got {type(choice).__name__}"
        )
    for name, backend in choice.items():
        if name not in registry.OPERATIONS:
            raise ValueError(f"backend: unknown operation {name!r}; expected {', '.join(registry.OPERATIONS)}")
        registry.check_name(backend)
    # who asks for the fused operation asks for its parts, where it cannot run
    return {**dict.fromkeys(PARTS, choice[WHOLE]), **choice} if WHOLE in choice else dict(choice)


@lru_cache
def _all_of(name: str) -> dict[str, str]:
    registry.check_name(name)
    return {operation: name for operation in registry.OPERATIONS if registry.implements(name, operation)}


def _incapable(name: str, request: Request) -> str | None:
    """Why the backend cannot run this request at all."""
    if not registry.implements(name, request.operation):
        return f"{name} does not implement {request.operation}"
    absent = registry.missing(name)
    if absent is not None or name == "torch":
        return absent
    reason: str | None = registry.load(name).supports(request)
    return reason


def requested_backend(operation: str, choice: BackendChoice, flags: Flags) -> tuple[str | None, bool]:
    """The backend asked for, and whether an argument did (which no threshold overrules)."""
    argument = choice.get(operation) if isinstance(choice, Mapping) else choice
    if argument is not None:
        registry.check_name(argument)
        return argument, True
    if flags.backend:
        registry.check_name(flags.backend)
    return _flag_request(operation, flags), False


def decide(request: Request, choice: BackendChoice, flags: Flags) -> Decision | None:
    """The backend for this request; None where no backend considered implements the operation."""
    requested, by_argument = requested_backend(request.operation, choice, flags)
    profile, preference = profile_for(request, flags), PREFERENCE.get(request.device.type, PREFERENCE["cpu"])
    order = dict.fromkeys([*([requested] if requested else []), *preference])
    declined: list[tuple[str, str]] = []
    fallback = overruled = False
    for name in order:
        asked = name == requested
        if not asked and not registry.implements(name, request.operation):
            continue
        off = _other_part(request, name, choice, flags)
        if off is None and not (asked and by_argument):
            off = POLICIES[name](request, flags, profile) if name in POLICIES else None
        incapable = None if off else _incapable(name, request)
        if off is None and incapable is None:
            found = (request.operation, name, requested, fallback, _why(asked, by_argument, declined), tuple(declined))
            ways = _way(name, request, "gradient") if request.needs_grad else "", _way(name, request, "forward")
            return Decision(*found, *ways, explicit=by_argument, overruled=overruled)
        declined.append((name, off.reason if off else str(incapable)))
        fallback = fallback or asked or incapable is not None
        overruled = overruled or (off is not None and off.by_profile)
    return None


def _way(name: str, request: Request, what: str) -> str:
    """How the backend computes the forward pass or the gradient, where it says so."""
    says: Callable[[Request], str] | None = getattr(registry.load(name), what, None)
    return says(request) if says is not None else ""


def _other_part(request: Request, name: str, choice: BackendChoice, flags: Flags) -> Off | None:
    """A fused backend gives way where one of its parts is asked of another; so does one that takes a step of several
    tokens at once.
    """
    if request.operation != WHOLE and not (request.operation == "decode" and request.tokens > 1):
        return None
    parts = (*PARTS, "compress") if request.phi else PARTS
    asked = ((part, requested_backend(part, choice, flags)[0]) for part in parts)
    return next((Off(f"{part} is asked of {other}") for part, other in asked if other not in (None, name)), None)


def _why(asked: bool, by_argument: bool, declined: list[tuple[str, str]]) -> str:
    if asked:
        return "asked for by the call" if by_argument else "asked for by a flag"
    if declined:
        return "; ".join(f"{name}: {reason}" for name, reason in declined)
    return "first choice on this device"
