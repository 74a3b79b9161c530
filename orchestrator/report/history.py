"""A history as a document, on a terminal and as JSON."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table as ScreenTable

from orchestrator.figures.history import Measured, Point, Recommendation, Trend
from orchestrator.figures.trend import Step
from orchestrator.report.document import (
    Chart,
    Code,
    Document,
    Inline,
    Paragraph,
    Section,
    Series,
    Strong,
    Table,
    bullets,
    section,
)
from orchestrator.text import count, plain

_SPARKS = "▁▂▃▄▅▆▇█"
_SPARK_WIDTH = 32
_POINTS = 120
_CHARTS = 16
_COLOURS = {"better": "green", "worse": "red"}


def document(
    device: str, runs: Sequence[Measured], trends: Sequence[Trend], said: Sequence[Recommendation]
) -> Document:
    """The page: what changed first, then a chart for each row, the changed ones before the others."""
    ordered = sorted(trends, key=lambda trend: -len(trend.steps))
    shown = ordered[:_CHARTS]
    rest = (
        Paragraph(f"{count(len(ordered) - len(shown), 'more row')} in the table alone.") if ordered[_CHARTS:] else None
    )
    sections = (
        section("What changed", _changes(trends)),
        section("Rows", _rows(trends)),
        section("Over commits", *map(_chart, shown), rest),
        *map(_recommendation, said),
    )
    lead = (Paragraph(Strong(summary(trends))), bullets(_sentences(trends)[:5]))
    title = f"History on {device}: {count(len(runs), 'run')} of {count(len({run.commit for run in runs}), 'commit')}"
    return Document(title, None, tuple(filter(None, lead)), tuple(filter(None, sections)))


def summary(trends: Sequence[Trend]) -> str:
    """One line: how many rows, and how many of them changed."""
    changed = sum(bool(trend.steps) for trend in trends)
    return (
        f"{count(len(trends), 'row')}; {changed or 'none'} changed its level"
        if changed < 2
        else (f"{count(len(trends), 'row')}; {changed} changed their level")
    )


def screen(
    trends: Sequence[Trend], said: Sequence[Recommendation], others: dict[str, int], device: str
) -> RenderableType:
    """A line for each row, with its course; then what changed, and what is recommended."""
    table = ScreenTable("row", "unit", "runs", "first", "newest", "course", "last change", box=None, pad_edge=False)
    for trend in trends:
        values = [point.value.median for point in trend.points]
        last = trend.steps[-1] if trend.steps else None
        change = f"[{_COLOURS.get(trend.called(last), 'default')}]{escape(_change(trend, last))}[/]" if last else ""
        cells = (plain(trend.identity), plain(trend.unit), str(len(values)), f"{values[0]:.4g}", f"{values[-1]:.4g}")
        table.add_row(*map(escape, cells), sparkline(values), change)
    lines = [f"{device}: {summary(trends)}", *_sentences(trends)]
    lines += [f"not here: {count(number, 'run')} on {name} (--device)" for name, number in others.items()]
    lines += [f"{one.name}: {_value(one)}{one.why}" for one in said]
    return Group(table, "", *(escape(plain(line, 1000)) for line in lines))


def told(trends: Sequence[Trend], said: Sequence[Recommendation], device: str) -> dict[str, Any]:
    """As JSON."""
    return {
        "device": device,
        "rows": [
            {
                "stage": trend.identity.stage,
                "row": dict(trend.identity.row),
                "column": trend.identity.column,
                "unit": trend.unit,
                "better": trend.better,
                "points": [_told_point(point) for point in trend.points],
                "changes": [
                    {"commit": trend.points[s.at].run.commit, "before": s.before, "after": s.after, "ratio": s.ratio,
                     "called": trend.called(s), "also": trend.also(s)}
                    for s in trend.steps
                ],
            }
            for trend in trends
        ],
        "thresholds": [
            {"name": one.name, "value": one.value, "why": one.why,
             "rows": [row._asdict() for row in one.rows]}
            for one in said
        ],
    }  # fmt: skip


def sparkline(values: Sequence[float]) -> str:
    """The course of the values in one line: each character the median of as many of them."""
    step = max(1, -(-len(values) // _SPARK_WIDTH))
    means = [statistics.median(values[n : n + step]) for n in range(0, len(values), step)]
    low, high = min(means), max(means)
    scale = (len(_SPARKS) - 1) / (high - low) if high > low else 0.0
    return "".join(_SPARKS[round((value - low) * scale)] for value in means)


def _told_point(point: Point) -> dict[str, Any]:
    run, value = point
    return {"run_id": run.run_id, "commit": run.commit, "median": value.median, "low": value.low, "high": value.high}


def _sentences(trends: Sequence[Trend]) -> list[str]:
    """The changes of all rows, the newest first."""
    found = [(trend.points[step.at].run.moment, trend, step) for trend in trends for step in trend.steps]
    found.sort(key=lambda change: -change[0])
    return [f"{trend.identity} {_change(trend, step)}" for _, trend, step in found]


def _change(trend: Trend, step: Step) -> str:
    """`worse by 5.2 % at 4106f1b (2026-11-21)`, and what else changed there."""
    run = trend.points[step.at].run
    also = f"; there changed too: {', '.join(trend.also(step))}" if trend.also(step) else ""
    day = datetime.fromtimestamp(run.moment, timezone.utc).strftime(" (%Y-%m-%d)") if run.moment else ""
    return f"{trend.called(step)} by {abs(step.ratio - 1):.1%} at {run.commit[:7]}{day}{also}".replace("%", " %")


def _changes(trends: Sequence[Trend]) -> Table | None:
    rows: list[tuple[Inline, ...]] = [
        (
            str(trend.identity),
            trend.called(step),
            f"{step.before:.6g}",
            f"{step.after:.6g}",
            f"{step.ratio - 1:+.1%}".replace("%", " %"),
            Code(trend.points[step.at].run.commit[:12]),
            ", ".join(trend.also(step)),
        )
        for trend in trends
        for step in trend.steps
    ]
    header = ("row", "it became", "before", "after", "change", "first seen at", "what else changed there")
    return Table(header, tuple(rows)) if rows else None


def _rows(trends: Sequence[Trend]) -> Table:
    rows = []
    for trend in trends:
        values = [point.value.median for point in trend.points]
        numbers = (f"{values[0]:.6g}", f"{min(values):.6g}", f"{max(values):.6g}", f"{values[-1]:.6g}")
        rows.append((str(trend.identity), trend.unit, str(len(values)), *numbers, str(len(trend.steps) or "")))
    return Table(("row", "unit", "runs", "first", "least", "most", "newest", "changes"), tuple(rows))


def _chart(trend: Trend) -> Chart:
    """Medians over runs in the order of their commits, evenly thinned out."""
    step = max(1, -(-len(trend.points) // _POINTS))
    points = tuple((float(n), trend.points[n].value.median) for n in range(0, len(trend.points), step))
    labels = tuple((x, trend.points[int(x)].run.commit[:7]) for x, _ in points)
    marks = tuple((float(change.at), _change(trend, change)) for change in trend.steps)
    direction = "" if trend.better == "neither" else f", {trend.better} is better"
    series = Series(trend.identity.column, points)
    return Chart(str(trend.identity), "commit", trend.unit + direction, (series,), labels=labels, marks=marks)


def _recommendation(one: Recommendation) -> Section | None:
    rows = tuple(
        (f"{r.at:g}", f"{r.middle:.4f}", f"{r.low:.4f}", f"{r.high:.4f}", str(r.runs), str(r.measured))
        for r in one.rows
    )
    table = Table(("at", "ratio, below 1 is better", "least", "most", "runs", "measured"), rows) if rows else None
    return section(f"Threshold {one.name}", Paragraph(f"{_value(one)}{one.why}"), table)


def _value(one: Recommendation) -> str:
    return "" if one.value is None else f"{one.value:g}: "
