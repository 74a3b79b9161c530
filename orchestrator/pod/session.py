"""The way to one pod: opened as often as needed, by the same trust."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from orchestrator.config.inventory import Pod
from orchestrator.errors import CommandTimeout, ContactLost, NsaPodError, PodBusy, Unreachable
from orchestrator.pod.client import Agent, install_agent
from orchestrator.pod.facts import PodFacts, broken_promises, probe
from orchestrator.store.hostkeys import Trust
from orchestrator.transports import open_transport
from orchestrator.ui import Progress


@dataclass
class PodSession:
    """How a pod is reached and what of it is accepted: a new host key at the first connection, never at a later one.

    `confirm` asks a person; None where there is nobody to be asked.
    """

    pod: Pod
    progress: Progress
    accept_new_host_key: bool = False
    allow_different_gpu: bool = False
    confirm: Callable[[str], bool] | None = None
    _was_opened: bool = field(default=False, init=False)
    _warned: set[str] = field(default_factory=set, init=False)
    _token: str = field(default_factory=lambda: secrets.token_hex(8), init=False)

    @contextmanager
    def open(self) -> Iterator[Agent]:
        """A connection with the agent at its end."""
        accepts = self.accept_new_host_key and not self._was_opened
        self.tell_connecting()
        with open_transport(self.pod, Trust(self.confirm, accepts)) as transport:
            self._was_opened = True
            if accepts:
                self.progress.warn(f"the host key of pod {self.pod.name!r} is {transport.fingerprint}, and is accepted")
            agent = install_agent(transport, self._token)
            try:
                yield agent
            except (ContactLost, Unreachable, CommandTimeout, PodBusy):  # it may be gone on with
                raise
            except NsaPodError:
                with suppress(NsaPodError):
                    agent.let_go()
                raise

    def tell_connecting(self) -> None:
        """That it may take a moment; this machine is reached at once."""
        if self.pod.transport != "local":
            self.progress.busy(f"connecting to pod {self.pod.name}")

    def facts(self, agent: Agent) -> PodFacts:
        """The pod's facts, held against the inventory's promises."""
        self.progress.busy(f"looking at pod {self.pod.name}")
        facts = probe(agent)
        for sentence in broken_promises(self.pod, facts, allow_different_gpu=self.allow_different_gpu):
            if sentence not in self._warned:  # over another connection, say
                self.progress.warn(sentence)
                self._warned.add(sentence)
        return facts
