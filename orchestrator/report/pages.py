"""Comparisons and bisections as documents: the same words as on a terminal, with a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from orchestrator.figures import comparison_of
from orchestrator.figures.comparison import percent
from orchestrator.report import bisection, comparison
from orchestrator.report.document import (
    Block,
    Chart,
    Code,
    Document,
    Facts,
    Inline,
    Paragraph,
    Section,
    Series,
    Strong,
    Table,
    bullets,
    section,
)
from orchestrator.results import Result
from orchestrator.shared.plan import Plan
from orchestrator.text import count

T = TypeVar("T")
_CHARTED = 40
_INTERVAL = "the interval of 95 %; what lies on both sides of 1 cannot be told from no difference"


def of_comparison(found: comparison.Document) -> Document:
    """Two commits: what is faster, what is slower, and how sure that is."""
    title = f"{found['b'][:12]} against {found['a'][:12]} on pod {found['pod']}"
    lead: list[Block | None] = [
        Paragraph(Strong(comparison.summary(found))),
        called(found),
        bullets(found["warnings"]),
    ]
    facts = Facts((
        ("A", Code(found["a"])),
        ("B", Code(found["b"])),
        ("Bench files", Code(found["harness"]) if found["harness"] else "each commit's own"),
        ("Blocks", str(found["blocks"])),
        ("Threshold", f"{found['threshold'] * 100:.3g} %"),
        ("Machine", ", ".join([found["device"], *map(" ".join, found["versions"].items())])),
        ("Run", (Code(found["run_id"]), f", {found['path']}")),
    ))  # fmt: skip
    return Document(title, None, _there(lead), _there([rows(found), section("How it was measured", facts)]))


def of_run(result: Result, plan: Plan, directory: Path) -> comparison.Document:
    """What the run of a comparison says, from its evidence."""
    return comparison.document(comparison_of(directory, plan, result.statuses), plan, result)


def called(found: comparison.Document) -> Block | None:
    """The rows that differ, the most first."""
    different = [(row, row["measured"]) for row in found["rows"] if row["answer"] in ("faster", "slower")]
    different.sort(key=lambda pair: -abs(pair[1]["ratio"] - 1) if pair[1] else 0.0)
    return bullets(
        f"{_name(row['stage'], row['row'], row['column'])}: {row['answer']}, {percent(measured['ratio'])} "
        f"({percent(measured['low'])} to {percent(measured['high'])})"
        for row, measured in different
        if measured
    )


def rows(found: comparison.Document) -> Section | None:
    """What was measured of both, row by row."""
    numbered = list(enumerate(found["rows"], start=1))
    lines = tuple(_row(number, row) for number, row in numbered)
    header = ("number", "row", "unit", "A", "B", "B over A", "95 %", "control", "answer", "why")
    return section("Rows", Table(header, lines) if lines else None, _chart(numbered))


def of_runs(found: comparison.KeptDocument) -> Document:
    """Two runs that are kept: what differs."""
    why = f"not comparable: {'; '.join(found['not_comparable'])}" if found["not_comparable"] else "cannot tell"
    lead = (Paragraph(Strong(f"{why}: no two sessions tell which commit is faster")),)
    lines = tuple(
        (_name(row["stage"], row["row"], row["column"]), row["unit"], _number(row["a"]), _number(row["b"]))
        for row in found["rows"]
    )
    table = Table(("row", "unit", "A", "B"), lines) if lines else None
    title = f"Runs {found['a']} and {found['b']}"
    return Document(
        title, None, lead, _there([section("What differs", bullets(found["differences"])), section("Rows", table)])
    )


def of_bisection(found: bisection.Document) -> Document:
    """Which commit it was, and the evidence of each that was tried."""
    lines = tuple(
        (Code(probe["commit"][:12]), probe["answer"], probe["why"], probe["paths"][-1] if probe["paths"] else "")
        for probe in found["probes"]
    )
    left = f"One of {', '.join(commit[:12] for commit in found['left'])}." if len(found["left"]) > 1 else ""
    lead = [Paragraph(Strong(bisection.summary(found))), Paragraph(left) if left else None]
    title = f"Bisection of {found['stage']}: {found['good'][:12]} to {found['bad'][:12]}"
    table = Table(("commit", "answer", "why", "run"), lines) if lines else None
    return Document(title, None, _there(lead), _there([section("What was tried", table)]))


def _row(number: int, row: comparison.ToldRow) -> tuple[Inline, ...]:
    measured, control = row["measured"], row["control"]
    why = "; ".join(filter(None, [row["why"], ", ".join(row["flags"])]))
    return (
        str(number),
        _name(row["stage"], row["row"], row["column"]),
        row["unit"],
        _number(row["a"]),
        _number(row["b"]),
        percent(measured["ratio"]) if measured else "",
        f"{percent(measured['low'])} to {percent(measured['high'])}" if measured else "",
        percent(control["ratio"]) if control else "",
        Strong(row["answer"]) if row["answer"] in ("faster", "slower") else row["answer"],
        why,
    )


def _chart(numbered: Sequence[tuple[int, comparison.ToldRow]]) -> Chart | None:
    """Ratios with their intervals, beside those of the control, by the number of the row."""
    both = [(n, row["measured"], row["control"]) for n, row in numbered if row["measured"] and row["control"]]
    shown = [(float(n), measured, control) for n, measured, control in both[:_CHARTED] if measured and control]
    if not shown:
        return None
    ours = Series(
        "B over A", tuple((n, m["ratio"]) for n, m, _ in shown), tuple((m["low"], m["high"]) for _, m, _ in shown)
    )
    again = tuple((n + 0.25, c["ratio"]) for n, _, c in shown)
    control = Series("A over A", again, tuple((c["low"], c["high"]) for _, _, c in shown))
    of = f" (the first {count(len(shown), 'row')} of {len(both)})" if len(both) > len(shown) else ""
    labels = tuple((n, f"{n:g}") for n, _, _ in shown)
    return Chart(f"Ratios{of}", "row", "ratio", (ours, control), "points", labels, spread=_INTERVAL)


def _name(stage: str, keys: dict[str, str], column: str) -> str:
    return " ".join([f"{stage}:", *(f"{name}={text}" for name, text in keys.items()), column])


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def _there(items: Sequence[T | None]) -> tuple[T, ...]:
    return tuple(item for item in items if item is not None)
