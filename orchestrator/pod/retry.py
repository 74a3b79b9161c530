"""Keeping at something over connections that break: what runs on the pod is not affected."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TypeVar

from orchestrator.errors import CommandTimeout, ContactLost, Interrupted, Unreachable
from orchestrator.pod.client import Agent
from orchestrator.ui import Progress

Connect = Callable[[], AbstractContextManager[Agent]]
T = TypeVar("T")

# How long the work may make no progress, connections or not, before this ends with an error.
GIVE_UP_S = 900.0
_RETRY_S = (0.5, 1.0, 2.0, 5.0, 10.0)


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
    _lost_at: float | None = field(default=None, init=False)
    _attempt: int = field(default=0, init=False)

    def advance(self) -> None:
        """A part of the work is done: the patience begins anew."""
        self._lost_at, self._attempt = None, 0

    def until_done(self, work: Callable[[Agent], T], agent: Agent | None = None) -> T:
        """Do `work`, again from its beginning after each lost connection; `agent` is an open one to begin with.

        ContactLost without progress for GIVE_UP_S, Interrupted by the user.
        """
        try:
            while True:
                try:
                    with nullcontext(agent) if agent else self.connect() as connected:
                        return work(connected)
                except (ContactLost, Unreachable, CommandTimeout) as e:
                    agent = None
                    self._lost(e)
        except KeyboardInterrupt:
            raise Interrupted(f"{self.goes_on}: {self.way_back}") from None

    def _lost(self, error: Exception) -> None:
        """Wait a while before the next connection; ContactLost if it was enough."""
        now = time.monotonic()
        if self._lost_at is None:
            self._lost_at = now
            self.progress.say(f"contact lost: {error}; {self.goes_on}, trying to reach it again")
        elif now - self._lost_at > GIVE_UP_S:
            raise ContactLost(f"no progress for {GIVE_UP_S:.0f} s: {error}; {self.goes_on}: {self.way_back}")
        time.sleep(_RETRY_S[min(self._attempt, len(_RETRY_S) - 1)])
        self._attempt += 1
