"""What benches measured, as tables and charts: against a length or a size, in parts of a whole, with what it spread."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice

from orchestrator.figures import Figure, Figures
from orchestrator.report.document import Block, Chart, ChartKind, Inline, Paragraph, Section, Series, Table, section
from orchestrator.report.run.artifacts import from_file
from orchestrator.results import Result
from orchestrator.text import count

_ROWS_SHOWN = 100
_SERIES_SHOWN = 8
_CHARTS_SHOWN = 24
_POINTS_SHOWN = 400
_SHOWN_OF = ("passed", "failed")
_WHOLE, _WITHIN = 100.0, 2.0  # shares in percent add up to it


def figures(result: Result, found: Figures) -> Section | None:
    """Of each artifact that says what it measured; not where that cannot be trusted, or was not read to its end."""
    stages = {stage.name: stage for stage in result.stages if stage.status in _SHOWN_OF}
    blocks: list[Block] = []
    shown_of = (figure for figure in found.figures if figure.identity.stage in stages)
    for (stage, artifact), of_file in groupby(shown_of, lambda figure: figure.identity[:2]):
        measured = list(of_file)
        name = artifact.replace("{commit}", result.commit).replace("{commit7}", result.commit[:7])
        shown = [*_table(name, measured), *islice(charts(measured), _CHARTS_SHOWN)]
        if shown:
            blocks += [from_file(name, stages[stage]), *shown]
    return section("Measured", *blocks)


def value(number: float) -> str:
    """A number as tables show it."""
    return f"{number:.6g}"


def charts(measured: Sequence[Figure]) -> Iterator[Chart]:
    """One for each unit, over the first key that is a number and varies; column and other keys name a series."""
    axis = _axis(measured)
    if axis is None:
        return
    units: dict[tuple[str, str], list[Figure]] = {}
    for figure in measured:
        units.setdefault((figure.unit, figure.better), []).append(figure)
    for (unit, better), figures in units.items():
        series = _series(figures, axis)
        kind: ChartKind = "stack" if unit == "%" and _are_shares(series) else "lines"
        direction = "" if better == "neither" else f", {better} is better"
        columns = ", ".join(dict.fromkeys(figure.identity.column for figure in figures))
        for first in range(0, len(series), _SERIES_SHOWN):
            some = tuple(series[first : first + _SERIES_SHOWN])
            yield Chart(f"{columns} against {axis}", axis, unit + direction, some, kind)


def _axis(measured: Sequence[Figure]) -> str | None:
    """The first key column whose values are numbers, not all the same."""
    values: dict[str, set[float | None]] = {}
    for figure in measured:
        for name, text in figure.identity.row:
            values.setdefault(name, set()).add(_number(text))
    return next((name for name, found in values.items() if None not in found and len(found) > 1), None)


def _series(figures: Iterable[Figure], axis: str) -> list[Series]:
    figures = list(figures)
    values = {key: {dict(figure.identity.row).get(key) for figure in figures} for key, _ in figures[0].identity.row}
    found: dict[str, list[tuple[float, Figure]]] = {}
    for figure in figures:
        row = dict(figure.identity.row)
        x = _number(row.pop(axis, ""))
        if x is not None:
            telling = (f"{key}={text}" for key, text in row.items() if len(values.get(key, ())) != 1)
            found.setdefault(" ".join([figure.identity.column, *telling]), []).append((x, figure))
    return [_one(name, sorted(points, key=lambda point: point[0])) for name, points in found.items()]


def _one(name: str, points: Sequence[tuple[float, Figure]]) -> Series:
    """Of very many points some, evenly thinned out."""
    points = points[:: max(1, -(-len(points) // _POINTS_SHOWN))]
    spread = tuple(figure.middle for _, figure in points)
    many = any(len(figure.samples) > 1 for _, figure in points)
    return Series(name, tuple((x, figure.median) for x, figure in points), spread if many else ())


def _are_shares(series: Sequence[Series]) -> bool:
    """Whether they are parts of one whole at every x."""
    sums: dict[float, float] = {}
    for one in series:
        for x, y in one.points:
            sums[x] = sums.get(x, 0.0) + (y or 0.0)
    same = all(len(one.points) == len(sums) for one in series)
    return len(series) > 1 and same and all(abs(total - _WHOLE) <= _WITHIN for total in sums.values())


def _table(name: str, measured: Sequence[Figure]) -> Iterator[Block]:
    """By key; none for a CSV of one sample each, whose own rows are shown."""
    if name.endswith(".csv") and all(len(figure.samples) == 1 for figure in measured):
        return
    columns = {figure.identity.column: figure.unit for figure in measured}
    keys = list(dict.fromkeys(key for figure in measured for key, _ in figure.identity.row))
    rows: dict[tuple[tuple[str, str], ...], dict[str, Figure]] = {}
    for figure in measured:
        rows.setdefault(figure.identity.row, {})[figure.identity.column] = figure
    header = (*keys, *(f"{column} ({unit})" for column, unit in columns.items()), "flags")
    shown = tuple(_row(dict(row), keys, columns, rows[row]) for row in list(rows)[:_ROWS_SHOWN])
    yield Table(header, shown)
    if len(rows) > _ROWS_SHOWN:
        yield Paragraph(f"{count(len(rows) - _ROWS_SHOWN, 'more row')} in the file.")


def _row(
    row: Mapping[str, str], keys: Iterable[str], columns: Iterable[str], found: Mapping[str, Figure]
) -> tuple[Inline, ...]:
    cells = [cell(found[column]) if column in found else "" for column in columns]
    flags = dict.fromkeys(flag for figure in found.values() for flag in figure.flags)
    return (*(row.get(key, "") for key in keys), *cells, ", ".join(flags))


def cell(figure: Figure) -> str:
    """The median; of several samples also where their middle three fifths lie, and how many they are."""
    if len(figure.samples) == 1:
        return value(figure.median)
    low, high = figure.middle
    spread = f"{value(low)} to {value(high)}, " if low < high else ""
    return f"{value(figure.median)} ({spread}n={len(figure.samples)})"


def _number(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if math.isfinite(found) else None
