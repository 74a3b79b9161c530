"""Bring one file to a pod that has no agent yet: what came over a connection that broke is gone on with."""

from __future__ import annotations

import hashlib
import time
import zlib
from collections.abc import Sequence
from contextlib import closing

from orchestrator.errors import CommandTimeout, ContactLost, PodError, PodFull, Unreachable
from orchestrator.pod.patience import Patience
from orchestrator.text import plain
from orchestrator.transports.base import Transport
from orchestrator.transports.limits import FIRST_LINE_LIMIT_S, Pace

# Its arguments: the file, the SHA-256 of its content, the bytes that this has compressed. It says how many of those are
# there, and takes the rest; with the last of them the file gets its name. Whoever else brings the same is waited for:
# one whose line went silent goes after a minute.
_RECEIVE = """\
import fcntl, hashlib, os, select, sys, zlib
name, digest, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
part = f"{name}.{size}.part"
os.makedirs(os.path.dirname(name), mode=0o700, exist_ok=True)
fd = os.open(part, os.O_RDWR | os.O_CREAT, 0o600)
fcntl.flock(fd, fcntl.LOCK_EX)
there = os.lseek(fd, 0, os.SEEK_END)
def drop():  # unless whoever was waited for has
    if os.path.exists(part):
        os.unlink(part)
try:
    fcntl.fcntl(0, 1031, 1 << 20)  # F_SETPIPE_SZ: what is in the pipe when the connection breaks still comes
except OSError:
    pass
print(there, flush=True)
try:
    while there < size and select.select([0], [], [], 60)[0]:
        piece = os.read(0, 1 << 16)
        if not piece:
            break
        while piece:
            wrote = os.write(fd, piece)
            piece, there = piece[wrote:], there + wrote
    if there >= size:
        os.lseek(fd, 0, os.SEEK_SET)
        content = zlib.decompress(os.read(fd, size))
        if hashlib.sha256(content).hexdigest() != digest:
            sys.exit("another content arrived than was sent")
        with open(f"{part}.{os.getpid()}", "wb") as whole:
            os.fchmod(whole.fileno(), 0o600)
            whole.write(content)
        os.replace(whole.name, name)
        drop()
        print(there, flush=True)
except BaseException:
    drop()
    raise
"""
_LONGEST_LINE = 1 << 10
_CHUNK = 1 << 15
_POLL_S = 0.05


def upload(transport: Transport, python: str, data: bytes, remote: str) -> None:
    """Have the file `remote` hold `data`, over as many connections as that takes; `transport` is connected then.

    ContactLost once several of them in a row have brought nothing.
    """
    packed, digest = zlib.compress(data), hashlib.sha256(data).hexdigest()
    command = [python, "-I", "-c", _RECEIVE, remote, digest, str(len(packed))]
    patience, is_connected = Patience(), True
    while True:
        try:
            if not is_connected:
                transport.connect()
            is_connected = True
            with closing(_Receiver(transport, command, remote)) as receiver:
                at = receiver.reads()
                patience.reached(at)
                receiver.send(packed[at:])
                if receiver.reads() == len(packed):
                    return
        except (ContactLost, CommandTimeout, Unreachable) as error:
            patience.lost(error)
            is_connected = False


class _Receiver:
    """The program on the pod that takes the file, spoken with."""

    def __init__(self, transport: Transport, command: Sequence[str], remote: str) -> None:
        self._what, self._remote = f"pod {transport.pod.name!r}", remote
        self._channel = transport.converse(command)
        self._said = b""

    def close(self) -> None:
        self._channel.close()

    def reads(self) -> int:
        """How much is there, as it says next."""
        end = time.monotonic() + FIRST_LINE_LIMIT_S
        while b"\n" not in self._said:
            if time.monotonic() > end:
                raise CommandTimeout(f"{self._what} said nothing of the agent for {FIRST_LINE_LIMIT_S:g} s")
            self._hear(_POLL_S)
        line, _, self._said = self._said.partition(b"\n")
        if not line.isdigit():
            raise PodError(f"{self._what}: cannot write {self._remote}: {plain(line.decode(errors='replace'))}")
        return int(line)

    def send(self, data: bytes) -> None:
        """All of it, in the time that bulk may take."""
        pace, rest = Pace(f"{self._what}: the agent's way there"), memoryview(data)
        while rest:
            began = time.monotonic()
            sent = self._channel.send(bytes(rest[:_CHUNK]))
            if not sent:
                self._hear(_POLL_S)
            pace.moved(sent, time.monotonic() - began)
            rest = rest[sent:]

    def _hear(self, limit: float) -> None:
        data = self._channel.receive(limit)
        if data is None:
            said = self._channel.complaint()
            raise PodFull.of(self._what, said) or PodError(f"{self._what}: cannot write {self._remote}: {said}")
        self._said += data
        if len(self._said) > _LONGEST_LINE:
            raise PodError(f"{self._what}: cannot write {self._remote}: it says more than it was asked for")
