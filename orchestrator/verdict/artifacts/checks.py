"""Machine checks of a table's values. A new one is a class or a function, and a line in the table at the end."""

from __future__ import annotations

import hashlib
import math
import re
from functools import partial
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
    Set,
    Tuple,
    TypedDict,
    Union,
)

from orchestrator.shared.schema import RULES, Error, Location, errors, fields
from orchestrator.shared.text import plain
from orchestrator.verdict.artifacts.cells import Row, as_equal, holds_nothing, is_finite, named, number_in, shown
from orchestrator.verdict.artifacts.columns import Allowed
from orchestrator.verdict.artifacts.kind import Bad, Finding, Weight


def _pattern(text: str) -> Optional[str]:
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError) as e:
        return f"expected a regular expression: {plain(e, 80)}"
    return None


def _asked_values(columns: Mapping[str, Sequence[object]]) -> Optional[str]:
    return None if columns and all(columns.values()) else "expected a column with its values"


Columns = NewType("Columns", List[str])
Two = NewType("Two", List[str])
Finite = NewType("Finite", float)
Distance = NewType("Distance", float)
Pattern = NewType("Pattern", str)
Values = NewType("Values", Dict[str, List[Union[str, float, bool]]])
RULES[Columns] = lambda names: None if names else "expected at least one column"
RULES[Two] = lambda names: None if len(names) == 2 else "expected two columns"
RULES[Finite] = lambda number: None if math.isfinite(number) else "expected a finite number"
RULES[Distance] = lambda number: None if 0 <= number < math.inf else "expected a finite number of at least 0"
RULES[Pattern] = _pattern
RULES[Values] = _asked_values


class Check:
    """Sees every row of a table; `columns` must be there."""

    columns: Sequence[str] = ()

    def see(self, row: Any, number: int) -> Iterator[Finding]:
        """What is wrong with a row."""
        return iter(())

    def finish(self) -> Iterator[Finding]:
        """What only all rows tell, after the last one."""
        return iter(())


class _EachRow(Check):
    """A check that each row meets by itself; `problem` says what is wrong with a row.

    A row that holds an allowed word in one of the columns has no value to check; one row at least must have.
    """

    def __init__(
        self,
        columns: Sequence[str],
        problem: Callable[[Row], Optional[Finding]],
        allowed: Allowed,
        unmet: Weight,
    ) -> None:
        self.columns = columns
        self._problem, self._allowed, self._unmet = problem, allowed, unmet
        self._seen = self._passed_over = 0

    def see(self, row: Row, number: int) -> Iterator[Finding]:
        if any(self._allowed.holds(row, name) for name in self.columns):
            self._passed_over += 1
            return
        self._seen += 1
        wrong = self._problem(row)
        if wrong:
            weight = self._unmet if wrong.weight == "unmet" else wrong.weight
            yield Finding(f"fails in row {number}: {wrong.sentence}", weight)

    def finish(self) -> Iterator[Finding]:
        if self._passed_over and not self._seen:
            where = plain(", ".join(self.columns), 120)
            yield Finding(f"holds nothing but allowed words in {where}, expected a row with values to check", since=2)


class _AllFinite(Check):
    """Every column that holds a number in some row holds a finite number in every row."""

    def __init__(self, allowed: Allowed, unmet: Weight) -> None:
        self._allowed, self._unmet = allowed, unmet
        self._numeric: Set[str] = set()
        self._first_other: Dict[Tuple[str, Weight], str] = {}

    def see(self, row: Any, number: int) -> Iterator[Finding]:
        for name, value in row.items() if isinstance(row, dict) else [("", row)]:
            if isinstance(row, dict) and self._allowed.holds(row, name):
                continue
            found = number_in(value)
            if found is not None:
                self._numeric.add(name)
            if found is None or not math.isfinite(found):
                weight: Weight = "absent" if found is None else self._unmet
                sentence = f"holds {shown(value)} in row {number}, column {named(name)}, expected a finite number"
                self._first_other.setdefault((name, weight), sentence)
        return iter(())

    def finish(self) -> Iterator[Finding]:
        for (name, weight), sentence in self._first_other.items():
            if name in self._numeric:
                yield Finding(sentence, weight)


class _Distinct(Check):
    """No two rows have the same values in `columns`."""

    def __init__(self, columns: Sequence[str], unmet: Weight) -> None:
        self.columns = columns
        self._unmet = unmet
        self._rows: Dict[bytes, int] = {}

    def see(self, row: Row, number: int) -> Iterator[Finding]:
        values = repr([as_equal(row[name]) for name in self.columns])
        digest = hashlib.sha256(values.encode("utf-8", "surrogatepass")).digest()
        same = self._rows.setdefault(digest, number)
        if same != number:
            both = ", ".join(f"{named(name)} is {shown(row[name])}" for name in self.columns)
            yield Finding(f"repeats itself: {both} in rows {same} and {number}", self._unmet)


class _Values(Check):
    """Each of the columns holds each of the values that are asked for it, and no other."""

    def __init__(self, asked: Mapping[str, Sequence[object]], unmet: Weight) -> None:
        self.columns = list(asked)
        self._asked = {name: {_same(value) for value in values} for name, values in asked.items()}
        self._left = {name: {_same(value): value for value in values} for name, values in asked.items()}
        self._shown = {name: plain(", ".join(map(str, values)), 80) for name, values in asked.items()}
        self._unmet = unmet

    def see(self, row: Row, number: int) -> Iterator[Finding]:
        for name in self.columns:
            value = _same(row[name])
            self._left[name].pop(value, None)
            if value not in self._asked[name]:
                weight: Weight = "absent" if holds_nothing(row[name]) else self._unmet
                sentence = f"{named(name)} is {shown(row[name])}, expected one of {self._shown[name]}"
                yield Finding(f"fails in row {number}: {sentence}", weight)

    def finish(self) -> Iterator[Finding]:
        for name, left in self._left.items():
            for value in left.values():
                yield Finding(f"holds no row in which {named(name)} is {shown(value)}", self._unmet)


def _same(value: Any) -> str:
    """Equal for cells that hold the same; true and "True" are, as CSV has no other way to say it."""
    if isinstance(value, bool) or (isinstance(value, str) and value.lower() in ("true", "false")):
        return str(value).lower()
    return repr(as_equal(value))


def _not_finite(row: Row, columns: Sequence[str]) -> Optional[Finding]:
    for name in columns:
        if not is_finite(row[name]):
            weight: Weight = "absent" if number_in(row[name]) is None else "unmet"
            return Finding(f"{named(name)} is {shown(row[name])}, expected a finite number", weight)
    return None


def _in_range(row: Row, spec: Mapping[str, Any]) -> Optional[Finding]:
    name = spec["column"]
    if "matches" in spec:
        wrong = _no_match(row[name], name, spec["matches"])
        if wrong or not {"min", "max"} & spec.keys():
            return wrong
    wrong = _not_finite(row, [name])
    if wrong:
        return wrong
    number = number_in(row[name])
    if number is not None and number < spec.get("min", -math.inf):
        return Finding(f"{named(name)} is {shown(row[name])}, expected at least {spec['min']:g}", "unmet")
    if number is not None and number > spec.get("max", math.inf):
        return Finding(f"{named(name)} is {shown(row[name])}, expected at most {spec['max']:g}", "unmet")
    return None


def _no_match(value: Any, name: str, pattern: str) -> Optional[Finding]:
    if holds_nothing(value):
        return Finding(f"{named(name)} is empty, expected a match of {plain(pattern, 80)!r}")
    if re.search(pattern, str(value)):
        return None
    return Finding(f"{named(name)} is {shown(value)}, expected a match of {plain(pattern, 80)!r}", "unmet")


def _sum(row: Row, spec: Mapping[str, Any]) -> Optional[Finding]:
    wrong = _not_finite(row, spec["sum"])
    if wrong:
        return wrong
    try:
        total = math.fsum(number_in(row[name]) or 0 for name in spec["sum"])
    except OverflowError:
        total = math.inf
    if abs(total - spec["near"]) <= spec["within"]:
        return None
    names = plain(" + ".join(spec["sum"]), 120)
    return Finding(f"{names} is {total:g}, expected {spec['near']:g} within {spec['within']:g}", "unmet")


def _equal(row: Row, left: str, right: str) -> Optional[Finding]:
    a, b = (number_in(row[name]) for name in (left, right))
    same = a == b if a is not None and b is not None else row[left] == row[right]
    nothing = holds_nothing(row[left]) or holds_nothing(row[right])
    if same and not nothing:
        return None
    sentence = f"{named(left)} is {shown(row[left])} and {named(right)} is {shown(row[right])}, expected the same"
    return Finding(sentence, "absent" if nothing else "unmet")


def _at_most(row: Row, small: str, large: str) -> Optional[Finding]:
    wrong = _not_finite(row, [small, large])
    a, b = (number_in(row[name]) for name in (small, large))
    if wrong or a is None or b is None or a <= b:
        return wrong
    sentence = f"{named(small)} is {shown(row[small])}, expected at most {named(large)}, which is {shown(row[large])}"
    return Finding(sentence, "unmet")


class _Asks(TypedDict, total=False):
    """Of every check: whether a value that does not hold cannot be, so that the evidence is `invalid`."""

    impossible: bool


class AsksFinite(_Asks, total=False):
    finite: Union[Literal["all"], Columns]


class AsksOfColumn(_Asks, total=False):
    column: str
    min: Finite
    max: Finite
    matches: Pattern


class AsksSum(_Asks, total=False):
    sum: Columns
    near: Finite
    within: Distance


class AsksEqual(_Asks, total=False):
    equal: Two


class AsksAtMost(_Asks, total=False):
    at_most: Two


class AsksDistinct(_Asks, total=False):
    distinct: Columns


class AsksValues(_Asks, total=False):
    values: Values


_Make = Callable[[Mapping[str, Any], Allowed, Weight], List[Check]]


class _Kind(NamedTuple):
    """A kind of check: its form for people, its keys, which of them it cannot do without, and how it is made."""

    form: str
    asks: Any
    needs: Callable[[Mapping[str, Any]], bool]
    make: _Make


def _all_of(*keys: str) -> Callable[[Mapping[str, Any]], bool]:
    return lambda given: all(key in given for key in keys)


def _each_row(
    columns: Callable[[Mapping[str, Any]], Sequence[str]],
    problem: Callable[[Row, Mapping[str, Any]], Optional[Finding]],
) -> _Make:
    """How a check that each row meets by itself is made from what is asked."""
    return lambda spec, allowed, unmet: [_EachRow(columns(spec), lambda row: problem(row, spec), allowed, unmet)]


def _finite(spec: Mapping[str, Any], allowed: Allowed, unmet: Weight) -> List[Check]:
    if spec["finite"] == "all":
        return [_AllFinite(allowed, unmet)]
    return [_EachRow([name], partial(_not_finite, columns=[name]), allowed, unmet) for name in spec["finite"]]


# By the key that tells which one is meant.
_KINDS: Mapping[str, _Kind] = {
    "finite": _Kind("{finite}", AsksFinite, _all_of(), _finite),
    "column": _Kind(
        "{column, min, max and/or matches}",
        AsksOfColumn,
        lambda given: bool({"min", "max", "matches"} & given.keys()),
        _each_row(lambda spec: [spec["column"]], _in_range),
    ),
    "sum": _Kind("{sum, near, within}", AsksSum, _all_of("near", "within"), _each_row(lambda spec: spec["sum"], _sum)),
    "equal": _Kind(
        "{equal}",
        AsksEqual,
        _all_of(),
        _each_row(lambda spec: spec["equal"], lambda row, spec: _equal(row, *spec["equal"])),
    ),
    "at_most": _Kind(
        "{at_most}",
        AsksAtMost,
        _all_of(),
        _each_row(lambda spec: spec["at_most"], lambda row, spec: _at_most(row, *spec["at_most"])),
    ),
    "distinct": _Kind(
        "{distinct}", AsksDistinct, _all_of(), lambda spec, allowed, unmet: [_Distinct(spec["distinct"], unmet)]
    ),
    "values": _Kind("{values}", AsksValues, _all_of(), lambda spec, allowed, unmet: [_Values(spec["values"], unmet)]),
}
_FORMS = [kind.form for kind in _KINDS.values()]
_EXPECTED = f"expected {', '.join(_FORMS[:-1])} or {_FORMS[-1]}"
_KEYS = tuple(dict.fromkeys(key for kind in _KINDS.values() for key in fields(kind.asks)))


def shapes() -> Iterator[Tuple[Any, List[str]]]:
    """Of each kind of check, the TypedDict of its keys, and those that it cannot do without."""
    for name, kind in _KINDS.items():
        keys = fields(kind.asks)
        yield kind.asks, [key for key in keys if key == name or not kind.needs({k: 0 for k in keys if k != key})]


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


def make(spec: Mapping[str, Any], allowed: Allowed) -> List[Check]:
    """The checks that a runbook's entry means."""
    given = _given(spec)
    kind = _kind_of(given)
    if kind is None:
        raise Bad(f"cannot be checked: the check {plain(sorted(given), 80)} is unknown")
    return kind.make(given, allowed, "impossible" if given.get("impossible") else "unmet")


def _given(spec: Mapping[str, Any]) -> Dict[str, Any]:
    """Keys that are None are as if absent."""
    return {key: value for key, value in spec.items() if value is not None}


def _kind_of(given: Mapping[str, Any]) -> Optional[_Kind]:
    return next((_KINDS[key] for key in _KINDS if key in given), None)
