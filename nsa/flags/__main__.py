"""`python -m nsa.flags [--json]`: every flag and threshold with its effective value and where it comes from."""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from nsa import flags, profiles
from nsa.device import named_device

THRESHOLDS = ("fa2_min_len_win", "fa2_min_len_cmp", "sel_triton_min_L")
"""Of the profile; the flag that overrules one has its name in small letters."""

COLUMNS = ("name", "type", "value", "source", "meaning")


def configuration() -> list[dict[str, Any]]:
    """The effective configuration of this process on this machine: flags, then thresholds."""
    effective, rows = flags.read(os.environ), []
    profile = profiles.load(effective.profile) if effective.profile else profiles.for_device(named_device(None))
    for name, item in flags.REGISTRY.items():
        source = "environment" if os.environ.get(name, "").strip() else "default"
        rows.append((name, flags.kind_of(item), getattr(effective, item.name), source, item.metadata["meaning"]))
    for key in THRESHOLDS:
        measured, value, source = getattr(profile, key), getattr(effective, key.lower()), "environment"
        if value is None:
            value, source = measured.value, f"profile {profile.name}"
        rows.append((key, "int", value, source, measured.source))
    return [dict(zip(COLUMNS, row, strict=True)) for row in rows]


def render(rows: list[dict[str, Any]]) -> str:
    shown = [COLUMNS, *(tuple(map(_value, row.values())) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)][:-1]
    return "\n".join("  ".join([*map(str.ljust, row, widths), row[-1]]) for row in shown)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    return "-" if value is None else str(value)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; 2 where a variable cannot be understood."""
    parser = argparse.ArgumentParser(prog="python -m nsa.flags", description=__doc__)
    parser.add_argument("--json", action="store_true", help="JSON on stdout")
    as_json = parser.parse_args(argv).json
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            rows = configuration()
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for warning in caught:
        print(f"warning: {warning.message}", file=sys.stderr)
    print(json.dumps(rows, indent=2) if as_json else render(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
