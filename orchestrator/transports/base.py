"""The seam between the tool and a pod: run a command, speak with one, stream bulk from it or to it, put a file."""

from __future__ import annotations

import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import BinaryIO

from orchestrator.config.inventory import Pod
from orchestrator.errors import PodError, PodFull
from orchestrator.files import Writer
from orchestrator.text import plain
from orchestrator.transports.limits import COMMAND_LIMIT_S, SILENCE_LIMIT_S, STDERR_KEPT

# A connection that breaks is an early end of input to the remote shell, so the size decides whether the rename happens.
_PUT = """\
mkdir -p "$(dirname "$1")" && cat > "$1.$$" && [ "$(wc -c < "$1.$$")" -eq "$2" ] && mv -f "$1.$$" "$1" && exit 0
rm -f "$1.$$"; exit 1"""


@dataclass(frozen=True)
class Completed:
    """A command that ran to its end on the pod; `exit_code` is 128+n when signal n ended it."""

    exit_code: int
    stdout: bytes
    stderr: bytes

    def complaint(self) -> str:
        """What the command said last on stderr (else stdout), as one printable line."""
        said = self.stderr[-STDERR_KEPT:].strip() or self.stdout[-STDERR_KEPT:].strip()
        lines = said.decode(errors="replace").splitlines()
        return plain(lines[-1]) if lines else f"exit code {self.exit_code}, no output"


Supplier = Callable[[bytes, Writer], None]


class Channel(ABC):
    """A command on the pod that is spoken with, for as long as the channel is open; its stderr is for its complaint."""

    @property
    def has_begun(self) -> bool:
        """Whether the command runs: before that, a login shell runs scripts of its own."""
        return True

    @abstractmethod
    def send(self, data: bytes) -> int:
        """Send what can be sent now, without waiting; how many bytes that were. Raises ContactLost."""

    @abstractmethod
    def receive(self, limit: float) -> bytes | None:
        """What the command wrote, as soon as there is some: empty after `limit` seconds without, None at the end.

        Raises ContactLost as `Transport.run` does.
        """

    @abstractmethod
    def complaint(self) -> str:
        """What the command, which has ended, said last."""

    @abstractmethod
    def close(self) -> None:
        """End the input of the command, and go; never raises for a connection that is already gone."""


class Transport(ABC):
    """A way to a pod. Use as a context manager; after ContactLost, `connect` makes it usable again,
    and accepts no other host key than the one before.

    Remote paths are absolute. No call waits without a limit.
    """

    #: SHA256 fingerprint of the host key that the pod proved to hold; None where there is none.
    fingerprint: str | None = None

    def __init__(self, pod: Pod) -> None:
        self.pod = pod

    def __enter__(self) -> Transport:
        self.connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def connect(self) -> None:
        """Open the connection. Raises Unreachable or HostKeyError."""

    @abstractmethod
    def close(self) -> None:
        """Close what is open; never raises for a connection that is already gone."""

    @abstractmethod
    def run(
        self,
        argv: Sequence[str],
        *,
        input: bytes = b"",
        env: Mapping[str, str] | None = None,
        timeout: float = COMMAND_LIMIT_S,
    ) -> Completed:
        """Run `argv` on the pod in a process group of its own and wait for it.

        Nothing in `argv` or `env` is interpreted by a shell, and `env` does not show in the pod's process list.
        Raises ContactLost when the peer is gone or stalled (noticed within 10 s), CommandTimeout after `timeout`
        seconds; the process group is then ended.
        """

    @abstractmethod
    def converse(self, argv: Sequence[str]) -> Channel:
        """Start `argv` on the pod, to be spoken with. Raises ContactLost, PodError."""

    @abstractmethod
    def stream(
        self,
        argv: Sequence[str],
        *,
        input: bytes = b"",
        silence: float = SILENCE_LIMIT_S,
        expected: int | None = None,
    ) -> AbstractContextManager[BinaryIO]:
        """The stdout of a remote command as a file, for bulk; a non-zero exit is an error when the context ends well.

        `expected` is about how many bytes will come, where that is known: a few need no connection for bulk.
        Raises ContactLost as `run` does, CommandTimeout when nothing arrives for `silence` seconds.
        """

    @abstractmethod
    def supply(self, argv: Sequence[str], write: Supplier, *, input: bytes = b"") -> Completed:
        """Run `argv` on the pod with `input`, and then what `write` writes, as its stdin; for bulk: nothing is held.

        `write` gets the first line that the command says: that it is ready, say, and from where on. A command
        that ends before it has read all of it is no error; `write` may see a broken pipe then. Raises
        ContactLost as `run` does.
        """

    def naming(self, argv: Sequence[str]) -> str:
        """How errors name a command: the pod and the beginning of the command line."""
        return f"pod {self.pod.name!r}: {plain(shlex.join(argv), 80)}"

    def output(
        self,
        argv: Sequence[str],
        *,
        input: bytes = b"",
        env: Mapping[str, str] | None = None,
        timeout: float = COMMAND_LIMIT_S,
    ) -> bytes:
        """As `run`; the command's stdout. Raises PodError, with what the command said, unless it exits with 0."""
        done = self.run(argv, input=input, env=env, timeout=timeout)
        if done.exit_code != 0:
            raise PodError(f"{self.naming(argv)} failed: {done.complaint()}")
        return done.stdout

    def put(self, data: bytes, remote: str) -> None:
        """Write a small file aside and rename it, so that it is never seen in part."""
        done = self.run(["sh", "-c", _PUT, "sh", remote, str(len(data))], input=data)
        if done.exit_code != 0:
            full = PodFull.of(f"pod {self.pod.name!r}", done.stderr.decode(errors="replace"))
            raise full or PodError(f"pod {self.pod.name!r}: cannot write {remote}: {done.complaint()}")
