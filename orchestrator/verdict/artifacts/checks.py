"""Machine checks of a table's values. A new one is a class or a function, and a line in the table at the end."""

from __future__ import annotations

import hashlib
import math
from typing import (
    Any,
    Callable,
    Dict,
    Iterator,
    List,
    Literal,
    Mapping,
    NamedTuple,
    NewType,
    Optional,
    Sequence,
    TypedDict,
    Union,
)

from orchestrator.shared.schema import RULES, Error, Location, errors, fields
from orchestrator.shared.text import plain
from orchestrator.verdict.artifacts.cells import Row, as_equal, named, number_in, shown
from orchestrator.verdict.artifacts.kind import Bad

Columns = NewType("Columns", List[str])
Two = NewType("Two", List[str])
Finite = NewType("Finite", float)
Distance = NewType("Distance", float)
RULES[Columns] = lambda names: None if names else "expected at least one column"
RULES[Two] = lambda names: None if len(names) == 2 else "expected two columns"
RULES[Finite] = lambda number: None if math.isfinite(number) else "expected a finite number"
RULES[Distance] = lambda number: None if 0 <= number < math.inf else "expected a finite number of at least 0"


class Check:
    """Sees every row of a table; `columns` must be there."""

    columns: Sequence[str] = ()

    def see(self, row: Any, number: int) -> None:
        """Look at a row; Bad if it says enough."""

    def finish(self) -> None:
        """After the last row; Bad for what only all rows tell."""


class _EachRow(Check):
    """A check that each row meets by itself; `problem` says what is wrong with a row."""

    def __init__(self, columns: Sequence[str], problem: Callable[[Row], Optional[str]]) -> None:
        self.columns = columns
        self._problem = problem

    def see(self, row: Row, number: int) -> None:
        wrong = self._problem(row)
        if wrong:
            raise Bad(f"fails in row {number}: {wrong}")


class _AllFinite(Check):
    """Every column that holds a number in some row holds a finite number in every row."""

    def __init__(self) -> None:
        self._numeric: set[str] = set()
        self._first_other: Dict[str, str] = {}

    def see(self, row: Any, number: int) -> None:
        for name, value in row.items() if isinstance(row, dict) else [("", row)]:
            found = number_in(value)
            if found is not None:
                self._numeric.add(name)
            if found is None or not math.isfinite(found):
                self._first_other.setdefault(name, f"holds {shown(value)} in row {number}, column {named(name)}")

    def finish(self) -> None:
        for name, sentence in self._first_other.items():
            if name in self._numeric:
                raise Bad(f"{sentence}, expected a finite number")


class _Distinct(Check):
    """No two rows have the same values in `columns`."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = columns
        self._rows: Dict[bytes, int] = {}

    def see(self, row: Row, number: int) -> None:
        values = repr([as_equal(row[name]) for name in self.columns])
        digest = hashlib.sha256(values.encode("utf-8", "surrogatepass")).digest()
        same = self._rows.setdefault(digest, number)
        if same != number:
            both = ", ".join(f"{named(name)} is {shown(row[name])}" for name in self.columns)
            raise Bad(f"repeats itself: {both} in rows {same} and {number}")


def _finite(spec: Mapping[str, Any]) -> Check:
    if spec["finite"] == "all":
        return _AllFinite()
    return _EachRow(spec["finite"], lambda row: _not_finite(row, spec["finite"]))


def _not_finite(row: Row, columns: Sequence[str]) -> Optional[str]:
    for name in columns:
        number = number_in(row[name])
        if number is None or not math.isfinite(number):
            return f"{named(name)} is {shown(row[name])}, expected a finite number"
    return None


def _in_range(row: Row, spec: Mapping[str, Any]) -> Optional[str]:
    name = spec["column"]
    wrong = _not_finite(row, [name])
    if wrong:
        return wrong
    number = number_in(row[name])
    if number is not None and number < spec.get("min", -math.inf):
        return f"{named(name)} is {shown(row[name])}, expected at least {spec['min']:g}"
    if number is not None and number > spec.get("max", math.inf):
        return f"{named(name)} is {shown(row[name])}, expected at most {spec['max']:g}"
    return None


def _sum(row: Row, spec: Mapping[str, Any]) -> Optional[str]:
    wrong = _not_finite(row, spec["sum"])
    if wrong:
        return wrong
    total = math.fsum(number_in(row[name]) or 0 for name in spec["sum"])
    if abs(total - spec["near"]) <= spec["within"]:
        return None
    return f"{plain(' + '.join(spec['sum']), 120)} is {total:g}, expected {spec['near']:g} within {spec['within']:g}"


def _equal(row: Row, left: str, right: str) -> Optional[str]:
    a, b = (number_in(row[name]) for name in (left, right))
    same = a == b if a is not None and b is not None else row[left] == row[right]
    if same and row[left] not in ("", None):
        return None
    return f"{named(left)} is {shown(row[left])} and {named(right)} is {shown(row[right])}, expected the same"


class AsksFinite(TypedDict, total=False):
    finite: Union[Literal["all"], Columns]


class AsksRange(TypedDict, total=False):
    column: str
    min: Finite
    max: Finite


class AsksSum(TypedDict, total=False):
    sum: Columns
    near: Finite
    within: Distance


class AsksEqual(TypedDict, total=False):
    equal: Two


class AsksDistinct(TypedDict, total=False):
    distinct: Columns


class _Kind(NamedTuple):
    """A kind of check: its form for people, its keys, which of them it cannot do without, and how it is made."""

    form: str
    asks: Any
    needs: Callable[[Mapping[str, Any]], bool]
    make: Callable[[Mapping[str, Any]], Check]


def _all_of(*keys: str) -> Callable[[Mapping[str, Any]], bool]:
    return lambda given: all(key in given for key in keys)


# By the key that tells which one is meant.
_KINDS: Mapping[str, _Kind] = {
    "finite": _Kind("{finite}", AsksFinite, _all_of(), _finite),
    "column": _Kind(
        "{column, min and/or max}",
        AsksRange,
        lambda given: "min" in given or "max" in given,
        lambda spec: _EachRow([spec["column"]], lambda row: _in_range(row, spec)),
    ),
    "sum": _Kind(
        "{sum, near, within}",
        AsksSum,
        _all_of("near", "within"),
        lambda spec: _EachRow(spec["sum"], lambda row: _sum(row, spec)),
    ),
    "equal": _Kind(
        "{equal}", AsksEqual, _all_of(), lambda spec: _EachRow(spec["equal"], lambda row: _equal(row, *spec["equal"]))
    ),
    "distinct": _Kind("{distinct}", AsksDistinct, _all_of(), lambda spec: _Distinct(spec["distinct"])),
}
_FORMS = [kind.form for kind in _KINDS.values()]
_EXPECTED = f"expected {', '.join(_FORMS[:-1])} or {_FORMS[-1]}"
_KEYS = tuple(dict.fromkeys(key for kind in _KINDS.values() for key in fields(kind.asks)))


def wrong(spec: object, at: Location) -> Iterator[Error]:
    """What is wrong with a check as it is written, by its place."""
    if not isinstance(spec, dict):
        yield Error(at, _EXPECTED)
        return
    given = _given(spec)
    unknown = [Error((*at, str(key)), "unknown key", _KEYS) for key in given if key not in _KEYS]
    yield from unknown
    kind = _kind_of(given)
    if kind is None or not kind.needs(given) or any(key not in fields(kind.asks) for key in given):
        yield from () if unknown else [Error(at, _EXPECTED)]
    else:
        yield from errors(given, kind.asks, at)


def make(spec: Mapping[str, Any]) -> Check:
    """The check that a runbook's entry means."""
    given = _given(spec)
    kind = _kind_of(given)
    if kind is None:
        raise Bad(f"cannot be checked: the check {plain(sorted(given), 80)} is unknown")
    return kind.make(given)


def _given(spec: Mapping[str, Any]) -> Dict[str, Any]:
    """Keys that are None are as if absent."""
    return {key: value for key, value in spec.items() if value is not None}


def _kind_of(given: Mapping[str, Any]) -> Optional[_Kind]:
    return next((_KINDS[key] for key in _KINDS if key in given), None)
