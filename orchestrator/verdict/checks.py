"""Whether an artifact is what its stage owes: its kind, columns or keys, number of rows, and machine checks."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, Mapping, Union

from orchestrator.shared.text import plain, shows

Row = Mapping[str, Any]
Number = Union[int, float]

_LARGEST = 1 << 1023  # larger integers are no floats
_MAX_BYTES = {"csv": 1 << 30, "jsonl": 1 << 30, "json": 64 << 20}


class _Bad(Exception):
    """The artifact is not what is owed; the message is a clause that follows its name."""


def problem_with(owed: Mapping[str, Any], f: BinaryIO) -> str | None:
    """What is wrong with the artifact in `f`, as a clause that follows its name; None if it is as owed.

    `owed` is an entry of the plan's `expect.artifacts`. A declared column of a table holds a finite number or a
    non-empty text in every row.
    """
    kind = owed.get("kind", "text")
    try:
        limit = _MAX_BYTES.get(kind)
        if limit is not None and os.fstat(f.fileno()).st_size > limit:
            return f"is larger than the {limit} bytes that a {kind} artifact may have"
        _KINDS[kind](owed, f)
    except _Bad as e:
        return str(e)
    except UnicodeDecodeError:
        return "is not UTF-8 text"
    return None


def _text(owed: Mapping[str, Any], f: BinaryIO) -> None:
    if not any(map(shows, iter(lambda: f.readline(1 << 16), b""))):
        raise _Bad("is empty" if f.tell() == 0 else "is blank")


def _csv(owed: Mapping[str, Any], f: BinaryIO) -> None:
    reader = csv.reader(io.TextIOWrapper(f, encoding="utf-8-sig", newline=""), strict=True)
    try:
        header = next(reader, None)
        if not header:
            raise _Bad("is empty" if header is None else "begins with a blank line instead of a header")
        if len(set(header)) < len(header):
            raise _Bad("has two columns of the same name")
        _check_table(owed, header, _csv_rows(reader, header))
    except csv.Error as e:
        raise _Bad(f"is not CSV: line {reader.line_num}: {e}") from e


def _csv_rows(reader: Iterator[Sequence[str]], header: Sequence[str]) -> Iterator[Row]:
    for number, fields in enumerate(reader, start=1):
        if len(fields) != len(header):
            raise _Bad(f"has {len(fields)} fields in row {number}, expected {len(header)}")
        yield {name: fields[i].strip() for i, name in enumerate(header)}


def _jsonl(owed: Mapping[str, Any], f: BinaryIO) -> None:
    _check_table(owed, None, (_parse(line, f"line {n}: ") for n, line in enumerate(f, start=1)))


def _json(owed: Mapping[str, Any], f: BinaryIO) -> None:
    content = _parse(f.read(), "")
    keys = owed.get("keys") or ()
    if keys and not isinstance(content, dict):
        raise _Bad("is not an object with keys")
    for key in keys:
        if key not in content:
            raise _Bad(f"lacks the key {plain(key, 80)!r}")
        if content[key] in ("", None):
            raise _Bad(f"holds nothing under the key {plain(key, 80)!r}")
    if content in ({}, [], "", None):
        raise _Bad("holds nothing")
    _check_table(owed, None, iter(content if isinstance(content, list) else [content]))


def _parse(text: bytes, where: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_no_constant, parse_float=_finite)
    except UnicodeDecodeError:
        raise
    except (ValueError, RecursionError) as e:
        raise _Bad(f"is not JSON: {where}{plain(e, 120)}") from e


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has the same key twice")
    return found


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    if math.isinf(float(text)):
        raise ValueError(f"{text} is out of range")
    return float(text)


def _check_table(owed: Mapping[str, Any], header: Sequence[str] | None, rows: Iterator[Any]) -> None:
    """Check all rows in one pass; `header` is None where each row (a JSON object) has its own keys."""
    columns = [*(owed.get("columns") or ()), *((owed.get("keys") or ()) if owed.get("kind") == "jsonl" else ())]
    checks = [_make_check(spec) for spec in owed.get("checks") or ()]
    named = [*columns, *(name for check in checks for name in check.columns)]
    if header is not None:
        _require(named, header, "the header")
    count = 0
    for count, row in enumerate(rows, start=1):
        if row in ({}, [], "", None) or (isinstance(row, dict) and all(cell in ("", None) for cell in row.values())):
            raise _Bad(f"holds nothing in row {count}")
        if named and not isinstance(row, dict):
            raise _Bad(f"holds no object in row {count}, expected the keys {plain(', '.join(named), 120)}")
        if header is None:
            _require(named, row, f"row {count}")
        for name in columns:
            _check_cell(row[name], name, count)
        for check in checks:
            check.see(row, count)
    if count < owed.get("min_rows", 1):
        shape = "has only a header" if header is not None and count == 0 else f"has {count} rows"
        raise _Bad(f"{shape}, expected at least {owed.get('min_rows', 1)} rows")
    for check in checks:
        check.finish()


def _require(names: Sequence[str], present: Sequence[str] | Row, where: str) -> None:
    for name in names:
        if name not in present:
            raise _Bad(f"lacks the column {plain(name, 80)!r} in {where}")


def _check_cell(value: Any, name: str, row: int) -> None:
    number = _number(value)
    if value is None or value == "":
        raise _Bad(f"is empty in row {row}, column {plain(name, 80)}")
    if number is not None and not math.isfinite(number):
        raise _Bad(f"holds {_show(value)} in row {row}, column {plain(name, 80)}, expected a finite value")


class _RowCheck:
    """A check that each row meets by itself; `judge` says what is wrong with a row."""

    def __init__(self, columns: Sequence[str], judge: Callable[[Row], str | None]) -> None:
        self.columns = columns
        self._judge = judge

    def see(self, row: Row, number: int) -> None:
        wrong = self._judge(row)
        if wrong:
            raise _Bad(f"fails in row {number}: {wrong}")

    def finish(self) -> None:
        """All was said row by row."""


class _AllFinite:
    """Every column that holds a number in some row holds a finite number in every row."""

    columns: Sequence[str] = ()

    def __init__(self) -> None:
        self._numeric: set[str] = set()
        self._first_other: dict[str, str] = {}

    def see(self, row: Any, number: int) -> None:
        for name, value in row.items() if isinstance(row, dict) else [("", row)]:
            found = _number(value)
            if found is not None:
                self._numeric.add(name)
            if found is None or not math.isfinite(found):
                self._first_other.setdefault(name, f"holds {_show(value)} in row {number}, column {plain(name, 80)}")

    def finish(self) -> None:
        for name, sentence in self._first_other.items():
            if name in self._numeric:
                raise _Bad(f"{sentence}, expected a finite number")


class _Distinct:
    """No two rows have the same values in `columns`."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = columns
        self._rows: dict[bytes, int] = {}

    def see(self, row: Row, number: int) -> None:
        values = repr([_same_for_equals(row[name]) for name in self.columns])
        digest = hashlib.sha256(values.encode("utf-8", "surrogatepass")).digest()
        same = self._rows.setdefault(digest, number)
        if same != number:
            shown = ", ".join(f"{plain(name, 80)} is {_show(row[name])}" for name in self.columns)
            raise _Bad(f"repeats itself: {shown} in rows {same} and {number}")

    def finish(self) -> None:
        """All was said row by row."""


def _make_check(spec: Mapping[str, Any]) -> _RowCheck | _AllFinite | _Distinct:
    """The check that a runbook's entry means; keys that are None are as if absent."""
    given = {key: value for key, value in spec.items() if value is not None}
    if given.get("finite") == "all":
        return _AllFinite()
    if "finite" in given:
        return _RowCheck(given["finite"], lambda row: _not_finite(row, given["finite"]))
    if "column" in given:
        return _RowCheck([given["column"]], lambda row: _out_of_range(row, given))
    if "sum" in given:
        return _RowCheck(given["sum"], lambda row: _wrong_sum(row, given))
    if "distinct" in given:
        return _Distinct(given["distinct"])
    if "equal" in given:
        return _RowCheck(given["equal"], lambda row: _unequal(row, *given["equal"]))
    raise _Bad(f"cannot be checked: the check {plain(sorted(given), 80)} is unknown")


def _not_finite(row: Row, columns: Sequence[str]) -> str | None:
    for name in columns:
        number = _number(row[name])
        if number is None or not math.isfinite(number):
            return f"{plain(name, 80)} is {_show(row[name])}, expected a finite number"
    return None


def _out_of_range(row: Row, spec: Mapping[str, Any]) -> str | None:
    name = spec["column"]
    wrong = _not_finite(row, [name])
    if wrong:
        return wrong
    number = _number(row[name])
    if number is not None and number < spec.get("min", -math.inf):
        return f"{plain(name, 80)} is {_show(row[name])}, expected at least {spec['min']:g}"
    if number is not None and number > spec.get("max", math.inf):
        return f"{plain(name, 80)} is {_show(row[name])}, expected at most {spec['max']:g}"
    return None


def _wrong_sum(row: Row, spec: Mapping[str, Any]) -> str | None:
    wrong = _not_finite(row, spec["sum"])
    if wrong:
        return wrong
    total = math.fsum(_number(row[name]) or 0 for name in spec["sum"])
    if abs(total - spec["near"]) <= spec["within"]:
        return None
    return f"{plain(' + '.join(spec['sum']), 120)} is {total:g}, expected {spec['near']:g} within {spec['within']:g}"


def _unequal(row: Row, left: str, right: str) -> str | None:
    a, b = (_number(row[name]) for name in (left, right))
    same = a == b if a is not None and b is not None else row[left] == row[right]
    if same and row[left] not in ("", None):
        return None
    return f"{plain(left, 80)} is {_show(row[left])} and {plain(right, 80)} is {_show(row[right])}, expected the same"


def _number(value: Any) -> Number | None:
    """The number that a cell holds: a JSON number, or text in the form of one; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        value = _parsed(value)
    if isinstance(value, int) and abs(value) >= _LARGEST:
        return math.inf if value > 0 else -math.inf
    return value if isinstance(value, (int, float)) else None


def _same_for_equals(value: Any) -> Any:
    """The value, numbers as such, whole ones as integers."""
    number = _number(value)
    if number is None:
        return value
    return int(number) if number // 1 == number else number


def _parsed(text: str) -> Number | None:
    """Text as a number; integers stay exact."""
    if "_" in text:  # Python reads 1_000, tables do not mean it
        return None
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return None


def _show(value: Any) -> str:
    return repr(plain(value, 40)) if isinstance(value, str) and _parsed(value) is None else plain(value, 40)


_KINDS: dict[str, Callable[[Mapping[str, Any], BinaryIO], None]] = {
    "text": _text,
    "csv": _csv,
    "json": _json,
    "jsonl": _jsonl,
}
