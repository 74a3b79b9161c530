"""Whether a JSON value has the shape that a type says: of what a pod tells, and of what people write.

Types are those of annotations: str, int, float (whole numbers too), bool, None, object (anything), Literal, Optional,
Union, List, Dict with text as keys, TypedDict, and a NewType, whose values may have to keep a rule beside.
"""

from __future__ import annotations

from functools import lru_cache
from typing import (
    Any,
    Callable,
    Dict,
    FrozenSet,
    Iterator,
    Literal,
    Mapping,
    NamedTuple,
    Optional,
    Tuple,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from orchestrator.shared.text import alternatives

Location = Tuple[Union[str, int], ...]
Rule = Callable[[Any], Optional[str]]

MISSING = "is missing"
RULES: Dict[object, Rule] = {}
"""By NewType: what is wrong with a value of the right type, as a sentence; None for one that is right."""
LATER: Dict[object, FrozenSet[str]] = {}
"""By TypedDict: keys that came later, which a value of an earlier version may lack."""

_NAMES = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "a mapping",
}


class Error(NamedTuple):
    """What is wrong at one place of a value, as a sentence that says what was expected."""

    at: Location
    sentence: str
    known: Tuple[str, ...] = ()  # of a key that nobody knows: those that there are


def errors(value: object, shape: Any, at: Location = (), *, closed: bool = False) -> Iterator[Error]:
    """Every place of `value` that `shape` does not allow; `closed` also refuses keys that a TypedDict does not have."""
    origin = get_origin(shape)
    if shape in (object, Any):
        return
    if hasattr(shape, "__supertype__"):
        yield from _of_new_type(value, shape, at, closed)
    elif origin is Union:
        yield from _of_union(value, get_args(shape), at, closed)
    elif origin is Literal:
        if not any(value == allowed and type(value) is type(allowed) for allowed in get_args(shape)):
            yield Error(at, f"expected {alternatives(map(str, get_args(shape)))}")
    elif origin is list:
        yield from _of_list(value, get_args(shape)[0], at, closed)
    elif origin is dict:
        yield from _of_dict(value, get_args(shape)[1], at, closed)
    elif is_typed_dict(shape):
        yield from _of_typed_dict(value, shape, at, closed)
    elif not _is_plainly(value, shape):
        yield Error(at, f"expected {_NAMES.get(shape, 'nothing')}")


def first_error(value: object, shape: Any, name: str) -> Optional[str]:
    """The first place of a value, called `name`, that has another shape; None if all fits."""
    found = next(errors(value, shape), None)
    return None if found is None else name + "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in found.at)


def without_nothing(value: Mapping[str, Any]) -> Dict[str, Any]:
    """Without the keys that have no value, which earlier versions wrote."""
    return {key: inner for key, inner in value.items() if inner is not None}


@lru_cache(maxsize=None)
def fields(shape: Any) -> Dict[str, Any]:
    """The keys of a TypedDict and their types."""
    return get_type_hints(shape)


@lru_cache(maxsize=None)
def _required(shape: Any) -> FrozenSet[str]:
    """The keys that must be there. Python 3.8 knows of whole classes only whether all of theirs must."""
    known: FrozenSet[str] = getattr(shape, "__required_keys__", frozenset(fields(shape) if shape.__total__ else ()))
    return known - LATER.get(shape, frozenset())


def is_typed_dict(shape: Any) -> bool:
    return isinstance(shape, type) and issubclass(shape, dict) and hasattr(shape, "__total__")


def _is_plainly(value: object, shape: Any) -> bool:
    if shape is float:
        return type(value) in (int, float)
    return value is None if shape in (None, type(None)) else type(value) is shape


def _of_new_type(value: object, shape: Any, at: Location, closed: bool) -> Iterator[Error]:
    wrong = list(errors(value, shape.__supertype__, at, closed=closed))
    yield from wrong
    sentence = RULES[shape](value) if shape in RULES and not wrong else None
    if sentence:
        yield Error(at, sentence)


def _of_union(value: object, shapes: Tuple[Any, ...], at: Location, closed: bool) -> Iterator[Error]:
    """The errors of the alternative that comes closest: the one whose first error lies deepest."""
    found = [list(errors(value, shape, at, closed=closed)) for shape in shapes]
    if all(found):
        deepest = max(found, key=lambda of_one: len(of_one[0].at))
        if len(deepest[0].at) > len(at):
            yield from deepest
        else:
            expected = (of_one[0].sentence.replace("expected ", "", 1) for of_one in found)
            yield Error(at, f"expected {alternatives(dict.fromkeys(text for text in expected if text != 'nothing'))}")


def _of_list(value: object, inner: Any, at: Location, closed: bool) -> Iterator[Error]:
    if not isinstance(value, list):
        yield Error(at, "expected a list")
        return
    for index, item in enumerate(value):
        yield from errors(item, inner, (*at, index), closed=closed)


def _of_dict(value: object, inner: Any, at: Location, closed: bool) -> Iterator[Error]:
    if not isinstance(value, dict):
        yield Error(at, "expected a mapping")
        return
    for key, item in value.items():
        if isinstance(key, str):
            yield from errors(item, inner, (*at, key), closed=closed)
        else:
            yield Error(at, f"expected text as keys, got {key!r}")


def _of_typed_dict(value: object, shape: Any, at: Location, closed: bool) -> Iterator[Error]:
    if not isinstance(value, dict):
        yield Error(at, f"expected a mapping with the keys {', '.join(fields(shape))}")
        return
    for key, inner in fields(shape).items():
        if key in value:
            yield from errors(value[key], inner, (*at, key), closed=closed)
        elif key in _required(shape):
            yield Error((*at, key), MISSING)
    for key in value if closed else ():
        if key not in fields(shape):
            yield Error((*at, str(key)), "unknown key", tuple(fields(shape)))
