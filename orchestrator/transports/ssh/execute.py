"""One command on one paramiko channel: input in, both outputs out, the exit code if there is one."""

from __future__ import annotations

import threading
import time
from types import TracebackType

import paramiko

from orchestrator.errors import CommandTimeout, ContactLost, NoShell, PodError
from orchestrator.text import size
from orchestrator.transports.base import Completed
from orchestrator.transports.limits import OUTPUT_LIMIT
from orchestrator.transports.ssh.bounds import open_session
from orchestrator.transports.ssh.remote import RemoteCommand

# Small, so that the answer to a heartbeat is never far behind a command's output.
_WINDOW = 1 << 18
_CHUNK = 1 << 15
_POLL_S = 0.2
_INPUT_POLL_S = 0.01
_DAEMON_GRACE_S = 1.0


class Execution:
    """A command that runs on the pod; leaving the context closes its channel and does not end it."""

    def __init__(self, transport: paramiko.Transport, command: RemoteCommand, input: bytes, limit: float) -> None:
        self._command = command
        self._unsent = memoryview(command.preamble + input)
        self._out, self._err = bytearray(), bytearray()
        self._channel = open_session(transport, _WINDOW, limit)
        self._channel.exec_command(command.line)
        # Not select(): the pipe that paramiko makes for it may be written to after it was closed, by its number.
        self._arrived = threading.Event()
        self._channel.in_buffer.set_event(self._arrived)
        self._channel.in_stderr_buffer.set_event(self._arrived)

    def __enter__(self) -> Execution:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._channel.close()

    @property
    def group(self) -> int | None:
        """The remote process group, once the command's shell has named it."""
        return self._command.started(bytes(self._err))

    def wait(self, timeout: float) -> Completed:
        """Move input and output until the command ends. Raises ContactLost without an exit status, CommandTimeout."""
        deadline = time.monotonic() + timeout
        quiet_since = time.monotonic()
        while not self._over(quiet_since):
            if time.monotonic() > deadline:
                raise CommandTimeout(f"did not end within {timeout:g} s")
            if self._move():
                quiet_since = time.monotonic()
            else:
                self._rest(deadline)
        while self._receive():
            pass
        if self._channel.exit_status < 0:
            raise ContactLost("the connection broke")
        return self._completed()

    def _over(self, quiet_since: float) -> bool:
        if self._channel.closed:
            return True
        # A daemon may hold the output open for as long as it lives: after the exit only what is on its way is awaited.
        settled = self._channel.eof_received or time.monotonic() - quiet_since > _DAEMON_GRACE_S
        return self._channel.exit_status_ready() and bool(settled)

    def _move(self) -> bool:
        received = self._receive()
        return self._send() or received

    def _receive(self) -> bool:
        before = len(self._out) + len(self._err)
        if self._channel.recv_ready():
            self._out += self._channel.recv(_CHUNK)
        if self._channel.recv_stderr_ready():
            self._err += self._channel.recv_stderr(_CHUNK)
        held = len(self._out) + len(self._err)
        if held > OUTPUT_LIMIT:
            raise PodError(f"prints more than {size(OUTPUT_LIMIT)}")
        return held > before

    def _send(self) -> bool:
        if self._channel.eof_sent or not self._channel.send_ready():
            return False
        if self._unsent:
            self._unsent = self._unsent[self._channel.send(bytes(self._unsent[:_CHUNK])) :]
        else:
            self._channel.shutdown_write()
        return True

    def _rest(self, deadline: float) -> None:
        limit = min(_POLL_S, max(0.0, deadline - time.monotonic()))
        if not self._channel.eof_sent:
            time.sleep(min(_INPUT_POLL_S, limit))  # the window for more input opens without a wake-up
        elif self._channel.eof_received:
            self._channel.status_event.wait(limit)  # the other event stays set after the end of the output
        else:
            self._arrived.wait(limit)

    def _completed(self) -> Completed:
        out, err = bytes(self._out), bytes(self._err)
        if self.group is None:
            said = Completed(self._channel.exit_status, out, err).complaint()
            raise NoShell(f"the login shell does not run commands ({said})")
        return Completed(self._channel.exit_status, self._command.clean(out), self._command.clean(err))
