"""Bulk over the OpenSSH client: rsync, tar and streams, all through one master connection of the same ssh_config."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO, BinaryIO

from orchestrator.errors import CommandTimeout, NsaPodError, PodError, Unreachable
from orchestrator.transports.base import PUSH_LIMIT_S, Completed, PushStats, full_disk
from orchestrator.transports.ssh.children import Background, child, fed, streaming, tail
from orchestrator.transports.ssh.failures import ssh_failed
from orchestrator.transports.ssh.remote import RemoteCommand

_MASTER_LIMIT_S = 30
_LINE_LIMIT = 1 << 16
_SSH_FAILED = 255
# rsync's own exit codes (its manual, "EXIT VALUES"): 10 socket, 12 protocol stream, 30 timeout.
_RSYNC_CONTACT = (_SSH_FAILED, 10, 12, 30)
_RSYNC_ABSENT = re.compile(rb"rsync: (command )?not found|(command not found|Unknown command): rsync")
# rsync takes the failure of what runs before it on the pod for a broken connection.
_NOT_BEGUN = b"nsa-pod:not-begun"
_RSYNC_SILENCE_S = 120  # checksums of large files take a while; a stalled connection is noticed by ssh, and earlier


class OpenSsh:
    """The OpenSSH client for one pod, which errors call `what`."""

    def __init__(self, what: str, config: Path, alias: str) -> None:
        self._what, self._config, self._alias = what, config, alias
        self._master: Background | None = None
        self._pod_has_rsync = True

    def stop(self) -> None:
        """End the master connection."""
        if self._master is None:
            return
        if self._master.code(0) == 0:
            with suppress(CommandTimeout):  # it then ends by itself: ServerAlive, ControlPersist
                self._finish(self._ssh("-O", "exit", self._alias), 5)
        self._master.end()
        self._master = None

    def _ready(self) -> None:
        """The master connection, which all the others share, is made when the first of them is."""
        if self._master is None:
            if not shutil.which("ssh"):
                raise PodError(
                    f"{self._what}: files travel by the OpenSSH client, and there is no `ssh` on this machine"
                )
            self._master = Background(self._ssh("-fN", self._alias))
        code = self._master.code(_MASTER_LIMIT_S)
        if code != 0:
            said = self._master.said()
            self.stop()
            raise ssh_failed(self._what, said, Unreachable)

    @contextmanager
    def stream(self, command: RemoteCommand, input: bytes, silence: float, what: str) -> Iterator[BinaryIO]:
        """The stdout of `command`."""
        self._ready()

        def failed(code: int, stderr: bytes) -> NsaPodError:
            if code == _SSH_FAILED:
                return ssh_failed(what, stderr)
            return PodError(f"{what} failed: {Completed(code, b'', command.clean(stderr)).complaint()}")

        argv = self._ssh(self._alias, command.line)
        with streaming(argv, stdin=command.preamble + input, silence=silence, what=what, failed=failed) as out:
            while (line := out.readline(_LINE_LIMIT)).strip() != command.token.encode():
                if not line:
                    raise PodError(f"{what}: the login shell does not run commands")
            yield out

    def supply(self, command: RemoteCommand, write: Callable[[IO[bytes]], None], what: str) -> Completed:
        """Run `command` with what `write` writes as its stdin."""
        self._ready()
        code, out, err = fed(self._ssh(self._alias, command.line), write, limit=PUSH_LIMIT_S, what=what)
        if code == _SSH_FAILED:
            raise ssh_failed(what, err)
        return Completed(code, command.clean(out), command.clean(err))

    def push_tree(self, local: Path, remote: str) -> PushStats:
        """rsync where both sides have it, else tar."""
        self._ready()
        begin = _begin(remote)
        stats = self._rsync(local, remote, begin) if self._pod_has_rsync and _rsync_here() else None
        return stats or self._tar(local, remote, begin)

    def _ssh(self, *words: str) -> list[str]:
        return ["ssh", "-F", str(self._config), *words]

    def _finish(self, argv: Sequence[str], limit: float, stdin: IO[bytes] | bytes = b"") -> tuple[int, bytes, bytes]:
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            with child(argv, stdin=stdin, stdout=out, stderr=err, env={"LC_ALL": "C"}) as process:
                try:
                    code = process.wait(limit)
                except subprocess.TimeoutExpired:
                    raise CommandTimeout(f"{self._what}: {argv[0]} did not end within {limit:g} s") from None
            return code, tail(out), tail(err)

    def _rsync(self, local: Path, remote: str, begin: str) -> PushStats | None:
        """None if the pod has no rsync."""
        code, out, err = self._finish(
            [
                *("rsync", "--recursive", "--links", "--perms", "--checksum", "--stats", "--secluded-args"),
                f"--timeout={_RSYNC_SILENCE_S}",
                f"--rsh={shlex.join(self._ssh())}",
                f"--rsync-path={shlex.join(['sh', '-c', begin])} && rsync",
                f"{local}/",
                f"{self._alias}:{remote}/",
            ],
            PUSH_LIMIT_S,
        )
        if code == 0:
            return _rsync_stats(out)
        if _RSYNC_ABSENT.search(err):
            self._pod_has_rsync = False
            return None
        said, not_begun, _ = err.partition(_NOT_BEGUN)
        raise self._push_failed(code in _RSYNC_CONTACT and not not_begun, said, remote)

    def _tar(self, local: Path, remote: str, begin: str) -> PushStats:
        command = RemoteCommand(["sh", "-c", f"{begin}; exec tar -xpomf - -C {shlex.quote(remote)}"])
        with tempfile.TemporaryFile() as archive:
            stats = _write_tar(local, archive)
            archive.seek(0)
            code, _, err = self._finish(self._ssh(self._alias, command.line), PUSH_LIMIT_S, archive)
        if code != 0:
            raise self._push_failed(code == _SSH_FAILED, command.clean(err).replace(_NOT_BEGUN, b""), remote)
        return stats

    def _push_failed(self, contact: bool, stderr: bytes, remote: str) -> NsaPodError:
        said = Completed(1, b"", stderr).complaint()
        full = full_disk(self._what, stderr)
        if full or not contact:
            return full or PodError(f"{self._what}: files cannot be copied to {remote}: {said}")
        return ssh_failed(self._what, stderr)


def _begin(remote: str) -> str:
    """The shell command that `remote` begins with; it is repeated when rsync turns out to be absent after it."""
    return f"mkdir -p {shlex.quote(remote)} || {{ echo {_NOT_BEGUN.decode()} >&2; exit 1; }}"


@cache
def _rsync_here() -> bool:
    """Whether this machine has rsync 3 (macOS comes with another program of that name)."""
    if shutil.which("rsync") is None:
        return False
    done = subprocess.run(["rsync", "--version"], capture_output=True, timeout=10)
    return done.stdout.startswith(b"rsync  version 3.")


def _rsync_stats(out: bytes) -> PushStats:
    def number(label: str) -> int:
        found = re.search(rb"%s: ([\d,.]+)" % label.encode(), out)
        return int(re.sub(rb"\D", b"", found[1])) if found else 0

    return PushStats(number("Number of regular files transferred"), number("Total transferred file size"))


def _write_tar(local: Path, archive: IO[bytes]) -> PushStats:
    files = total = 0

    def anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
        nonlocal files, total
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        files, total = files + member.isreg(), total + member.size
        return member

    with tarfile.open(mode="w", fileobj=archive, format=tarfile.GNU_FORMAT) as tar:
        for name in sorted(os.listdir(local)):
            tar.add(local / name, f"./{name}", filter=anonymous)
    return PushStats(files, total)
