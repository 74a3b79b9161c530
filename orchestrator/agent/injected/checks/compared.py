"""How much the comparisons of a test compared, and how closely: what a later run of the test is held against.

Told by shapes and lengths alone: to look at data costs about as much as to compare them.
"""

from __future__ import annotations

import math

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator, Tuple

    Extent = Tuple["float | None", str]
    """How many elements something has, and of which type."""

UNKNOWN: Extent = (None, "")
_MOST = 8  # tolerances of a test
_RTOL = {"allclose": 1e-5, "isclose": 1e-5, "assert_allclose": 1e-7, "assert_frame_equal": 1e-5, "approx": 1e-6}
_RTOL["assert_series_equal"] = _RTOL["assert_index_equal"] = _RTOL["assert_frame_equal"]
_DECIMALS = {"assert_almost_equal": 7, "assert_array_almost_equal": 6, "assertAlmostEqual": 7}
_RTOL_OF = {"float16": 1e-3, "bfloat16": 1.6e-2, "float32": 1.3e-6, "float64": 1e-7}
"""What is allowed where nothing is said: by a function, or, of torch's assert_close, by type."""


class Compared:
    """Of one test: how many elements were compared within which tolerance, as it is for a size of 1; and the types of
    floats that were. What is not known of either is None.
    """

    __slots__ = ("_dtypes", "_within")

    def __init__(self) -> None:
        self._within: dict[float | None, float | None] = {}
        self._dtypes: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._within)

    def limit(self, limit: object, extent: Extent, averages: bool = False) -> None:
        """A difference was held to a limit; its average is one number, whatever it is of."""
        elements, dtype = extent
        self.add(limit, 1.0 if averages else elements, dtype)

    def add(self, tolerance: object, elements: float | None, dtype: str) -> None:
        known = float(tolerance) if isinstance(tolerance, (int, float)) else None
        key = known if known in self._within or len(self._within) < _MOST else self._nearest(known)
        before = self._within.get(key, 0.0)
        self._within[key] = None if before is None or elements is None else before + elements
        if "float" in dtype:
            self._dtypes.add(dtype)

    def _nearest(self, tolerance: float | None) -> float | None:
        """Of those that are there the next one: a test that makes its own for each comparison may have thousands."""
        looser = [t for t in self._within if t is not None and tolerance is not None and t >= tolerance]
        return min(looser, default=None)

    def call(self, name: str, *operands: Any, **options: Any) -> None:
        """What a function of this name has found to be near enough, of whatever arguments it was given."""
        try:
            measured = _measured(name, *operands, **options)
        except Exception:  # of what it is: the test is not to see it
            measured = None, *UNKNOWN
        self.add(*measured)

    def told(self) -> dict[str, object]:
        """In what can be written down."""
        found: dict[str, object] = {"compared": [[*pair] for pair in self._within.items()]} if self else {}
        if self._dtypes:
            found["dtypes"] = sorted(self._dtypes)
        return found


def _measured(name: str, *operands: Any, **options: Any) -> tuple[float | None, float | None, str]:
    named = (options.pop(key) for key in ("actual", "expected", "desired", "x", "y") if key in options)
    left, right, *more = (*operands, *named)
    elements, dtype = extent(left, right)
    return _tolerance(name, dtype, more, options), elements, dtype


def _tolerance(name: str, dtype: str, more: list[Any], options: dict[str, Any]) -> float | None:
    given = dict(zip(("rtol", "atol"), more), **options)
    rtol, atol = given.get("rel_tol", given.get("rtol")), given.get("abs_tol", given.get("atol"))
    if name in _DECIMALS and atol is None:
        decimal = given.get("decimal")
        atol = 10.0 ** -(_DECIMALS[name] if decimal is None else decimal)
    if rtol is None:
        rtol = _RTOL_OF.get(dtype, 0.0) if name == "assert_close" else _RTOL.get(name, 0.0)
    known = all(isinstance(tolerance, (int, float)) for tolerance in (rtol, atol or 0))
    return float(rtol + (atol or 0)) if known else None


def extent(*sides: Any) -> Extent:
    """Of what is compared, one side of which may be a number that all elements of the other are compared with."""
    try:
        leaves = [[*_leaves(side)] for side in sides]
        dtype = next((str(leaf.dtype) for leaf in leaves[0] if hasattr(leaf, "dtype")), "")
        return max(sum(map(_elements, each)) for each in leaves), dtype.rpartition(".")[2]
    except Exception:  # as above
        return UNKNOWN


def _leaves(value: Any) -> Iterator[Any]:
    """What is compared of a container: arrays, numbers, and lists of these."""
    if isinstance(value, dict):
        value = [*value.values()]
    if isinstance(value, (list, tuple)) and not (value and isinstance(value[0], (int, float))):
        for each in value:
            yield from _leaves(each)
    else:
        yield value


def _elements(leaf: Any) -> float:
    return float(len(leaf) if isinstance(leaf, (list, tuple)) else math.prod(getattr(leaf, "shape", ())))
