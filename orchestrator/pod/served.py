"""A transport whose commands go to one agent that serves, over one channel: each is one round trip."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import BinaryIO

from orchestrator.pod.dialogue import Dialogue, Feed
from orchestrator.transports.base import Channel, Completed, Supplier, Transport
from orchestrator.transports.limits import COMMAND_LIMIT_S, SILENCE_LIMIT_S

# More than this is faster over a connection for bulk, even if that is to be opened first.
_LITTLE = 512 << 10


class Served(Transport):
    """Over `inner`, which goes on to carry what is bulk; `serve` starts the agent, unless `dialogue` is with one."""

    def __init__(self, inner: Transport, serve: Sequence[str], dialogue: Dialogue | None = None) -> None:
        super().__init__(inner.pod)
        self._inner, self._serve, self._dialogue = inner, serve, dialogue

    def __eq__(self, other: object) -> bool:
        """By what is reached and by which agent, not by the talk with it."""
        return isinstance(other, Served) and (self._inner, self._serve) == (other._inner, other._serve)

    def __hash__(self) -> int:
        return hash((self._inner, tuple(self._serve)))

    @property
    def fingerprint(self) -> str | None:  # type: ignore[override]
        return self._inner.fingerprint

    def connect(self) -> None:
        self._hang_up()
        self._inner.connect()

    def close(self) -> None:
        self._hang_up()
        self._inner.close()

    def run(
        self,
        argv: Sequence[str],
        *,
        input: bytes = b"",
        env: Mapping[str, str] | None = None,
        timeout: float = COMMAND_LIMIT_S,
    ) -> Completed:
        if env:  # the agent's own is its connection's
            return self._inner.run(argv, input=input, env=env, timeout=timeout)
        return self._talk().run(argv, input, timeout, self.naming(argv))

    def converse(self, argv: Sequence[str]) -> Channel:
        return self._inner.converse(argv)

    def feed(self, argv: Sequence[str]) -> AbstractContextManager[Feed]:
        """The output of a command that goes on until the context ends."""
        return self._talk().feed(argv, self.naming(argv))

    @contextmanager
    def stream(
        self,
        argv: Sequence[str],
        *,
        input: bytes = b"",
        silence: float = SILENCE_LIMIT_S,
        expected: int | None = None,
    ) -> Iterator[BinaryIO]:
        if expected is not None and expected <= _LITTLE:
            opened: AbstractContextManager[BinaryIO] = self._talk().stream(argv, input, silence, self.naming(argv))
        else:
            opened = self._inner.stream(argv, input=input, silence=silence)
        with opened as out:
            yield out

    def supply(self, argv: Sequence[str], write: Supplier, *, input: bytes = b"") -> Completed:
        return self._inner.supply(argv, write, input=input)

    def _talk(self) -> Dialogue:
        if self._dialogue is None or self._dialogue.is_over:
            self._dialogue = Dialogue(self._inner.converse(self._serve), self.pod.name)
        return self._dialogue

    def _hang_up(self) -> None:
        if self._dialogue is not None:
            self._dialogue.close()
        self._dialogue = None
