"""Keeping at something over connections that break: what runs on the pod is not affected."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TypeVar

from orchestrator.errors import CommandTimeout, ContactLost, Unreachable
from orchestrator.tasks.probe import Agent
from orchestrator.ui import Progress

Connect = Callable[[], AbstractContextManager[Agent]]
T = TypeVar("T")

# How long a pod may be out of reach before this ends with an error.
GIVE_UP_S = 900.0
_RETRY_S = (0.5, 1.0, 2.0, 5.0, 10.0)


@dataclass(frozen=True)
class Contact:
    """`goes_on` says what is not affected, `way_back` what to do after it was given up."""

    connect: Connect
    progress: Progress
    goes_on: str
    way_back: str

    def keep(self, work: Callable[[Agent], T], agent: Agent | None = None) -> T:
        """Do `work`, again from its beginning after each lost connection; `agent` is an open one to begin with.

        ContactLost after GIVE_UP_S without contact.
        """
        lost_at: float | None = None
        attempt = 0
        while True:
            try:
                with nullcontext(agent) if agent else self.connect() as connected:
                    lost_at, attempt = None, 0
                    return work(connected)
            except (ContactLost, Unreachable, CommandTimeout) as e:
                agent = None
                lost_at = self._lost(lost_at, e)
                time.sleep(_RETRY_S[min(attempt, len(_RETRY_S) - 1)])
                attempt += 1

    def _lost(self, since: float | None, error: Exception) -> float:
        now = time.monotonic()
        if since is None:
            self.progress.say(f"contact lost: {error}; {self.goes_on}, trying to reach it again")
            return now
        if now - since > GIVE_UP_S:
            raise ContactLost(f"no contact for {GIVE_UP_S:.0f} s: {error}; {self.goes_on}: {self.way_back}")
        return since
