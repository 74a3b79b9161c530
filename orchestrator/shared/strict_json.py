"""JSON as the standard has it: no NaN, no Infinity, no number out of range, no object with a key twice."""

from __future__ import annotations

import json
import math
from typing import Any, Callable, Dict, List, Tuple, Union


def _object(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has the same key twice")
    return found


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def loads(text: Union[str, bytes], parse_constant: Callable[[str], Any] = _no_constant) -> Any:
    """The value in `text`. ValueError (and RecursionError) for what is none, UnicodeDecodeError for no UTF-8."""
    return json.loads(text, object_pairs_hook=_object, parse_constant=parse_constant, parse_float=_finite)


def _finite(text: str) -> float:
    if math.isinf(float(text)):
        raise ValueError(f"{text} is out of range")
    return float(text)
