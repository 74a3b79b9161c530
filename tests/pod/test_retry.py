"""Keeping at work over connections that break: for as long as something is done, and no longer."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from orchestrator.errors import CommandTimeout, ContactLost, GaveUp, Interrupted, NsaPodError, Unreachable
from orchestrator.pod import retry
from orchestrator.pod.client import Agent
from orchestrator.pod.retry import GIVE_UP_S, Retry
from tests.support.local_agent import Told


class Clock:
    """Time that passes only when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(retry, "time", clock)
    return clock


def made(refusal: NsaPodError | None = None) -> Retry:
    """To a pod that can be reached, or not."""

    @contextmanager
    def connect() -> Iterator[Agent]:
        if refusal:
            raise refusal
        yield cast(Agent, None)

    return Retry(connect, Told(), "the run goes on", "nsa-pod fetch")


def failing(error: BaseException, before: Callable[[], None] = lambda: None) -> Callable[[Agent], Any]:
    def work(_: Agent) -> None:
        before()
        raise error

    return work


@pytest.mark.parametrize("error", [ContactLost("cut"), CommandTimeout("it did not end")])
def test_a_pod_that_is_reached_and_fails_each_time_is_given_up(clock: Clock, error: NsaPodError) -> None:
    there = made()
    with pytest.raises(ContactLost, match=r"no progress for 900 s: .*; the run goes on: nsa-pod fetch"):
        there.until_done(failing(error))
    assert GIVE_UP_S < clock.now < GIVE_UP_S + 60
    assert len(cast(Told, there.progress).lines) == 1


def test_a_pod_out_of_reach_is_given_up_after_as_long(clock: Clock) -> None:
    with pytest.raises(ContactLost, match="no progress for 900 s: no route"):
        made(Unreachable("no route")).until_done(lambda _: None)
    assert GIVE_UP_S < clock.now < GIVE_UP_S + 60


def test_work_that_comes_further_is_kept_at(clock: Clock) -> None:
    """However often its connection is cut."""
    there = made()
    cuts = iter(range(3000))

    def work(_: Agent) -> str:
        there.advance()
        if next(cuts, None) is None:
            return "done"
        raise ContactLost("cut")

    assert there.until_done(work) == "done"
    assert clock.now == 1500.0, "and is taken up again at once"


def test_an_interrupt_says_what_goes_on(clock: Clock) -> None:
    """Also while nobody answers, and during a launch, which may have arrived."""
    for interrupt, code in ((KeyboardInterrupt(), 130), (KeyboardInterrupt(signal.SIGTERM), 143)):
        with pytest.raises(Interrupted, match="the run goes on: nsa-pod fetch") as said:
            made().until_done(failing(interrupt))
        assert said.value.exit_code == code


def test_a_part_that_comes_further_each_time_is_never_given_up(clock: Clock) -> None:
    retry, reached = made(), iter(range(1, 200))

    def further(_: Agent) -> str:
        amount = next(reached)
        retry.reached("tree", amount)
        clock.now += 100
        if amount == 150:
            return "done"
        raise ContactLost("the connection broke")

    assert retry.until_done(further) == "done"
    assert clock.now > GIVE_UP_S * 10


def test_one_that_is_where_it_was_is_given_up(clock: Clock) -> None:
    retry = made()

    def again(_: Agent) -> None:
        retry.reached("tree", 7)
        clock.now += 100
        raise ContactLost("the connection broke")

    with pytest.raises(GaveUp, match="no progress for 900 s"):
        retry.until_done(again)
