"""Tables: CSV, JSON and JSON lines, whose rows are read once, for their columns and for the checks of their values."""

from __future__ import annotations

import csv
import io
import math
from typing import Any, BinaryIO, Iterator, List, Mapping, NewType, Sequence, TypedDict

from orchestrator.shared import strict_json
from orchestrator.shared.schema import RULES, Error, Location
from orchestrator.shared.text import plain
from orchestrator.verdict.artifacts import checks
from orchestrator.verdict.artifacts.cells import Row, named, number_in, shown
from orchestrator.verdict.artifacts.kind import Bad, Kind

Count = NewType("Count", int)
RULES[Count] = lambda number: None if number >= 1 else "expected a whole number of at least 1"


class AsksOfCsv(TypedDict, total=False):
    """Columns whose every cell is a finite number or a text that is not blank; how many rows at least; checks."""

    columns: List[str]
    min_rows: Count
    checks: List[Any]


class AsksOfJson(TypedDict, total=False):
    """As of a CSV file; and keys that must be there and hold something."""

    columns: List[str]
    keys: List[str]
    min_rows: Count
    checks: List[Any]


def _csv(asked: Mapping[str, Any], f: BinaryIO) -> None:
    reader = csv.reader(io.TextIOWrapper(f, encoding="utf-8-sig", newline=""), strict=True)
    try:
        header = next(reader, None)
        if not header:
            raise Bad("is empty" if header is None else "begins with a blank line instead of a header")
        if len(set(header)) < len(header):
            raise Bad("has two columns of the same name")
        _check_table(asked, header, _csv_rows(reader, header))
    except csv.Error as e:
        raise Bad(f"is not CSV: line {reader.line_num}: {e}") from e


def _csv_rows(reader: Iterator[Sequence[str]], header: Sequence[str]) -> Iterator[Row]:
    for number, fields in enumerate(reader, start=1):
        if len(fields) != len(header):
            raise Bad(f"has {len(fields)} fields in row {number}, expected {len(header)}")
        yield {name: fields[i].strip() for i, name in enumerate(header)}


def _jsonl(asked: Mapping[str, Any], f: BinaryIO) -> None:
    _check_table(asked, None, (_parse(line, f"line {n}: ") for n, line in enumerate(f, start=1)))


def _json(asked: Mapping[str, Any], f: BinaryIO) -> None:
    content = _parse(f.read(), "")
    keys = asked.get("keys") or ()
    if keys and not isinstance(content, dict):
        raise Bad("is not an object with keys")
    for key in keys:
        if key not in content:
            raise Bad(f"lacks the key {named(key)!r}")
        if content[key] in ("", None):
            raise Bad(f"holds nothing under the key {named(key)!r}")
    if content in ({}, [], "", None):
        raise Bad("holds nothing")
    _check_table(asked, None, iter(content if isinstance(content, list) else [content]))


def _parse(text: bytes, where: str) -> Any:
    try:
        return strict_json.loads(text)
    except UnicodeDecodeError:
        raise
    except (ValueError, RecursionError) as e:
        raise Bad(f"is not JSON: {where}{plain(e, 120)}") from e


def _check_table(asked: Mapping[str, Any], header: Sequence[str] | None, rows: Iterator[Any]) -> None:
    """Check all rows in one pass; `header` is None where each row (a JSON object) has its own keys."""
    columns = [*(asked.get("columns") or ()), *((asked.get("keys") or ()) if asked.get("kind") == "jsonl" else ())]
    made = [checks.make(spec) for spec in asked.get("checks") or ()]
    wanted = [*columns, *(name for check in made for name in check.columns)]
    if header is not None:
        _require(wanted, header, "the header")
    count = 0
    for count, row in enumerate(rows, start=1):
        if row in ({}, [], "", None) or (isinstance(row, dict) and all(cell in ("", None) for cell in row.values())):
            raise Bad(f"holds nothing in row {count}")
        if wanted and not isinstance(row, dict):
            raise Bad(f"holds no object in row {count}, expected the keys {plain(', '.join(wanted), 120)}")
        if header is None:
            _require(wanted, row, f"row {count}")
        for name in columns:
            _check_cell(row[name], name, count)
        for check in made:
            check.see(row, count)
    if count < asked.get("min_rows", 1):
        shape = "has only a header" if header is not None and count == 0 else f"has {count} rows"
        raise Bad(f"{shape}, expected at least {asked.get('min_rows', 1)} rows")
    for check in made:
        check.finish()


def _require(names: Sequence[str], present: Sequence[str] | Row, where: str) -> None:
    for name in names:
        if name not in present:
            raise Bad(f"lacks the column {named(name)!r} in {where}")


def _check_cell(value: Any, name: str, row: int) -> None:
    number = number_in(value)
    if value is None or value == "":
        raise Bad(f"is empty in row {row}, column {named(name)}")
    if number is not None and not math.isfinite(number):
        raise Bad(f"holds {shown(value)} in row {row}, column {named(name)}, expected a finite value")


def _checks_that_cannot_be(given: Mapping[str, Any], at: Location) -> Iterator[Error]:
    for index, check in enumerate(given.get("checks") or ()):
        yield from checks.wrong(check, (*at, "checks", index))


CSV = Kind("csv", AsksOfCsv, _csv, _checks_that_cannot_be, 1 << 30)
JSON = Kind("json", AsksOfJson, _json, _checks_that_cannot_be, 64 << 20)
JSONL = Kind("jsonl", AsksOfJson, _jsonl, _checks_that_cannot_be, 1 << 30)
