"""Rows of measurements: their context, and how they are written."""

from __future__ import annotations

import csv
import json
import platform
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from nsa.bench import tables
from nsa.tools.check_env import installed

Value = str | int | float | list[float]
Row = dict[str, Value]


def context(device: torch.device, dtype: torch.dtype) -> Row:
    """What every row says about where it was measured."""
    return {
        "device": card(device), "dtype": str(dtype).removeprefix("torch."), "torch": torch.__version__,
        "cuda": torch.version.cuda or "none", "triton": installed("triton") or "none",
        "python": platform.python_version(), "threads": torch.get_num_threads(),
    }  # fmt: skip


def card(device: torch.device) -> str:
    """The marketing name of a GPU, or `cpu`."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


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
            writer.writerows([{key: tables.cell(value) for key, value in row.items()} for row in rows])
    if jsonl_path is not None:
        jsonl_path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_json(path: Path | None, **found: object) -> None:
    """Write a JSON object, where asked."""
    if path is not None:
        path.write_text(json.dumps(found, indent=1))


def say(text: str) -> None:
    """Tell how far it is, beside what is measured: on stderr."""
    print(text, file=sys.stderr, flush=True)


def sentence(error: Exception) -> str:
    """What went wrong, in the first line of the error."""
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]
