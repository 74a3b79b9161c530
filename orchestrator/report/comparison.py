"""A comparison as JSON, and as people read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypedDict

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from orchestrator.figures import Comparison
from orchestrator.figures.comparison import Answer, Interval, Row, percent
from orchestrator.figures.kept import Kept
from orchestrator.figures.run import context_of
from orchestrator.figures.trials import Shortfall, shortfalls
from orchestrator.results import Result, StageResult
from orchestrator.shared.plan import Plan
from orchestrator.text import count, plain

_COLOURS: Mapping[Answer, str] = {"faster": "green", "slower": "red", "same": "default", "cannot tell": "yellow"}


class Measured(TypedDict):
    """B over A (of the control: A over A), with its interval of 95 %."""

    ratio: float
    low: float
    high: float
    p: float


class ToldRow(TypedDict):
    stage: str
    artifact: str
    row: dict[str, str]
    column: str
    unit: str
    better: str
    a: float | None
    b: float | None
    answer: str
    why: str
    measured: Measured | None
    control: Measured | None
    flags: list[str]
    runs: int
    samples: int


class Document(TypedDict):
    """comparison.json. `harness` is the commit whose bench files measured both; None: each its own. `false_alarms` of
    the `judged` rows were called different when A was compared with itself. `not_timed` says what did not pass, so that
    nothing, or a bench of one side, was timed; `warnings` what else is to be known of the rows."""

    kind: Literal["comparison"]
    a: str
    b: str
    harness: str | None
    pod: str
    device: str
    versions: dict[str, str]
    run_id: str
    path: str
    threshold: float
    blocks: int
    false_alarms: int
    judged: int
    not_timed: list[str]
    warnings: list[str]
    rows: list[ToldRow]


def document(found: Comparison, plan: Plan, result: Result) -> Document:
    """Of the run of `plan`."""
    asked, context = plan["comparison"], context_of(plan)
    short = shortfalls(plan, result.statuses)
    stages = {stage.name: stage for stage in result.stages}
    return Document(
        kind="comparison",
        a=asked["a"],
        b=asked["b"],
        harness=asked["harness"],
        pod=plan["pod"],
        device=context.device,
        versions=context.versions,
        run_id=plan["run_id"],
        path=result.path,
        threshold=found.threshold,
        blocks=found.blocks,
        false_alarms=found.false_alarms,
        judged=found.judged,
        not_timed=[_short(one, stages) for one in short if one.is_whole],
        warnings=[*(_short(one, stages) for one in short if not one.is_whole), *_untested(plan)],
        rows=[_told(row) for row in found.rows],
    )


def _untested(plan: Plan) -> list[str]:
    is_tested = any(stage["pytest"] for stage in plan["stages"] if "trial" not in stage)
    return [] if is_tested else ["no tests went ahead: that both commits compute the same is not known"]


def _short(one: Shortfall, stages: Mapping[str, StageResult]) -> str:
    first = stages[one.stages[0]]
    runs = f" in {len(one.stages)} of {count(one.of, 'run')}" if one.of > 1 else ""
    return f"{one.name} is {first.status}{runs}: {first.reason}"


def summary(found: Document) -> str:
    """One line: what was not timed; how many rows are what, and how often the control was called different."""
    answers = [row["answer"] for row in found["rows"]]
    told = [f"not timed: {'; '.join(found['not_timed'])}"] if found["not_timed"] else []
    if found["not_timed"] and not answers:
        return told[0]
    told += [f"{answers.count(answer)} {answer}" for answer in _COLOURS if answer in answers]
    told += [] if answers else ["nothing was measured"]
    alarms = f"{found['false_alarms']} of {count(found['judged'], 'row')} called when A was compared with itself"
    return f"{found['b'][:7]} against {found['a'][:7]}: {', '.join(told)}; {alarms}"


def page(found: Document) -> RenderableType:
    """A table of the rows, and the summary."""
    harness = f"bench files of {found['harness'][:7]}" if found["harness"] else "each with its own bench files"
    where = f"pod {found['pod']} ({plain(found['device'], 80)})"
    head = f"A {found['a'][:7]}, B {found['b'][:7]}, {where}, {count(found['blocks'], 'block')}, {harness}"
    parts: list[RenderableType] = [escape(head)]
    if found["rows"]:
        table = Table(box=None, pad_edge=False)
        for name in ("row", "A", "B", "B over A", "95 %", "control", "answer"):
            table.add_column(name, justify="right" if name not in ("row", "answer") else "left", overflow="fold")
        for row in found["rows"]:
            table.add_row(*_cells(row))
        parts.append(table)
    parts += [escape(plain(line, 1000)) for line in (*found["warnings"], summary(found), found["path"])]
    return Group(*parts)


def _named(row: ToldRow | ToldKeptRow) -> str:
    key = " ".join(f"{name}={value}" for name, value in row["row"].items())
    return escape(f"{row['stage']} {key} {row['column']}")


def _cells(row: ToldRow) -> list[str]:
    measured, control = row["measured"], row["control"]
    why = f": {row['why']}" if row["why"] else ""
    flags = f" [{', '.join(row['flags'])}]" if row["flags"] else ""
    colour = next(colour for answer, colour in _COLOURS.items() if answer == row["answer"])
    return [
        _named(row),
        _value(row["a"], row["unit"]),
        _value(row["b"], row["unit"]),
        percent(measured["ratio"]) if measured else "",
        f"{percent(measured['low'])} .. {percent(measured['high'])}" if measured else "",
        percent(control["ratio"]) if control else "",
        f"[{colour}]{row['answer']}[/]{escape(why + flags)}",
    ]


def _value(number: float | None, unit: str) -> str:
    return "-" if number is None else escape(f"{number:.4g} {plain(unit, 20)}")


def _told(row: Row) -> ToldRow:
    return ToldRow(
        stage=row.identity.stage,
        artifact=row.identity.artifact,
        row=dict(row.identity.row),
        column=row.identity.column,
        unit=row.unit,
        better=row.better,
        a=row.a,
        b=row.b,
        answer=row.answer,
        why=row.why,
        measured=_measured(row.measured),
        control=_measured(row.control),
        flags=list(row.flags),
        runs=row.runs,
        samples=row.samples,
    )


def _measured(found: Interval | None) -> Measured | None:
    return None if found is None else Measured(ratio=found.ratio, low=found.low, high=found.high, p=found.p)


class ToldKeptRow(TypedDict):
    stage: str
    row: dict[str, str]
    column: str
    unit: str
    a: float | None
    b: float | None
    ratio: float | None


class KeptDocument(TypedDict):
    """Of two runs that are kept: no answer, for they were no session; no ratio where they are `not_comparable`."""

    kind: Literal["runs"]
    a: str
    b: str
    not_comparable: list[str]
    differences: list[str]
    rows: list[ToldKeptRow]


def document_of_runs(found: Kept) -> KeptDocument:
    """What differs, and the medians side by side."""
    rows = [
        ToldKeptRow(
            stage=row.identity.stage,
            row=dict(row.identity.row),
            column=row.identity.column,
            unit=row.unit,
            a=row.a.median if row.a else None,
            b=row.b.median if row.b else None,
            ratio=None if found.why_not else row.ratio,
        )
        for row in found.rows
    ]
    return KeptDocument(
        kind="runs",
        a=found.a.run_id,
        b=found.b.run_id,
        not_comparable=found.why_not,
        differences=found.differences,
        rows=rows,
    )


def page_of_runs(found: KeptDocument) -> RenderableType:
    """The differences first, for they say what the rows below are worth."""
    table = Table(box=None, pad_edge=False)
    for name in ("row", "A", "B", "B over A"):
        table.add_column(name, justify="left" if name == "row" else "right", overflow="fold")
    for row in found["rows"]:
        ratio = percent(row["ratio"]) if row["ratio"] else ""
        table.add_row(_named(row), _value(row["a"], row["unit"]), _value(row["b"], row["unit"]), ratio)
    why = f"not comparable: {'; '.join(found['not_comparable'])}" if found["not_comparable"] else "cannot tell"
    hint = "two sessions do not tell which commit is faster; `nsa-pod compare COMMIT COMMIT` measures both in one"
    parts = [f"A {found['a']}, B {found['b']}", *(f"  {line}" for line in found["differences"]), f"{why}; {hint}"]
    return Group(*map(escape, parts), *([table] if found["rows"] else []))
