"""Small integer tensors on the host, such as borders, counts or beams: the device is asked once for each.

And the way back, which waits for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import lru_cache
from typing import Any
from weakref import ref

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

_KNOWN = WeakTensorKeyDictionary()
"""By tensor: its version and its numbers."""

_BESIDE = WeakTensorKeyDictionary()
"""By tensor on the host: its numbers, and what it is elsewhere."""

_ORIGIN = WeakTensorKeyDictionary()
"""By copy: what it was made of, and the version of that."""

LARGEST_INT32 = torch.iinfo(torch.int32).max

is_compiling = getattr(torch.compiler, "is_compiling", None) or torch._utils.is_compiling
"""torch 2.2 has it in another place only."""


USED: ContextVar[Callable[[], None] | None] = ContextVar("nsa_host_used", default=None)
"""Is told that numbers were used: what follows is not decided by layouts alone."""


def numbers(x: Tensor) -> list[int]:
    """The integers [N] of x. Where that waits for a device it is asked when x is new or was written to since.

    Every layer of a model asks the same of the same tensor. Of such a tensor, what is written by other means than
    PyTorch's, and by collectives, is not seen.
    """
    tell = USED.get()
    if tell is not None:
        tell()
    version = _version(x) if waits_for(x) else None
    known = _KNOWN.get(x) if version is not None else None
    if known is None or known[0] != version:
        known = version, _asked(x)
        if version is not None and all(type(number) is int for number in known[1]):  # not where the program is traced
            _KNOWN[x] = known
            of, then = _ORIGIN.get(x, (lambda: None, None))
            if (origin := of()) is not None and _version(origin) == then:
                _KNOWN[origin] = then, known[1]
    return list(known[1])


def with_numbers(x: Tensor, known: list[int]) -> Tensor:
    """x, of which the host knows the integers [N] anyway: they need not be asked for."""
    version = _version(x)
    if version is not None:
        _KNOWN[x] = version, list(known)
    return x


def int32_on(x: Tensor, device: torch.device) -> Tensor:
    """x as int32 on this device. What begins on the host is known there, and is the same tensor while its numbers are.

    What begins on a device is converted each time: not every write to it is counted, and a CUDA graph that is captured
    now reads what x holds when it is replayed.
    """
    version = _version(x)
    if (x.dtype == torch.int32 and x.device == device) or version is None:
        return _narrow(x, device)
    if waits_for(x):
        found, known = _narrow(x, device), _KNOWN.get(x)
        _ORIGIN[found] = ref(x), version
        return with_numbers(found, known[1]) if known is not None and known[0] == version else found
    held, known = _asked(x), _BESIDE.get(x)
    if known is None or known[0] != held or known[1].device != device:
        known = _BESIDE[x] = held, with_numbers(_narrow(x, device), held)
    return known[1]  # type: ignore[no-any-return]


def _narrow(x: Tensor, device: torch.device) -> Tensor:
    """x as int32; what does not fit becomes a number that is still no border, not another that may be one."""
    return (x.clamp(-1, LARGEST_INT32) if x.dtype == torch.int64 else x).to(device, torch.int32)


def waits_for(x: Tensor) -> bool:
    """Whether the host would wait for a device to know what x holds."""
    return x.device.type != "cpu"


@lru_cache
def note_of(device: torch.device) -> Tensor:
    """An int32 of the host that kernels on this device write to, where they find borders that cannot be: T."""
    return torch.zeros(1, dtype=torch.int32, device="cpu", pin_memory=device.type == "cuda")


def raise_noted(device: torch.device) -> None:
    """Refuse borders of an earlier call that kernels, for which nobody waited, have found to be none by now.

    Raises:
        ValueError: there were some.
    """
    note = note_of(device)
    tokens = int(note)
    if tokens:
        note.zero_()
        raise ValueError(
            f"cu_seqlens of an earlier call did not rise from 0 to T={tokens}, or its cu_seqlens_k did not go with "
            "that; it was computed as one sequence"
        )


def to_device(x: Tensor | Sequence[Any], device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """A CPU tensor, or numbers, on the device; the host does not wait for what the device still has to do."""
    x = x if isinstance(x, Tensor) else torch.tensor(x, dtype=dtype, device="cpu")  # whatever the default device is
    return x.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else x.to(device)


def _asked(x: Tensor) -> list[int]:
    found: list[int] = x.tolist()
    return found


def _version(x: Tensor) -> int | None:
    """How often x was written to; None where PyTorch does not count, or x stands for another tensor."""
    if is_compiling() or type(x) is not Tensor or x.is_inference():
        return None
    return x._version
