"""Whether the comparisons of libraries still tell two things apart, whatever in them was changed: `torch.isclose`
under `assert_close`, its table of tolerances, a method of its own.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Collection, Iterator

# Two that no comparison takes for equal.
ONE, OTHER = 1.0, -7e30

_COMPARISONS: tuple[tuple[str, str, str, dict[str, str]], ...] = (
    ("torch", "assert_close", "tensor", {"device": "cpu"}),
    ("numpy", "assert_allclose", "array", {}),
)


def blind_comparisons(used: Collection[str]) -> Iterator[str]:
    """Those of the `used` ones that do not fail, by name: the first call of torch's imports for half a second."""
    for library, name, made, where in _COMPARISONS:
        compare = getattr(sys.modules.get(f"{library}.testing"), name, None)
        make = getattr(sys.modules.get(library), made, None)
        full = f"{library}.testing.{name}"
        if full in used and compare is not None and make is not None and _holds(compare, make, where):
            yield full


def _holds(compare: Any, make: Any, where: dict[str, str]) -> bool:
    while hasattr(compare, "__wrapped__"):  # which looks on
        compare = compare.__wrapped__
    try:
        compare(make(ONE, **where), make(OTHER, **where))
    except Exception:
        return False
    return True
