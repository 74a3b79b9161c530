"""Tests done of those collected, while pytest runs."""

from __future__ import annotations

import json
from typing import Any

from orchestrator.agent.run.pytest_count import PytestCount


def line(event: str, **fields: Any) -> bytes:
    return json.dumps({"event": event, **fields}).encode() + b"\n"


def test_a_test_is_done_when_it_is_torn_down_once() -> None:
    """However the lines are cut into pieces, and whatever stands among them."""
    count = PytestCount()
    assert count.told is None
    phases = [line("phase", id=id_, when=when) for id_ in "aab" for when in ("setup", "call", "teardown")]
    lines = b"".join([line("start"), line("selected", ids=["a", "b", "c"]), b"[1]\n{\n\xff\n", *phases, b"half"])
    for at in range(0, len(lines), 7):
        count.see(lines[at : at + 7])
    assert count.told == {"done": 2, "collected": 3}


def test_under_xdist_the_tests_are_known_before_the_workers_name_them() -> None:
    count = PytestCount()
    count.see(line("scheduled", ids=["a", "a"]))
    assert count.told == {"done": 0, "collected": 2}
    count.see(line("phase", id="a (2)", when="teardown") + line("selected", ids=["a", "a (2)"]))
    assert count.told == {"done": 1, "collected": 2}
