"""How long what does not come to an end is waited for: by what it brings, not by how often it was tried."""

from __future__ import annotations

import pytest

from orchestrator.errors import CommandTimeout, ContactLost
from orchestrator.pod import patience
from orchestrator.pod.patience import Patience
from orchestrator.transports.limits import SLOWEST, Pace

LOST = ContactLost("the connection broke")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "PAUSES_S", (0.0,) * 5)


def test_what_comes_further_each_time_is_never_given_up() -> None:
    work = Patience()
    for amount in range(1, 1000):
        work.reached(amount)
        work.lost(LOST)


def test_what_comes_no_further_is_given_up() -> None:
    work = Patience()
    work.reached(10)
    for _ in range(5):
        work.reached(10)
        work.lost(LOST)
    with pytest.raises(ContactLost):
        work.lost(LOST)


def test_bulk_may_be_slow_and_not_slower() -> None:
    pace = Pace("it")
    for _ in range(600):
        pace.moved(SLOWEST, 1.0)
    with pytest.raises(CommandTimeout, match="it moved 60 bytes in 60 s"):
        for _ in range(60):
            pace.moved(1, 1.0)


def test_time_that_nobody_waits_for_it_does_not_count() -> None:
    pace = Pace("it")
    for _ in range(10_000):
        pace.moved(1, 0.001)
