"""Bring one file to a pod that has no agent yet: what came over a connection that broke is gone on with."""

from __future__ import annotations

import hashlib
import zlib

from orchestrator.errors import CommandTimeout, ContactLost, PodError, Unreachable
from orchestrator.pod.patience import Patience
from orchestrator.transports.base import Transport, full_disk

# Its arguments: the file, the SHA-256 of its content, the bytes that this has compressed, where of those stdin begins.
# It says how many are there then; with the last of them the file gets its name. Whoever else brings the same is waited
# for: one whose line went silent goes after a minute.
_RECEIVE = """\
import fcntl, hashlib, os, select, sys, zlib
name, digest, size, at = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
part = f"{name}.{size}.part"
os.makedirs(os.path.dirname(name), mode=0o700, exist_ok=True)
fd = os.open(part, os.O_RDWR | os.O_CREAT, 0o600)
fcntl.flock(fd, fcntl.LOCK_EX)
there = os.lseek(fd, 0, os.SEEK_END)
try:
    while at <= there < size and select.select([0], [], [], 60)[0]:
        piece = os.read(0, 1 << 16)
        if not piece:
            break
        piece, at = piece[max(0, there - at):], at + len(piece)
        while piece:
            wrote = os.write(fd, piece)
            piece, there = piece[wrote:], there + wrote
    if there >= size:
        os.lseek(fd, 0, os.SEEK_SET)
        content = zlib.decompress(os.read(fd, size))
        if hashlib.sha256(content).hexdigest() != digest:
            sys.exit("another content arrived than was sent")
        with open(f"{part}.whole", "wb") as whole:
            os.fchmod(whole.fileno(), 0o600)
            whole.write(content)
        os.replace(f"{part}.whole", name)
        os.unlink(part)
except BaseException:
    os.unlink(part)
    raise
print(there)
"""
_LIMIT_S = 150.0


def upload(transport: Transport, python: str, data: bytes, remote: str) -> None:
    """Have the file `remote` hold `data`, over as many connections as that takes; `transport` is connected then.

    ContactLost once several of them in a row have brought nothing.
    """
    packed = zlib.compress(data, 9)
    command = [python, "-I", "-c", _RECEIVE, remote, hashlib.sha256(data).hexdigest(), str(len(packed))]
    patience = Patience()

    def come(at: int, sent: bytes) -> int:
        """How much is there after `sent`, which begins at the byte `at`."""
        done = transport.run([*command, str(at)], input=sent, timeout=_LIMIT_S)
        if done.exit_code != 0:
            what = f"pod {transport.pod.name!r}"
            raise full_disk(what, done.stderr) or PodError(f"{what}: cannot write {remote}: {done.complaint()}")
        return int(done.stdout)

    there, is_connected = -1, True
    while there < len(packed):
        try:
            if not is_connected:
                transport.connect()
            if there < 0:
                there, is_connected = come(len(packed), b""), True
            patience.reached(there)
            there = come(there, packed[there:])
        except (ContactLost, CommandTimeout, Unreachable) as error:
            patience.lost(error)
            there, is_connected = -1, False
