"""The rows of the CSV files that stages delivered; and a list of all files that they left."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from orchestrator.files import is_regular
from orchestrator.report.document import Badge, Block, Code, Inline, Link, Paragraph, Section, Table, joined, section
from orchestrator.results import ArtifactResult, Result, StageResult
from orchestrator.text import count, listing, plain, size

_ROWS_SHOWN = 12
_COLUMNS_SHOWN = 16
_CONSTANTS_SHOWN = 40
_MOST_UNOWED = 200
_ROW_OF_REASON = re.compile(r"\bin row (\d+)")
_SHOWN_OF = ("passed", "failed", "invalid")


def tables(result: Result, directory: Path) -> Section | None:
    """Each credited CSV, and those that a check did not hold of, so that every figure in the report is of a file."""
    blocks = (
        block
        for stage in result.stages
        if stage.status in _SHOWN_OF
        for artifact in stage.artifacts
        if artifact.path.endswith(".csv") and is_regular(str(directory / "artifacts" / artifact.path))
        for block in _csv_table(directory, artifact.path, stage)
    )
    return section("Figures", *blocks)


def files(result: Result) -> Section | None:
    """All files that the stages delivered, those that nobody asked for behind the others."""
    owed = [_row(artifact, stage, "yes") for stage in result.stages for artifact in stage.artifacts]
    unowed = [_row(artifact, stage, "no") for stage in result.stages for artifact in stage.unowed]
    left = len(unowed[_MOST_UNOWED:]) + sum(stage.unowed_more for stage in result.stages)
    more = Paragraph(f"{count(left, 'more file')} that nobody asked for.") if left else None
    rows = (*owed, *unowed[:_MOST_UNOWED])
    header = ("file", "stage", "status", "asked for", "size", "sha256")
    return section("Artifacts", Table(header, rows), more) if rows else None


def from_file(name: str, stage: StageResult) -> Paragraph:
    """Which artifact the next blocks are of, and of which stage where that did not pass."""
    file = Link(f"artifacts/{name}", f"artifacts/{name}")
    status = () if stage.status == "passed" else (f", of {stage.name}, which is {stage.status}",)
    return Paragraph(("From ", file, *status, ":"))


def _row(artifact: ArtifactResult, stage: StageResult, asked: str) -> tuple[Inline, ...]:
    file = Link(artifact.path, f"artifacts/{artifact.path}")
    return file, stage.name, Badge(stage.status), asked, size(artifact.bytes), Code(artifact.sha256[:16])


def _csv_table(directory: Path, name: str, stage: StageResult) -> Iterator[Block]:
    found = _ROW_OF_REASON.search(stage.reason)
    wanted = int(found[1]) if found else 0
    with (directory / "artifacts" / name).open(newline="", encoding="utf-8", errors="replace") as f:
        rows = csv.reader(f)
        try:
            shown = _Shown(next(rows, []), rows, wanted)
        except csv.Error:  # an artifact of another kind with that name
            yield Paragraph((Link(f"artifacts/{name}", f"artifacts/{name}"), " is no table."))
            return
    yield from_file(name, stage)
    yield from shown.parts()


class _Shown:
    """The first rows of a table, and the one that is `wanted`; which columns hold the same in all rows."""

    def __init__(self, header: list[str], rows: Iterable[list[str]], wanted: int) -> None:
        self._header = header
        self._rows: list[tuple[int, list[str]]] = []
        self._number = 0
        first: list[str] = []
        same = set(range(len(header)))
        for self._number, row in enumerate(rows, start=1):
            first = first or row
            same = {n for n in same if n < len(row) and row[n] == first[n]} if same else same
            if self._number <= _ROWS_SHOWN or self._number == wanted:
                self._rows.append((self._number, row))
        self._same = {n: first[n] for n in sorted(same)} if self._number > 1 else {}

    def parts(self) -> Iterator[Block]:
        """What varies, as a table; then what does not."""
        varying = [n for n in range(len(self._header)) if n not in self._same]
        shown = varying[:_COLUMNS_SHOWN]
        if shown:
            numbered = self._number > _ROWS_SHOWN
            header = (*(["row"] if numbered else []), *(self._header[n] for n in shown))
            yield Table(header, tuple(self._cells(number, row, shown, numbered) for number, row in self._rows))
        if self._same:
            constants = [f"{plain(self._header[n], 60)} = {plain(value, 120)}" for n, value in self._same.items()]
            more = f"; and {len(constants) - _CONSTANTS_SHOWN} more" if len(constants) > _CONSTANTS_SHOWN else ""
            yield Paragraph(("In all rows: ", *joined(constants[:_CONSTANTS_SHOWN], "; "), more))
        if len(varying) > len(shown):
            names = (self._header[n] for n in varying[len(shown) :])
            yield Paragraph(f"{count(len(varying) - len(shown), 'more column')} in the file: {listing(names, 20)}")
        if self._number > len(self._rows):
            yield Paragraph(f"{count(self._number - len(self._rows), 'more row')} in the file.")

    def _cells(self, number: int, row: list[str], shown: list[int], numbered: bool) -> tuple[Inline, ...]:
        cells = [row[n] if n < len(row) else "" for n in shown]
        return (str(number), *cells) if numbered else tuple(cells)
