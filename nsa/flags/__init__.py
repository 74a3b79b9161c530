"""Every NSA_* environment variable: typed, documented, read once.

Precedence, from strongest to weakest: arguments of the call (`backend=`, `strict=`), flags, the hardware
profile (`nsa.profiles`), defaults. A flag that is not set is None where the profile or the default decides.
`python -m nsa.flags` prints the table with the effective values. NSA_POD_* belongs to the orchestrator and is
ignored here.
"""

from __future__ import annotations

import difflib
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import Field, dataclass, field, fields, replace
from functools import lru_cache
from typing import Any

from nsa.contexts import held

FOREIGN_PREFIXES = ("NSA_POD_",)
BOOLEANS = {**dict.fromkeys(("1", "true", "yes", "on"), True), **dict.fromkeys(("0", "false", "no", "off"), False)}


class FlagError(ValueError):
    """An NSA_* variable that cannot be understood."""


def parse_bool(name: str, text: str) -> bool:
    """The one boolean parser: 1/0, true/false, yes/no, on/off in any case."""
    try:
        return BOOLEANS[text.strip().lower()]
    except KeyError:
        raise FlagError(f"{name}={text!r} is not a boolean; expected one of {', '.join(BOOLEANS)}") from None


def parse_int(name: str, text: str) -> int:
    """A whole number that is not negative."""
    if not text.strip().isdecimal():
        raise FlagError(f"{name}={text!r} is not a whole number of at least 0")
    return int(text)


def parse_str(name: str, text: str) -> str:
    """A word."""
    return text.strip()


PARSERS = {"bool": parse_bool, "int": parse_int, "str": parse_str}


def _flag(meaning: str, default: Any = None) -> Any:
    return field(default=default, metadata={"meaning": meaning})


@dataclass(frozen=True)
class Flags:
    """The effective flags; a field's variable is NSA_ and its name in capitals."""

    strict: bool = _flag("a fallback, or an unknown NSA_* variable, is an error", False)
    backend: str | None = _flag("backend requested for every operation it has")
    profile: str | None = _flag("hardware profile instead of the device's own")

    use_triton_sel: bool | None = _flag("1 requests Triton for the selected branch, 0 forbids it")
    triton_sel_force: bool = _flag("Triton selection whatever the profile says (SM 8.9, min L)", False)
    sel_triton_allow_grad: bool | None = _flag("0 keeps Triton selection out where gradients are needed")
    sel_triton_min_l: int | None = _flag("fewest tokens for Triton selection (profile: sel_triton_min_L)")
    sel_triton_group: bool | None = _flag("0 keeps Triton selection out: each of its schedules is group-centric")

    use_fa2: bool | None = _flag("1 requests FlashAttention-2 for window and compressed, 0 forbids it")
    fa2_force: bool = _flag("FlashAttention-2 whatever its thresholds say", False)
    fa2_min_len_win: int | None = _flag("fewest tokens for FA-2 in the window (profile: fa2_min_len_win)")
    fa2_min_len_cmp: int | None = _flag("fewest tokens for FA-2 in compressed (profile: fa2_min_len_cmp)")
    fa2_force_varlen: bool = _flag("FA-2 through its varlen entry point only", False)
    fa2_force_dense: bool = _flag("FA-2 through its dense entry point only", False)

    use_cuda_sel: bool | None = _flag("1 requests the experimental CUDA selection, 0 forbids it")
    build_cuda: bool = _flag("the build switch: compile the experimental CUDA selection with nvcc", False)

    debug_log: bool = _flag("log each routing decision (logger `nsa`)", False)
    log_limit: int = _flag("lines logged for one operation and backend", 5)
    debug_timing: bool = _flag("time each operation; waits for the device", False)
    debug_compare: bool = _flag("record each operation's mean absolute error against the oracle", False)

    test_triton_sel: bool | None = _flag("Triton selection tests: 1 fails without a device, 0 skips them")
    test_fa2: bool | None = _flag("FA-2 tests: 1 fails without a device, 0 skips them")
    test_train: bool | None = _flag("training tests on CUDA: 1 fails without a device, 0 skips them")


REGISTRY: dict[str, Field[Any]] = {f"NSA_{item.name.upper()}": item for item in fields(Flags)}
_override: ContextVar[Flags | None] = ContextVar("nsa_flags", default=None)


def kind_of(flag: Field[Any]) -> str:
    """`bool`, `int` or `str`: what its variable holds."""
    return str(flag.type).partition(" ")[0]


def read(environ: Mapping[str, str]) -> Flags:
    """Flags from the variables of `environ`.

    Raises:
        FlagError: a value of the wrong type, or an unknown NSA_* variable while NSA_STRICT is on.
    """
    values: dict[str, Any] = {
        item.name: PARSERS[kind_of(item)](name, environ[name])
        for name, item in REGISTRY.items()
        if environ.get(name, "").strip()
    }
    flags = Flags(**values)
    for sentence in unknown(environ):
        if flags.strict:
            raise FlagError(sentence)
        warnings.warn(sentence, stacklevel=3)
    return flags


def unknown(environ: Mapping[str, str]) -> list[str]:
    """A sentence for each NSA_* variable that nothing reads."""
    names = (name for name in sorted(environ) if name.startswith("NSA_"))
    strangers = [n for n in names if n not in REGISTRY and not n.startswith(FOREIGN_PREFIXES)]
    return [_stranger(name) for name in strangers]


def _stranger(name: str) -> str:
    near = difflib.get_close_matches(name, REGISTRY, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"{name} is set, but nothing reads it{hint} (python -m nsa.flags lists all)"


@lru_cache(maxsize=1)
def _process_flags() -> Flags:
    return read(os.environ)


def current() -> Flags:
    """The flags in force: those of `using`, else the environment's, read at the first call."""
    return _override.get() or _process_flags()


@contextmanager
def using(**values: Any) -> Iterator[Flags]:
    """Other values for some flags, by field name, inside the block; for tests and benches."""
    with held(_override, replace(current(), **values)):
        yield current()
