"""Child processes on this machine: ended with their whole group, never waited for without a limit."""

from __future__ import annotations

import fcntl
import io
import os
import select
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import IO, BinaryIO, cast

from orchestrator.errors import CommandTimeout, NsaPodError, PodError
from orchestrator.files import Writer
from orchestrator.text import size
from orchestrator.transports.limits import (
    FIRST_LINE_LIMIT_S,
    GREETING_LIMIT,
    OUTPUT_LIMIT,
    SILENCE_LIMIT_S,
    STDERR_KEPT,
    SUPPLIED_LIMIT_S,
    UNASKED_LIMIT,
    Pace,
)

GRACE_S = 2.0
_CHUNK = 1 << 18
_PIECE = 1 << 16
_PIPE_BYTES = 1 << 20


@contextmanager
def child(
    argv: Sequence[str],
    *,
    stdin: bytes | IO[bytes] | int = b"",
    stdout: IO[bytes] | int,
    stderr: IO[bytes] | int,
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
    """The end of what a process wrote to `file`."""
    file.seek(max(0, file.seek(0, os.SEEK_END) - STDERR_KEPT))
    return file.read()


class _Drain:
    """Reads a pipe to its end, so that its writer never waits; keeps the last `most` bytes."""

    def __init__(self, pipe: IO[bytes], most: int) -> None:
        self.came = 0
        self._pipe, self._most = pipe, most
        self._kept = bytearray()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def end(self) -> bytes:
        """What is kept; a daemon that holds the pipe open is not waited for."""
        self._thread.join(GRACE_S)
        return bytes(self._kept)

    def _work(self) -> None:
        with suppress(OSError, ValueError), self._pipe:
            while piece := os.read(self._pipe.fileno(), _PIECE):
                self.came += len(piece)
                self._kept += piece
                del self._kept[: -self._most]


class _Watched(io.RawIOBase):
    """The read end of a pipe whose writer may be silent, or slow, for a limited time only."""

    def __init__(self, pipe: IO[bytes], silence: float, what: str) -> None:
        self._pipe, self._silence, self._what = pipe, silence, what
        self._pace = Pace(what)
        _widen(pipe)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        began = time.monotonic()
        readable, _, _ = select.select([self._pipe], [], [], self._silence)
        if not readable:
            raise CommandTimeout(f"{self._what} sent nothing for {self._silence:g} s")
        came = os.readv(self._pipe.fileno(), [buffer])
        self._pace.moved(came, time.monotonic() - began)
        return came


class _Patient:
    """The write end of a pipe whose reader may do nothing, or little, for a limited time only."""

    def __init__(self, pipe: IO[bytes], what: str) -> None:
        self._pipe, self._what = pipe, what
        self._pace = Pace(what)
        _widen(pipe)
        os.set_blocking(pipe.fileno(), False)

    def write(self, data: bytes) -> None:
        """All of it. Raises BrokenPipeError, CommandTimeout."""
        rest = memoryview(data)
        while rest:
            began = time.monotonic()
            _, writable, _ = select.select([], [self._pipe], [], SILENCE_LIMIT_S)
            if not writable:
                raise CommandTimeout(f"{self._what} took nothing for {SILENCE_LIMIT_S:g} s")
            wrote = os.write(self._pipe.fileno(), rest[:_CHUNK])
            self._pace.moved(wrote, time.monotonic() - began)
            rest = rest[wrote:]


@contextmanager
def streaming(
    argv: Sequence[str], *, stdin: bytes, silence: float, what: str, failed: Callable[[int, bytes], NsaPodError]
) -> Iterator[BinaryIO]:
    """The stdout of `argv` as a file whose reads raise CommandTimeout after `silence` seconds without a byte.

    What the body leaves unread (an archive's padding) is dropped. An end with another code than 0 raises
    `failed(code, stderr)`, also in place of what the body raised when its input ended too early.
    """
    with child(argv, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout and process.stderr
        err = _Drain(process.stderr, STDERR_KEPT)
        try:
            with io.BufferedReader(_Watched(process.stdout, silence, what), _CHUNK) as out:
                yield cast(BinaryIO, out)
                _drop(out, what)
        except Exception as error:
            if ended(process, GRACE_S / 4) and process.returncode:
                raise failed(process.returncode, err.end()) from error
            raise
        if not ended(process, silence):
            raise CommandTimeout(f"{what} closed its output but did not end within {silence:g} s")
    if process.returncode:
        raise failed(process.returncode, err.end())


def fed(
    argv: Sequence[str], input: bytes, write: Callable[[bytes, Writer], None], *, what: str, after: bytes = b""
) -> tuple[int, bytes, bytes]:
    """Exit code, stdout and the end of stderr of `argv`: after `input`, `write` writes its stdin, given the first line
    that it says (after the line `after`), unless it ends without one. Raises CommandTimeout, PodError.
    """
    with child(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin and process.stdout and process.stderr
        err = _Drain(process.stderr, STDERR_KEPT)
        patient = _Patient(process.stdin, what)
        with suppress(BrokenPipeError), process.stdin:
            patient.write(input)
            line = _first_line(process.stdout, what, after)
            if line:
                write(line, patient)
        out = _Drain(process.stdout, OUTPUT_LIMIT)
        if not ended(process, SUPPLIED_LIMIT_S):
            raise CommandTimeout(f"{what} did not end within {SUPPLIED_LIMIT_S:g} s")
        said, complaint = line + out.end(), err.end()
    if out.came > OUTPUT_LIMIT:
        raise PodError(f"{what} prints more than {size(OUTPUT_LIMIT)}")
    return process.returncode, said, complaint


def _first_line(pipe: IO[bytes], what: str, after: bytes) -> bytes:
    """The line that follows the line `after`, read byte by byte, for the rest is not ours; empty at the end."""
    end, came = time.monotonic() + FIRST_LINE_LIMIT_S, bytearray()
    while len(came) < GREETING_LIMIT:
        readable, _, _ = select.select([pipe], [], [], max(0.0, end - time.monotonic()))
        if not readable:
            raise CommandTimeout(f"{what} said nothing for {FIRST_LINE_LIMIT_S:g} s")
        byte = os.read(pipe.fileno(), 1)
        came += byte
        if not byte:
            return b""
        if byte == b"\n" and not after:
            return bytes(came[came.rfind(b"\n", 0, -1) + 1 :])
        if byte == b"\n" and came.endswith(after + b"\n"):
            after = b""
    raise PodError(f"{what}: the login shell does not run commands")


def _widen(pipe: IO[bytes]) -> None:
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        with suppress(OSError):  # Linux; beyond what one user may have there, it stays as it was
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)


def _drop(out: IO[bytes], what: str) -> None:
    dropped = 0
    while piece := out.read(_PIECE):
        dropped += len(piece)
        if dropped > UNASKED_LIMIT:
            raise PodError(f"{what} sends more than was asked for")


def ended(process: subprocess.Popen[bytes], limit: float) -> bool:
    """Whether the process has ended, waiting for it up to `limit` seconds."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(limit)
    return process.returncode is not None
