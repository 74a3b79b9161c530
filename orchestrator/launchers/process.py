"""The agent as a process of its own on the pod, which holds the pod's lock until its run has ended."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from orchestrator.errors import PodBusy, PodError
from orchestrator.launchers.base import Launcher, Secrets
from orchestrator.plan.plan import to_json
from orchestrator.pod.client import Agent
from orchestrator.shared.answers import Cancelling, Held, Holder, Killed, Launched, RunStatus, Tidied
from orchestrator.shared.plan import Plan
from orchestrator.text import plain, size
from orchestrator.transports.limits import COMMAND_LIMIT_S

# A run that is gone on with is checked and gets its tree before the answer comes.
_LAUNCH_LIMIT_S = 600.0


@dataclass(frozen=True)
class ProcessLauncher(Launcher):
    """Over a connection to the pod's agent, which starts another one of itself."""

    agent: Agent

    def start(self, plan: Plan, secrets: Secrets) -> str | None:
        directory = self.agent.run_directory(plan["run_id"])
        written = to_json(plan).encode()
        try:
            options = ("--plan-bytes", str(len(written)), *self._limit())
            launched = self._launch(secrets, directory, *options, plan=written)
        except PodError as refused:
            if self._has_begun(directory):
                return None
            if isinstance(refused, PodBusy):
                self.agent.transport.output(["rm", "-r", directory])
            raise
        told = [*_of_the_dead(launched["dead"]), *_of_the_disk(launched.get("tidied"))]
        return "; ".join(told) or None

    def resume(self, run_id: str, by: str, secrets: Secrets) -> None:
        self._launch(secrets, self.agent.run_directory(run_id), "--resume-by", by)

    def status(self, run_id: str) -> RunStatus:
        return self._status(self.agent.run_directory(run_id))

    def cancel(self, run_id: str, by: str, *, stolen: bool = False) -> float | None:
        how = ("--by", by, *(["--stolen"] if stolen else []))
        found = self.agent.call(Cancelling, "cancel", self.agent.run_directory(run_id), *how)
        return found["within"] if found["signalled"] else None

    def end(self, run_id: str) -> bool:
        return self.agent.call(Killed, "end", self.agent.run_directory(run_id))["ended"]

    def holder(self, wait: float = 0.0) -> Holder | None:
        limit = wait + COMMAND_LIMIT_S
        return self.agent.call(Held, "holder", self.agent.workdir, "--wait", str(wait), timeout=limit)["holder"]

    def _limit(self) -> list[str]:
        most = self.agent.pod.max_disk
        return [] if most is None else ["--max-disk", str(most)]

    def _launch(self, secrets: Secrets, *arguments: str, plan: bytes = b"") -> Launched:
        """`secrets` travel on stdin, after the plan: neither a file nor a process list shows them."""
        handed = plan + json.dumps(secrets).encode()
        return self.agent.call(Launched, "launch", *arguments, input=handed, timeout=_LAUNCH_LIMIT_S)

    def _status(self, run_directory: str) -> RunStatus:
        return self.agent.call(RunStatus, "status", run_directory)

    def _has_begun(self, run_directory: str) -> bool:
        """Whether an agent has the run or had it: an earlier launch arrived, though its answer may not have."""
        try:
            found = self._status(run_directory)
        except PodError:  # not even its directory could be made
            return False
        return found["state"] == "running" or bool(found["bytes"])


def _of_the_dead(dead: Mapping[str, object] | None) -> Iterator[str]:
    if dead:
        how = "with the machine, which was started again" if dead.get("rebooted") else "without letting the pod go"
        yield f"run {plain(dead.get('run_id'))} of {plain(dead.get('holder'))} died {how}; --resume goes on with it"


def _of_the_disk(tidied: Tidied | None) -> Iterator[str]:
    """What went because of max_disk; nothing where there was room."""
    if tidied is None:
        return
    before, after, limit = tidied["before_bytes"], tidied["after_bytes"], tidied["limit"]
    if tidied["problem"]:
        yield f"the pod's disk was not tidied: {plain(tidied['problem'])}"
    elif after < before:
        yield f"the pod's workdir took {size(before)} and takes {size(after)} now: max_disk is {size(limit)}"
    if after > limit:
        yield f"it takes more than max_disk, {size(limit)}, and no more of it can go"
