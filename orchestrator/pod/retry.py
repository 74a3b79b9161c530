"""Keeping at something over connections that break: what runs on the pod is not affected."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TypeVar

from orchestrator.errors import CommandTimeout, ContactLost, GaveUp, Interrupted, Unreachable
from orchestrator.interrupts import exit_code
from orchestrator.pod.client import Agent
from orchestrator.pod.patience import PAUSES_S
from orchestrator.ui import Progress

Connect = Callable[[], AbstractContextManager[Agent]]
T = TypeVar("T")

GIVE_UP_S = 900.0
"""How long the work may make no progress, connections or not, before this ends with an error."""
BEFORE_LAUNCH_S = 60.0
"""The same while nothing goes on on the pod that would be lost."""


@dataclass
class Retry:
    """`goes_on` says what is not affected, `way_back` what to do after it was given up.

    Work that takes long says by `advance` that a part of it is done: a pod that can be reached, and fails each time, is
    given up like one that cannot.
    """

    connect: Connect
    progress: Progress
    goes_on: str
    way_back: str
    give_up_s: float = GIVE_UP_S
    _lost_at: float | None = field(default=None, init=False)
    _attempt: int = field(default=0, init=False)
    _reached: dict[str, int] = field(default_factory=dict, init=False)

    def advance(self) -> None:
        """A part of the work is done: the patience begins anew."""
        self._lost_at, self._attempt = None, 0

    def reached(self, part: str, amount: int) -> None:
        """So much of a part of the work is done: more than ever before, and the patience begins anew."""
        if amount > self._reached.get(part, 0):
            self._reached[part] = amount
            self.advance()

    def until_done(self, work: Callable[[Agent], T], agent: Agent | None = None) -> T:
        """Do `work`, again from its beginning after each lost connection; `agent` is an open one to begin with.

        GaveUp without progress for `give_up_s`, Interrupted by the user.
        """
        with self.interruptible():
            while True:
                try:
                    with nullcontext(agent) if agent else self.connect() as connected:
                        return work(connected)
                except GaveUp:
                    raise
                except (ContactLost, Unreachable, CommandTimeout) as e:
                    agent = None
                    self._lost(e)

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Interrupted, which says what goes on, where the user interrupts."""
        try:
            yield
        except KeyboardInterrupt as e:
            raise Interrupted(f"{self.goes_on}: {self.way_back}", exit_code(e)) from None

    def _lost(self, error: Exception) -> None:
        """Wait a while before the next connection; GaveUp if it was enough."""
        now = time.monotonic()
        if self._lost_at is None:
            self._lost_at = now
            self.progress.say(f"contact lost: {error}; {self.goes_on}, trying to reach it again")
        elif now - self._lost_at > self.give_up_s:
            raise GaveUp(f"no progress for {self.give_up_s:.0f} s: {error}; {self.goes_on}: {self.way_back}")
        time.sleep(PAUSES_S[min(self._attempt, len(PAUSES_S) - 1)])
        self._attempt += 1


def while_it_runs(connect: Connect, progress: Progress, pod: str, run_id: str) -> Retry:
    """While a run goes on on its pod."""
    which = f"--pod {pod} {run_id}"
    return Retry(connect, progress, "the run goes on", f"nsa-pod follow {which}, or nsa-pod cancel {which}")


def before_launch(agent: Agent, progress: Progress, work: Callable[[Agent], T]) -> T:
    """Do what comes before a run goes on on the pod, again from its beginning after each lost connection: what was
    brought to the pod is found there.
    """
    retry = again(agent, progress, "nothing was launched", "repeat the command: it goes on from here", BEFORE_LAUNCH_S)
    told = replace(agent, reached=retry.reached)
    return retry.until_done(lambda _: work(told), told)


def again(agent: Agent, progress: Progress, goes_on: str, way_back: str, give_up_s: float = GIVE_UP_S) -> Retry:
    """Over the same transport, connected again: who else uses the agent goes on with it."""

    @contextmanager
    def reconnected() -> Iterator[Agent]:
        agent.transport.connect()
        yield agent

    return Retry(reconnected, progress, goes_on, way_back, give_up_s)
