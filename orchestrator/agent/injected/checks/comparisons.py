"""Comparisons that cannot fail: of nothing, of a thing with itself, of NaN with NaN, with too much tolerance; and those
that fail in a program.
"""

from __future__ import annotations

import math
import sys

from ..hooks import watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType, ModuleType
    from typing import Any, Callable

    from .records import Checks

    Size = tuple[float, bool]

_WATCHED = {
    "torch.testing": ("assert_close", "assert_allclose"),
    "numpy.testing": (
        "assert_allclose", "assert_array_equal", "assert_equal", "assert_almost_equal", "assert_array_almost_equal",
    ),
    "pandas.testing": ("assert_frame_equal", "assert_series_equal", "assert_index_equal"),
}  # fmt: skip
_APPROX = ("_pytest.approx", "_pytest.python_api")  # of versions of pytest
_APPROXIMATIONS = ("ApproxScalar", "ApproxNumpy", "ApproxMapping", "ApproxSequenceLike", "ApproxSequencelike")
_OTHERS = {"numpy.testing": ("assert_array_less",)}
"""Whose arguments are not looked at."""
_RELATIVE: dict[str, tuple[str, int, Callable[[Any, Any], float]]] = {
    "assert_array_max_ulp": ("maxulp", 1, lambda left, ulps: ulps * _spacing(left)),
    "assert_array_almost_equal_nulp": ("nulp", 1, lambda left, ulps: ulps * _spacing(left)),
    "assert_approx_equal": ("significant", 7, lambda left, digits: 10.0**-digits),
}
"""Of numpy.testing: by which name they are given a relative tolerance, which without, and what number that is."""
_INFINITE = float("inf")
_MOST_ELEMENTS = 1 << 22
_BEYOND_DATA = 1e18  # of a difference of numbers: hardly meant for seconds, sizes or counts
_WITHOUT_LIMIT = "the tolerance is infinite"
EXCEEDED = "a difference exceeded its limit, and nothing depends on it"


class Comparisons:
    """Looks at what the comparisons of torch's and numpy's `testing` compare."""

    def __init__(self, checks: Checks) -> None:
        self._checks = checks
        self.after_import: dict[str, Callable[[ModuleType], None]] = dict.fromkeys(_WATCHED, self._watch)
        self.after_import.update(dict.fromkeys(_APPROX, self._watch_approx))
        self.after_import["unittest.case"] = self._watch_case

    def _watch(self, module: Any) -> None:
        for name in _WATCHED[module.__name__]:
            full = f"{module.__name__}.{name}"
            after = self._to_decimals(name) if "almost_equal" in name else self._of_two(name, full)
            watch(module, name, after=after, failed=self._failing(name))
        for name in _OTHERS.get(module.__name__, ()):
            watch(module, name, failed=self._failing(name))
        for name in _RELATIVE if module.__name__ == "numpy.testing" else ():
            watch(module, name, after=self._to_a_relation(name), failed=self._failing(name))

    def _failing(self, name: str) -> Callable[..., None]:
        def failed(frame: FrameType, error: BaseException, *_: Any, **__: Any) -> None:
            if isinstance(error, AssertionError):
                self._checks.comparing(name, frame)

        return failed

    def _of_two(self, name: str, full: str) -> Callable[..., None]:
        most = 2 if name in _WATCHED["pandas.testing"] else None  # what is given by its place behind is no tolerance

        def has_held(frame: FrameType, result: object, *operands: Any, **options: Any) -> None:
            self._checks.used.add(full)
            self._checks.now.held(name, *operands[:most], **options)
            if name == "assert_close" and operands and not _has_leaf(operands[0]):
                self._checks.now.note("empty sequences are compared, or such of None")

        return has_held

    def _to_a_relation(self, name: str) -> Callable[..., None]:
        keyword, default, relation = _RELATIVE[name]

        def has_held(frame: FrameType, result: object, *operands: Any, **options: Any) -> None:
            left, right, *more = (*operands, *_sides(options))
            rtol = relation(left, more[0] if more else options.get(keyword, default))
            self._checks.now.held(name, left, right, rtol=rtol)

        return has_held

    def _to_decimals(self, name: str) -> Callable[..., None]:
        def has_held(frame: FrameType, result: object, *operands: Any, decimal: Any = None, **options: Any) -> None:
            left, right, *more = (*operands, *_sides(options))
            self._checks.now.held(name, left, right, decimal=more[0] if more else decimal)

        return has_held

    def _watch_case(self, case: Any) -> None:
        def has_held(
            frame: FrameType, result: None, test: Any, first: Any, second: Any, *args: Any, **named: Any
        ) -> None:
            given = dict(zip(("places", "msg", "delta"), args), **named)
            self._checks.now.held(
                "assertAlmostEqual", first, second, atol=given.get("delta"), decimal=given.get("places")
            )

        def is_true(frame: FrameType, result: None, test: Any, expr: Any, msg: Any = None) -> None:
            if type(expr) is type(msg) and not isinstance(expr, (bool, str)) and _differ(expr, msg):
                self._checks.now.lost.append(f"assertTrue() took for its message what differs: {msg!r}"[:200])

        watch(case.TestCase, "assertAlmostEqual", after=has_held)
        watch(case.TestCase, "assertTrue", after=is_true)

    def _watch_approx(self, module: Any) -> None:
        """What of a sequence is compared, its elements, is compared within pytest."""

        def equals(frame: FrameType, result: object, expected: Any, actual: Any) -> None:
            if result is True and frame.f_globals.get("__name__") != module.__name__:
                rtol = 0 if expected.rel is None and expected.abs is not None else expected.rel
                self._checks.now.compared.call("approx", actual, expected.expected, rtol, expected.abs)
                if hasattr(expected, "tolerance"):  # of a number
                    self._checks.now.note(why_vacuous(actual, expected.expected, atol=expected.tolerance))

        for kind in _APPROXIMATIONS:
            if hasattr(module, kind):
                watch(getattr(module, kind), "__eq__", after=equals)


def _sides(options: dict[str, Any]) -> list[Any]:
    """What is compared, as far as it is given by name."""
    return [options[name] for name in ("actual", "desired", "a", "b", "x", "y") if name in options]


def _spacing(of: Any) -> float:
    """From 1 to the next number that an array can hold."""
    numpy = sys.modules["numpy"]
    return float(numpy.finfo(numpy.asarray(of).dtype).eps)


def _differ(one: Any, other: Any) -> bool:
    try:
        return bool(one != other)
    except Exception:  # arrays have no one answer
        return False


def is_list_of_truths(value: Any) -> bool:
    """Of Python's or of numpy's."""
    return type(value) in (list, tuple) and all(type(each).__name__ in ("bool", "bool_") for each in value)


def _has_leaf(value: Any) -> bool:
    """Whether there is anything to compare in what may be a container."""
    if isinstance(value, dict):
        value = [*value.values()]
    return any(map(_has_leaf, value)) if isinstance(value, (list, tuple)) else value is not None


def why_vacuous(*operands: Any, **options: Any) -> str | None:
    """Why a comparison that has held could not but hold, in a clause; it may be given any arguments."""
    try:
        return _why(*operands, **options)
    except Exception:  # the comparison itself has held: its operands are of a kind that is not known here
        return None


def why_wide(left: Any, right: Any, limit: Any) -> str | None:
    """The same of two arrays whose difference was within a limit."""
    arrays = all(getattr(side, "shape", ()) for side in (left, right))
    if isinstance(limit, (int, float)) and (arrays or limit >= _BEYOND_DATA):
        return why_vacuous(left, right, atol=limit)
    return None


def size_of(value: Any) -> Size | None:
    """Of an array's largest element, or of a number, and whether it is an array; None of anything else, and of what
    takes long to look at.
    """
    try:
        if isinstance(value, (int, float)) or value.shape == ():
            return (float(abs(value)), False)
        return (_greatest(value), True) if 0 < math.prod(value.shape) <= _MOST_ELEMENTS else None
    except Exception:  # of what it is: the test is not to see it
        return None


def why_far(sizes: tuple[Size | None, ...], limit: Any) -> str | None:
    """The same as `why_wide` of two things of which only the sizes are known."""
    known = [size for size in sizes if size]
    if len(known) < 2 or not isinstance(limit, (int, float)):
        return None
    if limit == _INFINITE:
        return _WITHOUT_LIMIT
    is_meant = limit < _BEYOND_DATA and not all(of_array for _, of_array in known)
    return None if is_meant else _looser_than((known[0][0], known[1][0]), None, limit)


def why_loose(left: Any, right: Any, rtol: Any = None, atol: Any = None, *_: Any, **more: Any) -> str | None:
    """The same of its tolerance alone: what is calculated there may well be one thing."""
    rtol, atol = more.get("rel_tol", rtol), more.get("abs_tol", atol)
    if _are_infinite(rtol, atol):
        return _WITHOUT_LIMIT
    numbers = [side for side in (left, right) if not hasattr(side, "shape")]
    try:
        if numbers:
            return _why_numbers(numbers[-1], numbers[-1], rtol, atol)
        return _why_nan(left, right, more.get("equal_nan", False)) or _why_loose(left, right, rtol, atol)
    except Exception:  # as above
        return None


def _why(left: Any, right: Any, rtol: Any = None, atol: Any = None, equal_nan: Any = None, **more: Any) -> str | None:
    rtol, atol = more.get("rel_tol", rtol), more.get("abs_tol", atol)
    if more.get("decimal") is not None:
        atol = 0.5 * 10.0 ** -more["decimal"]
    if _are_infinite(rtol, atol):
        return _WITHOUT_LIMIT
    if left is right and isinstance(left, (list, dict)):
        return "something is compared with itself"
    if not (hasattr(left, "shape") and hasattr(right, "shape")):
        return _why_numbers(left, right, rtol, atol)
    if 0 in tuple(left.shape):
        return "empty tensors are compared"
    if getattr(left, "is_meta", False):
        return "tensors that hold no values are compared (of the device meta)"
    mask = getattr(left, "mask", None)  # of numpy's, True for what does not count
    if getattr(mask, "shape", None) == left.shape and mask.all():  # type: ignore[union-attr]
        return "all that is compared is masked"
    storage = _storage(left)
    if left is right or (storage is not None and storage == _storage(right)):
        return "a tensor is compared with itself"
    kind = str(getattr(left, "dtype", ""))
    if not any(name in kind for name in ("float", "complex", "int")):
        return None
    if "float16" in kind and _is_beyond(left) and _is_beyond(right):
        return "both sides are beyond what their type can hold"
    return _why_nan(left, right, equal_nan) or _why_loose(left, right, rtol, atol)


def _is_beyond(tensor: Any) -> bool:
    """Whether all numbers are infinite, and none of them negative, as those of a mask are."""
    return bool(_first(tensor) == _INFINITE) and bool((tensor == _INFINITE).all())


def _why_nan(left: Any, right: Any, equal_nan: Any) -> str | None:
    is_nan = equal_nan is not False and _all_nan(left) and _all_nan(right)
    return "both sides are NaN throughout" if is_nan else None


def _why_numbers(left: Any, right: Any, rtol: Any, atol: Any) -> str | None:
    if left != left and right != right:
        return "both sides are NaN throughout"
    if isinstance(right, (int, float)) and right and (rtol or atol):
        return _too_loose(abs(float(right)), rtol, atol)
    return None


def _why_loose(left: Any, right: Any, rtol: Any, atol: Any) -> str | None:
    """Only where a tolerance is given, and the first elements do not tell that it is small: to look at all data costs
    about as much as to compare them.
    """
    if not atol and not (rtol and rtol >= 1):
        return None
    if all(first > _allowed(first, rtol, atol) for first in (float(abs(_first(side))) for side in (left, right))):
        return None  # so is what is larger
    return _looser_than((_greatest(left), _greatest(right)), rtol, atol)


def _looser_than(sizes: tuple[float, float], rtol: Any, atol: Any) -> str | None:
    smaller, larger = sorted(sizes)
    if not smaller and atol and atol >= 1 and atol >= 2 * larger:  # no rounding of what is not zero is as large
        smaller = larger
    return _too_loose(smaller, rtol, atol)


def _too_loose(size: float, rtol: Any, atol: Any) -> str | None:
    """Zeros would have passed for data of this size; where the data are zeros, they are what is expected, and no
    tolerance lets anything pass for what is infinite.
    """
    allowed = _allowed(size, rtol, atol)
    if not 0 < size < _INFINITE or size > allowed:
        return None
    return f"the tolerance, {allowed:.3g}, is not below the data's own size, {size:.3g}"


def _are_infinite(*tolerances: Any) -> bool:
    return any(isinstance(tolerance, float) and tolerance == _INFINITE for tolerance in tolerances)


def _allowed(size: float, rtol: Any, atol: Any) -> float:
    return float(atol or 0) + float(rtol or 0) * size


def _storage(tensor: Any) -> Any:
    """What tells whether two are the same memory; None of a tensor that has none (one that wraps others, say)."""
    if hasattr(tensor, "data_ptr"):
        place = tensor.data_ptr()
        return (place, tuple(tensor.shape), tensor.stride(), str(tensor.dtype)) if place else None
    # A scalar of numpy's has no memory of its own: each time it is asked it gives that of a copy.
    interface = getattr(tensor, "__array_interface__", None) if hasattr(type(tensor), "__setitem__") else None
    return interface and (interface["data"], interface["shape"], interface["strides"], interface["typestr"])


def _all_nan(tensor: Any) -> bool:
    """The first element tells of almost all tensors that they are not."""
    first = _first(tensor)
    return bool(first != first) and bool((tensor != tensor).all())


def nan_among(value: Any) -> tuple[bool, bool]:
    """Whether there is any in an array, and nothing else."""
    try:
        if not hasattr(value, "dtype") or not 0 < math.prod(value.shape) <= _MOST_ELEMENTS:
            return False, False
        unequal = value != value
        return bool(unequal.any()), bool(unequal.all())
    except Exception:  # of what it is: the test is not to see it
        return False, False


def _greatest(tensor: Any) -> float:
    size = abs(_flat(tensor))
    numbers = size[size == size]
    return float(numbers.max()) if len(numbers) else 0.0


def _first(tensor: Any) -> Any:
    return _flat(tensor)[0]


def _flat(tensor: Any) -> Any:
    return (tensor.detach() if hasattr(tensor, "detach") else tensor).reshape(-1)


def is_false(value: Any) -> bool | None:
    """Whether a comparison came out false: what only has a comparison's name returns anything; None where it has no
    value, as on PyTorch's device `meta`.
    """
    try:
        return not value.all() if hasattr(type(value), "all") else value is False
    except Exception:
        return None


def exceeds(value: Any, bad: bool) -> bool:
    """Whether what a difference was compared with its limit for came to what is `bad`; one of several is nothing, as in
    a mask.
    """
    is_one = isinstance(value, bool) or getattr(value, "shape", None) in ((), (1,))
    return is_one and is_false(value) is (not bad)
