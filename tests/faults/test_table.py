"""docs/faults.md names tests that exist."""

from __future__ import annotations

import re

from tests.support import ROOT


def test_every_test_of_the_table_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "docs/faults.md").read_text())
    assert len(named) > 30
    missing = [f"{file}::{test}" for file, test in named if f"def {test}(" not in (ROOT / file).read_text()]
    assert not missing, missing
