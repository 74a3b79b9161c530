"""The launch configurations of all kernels, keyed by kernel, architecture, head dimensions, dtype and group size.

They are data, `table.json`, so that `python -m nsa.bench autotune` can write them; nothing is tuned at a user's
first call. A row holds a tile for each width (the larger head dimension) in half precision, and one for fp32, whose
IEEE products take no tensor cores and many registers. `128/4` beside `128` is the tile for 4 query heads to a KV head;
a group size that has none takes that of its padded size, or else the general one. A tile that was measured names the
milliseconds, of what, and on what; one that was not is a choice by hand: on sm_90 from runs on an H200, elsewhere (and
for groups of 32 and 64) from what the compiler reports.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import MISSING, dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nsa.contexts import held
from nsa.kernels.common.sizes import pad_group

WIDTHS = (64, 128, 192, 256)
FP32 = "fp32"
ARCHITECTURES = ("sm_80", "sm_89", "sm_90")
PATH = Path(__file__).with_name("table.json")

SHARED_MEMORY = {"sm_80": 163 * 1024, "sm_89": 99 * 1024, "sm_90": 227 * 1024}
"""Bytes of shared memory that one block may have."""


@dataclass(frozen=True)
class Tile:
    """BM rows (tokens x heads) against BN keys, in `num_warps` warps, with loads `num_stages` tiles ahead.

    `maxnreg` caps the registers of a thread, so that more blocks are resident; `resident` is how many blocks a kernel
    that shares out its work itself starts on each multiprocessor.
    """

    BM: int
    BN: int
    num_warps: int
    num_stages: int
    maxnreg: int | None = None
    resident: int = 2

    def launch(self, group: int) -> dict[str, int]:
        """The keyword arguments of a launch; a tile holds one token's padded group at least."""
        rows = max(self.BM, group)
        found = {"BM": rows, "BN": self.BN, "num_warps": self.num_warps, "num_stages": self.num_stages}
        return found if self.maxnreg is None else {**found, "maxnreg": self.maxnreg}

    def entry(self) -> Entry:
        """As it stands in the table."""
        return {x.name: getattr(self, x.name) for x in fields(self) if getattr(self, x.name) != x.default}


MEASURED = ("ms", "of", "on")
"""Where a tile's time comes from, if it was measured: milliseconds of the operation `of`, on a device with its
versions.
"""

Entry = dict[str, Any]
"""A tile without what is at its default, and MEASURED if there is such."""

Rows = dict[str, Entry]
"""Entry for each of WIDTHS and FP32, and for some group sizes."""

Table = dict[str, dict[str, Rows]]
"""By kernel and architecture."""


# --- the file ---


def read(path: Path = PATH) -> Table:
    """The table in a file.

    Raises:
        ValueError: it is not such a table; the sentence names the place.
    """
    try:
        found = json.loads(path.read_text())
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: not JSON: {error}") from None
    return {
        kernel: {name: _rows(f"{path}: {kernel}, {name}", rows) for name, rows in architectures.items()}
        for kernel, architectures in found.items()
    }


def _rows(place: str, rows: Mapping[str, Any]) -> Rows:
    general = [*map(str, WIDTHS), FP32]
    for key in general:
        if key not in rows:
            raise ValueError(f"{place}: no entry for {key}; each of {', '.join(general)} needs one")
    for key in rows:
        width, _, group = key.partition("/")
        if width not in general or (group and not group.isdigit()):
            raise ValueError(f"{place}: {key!r} is neither one of {', '.join(general)} nor one of them with /group")
        _check(f"{place}, {key}", rows[key])
    return dict(rows)


def _check(place: str, entry: Entry) -> None:
    known = [*(x.name for x in fields(Tile)), *MEASURED]
    unknown = sorted(set(entry).difference(known))
    if unknown:
        raise ValueError(f"{place}: unknown {', '.join(unknown)}; expected some of {', '.join(known)}")
    needed = [x.name for x in fields(Tile) if x.default is MISSING]
    needed += [] if entry.keys().isdisjoint(MEASURED) else MEASURED
    missing = [name for name in needed if name not in entry]
    if missing:
        raise ValueError(f"{place}: missing {', '.join(missing)}")


def write(table: Table, path: Path = PATH) -> None:
    """Write a table, one entry a line."""
    kernels = []
    for kernel, architectures in table.items():
        blocks = []
        for name, rows in architectures.items():
            lines = [f'      "{key}": {json.dumps(rows[key])}' for key in sorted(rows, key=_order)]
            blocks.append(f'    "{name}": {{\n' + ",\n".join(lines) + "\n    }")
        kernels.append(f'  "{kernel}": {{\n' + ",\n".join(blocks) + "\n  }")
    path.write_text("{\n" + ",\n".join(kernels) + "\n}\n")


def _order(key: str) -> tuple[int, int]:
    width, _, group = key.partition("/")
    return [*map(str, WIDTHS), FP32].index(width), int(group or 0)


# --- looking up ---

INTERPRETED = Tile(BM=32, BN=16, num_warps=1, num_stages=1)
"""Small tiles, so that small shapes of a test still take several of them."""


@lru_cache
def table() -> Table:
    """The table that comes with the kernels."""
    return read()


def row_key(dk: int, dv: int, dtype: torch.dtype) -> str:
    """The key of the general entry for these head dimensions.

    Raises:
        ValueError: wider than every row.
    """
    widest = max(dk, dv)
    if widest > WIDTHS[-1]:
        raise ValueError(f"head dimensions {dk} and {dv} are wider than the kernels' {WIDTHS[-1]}")
    return FP32 if dtype == torch.float32 else str(next(width for width in WIDTHS if widest <= width))


@lru_cache(maxsize=1024)
def tile_of(kernel: str, architecture: str, dk: int, dv: int, group: int, dtype: torch.dtype) -> Tile:
    """The configuration of `kernel` on one of ARCHITECTURES, for `group` query heads to a KV head."""
    rows, key = table()[kernel][architecture], row_key(dk, dv, dtype)
    entry = rows.get(f"{key}/{group}") or rows.get(f"{key}/{pad_group(group)}") or rows[key]
    return Tile(**{name: value for name, value in entry.items() if name not in MEASURED})


def tiles_of(major: int, minor: int) -> str:
    """The entry of ARCHITECTURES whose limits hold for a compute capability: the shared memory of a block decides."""
    if major == 8:
        return "sm_80" if minor == 0 else "sm_89"
    return "sm_90" if major in (9, 10) else "sm_89"


@lru_cache
def architecture_of(device: torch.device) -> str:
    """`tiles_of` a CUDA device."""
    return tiles_of(*torch.cuda.get_device_capability(device))


COMPILING_FOR: ContextVar[str | None] = ContextVar("nsa_kernels_compiling_for", default=None)
"""The architecture whose tiles `nsa.kernels.tuning.ahead_of_time` compiles, whatever this machine has."""


def architecture_for(x: Tensor) -> str | None:
    """The architecture whose kernels run on this tensor: that of its device or the one compiled for; None on a CPU."""
    wanted = COMPILING_FOR.get()
    return architecture_of(x.device) if wanted is None and x.device.type == "cuda" else wanted


@lru_cache
def multiprocessors(device: torch.device) -> int:
    """Those of a GPU; 1 of a CPU, and of a GPU that is only compiled for many."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).multi_processor_count
    return 1 if device.type == "cpu" else 128


Lookup = tuple[str, str, int]
"""What a launch asked the table for: kernel, key of the general entry, group size."""


TRIAL: ContextVar[tuple[Mapping[str, Tile], set[Lookup]] | None] = ContextVar("nsa_kernels_trial", default=None)
"""Tiles to take instead of the table's, and what was asked for meanwhile."""


@contextmanager
def trying(tiles: Mapping[str, Tile]) -> Iterator[set[Lookup]]:
    """Inside the block these kernels take these tiles; yields what the launches in it ask the table for."""
    asked: set[Lookup] = set()
    with held(TRIAL, (tiles, asked)):
        yield asked


def config_for(kernel: str, q: Tensor, v: Tensor) -> Tile:
    """The configuration of `kernel` for q [...,Hq,Dk] and v [...,Hkv,Dv]."""
    architecture = architecture_for(q)
    if architecture is None:
        return INTERPRETED
    dk, dv, group = q.shape[-1], v.shape[-1], q.shape[-2] // v.shape[-2]
    tiles, asked = TRIAL.get() or ({}, None)
    if asked is not None:
        asked.add((kernel, row_key(dk, dv, q.dtype), group))
    return tiles.get(kernel) or tile_of(kernel, architecture, dk, dv, group, q.dtype)
