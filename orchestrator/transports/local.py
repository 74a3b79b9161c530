"""This machine as a pod: the same interface, over subprocess."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import BinaryIO

from orchestrator.config.inventory import Pod
from orchestrator.errors import CommandTimeout, ContactLost, PodError
from orchestrator.text import size
from orchestrator.transports.base import Channel, Completed, Supplier, Transport
from orchestrator.transports.limits import COMMAND_LIMIT_S, OUTPUT_LIMIT, SILENCE_LIMIT_S
from orchestrator.transports.ssh.children import GRACE_S, child, end_group, fed, shell_code, streaming, tail

_CHUNK = 1 << 16


class LocalTransport(Transport):
    """Commands are children of this process, each in a session of its own."""

    def __init__(self, pod: Pod) -> None:
        super().__init__(pod)
        self._channels: list[LocalChannel] = []

    def connect(self) -> None:
        self.close()

    def close(self) -> None:
        while self._channels:
            self._channels.pop().close()

    def run(
        self,
        argv: Sequence[str],
        *,
        input: bytes = b"",
        env: Mapping[str, str] | None = None,
        timeout: float = COMMAND_LIMIT_S,
    ) -> Completed:
        if shutil.which(argv[0]) is None:
            return Completed(127, b"", f"{argv[0]}: not found".encode())
        # Files, not pipes: a daemon that inherits stdout must not keep a finished command waiting.
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            with child(argv, stdin=input, stdout=out, stderr=err, env=env) as process:
                try:
                    code = process.wait(timeout)
                except subprocess.TimeoutExpired:
                    raise CommandTimeout(f"{self.naming(argv)} did not end within {timeout:g} s") from None
            if out.seek(0, os.SEEK_END) + err.seek(0, os.SEEK_END) > OUTPUT_LIMIT:
                raise PodError(f"{self.naming(argv)} prints more than {size(OUTPUT_LIMIT)}")
            out.seek(0)
            err.seek(0)
            return Completed(shell_code(code), out.read(), err.read())

    def converse(self, argv: Sequence[str]) -> Channel:
        if shutil.which(argv[0]) is None:
            raise PodError(f"{self.naming(argv)}: not found")
        self._channels.append(LocalChannel(argv))
        return self._channels[-1]

    @contextmanager
    def stream(
        self,
        argv: Sequence[str],
        *,
        input: bytes = b"",
        silence: float = SILENCE_LIMIT_S,
        expected: int | None = None,
    ) -> Iterator[BinaryIO]:
        if shutil.which(argv[0]) is None:
            raise PodError(f"{self.naming(argv)}: not found")
        what = self.naming(argv)

        def failed(code: int, stderr: bytes) -> PodError:
            return PodError(f"{what} failed: {Completed(shell_code(code), b'', stderr).complaint()}")

        with streaming(argv, stdin=input, silence=silence, what=what, failed=failed) as out:
            yield out

    def supply(self, argv: Sequence[str], write: Supplier, *, input: bytes = b"") -> Completed:
        if shutil.which(argv[0]) is None:
            raise PodError(f"{self.naming(argv)}: not found")
        code, out, err = fed(argv, input, write, what=self.naming(argv))
        return Completed(shell_code(code), out, err)


class LocalChannel(Channel):
    """Over the pipes of a child, which ends by itself when its input does."""

    def __init__(self, argv: Sequence[str]) -> None:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the child
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr, start_new_session=True, bufsize=0
        )
        self._name = argv[0]
        assert self._process.stdin and self._process.stdout
        self._in, self._out = self._process.stdin, self._process.stdout
        os.set_blocking(self._in.fileno(), False)

    def send(self, data: bytes) -> int:
        try:
            return self._in.write(data[:_CHUNK]) or 0
        except (OSError, ValueError):
            raise ContactLost(f"{self._name} has ended: {self.complaint()}") from None

    def receive(self, limit: float) -> bytes | None:
        readable, _, _ = select.select([self._out], [], [], max(0.0, limit))
        return (self._out.read(_CHUNK) or None) if readable else b""

    def complaint(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE_S)
        return Completed(shell_code(self._process.returncode or 0), b"", tail(self._stderr)).complaint()

    def close(self) -> None:
        if self._out.closed:
            return
        self._in.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE_S)
        end_group(self._process)
        self._out.close()
        self._stderr.close()
