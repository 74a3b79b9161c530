"""Tables as text; without PyTorch, whose import takes longer than they do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def cell(value: object, digits: int = 6) -> str:
    """A value as text; nothing where there is none."""
    return f"{value:.{digits}g}" if isinstance(value, float) else "" if value is None else str(value)


def shown(rows: Sequence[Mapping[str, object]], columns: Sequence[str], digits: int = 4) -> str:
    """The columns of the rows as a table, right-aligned, with so many digits."""
    lines = [list(columns), *([cell(row.get(name), digits) for name in columns] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.rjust, line, widths)) for line in lines)
