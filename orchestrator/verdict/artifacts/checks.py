"""Machine checks of a table's values. A new one is a class or a function, and a line in the table at the end."""

from __future__ import annotations

import hashlib
import math
import re
from decimal import Decimal
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

from orchestrator.shared.schema import RULES, Error, Location, errors, fields, without_nothing
from orchestrator.shared.text import plain, wrong_expression
from orchestrator.verdict.artifacts.cells import (
    Row,
    holds_nothing,
    is_finite,
    named,
    number_in,
    same,
    says_no_choice,
    shown,
)
from orchestrator.verdict.artifacts.columns import Allowed
from orchestrator.verdict.artifacts.kind import Bad, Finding, Weight


def _asked_values(columns: Mapping[str, Sequence[object]]) -> Optional[str]:
    if not columns or not all(columns.values()):
        return "expected a column with its values"
    numbers = (value for values in columns.values() for value in values if isinstance(value, (int, float)))
    return None if all(isinstance(number, bool) or is_finite(number) for number in numbers) else _FINITE


def _columns(names: Sequence[str]) -> Optional[str]:
    if not names:
        return "expected at least one column"
    return None if len(set(names)) == len(names) else "expected each column once"


def _two(names: Sequence[str]) -> Optional[str]:
    if len(names) != 2:
        return "expected two columns"
    return None if names[0] != names[1] else "expected two different columns"


Columns = NewType("Columns", List[str])
Two = NewType("Two", List[str])
Finite = NewType("Finite", float)
Distance = NewType("Distance", float)
Pattern = NewType("Pattern", str)
Values = NewType("Values", Dict[str, List[Union[str, float, bool]]])
_FINITE = "expected a finite number"
RULES[Columns] = _columns
RULES[Two] = _two
RULES[Finite] = lambda number: None if is_finite(number) else _FINITE
RULES[Distance] = lambda number: None if is_finite(number) and number >= 0 else f"{_FINITE} of at least 0"
RULES[Pattern] = wrong_expression
RULES[Values] = _asked_values


class Check:
    """Sees every row of a table; `columns` must be there. Of those in `listed` it names all that they may hold."""

    columns: Sequence[str] = ()
    listed: Sequence[str] = ()

    def see(self, row: Any, number: int) -> Iterator[Finding]:
        """What is wrong with a row."""
        return iter(())

    def finish(self) -> Iterator[Finding]:
        """What only all rows tell, after the last one."""
        return iter(())


class _OfColumns(Check):
    """A check of some columns. A row that holds an allowed word there has no value to check; one row at least must."""

    def __init__(self, columns: Sequence[str], allowed: Allowed, unmet: Weight) -> None:
        self.columns = columns
        self._allowed, self._unmet = allowed, unmet
        self._seen = self._passed_over = 0

    def see(self, row: Row, number: int) -> Iterator[Finding]:
        if self._is_passed_over([self._allowed.holds(row, name) for name in self.columns]):
            self._passed_over += 1
            return
        self._seen += 1
        yield from self._look(row, number)

    def _is_passed_over(self, allowed: Sequence[bool]) -> bool:
        return any(allowed)

    def _look(self, row: Row, number: int) -> Iterator[Finding]:
        return iter(())

    def finish(self) -> Iterator[Finding]:
        if self._passed_over and not self._seen:
            where = plain(", ".join(self.columns), 120)
            yield Finding(f"holds nothing but allowed words in {where}, expected a row with values to check", since=2)


class _EachRow(_OfColumns):
    """A check that each row meets by itself; `problem` says what is wrong with a row."""

    def __init__(
        self,
        columns: Sequence[str],
        problem: Callable[[Row], Optional[Finding]],
        allowed: Allowed,
        unmet: Weight,
    ) -> None:
        super().__init__(columns, allowed, unmet)
        self._problem = problem

    def _look(self, row: Row, number: int) -> Iterator[Finding]:
        wrong = self._problem(row)
        if wrong:
            weight = self._unmet if wrong.weight == "unmet" else wrong.weight
            yield Finding(f"fails in row {number}: {wrong.sentence}", weight)


class _AllFinite(Check):
    """Every column that holds a number in some row holds a finite number in every row."""

    def __init__(self, allowed: Allowed, unmet: Weight) -> None:
        self._allowed, self._unmet = allowed, unmet
        self._known: Dict[str, None] = {}
        self._numeric: Set[str] = set()
        self._first_other: Dict[Tuple[str, Weight], Finding] = {}

    def see(self, row: Any, number: int) -> Iterator[Finding]:
        cells = row if isinstance(row, dict) else {"": row}
        new = [name for name in cells if name not in self._known]
        for name in new if number > 1 else ():
            self._look({}, name, 1)
        self._known.update(dict.fromkeys(new))
        for name in self._known:
            self._look(cells, name, number)
        return iter(())

    def _look(self, cells: Row, name: str, number: int) -> None:
        if self._allowed.holds(cells, name):
            return
        found = [number_in(part) for part in _parts(cells.get(name))]
        if any(part is not None for part in found):
            self._numeric.add(name)
        if found == [None] or (name in self._numeric and any(part is None for part in _parts(cells.get(name)))):
            self._first_other.setdefault((name, "absent"), self._absent(cells, name, number))
        elif any(part is not None and not math.isfinite(part) for part in found):
            sentence = f"holds {shown(cells[name])} in row {number}, column {named(name)}, expected a finite number"
            self._first_other.setdefault((name, self._unmet), Finding(sentence, self._unmet))

    def _absent(self, cells: Row, name: str, number: int) -> Finding:
        if name not in cells:
            what = f"lacks the column {named(name)!r} in row {number}"
            return Finding(f"{what}, expected a finite number as in other rows", since=2)
        return Finding(f"holds {shown(cells[name])} in row {number}, column {named(name)}, expected a finite number")

    def finish(self) -> Iterator[Finding]:
        for (name, _), finding in self._first_other.items():
            if name in self._numeric:
                yield finding


class _Distinct(_OfColumns):
    """No two rows have the same values in `columns`."""

    def __init__(self, columns: Sequence[str], allowed: Allowed, unmet: Weight) -> None:
        super().__init__(columns, allowed, unmet)
        self._rows: Dict[bytes, int] = {}

    def _is_passed_over(self, allowed: Sequence[bool]) -> bool:
        return all(allowed)

    def _look(self, row: Row, number: int) -> Iterator[Finding]:
        values = repr([same(row[name]) for name in self.columns])
        digest = hashlib.sha256(values.encode("utf-8", "surrogatepass")).digest()
        first = self._rows.setdefault(digest, number)
        if first != number:
            both = ", ".join(f"{named(name)} is {shown(row[name])}" for name in self.columns)
            yield Finding(f"repeats itself: {both} in rows {first} and {number}", self._unmet)


class _Values(Check):
    """Each of the columns holds each of the values that are asked for it, and no other."""

    def __init__(self, asked: Mapping[str, Sequence[object]], allowed: Allowed, unmet: Weight) -> None:
        self.columns = self.listed = list(asked)
        self._allowed = allowed
        self._asked = {name: {same(value) for value in values} for name, values in asked.items()}
        self._left = {name: {same(value): value for value in values} for name, values in asked.items()}
        self._shown = {name: plain(", ".join(map(str, values)), 80) for name, values in asked.items()}
        self._unmet = unmet

    def see(self, row: Row, number: int) -> Iterator[Finding]:
        for name in (name for name in self.columns if not self._allowed.holds(row, name)):
            value = same(row[name])
            self._left[name].pop(value, None)
            if value not in self._asked[name]:
                weight: Weight = "absent" if holds_nothing(row[name]) else self._unmet
                sentence = f"{named(name)} is {shown(row[name])}, expected one of {self._shown[name]}"
                yield Finding(f"fails in row {number}: {sentence}", weight)

    def finish(self) -> Iterator[Finding]:
        for name, left in self._left.items():
            for value in left.values():
                yield Finding(f"holds no row in which {named(name)} is {shown(value)}", self._unmet)


def _parts(value: Any) -> List[Any]:
    """Of a cell, the samples in it: JSON may have a list of them."""
    return value if isinstance(value, list) and value else [value]


def _sample_not_finite(row: Row, name: str) -> Optional[Finding]:
    if all(map(is_finite, _parts(row[name]))):
        return None
    return _not_finite(row, [name])


class OnDevice(Check):
    """What a table that is asked for its device says of it."""

    column = "device"
    _CUDA = re.compile(r"cuda(?::\w+)?", re.IGNORECASE)

    def see(self, row: Any, number: int) -> Iterator[Finding]:
        value = row.get(self.column) if isinstance(row, dict) else None
        if isinstance(value, str) and self._CUDA.fullmatch(value):
            where = f"in row {number}, column {self.column}"
            yield Finding(f"holds {shown(value)} {where}, but the pod has no CUDA GPU", "elsewhere", since=2)


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
        return Finding(f"{named(name)} is {shown(row[name])}, expected at least {spec['min']:.15g}", "unmet")
    if number is not None and number > spec.get("max", math.inf):
        return Finding(f"{named(name)} is {shown(row[name])}, expected at most {spec['max']:.15g}", "unmet")
    return None


def _no_match(value: Any, name: str, pattern: str) -> Optional[Finding]:
    if holds_nothing(value):
        return Finding(f"{named(name)} is empty, expected a match of {plain(pattern, 80)!r}")
    if all(re.search(pattern, str(part)) for part in _parts(value)):
        return None
    return Finding(f"{named(name)} is {shown(value)}, expected a match of {plain(pattern, 80)!r}", "unmet")


def _sum(row: Row, spec: Mapping[str, Any]) -> Optional[Finding]:
    wrong = _not_finite(row, spec["sum"])
    if wrong:
        return wrong
    total = sum(_exact(number_in(row[name])) for name in spec["sum"])
    if abs(total - _exact(spec["near"])) <= _exact(spec["within"]):
        return None
    names = plain(" + ".join(spec["sum"]), 120)
    return Finding(
        f"{names} is {float(total):.15g}, expected {spec['near']:.15g} within {spec['within']:.15g}", "unmet"
    )


def _exact(number: object) -> Decimal:
    """As it is written: 33.3 three times is 99.9."""
    return Decimal(str(number))


def _equal(row: Row, left: str, right: str) -> Optional[Finding]:
    a, b = row[left], row[right]
    nothing = holds_nothing(a) or holds_nothing(b) or (says_no_choice(a) and says_no_choice(b))
    is_same = a == b if isinstance(a, (dict, list)) else same(a) == same(b) and not _is_nan(a)
    if is_same and not nothing:
        return None
    sentence = f"{named(left)} is {shown(row[left])} and {named(right)} is {shown(row[right])}, expected the same"
    return Finding(sentence, "absent" if nothing else "unmet")


def _is_nan(value: Any) -> bool:
    number = number_in(value)
    return number is not None and math.isnan(number)


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
    return [_EachRow([name], partial(_sample_not_finite, name=name), allowed, unmet) for name in spec["finite"]]


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
        "{distinct}",
        AsksDistinct,
        _all_of(),
        lambda spec, allowed, unmet: [_Distinct(spec["distinct"], allowed, unmet)],
    ),
    "values": _Kind(
        "{values}", AsksValues, _all_of(), lambda spec, allowed, unmet: [_Values(spec["values"], allowed, unmet)]
    ),
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
    given = without_nothing(spec)
    unknown = [Error((*at, str(key)), "unknown key", _KEYS) for key in given if key not in _KEYS]
    yield from unknown
    kind = _kind_of(given)
    if kind is None or not kind.needs(given) or any(key not in fields(kind.asks) for key in given):
        yield from () if unknown else [Error(at, _EXPECTED)]
    else:
        found = list(errors(given, kind.asks, at))
        yield from found
        if not found and given.get("min", -math.inf) > given.get("max", math.inf):
            yield Error((*at, "min"), f"expected at most max, which is {given['max']:.15g}")


def make(spec: Mapping[str, Any], allowed: Allowed) -> List[Check]:
    """The checks that a runbook's entry means."""
    given = without_nothing(spec)
    kind = _kind_of(given)
    if kind is None:
        raise Bad(f"cannot be checked: the check {plain(sorted(given), 80)} is unknown")
    return kind.make(given, allowed, "impossible" if given.get("impossible") else "unmet")


def _kind_of(given: Mapping[str, Any]) -> Optional[_Kind]:
    return next((_KINDS[key] for key in _KINDS if key in given), None)
