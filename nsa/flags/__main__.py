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
from nsa.profiles import Profile

THRESHOLDS = {
    "fa2_min_len_win": "fa2_min_len_win",
    "fa2_min_len_cmp": "fa2_min_len_cmp",
    "sel_triton_min_L": "sel_triton_min_l",
}
"""Profile key -> the flag that overrules it."""


def flag_rows(effective: flags.Flags) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "type": flags.kind_of(item),
            "value": getattr(effective, item.name),
            "source": "environment" if os.environ.get(name, "").strip() else "default",
            "meaning": item.metadata["meaning"],
        }
        for name, item in flags.REGISTRY.items()
    ]


def threshold_rows(effective: flags.Flags, profile: Profile) -> list[dict[str, Any]]:
    """One row for each threshold of the profile, overruled by its flag where that is set."""
    rows = []
    for key, flag in THRESHOLDS.items():
        measured, overruled = getattr(profile, key), getattr(effective, flag)
        value, source = (
            (overruled, "environment") if overruled is not None else (measured.value, f"profile {profile.name}")
        )
        rows.append({"name": key, "type": "int", "value": value, "source": source, "meaning": measured.source})
    return rows


def configuration() -> list[dict[str, Any]]:
    """The effective configuration of this process on this machine."""
    effective = flags.read(os.environ)
    profile = profiles.load(effective.profile) if effective.profile else profiles.for_device(named_device(None))
    return [*flag_rows(effective), *threshold_rows(effective, profile)]


def render(rows: list[dict[str, Any]]) -> str:
    shown = [[r["name"], r["type"], _value(r["value"]), r["source"], r["meaning"]] for r in rows]
    shown.insert(0, ["name", "type", "value", "source", "meaning"])
    widths = [max(len(row[column]) for row in shown) for column in range(4)]
    lines = ["  ".join([*(c.ljust(w) for c, w in zip(row, widths, strict=False)), row[4]]) for row in shown]
    return "\n".join(lines)


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
