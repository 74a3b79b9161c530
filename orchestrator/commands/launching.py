"""What the verbs have in common that start a run."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator import options
from orchestrator.launchers.claim import Claim
from orchestrator.options import Kept, Reaching
from orchestrator.tasks.request import Asked

launching = options.together(
    options.reaching,
    options.repo,
    options.artifacts,
    options.gpu,
    options.runbook,
    options.limits,
    options.claims,
)


@dataclass(frozen=True, kw_only=True)
class Launching(Reaching, Kept):
    """Their options, beside which each has its own."""

    runbook: str | None
    max_time: str | None
    max_cost: float | None
    wait: bool
    steal: bool

    @property
    def claim(self) -> Claim:
        return Claim(self.wait, self.steal)

    def asked(self, commit: str) -> Asked:
        """A run of `commit`."""
        limits = self.max_time, self.max_cost
        return Asked(lambda: self.the_pod, self.repo, commit, self.runbook, self.artifacts, *limits)
