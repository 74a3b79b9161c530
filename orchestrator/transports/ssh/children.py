"""Child processes on this machine: ended with their whole group, never waited for without a limit."""

from __future__ import annotations

import fcntl
import io
import os
import selectors
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import IO, BinaryIO, cast

from orchestrator.errors import CommandTimeout, NsaPodError, PodError

GRACE_S = 2.0
_CHUNK = 1 << 18
_PIPE_BYTES = 1 << 20
_UNREAD_LIMIT = 16 << 20


@contextmanager
def child(
    argv: Sequence[str],
    *,
    stdin: bytes | IO[bytes] | int = b"",
    stdout: IO[bytes] | int,
    stderr: IO[bytes],
    env: Mapping[str, str] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Start `argv` as the leader of a session (Ctrl-C stays ours to handle); its group ends with the context."""
    with tempfile.TemporaryFile() as given:
        if isinstance(stdin, bytes):
            given.write(stdin)
            given.seek(0)
        process = subprocess.Popen(
            argv,
            stdin=given if isinstance(stdin, bytes) else stdin,
            stdout=stdout,
            stderr=stderr,
            env={**os.environ, **env} if env else None,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        end_group(process)
        if process.stdout:
            process.stdout.close()


class Background:
    """A child that works beside us, until `end`; what it says on stderr is kept."""

    def __init__(
        self, argv: Sequence[str], *, stdin: int = subprocess.DEVNULL, stdout: int = subprocess.DEVNULL
    ) -> None:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the child
        self._process = subprocess.Popen(argv, stdin=stdin, stdout=stdout, stderr=self._stderr, start_new_session=True)

    def code(self, limit: float) -> int | None:
        """The exit code, or None if the child has not ended after `limit` seconds."""
        return self._process.returncode if ended(self._process, limit) else None

    def said(self) -> bytes:
        """What the child has written to stderr."""
        return tail(self._stderr)

    def end(self) -> None:
        """End the child, if it is still there."""
        end_group(self._process)
        self._stderr.close()


def end_group(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM, a grace, SIGKILL to the process's group; nothing if the process has ended."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)


def shell_code(returncode: int) -> int:
    """The exit code as a shell gives it: 128+n for signal n."""
    return returncode if returncode >= 0 else 128 - returncode


def tail(file: IO[bytes]) -> bytes:
    """The last 64 KiB of what a process wrote to `file`."""
    file.seek(max(0, file.seek(0, os.SEEK_END) - (1 << 16)))
    return file.read()


class _Watched(io.RawIOBase):
    """The read end of a pipe whose writer may be silent for a limited time only."""

    def __init__(self, pipe: IO[bytes], silence: float, what: str) -> None:
        self._pipe, self._silence, self._what = pipe, silence, what
        _widen(pipe)
        self._selector = selectors.DefaultSelector()
        self._selector.register(pipe, selectors.EVENT_READ)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        if not self._selector.select(self._silence):
            raise CommandTimeout(f"{self._what} sent nothing for {self._silence:g} s")
        return os.readv(self._pipe.fileno(), [buffer])

    def close(self) -> None:
        self._selector.close()
        super().close()


@contextmanager
def streaming(
    argv: Sequence[str], *, stdin: bytes, silence: float, what: str, failed: Callable[[int, bytes], NsaPodError]
) -> Iterator[BinaryIO]:
    """The stdout of `argv` as a file whose reads raise CommandTimeout after `silence` seconds without a byte.

    What the body leaves unread (an archive's padding) is dropped. An end with another code than 0 raises
    `failed(code, stderr)`, also in place of what the body raised when its input ended too early.
    """
    with tempfile.TemporaryFile() as err:
        with child(argv, stdin=stdin, stdout=subprocess.PIPE, stderr=err) as process:
            try:
                with io.BufferedReader(_Watched(cast(IO[bytes], process.stdout), silence, what), _CHUNK) as out:
                    yield cast(BinaryIO, out)
                    _drop(out, what)
            except Exception as error:
                if ended(process, GRACE_S / 4) and process.returncode:
                    raise failed(process.returncode, tail(err)) from error
                raise
            if not ended(process, silence):
                raise CommandTimeout(f"{what} closed its output but did not end within {silence:g} s")
        if process.returncode:
            raise failed(process.returncode, tail(err))


def fed(
    argv: Sequence[str], write: Callable[[IO[bytes]], None], *, limit: float, what: str
) -> tuple[int, bytes, bytes]:
    """Exit code, stdout and stderr of `argv`, which has `limit` seconds once `write` has written its stdin."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        with child(argv, stdin=subprocess.PIPE, stdout=out, stderr=err) as process:
            assert process.stdin is not None
            _widen(process.stdin)
            with suppress(BrokenPipeError), process.stdin as stdin:
                write(stdin)
            try:
                code = process.wait(limit)
            except subprocess.TimeoutExpired:
                raise CommandTimeout(f"{what} did not end within {limit:g} s") from None
        out.seek(0)
        return code, out.read(), tail(err)


def _widen(pipe: IO[bytes]) -> None:
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        with suppress(OSError):  # Linux; beyond what one user may have there, it stays as it was
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)


def _drop(out: IO[bytes], what: str) -> None:
    dropped = 0
    while piece := out.read(_CHUNK):
        dropped += len(piece)
        if dropped > _UNREAD_LIMIT:
            raise PodError(f"{what} sends more than was asked for")


def ended(process: subprocess.Popen[bytes], limit: float) -> bool:
    """Whether the process has ended, waiting for it up to `limit` seconds."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(limit)
    return process.returncode is not None
