"""Examples of a doctest that it says are to be skipped."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator


def left_out(name: str, test: Any) -> Iterator[str]:
    """Each as a test that was not collected; one of which all are is skipped as a whole."""
    examples = getattr(test, "examples", ())
    left = [e.lineno for e in examples if e.options.get(sys.modules["doctest"].SKIP)]
    if len(left) < len(examples):
        begins = getattr(test, "lineno", None) or 0
        yield from (f"{name} (+SKIP in line {begins + line + 1})" for line in left)
