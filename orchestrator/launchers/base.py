"""The seam between a run and what executes it: how its agent is started on a pod, asked for, and ended."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from orchestrator.shared.answers import Holder, RunStatus
from orchestrator.shared.plan import Plan

Secrets = Mapping[str, Mapping[str, str]]
"""Values by stage and name, which the plan only names: they go to the agent's memory and are written down nowhere."""


class Launcher(ABC):
    """Plan and journal do not know which one it is. Runs are named by their run id."""

    @abstractmethod
    def start(self, plan: Plan, secrets: Secrets) -> str | None:
        """Start the run, which needs nobody from then on; what should be said of the run before it, as a sentence.

        It may be repeated: a run that has begun goes on. PodBusy, with the holder named, if another one goes on.
        """

    @abstractmethod
    def resume(self, run_id: str, by: str, secrets: Secrets) -> None:
        """Go on with a run whose agent died; PodError, with the reason, if that cannot be."""

    @abstractmethod
    def status(self, run_id: str) -> RunStatus:
        """Whether it is running, ended or lost."""

    @abstractmethod
    def cancel(self, run_id: str, by: str, *, stolen: bool = False) -> float | None:
        """Ask the run's agent to stop, `stolen` for another run: in how many seconds it has, if it works; None if it
        was gone already.
        """

    @abstractmethod
    def end(self, run_id: str) -> bool:
        """Kill the run's agent, which did not stop, and all that is of the run; whether the pod is free of it."""

    @abstractmethod
    def holder(self, wait: float = 0.0) -> Holder | None:
        """Who keeps another run from starting, after at most `wait` seconds in which that may end; None if nobody."""
