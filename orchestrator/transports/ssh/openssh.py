"""Bulk over the OpenSSH client: streams both ways, all through one master connection of the same ssh_config."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from orchestrator.errors import NsaPodError, PodError, Unreachable
from orchestrator.transports.base import Completed, Supplier
from orchestrator.transports.limits import GREETING_LIMIT
from orchestrator.transports.ssh.children import Background, fed, streaming
from orchestrator.transports.ssh.failures import SSH_FAILED, ssh_failed
from orchestrator.transports.ssh.remote import RemoteCommand

_MASTER_LIMIT_S = 30
_STOP_LIMIT_S = 5
_LINE_LIMIT = 1 << 16


class OpenSsh:
    """The OpenSSH client for one pod, which errors call `what`."""

    def __init__(self, what: str, config: Path, alias: str) -> None:
        self._what, self._config, self._alias = what, config, alias
        self._master: Background | None = None

    def stop(self) -> None:
        """End the master connection."""
        if self._master is None:
            return
        if self._master.code(0) == 0:
            asked = Background(self._ssh("-O", "exit", self._alias))
            asked.code(_STOP_LIMIT_S)  # else it ends by itself: ServerAlive, ControlPersist
            asked.end()
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
            if code == SSH_FAILED:
                return self._lost(what, stderr)
            return PodError(f"{what} failed: {Completed(code, b'', command.clean(stderr)).complaint()}")

        argv = self._ssh(self._alias, command.line)
        with streaming(argv, stdin=command.preamble + input, silence=silence, what=what, failed=failed) as out:
            left = GREETING_LIMIT
            while (line := out.readline(_LINE_LIMIT)).strip() != command.token.encode():
                left -= len(line)
                if not line or left < 0:
                    raise PodError(f"{what}: the login shell does not run commands")
            yield out

    def supply(self, command: RemoteCommand, input: bytes, write: Supplier, what: str) -> Completed:
        """As `Transport.supply`."""
        self._ready()
        argv = self._ssh(self._alias, command.line)
        code, out, err = fed(argv, command.preamble + input, write, what=what, after=command.token.encode())
        if code == SSH_FAILED:
            raise self._lost(what, err)
        return Completed(code, out, command.clean(err))

    def _lost(self, what: str, stderr: bytes) -> NsaPodError:
        """The error for a connection that broke: the next bulk makes another one."""
        self.stop()
        return ssh_failed(what, stderr)

    def _ssh(self, *words: str) -> list[str]:
        return ["ssh", "-F", str(self._config), *words]
