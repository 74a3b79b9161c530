"""Tables and JSON whose own figures say that nothing was measured: times of 0, or of -1 where one is lacking, one time
for every row or column, times that are a size times one number, speedups of 1; or that nothing was learned: one loss at
the first step and the last.

Each may be honest, where a time is rounded or two sides are one: what such figures say is a doubt.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Iterator, List, Mapping, Optional, Sequence, Tuple

from orchestrator.shared.files import Refused
from orchestrator.verdict.artifacts import text, timings
from orchestrator.verdict.artifacts.asked import kind_of
from orchestrator.verdict.artifacts.cells import named, shown
from orchestrator.verdict.artifacts.evidence import asked

if TYPE_CHECKING:
    from orchestrator.verdict.case import Case

_MOST_BYTES = 1 << 20
_LEAST_ROWS = _LEAST_COLUMNS = 3
_LEAST_DIGITS = 5
_LEAST_DIGITS_OF_MULTIPLES = 6  # memory-bound work may well take twice as long for twice the size
_LACKS = -1  # no clock gives that to the last digit
_OF_STEPS = re.compile(r"(?:^|[\W_])(?:first|last|initial|final|start|end|begin)(?:$|[\W_])", re.IGNORECASE)


def doubts(case: Case) -> Iterator[str]:
    """Of each artifact that holds figures."""
    for artifact in asked(case):
        if kind_of(artifact) is not text.KIND:
            said = why(content_of(case, artifact["path"]))
            if said:
                yield f"artifact {artifact['path']} {said}"


def content_of(case: Case, path: str) -> str:
    """The text of an artifact that is not too long; blank of any other."""
    try:
        with case.open(f"artifacts/{path}") as f:
            content = f.read(_MOST_BYTES + 1)
    except (Refused, OSError):
        return ""
    return content.decode("utf-8", "replace") if len(content) <= _MOST_BYTES else ""


def why(content: str) -> Optional[str]:
    """Why its figures are none, as a clause."""
    figures = timings.by_name(content)
    times = {name: cells for name, cells in figures.items() if timings.is_measured(name) and not _are_sizes(cells)}
    if times and all(float(cell) <= 0 for cells in times.values() for cell in cells):
        return f"holds no time or rate above 0 ({_listed(times)})"
    lacking = {name: [cell for cell in cells if float(cell) == _LACKS] for name, cells in times.items()}
    if any(lacking.values()):
        return f"holds {_LACKS} for a time or a rate ({', '.join(named(name) for name in lacking if lacking[name])})"
    rows = {name: cells for name, cells in times.items() if len(cells) >= _LEAST_ROWS}
    if rows and all(len(set(cells)) == 1 and _is_exact(cells[0]) for cells in rows.values()):
        return f"holds the same times in each row ({_listed(rows)})"
    columns = [*rows.values()]
    if len(columns) >= _LEAST_COLUMNS and all(cells == columns[0] for cells in columns) and _is_exact(columns[0][0]):
        return f"holds the same times in each column ({_listed(rows)})"
    sizes = {name: cells for name, cells in figures.items() if name not in times and _are_sizes(cells)}
    for size, of in sizes.items():
        multiples = {name: cells for name, cells in rows.items() if _is_multiple(cells, of)}
        if multiples:
            return f"holds times that are one number times {named(size)} ({_listed(multiples)})"
    speedups = {name: cells for name, cells in figures.items() if timings.is_speedup(name)}
    if speedups and all(float(cell) == 1 for cells in speedups.values() for cell in cells):
        return f"holds no speedup but 1 ({_listed(speedups)})"
    losses = {name: cells for name, cells in figures.items() if "loss" in name.lower() and _OF_STEPS.search(name)}
    if len(losses) > 1 and len({float(cell) for cells in losses.values() for cell in cells}) == 1:
        return f"holds one loss for all steps ({_listed(losses)})"
    return None


def _are_sizes(cells: Sequence[str]) -> bool:
    """Whole numbers, such as those under `S`."""
    return all(float(cell) == int(float(cell)) > 0 for cell in cells)


def _is_multiple(cells: Sequence[str], of: Sequence[str]) -> bool:
    """Whether figures are numbers times one factor, to the last digit that is written."""
    if len(cells) != len(of) or len(set(of)) < _LEAST_ROWS:
        return False
    if not all(_digits(cell) >= _LEAST_DIGITS_OF_MULTIPLES for cell in cells):
        return False
    bounds = [_bounds(cell, float(number)) for cell, number in zip(cells, of)]
    return max(least for least, _ in bounds) <= min(most for _, most in bounds)


def _bounds(cell: str, number: float) -> Tuple[float, float]:
    """Between which factors of the number lies what was rounded to the cell."""
    digits, _, exponent = cell.lower().partition("e")
    half = 0.5 * 10.0 ** (int(exponent or 0) - len(digits.partition(".")[2])) * (1 + 1e-6)
    return (float(cell) - half) / number, (float(cell) + half) / number


def _is_exact(cell: str) -> bool:
    return _digits(cell) >= _LEAST_DIGITS


def _digits(cell: str) -> int:
    return sum(map(str.isdigit, cell.lower().partition("e")[0].lstrip("0.")))


def _listed(figures: Mapping[str, List[str]]) -> str:
    return ", ".join(f"{named(name)}: {shown(cells[0])}" for name, cells in list(figures.items())[:3])
