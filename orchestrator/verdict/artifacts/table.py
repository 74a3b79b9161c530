"""Tables: CSV, JSON and JSON lines, whose rows are read once, for their columns and for the checks of their values."""

from __future__ import annotations

import csv
import io
from typing import (
    Any,
    BinaryIO,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    NewType,
    Optional,
    Sequence,
    Tuple,
    TypedDict,
    TypeVar,
    Union,
)

from orchestrator.shared import strict_json
from orchestrator.shared.schema import RULES, Error, Location
from orchestrator.shared.text import plain
from orchestrator.verdict.artifacts import checks, figures, own_verdict
from orchestrator.verdict.artifacts.cells import (
    Row,
    holds_no_value,
    holds_nothing,
    is_finite,
    named,
    number_in,
    shown,
    stray_in,
)
from orchestrator.verdict.artifacts.columns import Allowed, Words
from orchestrator.verdict.artifacts.kind import Bad, Finding, Kind
from orchestrator.verdict.artifacts.reading import Beside, Reading

T = TypeVar("T")
Count = NewType("Count", int)
RULES[Count] = lambda number: None if number >= 1 else "expected a whole number of at least 1"


class AsksOfCsv(TypedDict, total=False):
    """Columns whose every cell is a finite number or a text that is not blank; how many rows at least; checks; by
    column, words that may stand where numbers are owed; which columns are figures."""

    columns: List[str]
    min_rows: Count
    checks: List[Any]
    allow: Dict[str, List[str]]
    figures: figures.Asked


class AsksOfJson(TypedDict, total=False):
    """As of a CSV file; and keys that must be there and hold something."""

    columns: List[str]
    keys: List[str]
    min_rows: Count
    checks: List[Any]
    allow: Dict[str, List[str]]
    figures: figures.Asked


def _csv(asked: Mapping[str, Any], f: BinaryIO) -> Iterator[Finding]:
    header, rows = _read_csv(f)
    yield from _Table(asked, header).findings(rows)


def _read_csv(f: BinaryIO) -> Tuple[Sequence[str], Iterator[Row]]:
    """The header, and the rows as they are read."""
    lines = _csv_lines(csv.reader(io.TextIOWrapper(f, encoding="utf-8-sig", newline=""), strict=True))
    first = next(lines, None)
    if not first:
        raise Bad("is empty" if first is None else "begins with a blank line instead of a header")
    header = [name.strip() for name in first]
    if len(set(header)) < len(header):
        raise Bad("has two columns of the same name")
    return header, _csv_rows(lines, header)


def _csv_lines(reader: Any) -> Iterator[Sequence[str]]:
    try:
        yield from reader
    except csv.Error as e:
        raise Bad(f"is not CSV: line {reader.line_num}: {e}") from e


def _to_the_last(lines: Iterable[T]) -> Iterator[Tuple[int, T]]:
    """The lines with their numbers, up to the last that is not blank; of blank ones in between the first is refused."""
    blank: Optional[Tuple[int, T]] = None
    for number, line in enumerate(lines, start=1):
        if not line or (isinstance(line, bytes) and line.isspace()):
            blank = blank or (number, line)
            continue
        if blank is not None:
            yield blank
        yield number, line


def _csv_rows(lines: Iterator[Sequence[str]], header: Sequence[str]) -> Iterator[Row]:
    for number, fields in _to_the_last(lines):
        if len(fields) != len(header):
            raise Bad(f"has {len(fields)} fields in row {number}, expected {len(header)}")
        cells = [field.strip() for field in fields]
        if cells == header:
            raise Bad(f"holds its header again in row {number}, expected the rows of one table")
        yield dict(zip(header, cells))


def _jsonl(asked: Mapping[str, Any], f: BinaryIO) -> Iterator[Finding]:
    yield from _Table(asked, None, asked.get("keys") or ()).findings(_read_jsonl(f))


def _read_jsonl(f: BinaryIO) -> Iterator[Any]:
    return (_parse(line, f"line {n}: ") for n, line in _to_the_last(f))


def _json(asked: Mapping[str, Any], f: BinaryIO) -> Iterator[Finding]:
    content = _parse(f.read(), "")
    keys = asked.get("keys") or ()
    if keys and not isinstance(content, dict):
        raise Bad("is not an object with keys")
    table = _Table(asked, None)
    for key in keys:
        if key not in content:
            yield Finding(f"lacks the key {named(key)!r}")
        elif table.takes(content, key):
            continue
        elif holds_nothing(content[key]):
            yield _nothing(content[key], f"holds nothing under the key {named(key)!r}")
        else:
            yield from _of_value(content[key], f"under the key {named(key)!r}")
    if holds_nothing(content):
        yield Finding("holds nothing", since=1 if content in _NOTHING else 2)
    elif not isinstance(content, dict) and holds_no_value([content]):
        yield Finding(f"holds no more than {shown(content)}, expected a value", since=2)
    yield from table.findings(iter(_rows_in(content)))
    said = own_verdict.failure_of_rows(content, table.meant) if isinstance(content, dict) else None
    if said:
        yield Finding(said, since=2)


def _rows_in(content: Any) -> List[Any]:
    return content if isinstance(content, list) else [content]


def _parse(text: bytes, where: str) -> Any:
    try:
        return strict_json.loads(text)
    except UnicodeDecodeError:
        raise
    except (ValueError, RecursionError) as e:
        raise Bad(f"is not JSON: {where}{plain(e, 120)}") from e


# What format 1 took for nothing.
_NOTHING: Sequence[Any] = ({}, [], "", None)


def _nothing(value: Any, sentence: str) -> Finding:
    return Finding(sentence, since=1 if value in ("", None) else 2)


class _Table:
    """What is asked of a table, whose rows are seen once; `header` is None where each row (a JSON object) has its own
    keys; `keys` are owed by each row; those that are `meant` the runbook names in checks, or allows words."""

    def __init__(self, asked: Mapping[str, Any], header: Optional[Sequence[str]], keys: Sequence[str] = ()) -> None:
        self._header = header
        self._min_rows = asked.get("min_rows", 1)
        self._columns = [*(asked.get("columns") or ()), *keys]
        self._allowed = Allowed(asked.get("allow") or {})
        self._checks = [check for spec in asked.get("checks") or () for check in checks.make(spec, self._allowed)]
        if asked.get("figures"):
            self._checks.append(figures.Readable(asked["figures"], self._allowed))
            self._columns += [name for name in asked["figures"].get("keys") or () if name not in self._columns]
        judged = [name for check in self._checks for name in check.columns]
        self._wanted = [*self._columns, *judged]
        self._listed = {name for check in self._checks for name in check.listed}
        self.meant = {*judged, *(asked.get("allow") or {})}
        if checks.OnDevice.column in (*self._wanted, *(asked.get("keys") or ())):
            self._checks.append(checks.OnDevice())
        self._words = Words(self._columns, self._allowed)

    def takes(self, row: Row, name: str) -> bool:
        """Whether the runbook allows what stands there, or lists what may: FAIL, skipped."""
        is_listed = name in self._listed and not holds_nothing(row[name])
        return is_listed or self._allowed.holds(row, name)

    def findings(self, rows: Iterator[Any]) -> Iterator[Finding]:
        """What is wrong, row by row."""
        if self._header is not None:
            lacking = list(_lacking(self._wanted, self._header, "the header"))
            if lacking:
                yield from lacking
                return
        count, failed = 0, True
        said: Optional[str] = None
        for count, row in enumerate(rows, start=1):
            yield from self._of_row(row, count)
            if failed:  # one that did not may stand beside those that did
                said = own_verdict.failure(row, self.meant) if isinstance(row, dict) else None
                failed = said is not None
        if said:
            yield Finding(said if count == 1 else f"{said} (in each of {count} rows)", since=2)
        if count < self._min_rows:
            shape = "has only a header" if self._header is not None and count == 0 else f"has {count} rows"
            yield Finding(f"{shape}, expected at least {self._min_rows} rows")
        for check in self._checks:
            yield from check.finish()
        yield from self._words.finish()

    def _of_row(self, row: Any, number: int) -> Iterator[Finding]:
        if holds_nothing(row):
            flat = row in _NOTHING or (isinstance(row, dict) and all(cell in ("", None) for cell in row.values()))
            yield Finding(f"holds nothing in row {number}", since=1 if flat else 2)
            if flat:
                return
        if self._wanted and not isinstance(row, dict):
            wanted = plain(", ".join(self._wanted), 120)
            yield Finding(f"holds no object in row {number}, expected the keys {wanted}")
            return
        lacking = list(_lacking(self._wanted, row, f"row {number}")) if self._header is None else []
        if lacking:
            yield from lacking
            return
        for name in self._columns:
            if not self._allowed.holds(row, name):
                yield from _of_cell(row[name], name, number)
        for check in self._checks:
            yield from check.see(row, number)
        self._words.see(row, number)


def _lacking(names: Sequence[str], present: Union[Sequence[str], Row], where: str) -> Iterator[Finding]:
    return (Finding(f"lacks the column {named(name)!r} in {where}") for name in names if name not in present)


def _of_cell(value: Any, name: str, row: int) -> Iterator[Finding]:
    if holds_nothing(value):
        yield _nothing(value, f"is empty in row {row}, column {named(name)}")
    elif number_in(value) is not None and not is_finite(value):
        yield Finding(f"holds {shown(value)} in row {row}, column {named(name)}, expected a finite value")
    elif not isinstance(value, str):  # one word stands in a column of words, perhaps
        yield from _of_value(value, f"in row {row}, column {named(name)}")


def _of_value(value: Any, where: str) -> Iterator[Finding]:
    """What is wrong with a value that is there, and may have parts."""
    stray = stray_in(value)
    if holds_no_value(value):
        yield Finding(f"holds {shown(value)} {where}, expected a value", since=2)
    elif stray is not None:
        yield Finding(f"holds {shown(stray)} {where}, expected a number as beside it", since=2)


def _what_cannot_be(given: Mapping[str, Any], at: Location) -> Iterator[Error]:
    for index, check in enumerate(given.get("checks") or ()):
        yield from checks.wrong(check, (*at, "checks", index))
    asked = given.get("figures") or {}
    for index, name in enumerate(asked.get("keys") or ()):
        if name in asked["measures"] or name == asked.get("flags"):
            yield Error(
                (*at, "figures", "keys", index), f"expected {named(name)} as a key or as something else, not both"
            )


def _figures_of_csv(asked: Mapping[str, Any], f: BinaryIO, beside: Beside) -> Iterator[Reading]:
    return _figures(asked, _read_csv(f)[1])


def _figures_of_json(asked: Mapping[str, Any], f: BinaryIO, beside: Beside) -> Iterator[Reading]:
    return _figures(asked, _rows_in(_parse(f.read(), "")))


def _figures_of_jsonl(asked: Mapping[str, Any], f: BinaryIO, beside: Beside) -> Iterator[Reading]:
    return _figures(asked, _read_jsonl(f))


def _figures(asked: Mapping[str, Any], rows: Iterable[Row]) -> Iterator[Reading]:
    given = asked.get("figures")
    return figures.readings(given, asked.get("allow") or {}, rows) if given else iter(())


CSV = Kind("csv", AsksOfCsv, _csv, _what_cannot_be, 1 << 30, _figures_of_csv)
JSON = Kind("json", AsksOfJson, _json, _what_cannot_be, 64 << 20, _figures_of_json)
JSONL = Kind("jsonl", AsksOfJson, _jsonl, _what_cannot_be, 1 << 30, _figures_of_jsonl)
