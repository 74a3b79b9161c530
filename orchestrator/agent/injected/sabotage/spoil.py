"""Makes results wrong, always in the same way: floats by half their RMS plus 0.1, integers permuted in their range.

What holds numbers (tuples, lists, dicts, dataclasses, plain objects) is made anew around them. Only where there are no
numbers are truth values negated and texts changed. Tensors keep their graph, and are never waited for: what is wrong
with them is computed where they are.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import sys

from .times import plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator

    Leaf = Callable[[Any], Any]

_UNTOUCHED = object()
"""What a leaf function answers for a value that is not its own."""
_DEEPEST = 5
_MOST_FOUND = 1000
_SMALL = 0.1
_CODE = ("module", "function", "method", "builtin_function_or_method")


def spoiled(value: Any) -> Any:
    """`value` made wrong; the very same object where nothing in it can be."""
    wrong = _rebuilt(value, _wrong_number, _DEEPEST)
    return wrong if wrong is not value else _rebuilt(value, _wrong_other, _DEEPEST)


def arrays_in(value: object) -> Iterator[Any]:
    """The tensors, arrays and lists that are reached from `value`: what a call may change in place."""
    seen: set[int] = set()
    rest: list[tuple[Any, int]] = [(value, 0)]
    while rest and len(seen) < _MOST_FOUND:
        found, depth = rest.pop()
        if id(found) in seen or depth > _DEEPEST:
            continue
        seen.add(id(found))
        if _is_tensor(found) or _is_array(found):
            yield found
            continue
        if type(found) is list:
            yield found
        rest.extend((inner, depth + 1) for inner in _inside(found))


class Before:
    """What the arrays in `value` hold now, so that what is changed in them afterwards can be found and made wrong."""

    def __init__(self, value: object) -> None:
        self._kept = [(x, _kept(x)) for x in arrays_in(value) if not _is_imagined(x)]

    def spoil_changed(self) -> bool | None:
        """Make wrong, in place, all that has changed; whether something has, None where that cannot be asked now."""
        changed = [_spoil_where_changed(now, then) for now, then in self._kept]
        return True if True in changed else None if None in changed else False

    def changed_and_returned(self, result: object) -> bool:
        """Whether `result` holds one of the arrays: what was written into is also what was returned."""
        own = {id(x) for x, _ in self._kept}
        return any(id(x) in own for x in arrays_in(result))


# --- what holds others ---


def _rebuilt(value: Any, leaf: Leaf, depth: int) -> Any:
    """`value` with each leaf that `leaf` knows replaced; itself if there is none."""
    wrong = leaf(value)
    if wrong is not _UNTOUCHED:
        return wrong
    if depth == 0:
        return value
    if isinstance(value, (tuple, list, set, frozenset)):
        return _sequence(value, leaf, depth - 1)
    if isinstance(value, dict):
        return _with(value, dict(value), leaf, depth - 1, _filled)
    if _holds_fields(value):
        return _with(value, _fields(value), leaf, depth - 1, _copied)
    return value


def _sequence(value: Any, leaf: Leaf, depth: int) -> Any:
    items = list(value)
    if leaf is _wrong_number and len(set(items) if all(type(x) is int for x in items) else ()) > 1:
        low, high = min(items), max(items)
        wrong = [low + high - x for x in items]
    else:
        wrong = [_rebuilt(x, leaf, depth) for x in items]
    if all(a is b for a, b in zip(items, wrong)):
        return value
    make = getattr(type(value), "_make", type(value))  # a namedtuple's
    try:
        return make(wrong)
    except TypeError:  # torch.return_types, and sequences of other people's making
        return tuple(wrong) if isinstance(value, tuple) else wrong


def _with(value: Any, parts: dict[Any, Any], leaf: Leaf, depth: int, made: Callable[[Any, dict[Any, Any]], Any]) -> Any:
    wrong = {key: _rebuilt(part, leaf, depth) for key, part in parts.items()}
    changed = {key: part for key, part in wrong.items() if part is not parts[key]}
    return made(value, changed) if changed else value


def _filled(value: Any, changed: dict[Any, Any]) -> Any:
    found = copy.copy(value)
    for key, part in changed.items():
        found[key] = part
    return found


def _copied(value: Any, changed: dict[Any, Any]) -> Any:
    try:
        found = copy.copy(value)
    except Exception:  # it may refuse in any way
        return value
    for name, part in changed.items():
        object.__setattr__(found, name, part)  # also of a frozen dataclass
    return found


def _holds_fields(value: Any) -> bool:
    """Whether it is an object with fields of its own, and no class, function or module."""
    if isinstance(value, type) or type(value).__name__ in _CODE:
        return False
    return dataclasses.is_dataclass(type(value)) or type(getattr(value, "__dict__", None)) is dict


def _fields(value: Any) -> dict[str, Any]:
    if dataclasses.is_dataclass(value):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if hasattr(value, f.name)}
    return dict(vars(value))


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, (tuple, list, set, frozenset)):
        return list(value)[:_MOST_FOUND]
    return list(_fields(value).values()) if _holds_fields(value) else []


# --- single values ---


def _wrong_number(value: Any) -> Any:
    value = plain(value)
    kind = type(value)
    if kind is float:
        return value + 0.5 * abs(value) + _SMALL if math.isfinite(value) else _SMALL
    if kind is int:
        return _next_to(value)
    if kind is complex:
        return value + 0.5 * abs(value) + _SMALL
    if _is_tensor(value):
        return _tensor(value, numbers=True)
    if _is_array(value) or _is_scalar(value):
        return _array(value, numbers=True)
    if kind.__module__ in ("decimal", "fractions") and kind.__name__ in ("Decimal", "Fraction"):
        return value + abs(value) / 2 + kind("0.1")
    return _UNTOUCHED


def _wrong_other(value: Any) -> Any:
    kind = type(value)
    if kind is bool:
        return not value
    if kind is str:
        return value + "~"
    if kind is bytes:
        return value + b"~"
    if _is_tensor(value):
        return _tensor(value, numbers=False)
    if _is_array(value) or _is_scalar(value):
        return _array(value, numbers=False)
    return _UNTOUCHED


def _next_to(value: Any) -> Any:
    """Of an integer that is alone in its range: still no index outside of what it counts."""
    return value - 1 if value > 0 else value + 1


# --- numpy, and what is like it ---


def _is_array(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, getattr(numpy, "ndarray", ()))


def _is_scalar(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, getattr(numpy, "generic", ()))


def _array(value: Any, *, numbers: bool) -> Any:
    """An array, or a scalar, of numpy's."""
    import numpy as np

    kind = value.dtype.kind
    if value.size == 0 or kind not in ("fiuc" if numbers else "b"):
        return value
    with np.errstate(all="ignore"):
        wrong = _wrong_array(value, np.ones(value.shape, bool))
    return value.dtype.type(wrong) if _is_scalar(value) else wrong


def _wrong_array(x: Any, where: Any) -> Any:
    """All of `x` made wrong, by what it holds at `where`."""
    import numpy as np

    if x.dtype.kind == "b":
        return ~x
    chosen = x[where]
    if x.dtype.kind in "iu":
        low, high = chosen.min(), chosen.max()
        return np.where(x > 0, x - 1, x + 1).astype(x.dtype) if low == high else (low + high - x).astype(x.dtype)
    size = np.abs(chosen).astype(np.float64)
    finite = np.isfinite(size)
    if not finite.any():
        return np.full_like(x, _SMALL)
    shift = 0.5 * math.sqrt(float(np.mean(size[finite] ** 2))) + _SMALL
    return (x + shift).astype(x.dtype)


# --- torch ---


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, getattr(torch, "Tensor", ()))


def _is_imagined(x: Any) -> bool:
    """Whether a tensor has no content: on the device meta, or of a tracer."""
    return _is_tensor(x) and (x.device.type == "meta" or type(x).__name__ in ("FakeTensor", "FunctionalTensor"))


def _tensor(x: Any, *, numbers: bool) -> Any:
    import torch

    is_number = x.dtype != torch.bool
    if x.numel() == 0 or is_number != numbers or _is_imagined(x):
        return x
    try:
        if not is_number:
            return ~x
        if not (x.is_floating_point() or x.is_complex()):
            with torch.no_grad():
                return _wrong_integers(x.detach(), None)
        with torch.no_grad():
            shift, finite = _shift(x.detach(), None)
        if x.element_size() == 1:  # torch does not add in eight bits
            return (x.float() + shift.float()).to(x.dtype)
        return torch.where(finite.any(), x + shift, torch.full_like(x, _SMALL))
    except (RuntimeError, NotImplementedError):  # a layout or a type that torch itself does not calculate with
        return x


def _shift(x: Any, where: Any) -> tuple[Any, Any]:
    """What is added to each of `x`, in its type: nothing to what is not finite; and where it is finite."""
    import torch

    wide = (x.abs() if x.is_complex() else x).to(torch.float32 if x.device.type == "mps" else torch.float64)
    finite = wide.isfinite() if where is None else wide.isfinite() & where
    squares = torch.where(finite, wide * wide, torch.zeros_like(wide)).sum() / finite.sum().clamp(min=1)
    shift = 0.5 * squares.sqrt() + _SMALL
    return torch.where(finite, shift, torch.zeros_like(wide)).to(x.dtype), finite


def _wrong_integers(x: Any, where: Any) -> Any:
    import torch

    wide = x.to(torch.int64)
    most, least = (torch.full_like(wide, edge) for edge in (2**62, -(2**62)))
    low = (wide if where is None else torch.where(where, wide, most)).min()
    high = (wide if where is None else torch.where(where, wide, least)).max()
    alone = torch.where(wide > 0, wide - 1, wide + 1)
    return torch.where(low == high, alone, low + high - wide).to(x.dtype)


# --- in place ---


def _kept(x: Any) -> Any:
    return list(x) if type(x) is list else x.detach().clone() if _is_tensor(x) else x.copy()


def _spoil_where_changed(now: Any, then: Any) -> bool | None:
    """Make wrong what of `now` is not as `then`; whether something is, None where a tensor cannot be asked now."""
    if type(now) is list:
        return _spoil_list(now, then)
    try:
        return _spoil_tensor(now, then) if _is_tensor(now) else _spoil_array(now, then)
    except (RuntimeError, ValueError, NotImplementedError):  # it cannot be written to, or has another shape by now
        return False


def _changed(now: Any, then: Any) -> Any:
    """Which elements are others; two that are no number are the same."""
    return (now != then) & ~((now != now) & (then != then))


def _spoil_list(now: list[Any], then: list[Any]) -> bool:
    same = len(now) == len(then) and all(a is b for a, b in zip(now, then))
    wrong = now if same else spoiled(list(now))
    changed = not same and any(a is not b for a, b in zip(now, wrong))
    if changed:
        now[:] = wrong
    return changed


def _spoil_array(now: Any, then: Any) -> bool:
    import numpy as np

    if now.dtype.kind not in "fiucb":
        return False
    changed = _changed(now, then)
    if not changed.any():
        return False
    with np.errstate(all="ignore"):
        now[changed] = _wrong_array(now, changed)[changed]
    return True


def _spoil_tensor(now: Any, then: Any) -> bool | None:
    import torch

    x = now.data  # not its graph's business, which knows nothing of what a kernel writes either
    with torch.no_grad():
        changed = _changed(x, then)
        if x.dtype == torch.bool:
            wrong = ~x
        elif x.is_floating_point() or x.is_complex():
            shift, _ = _shift(x, changed)
            wrong = x + shift
        else:
            wrong = _wrong_integers(x, changed)
        x.copy_(torch.where(changed, wrong, x))
        return _asked(changed.any())


def _asked(flag: Any) -> bool | None:
    """The value of a tensor, where waiting for it is allowed: not while a CUDA graph is captured (what is computed here
    is captured too, so that replays are as wrong), nor where the program itself looks for what waits.
    """
    import torch

    if flag.is_cuda and (torch.cuda.is_current_stream_capturing() or torch.cuda.get_sync_debug_mode()):
        return None
    return bool(flag)
