"""Rows of measurements: their context, and how they are written and shown."""

from __future__ import annotations

import csv
import json
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

Value = str | int | float | list[float]
Row = dict[str, Value]


def context(device: torch.device, dtype: torch.dtype) -> Row:
    """What every row says about where it was measured."""
    return {
        "device": device_name(device),
        "dtype": str(dtype).removeprefix("torch."),
        "torch": torch.__version__,
        "cuda": torch.version.cuda or "none",
        "triton": installed("triton"),
        "python": platform.python_version(),
        "threads": torch.get_num_threads(),
    }


def device_name(device: torch.device) -> str:
    """The marketing name of a GPU, or `cpu`."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def installed(package: str) -> str:
    """The package's version, or `none`."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


def headline(device: torch.device, dtype: torch.dtype) -> str:
    """One line for the top of a log; says so where the figures are a CPU's."""
    facts = " ".join(f"{key}={value}" for key, value in context(device, dtype).items())
    return facts + ("\nmeasured on a CPU: says that it works, not how fast a GPU is" if device.type == "cpu" else "")


def write(rows: Sequence[Row], csv_path: Path | None, jsonl_path: Path | None) -> None:
    """Write the rows where asked; every row has the same columns. Samples, which are lists, stand in JSON lines only.

    Raises:
        ValueError: there is nothing to write.
    """
    if not rows:
        raise ValueError("no rows were measured; nothing is written")
    if csv_path is not None:
        with csv_path.open("w", newline="") as file:
            columns = [key for key, value in rows[0].items() if not isinstance(value, list)]
            writer = csv.DictWriter(file, columns, extrasaction="ignore")
            writer.writeheader()
            writer.writerows([{key: _shown(value) for key, value in row.items()} for row in rows])
    if jsonl_path is not None:
        jsonl_path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def read(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV.

    Raises:
        ValueError: there are none.
    """
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    if not rows:
        raise ValueError(f"{path} has no rows; nothing can be said about it")
    return rows


def _shown(value: Value, digits: int = 6) -> str:
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)


def table(rows: Sequence[Mapping[str, str]], columns: Sequence[str]) -> str:
    """The columns of the rows, right-aligned."""
    widths = {name: max(len(name), *(len(row[name]) for row in rows)) for name in columns}
    lines = [list(columns), *([row[name] for name in columns] for row in rows)]
    return "\n".join(
        "  ".join(cell.rjust(widths[name]) for cell, name in zip(line, columns, strict=True)) for line in lines
    )


def shown(rows: Sequence[Row], columns: Sequence[str]) -> str:
    """The columns of the rows as a table, four digits each."""
    return table([{name: _shown(row[name], 4) for name in columns} for row in rows], columns)
