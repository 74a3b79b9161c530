"""A build's progress, as lines that anyone can read while it goes on, and the commands that it runs."""

from __future__ import annotations

import collections
import itertools
import json
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from orchestrator.agent.host import umask
from orchestrator.agent.host.processes import ending_with_parent, send_to_group
from orchestrator.shared.failure import Failure
from orchestrator.shared.redaction import NOTHING, Redactor
from orchestrator.shared.text import plain
from orchestrator.shared.wheels.addresses import masked
from orchestrator.shared.wheels.web import Listener

_LAST_LINES = 8
# Variables that would make a Python look for packages elsewhere than in itself.
_DISTURBING = frozenset(["PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "VIRTUAL_ENV", "CONDA_PREFIX"])
_TELLING = re.compile(r"(?i)(error|cause|fatal|hint)\b")
_CAUSES = (
    (r"No space left on device|Disk quota exceeded|os error 28", "the pod's disk is full"),
    (
        r"no usable wheels|Wheels are required",
        "not all have wheels: name under `sdists` what is to be built from source",
    ),
    (r"No solution found|no wheels? with a matching", "nothing fits"),
    (
        r"dns error|Name or service not known|Temporary failure in name resolution|Connection refused|timed out|"
        r"Network is unreachable|Failed to fetch|error sending request|Tunnel connection failed",
        "the pod does not reach where packages come from",
    ),
    (r"[Hh]ash mismatch", "a download is not what the lock says"),
)


class Progress:
    """Writes progress.jsonl: {"t": seconds since the start, "phase": ..., "text": ...} in each line."""

    def __init__(self, path: Path, redactor: Redactor = NOTHING) -> None:
        self._path = path
        self._redactor = redactor
        self._start = self._phase_start = time.monotonic()
        self.phase = "start"
        self.seconds: dict[str, float] = {}

    def enter(self, phase: str, text: str) -> None:
        """Begin a phase; the time of the one before it is kept."""
        now = time.monotonic()
        self.seconds[self.phase] = round(self.seconds.get(self.phase, 0.0) + now - self._phase_start, 3)
        self.phase, self._phase_start = phase, now
        self.say(text)

    def without_secrets(self, text: str) -> str:
        """`text` as it may be written down."""
        return self._redactor.text(text)

    def say(self, text: str) -> None:
        shown = plain(masked(self.without_secrets(text)))
        line = {"t": round(time.monotonic() - self._start, 2), "phase": self.phase, "text": shown}
        with self._path.open("a", encoding="utf-8") as f:
            f.write(json.dumps(line) + "\n")


def read_progress(path: Path, offset: int) -> tuple[list[dict[str, Any]], int]:
    """Whole lines from byte `offset` on, and the offset after them; another build may have begun the file anew."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return [], offset
    begin = offset if data[:offset].endswith(b"\n") and len(data) >= offset else 0
    end = data.rfind(b"\n") + 1
    return [json.loads(line) for line in data[begin:end].splitlines()], end


def run(
    command: Sequence[str],
    variables: Mapping[str, str],
    progress: Listener,
    limit_s: float,
    input: str = "",
    answers: bool = True,
) -> str:
    """Run a tool to its end and give its stdout, if it `answers` there; what else it prints is progress.

    Failure says what it complained of.
    """
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stdout:
        stdin.write(input.encode())
        stdin.seek(0)
        code, last = _watch(command, variables, stdin, stdout if answers else None, progress, limit_s)
        stdout.seek(0)
        output = stdout.read().decode("utf-8", "replace")
    if code is None:
        raise Failure(f"{_named(command)} did not end within {limit_s:.0f} s")
    if code != 0:
        raise Failure(complaint(command, code, last or output.splitlines()[-_LAST_LINES:]))
    return output


def _as_tool() -> Callable[[], None]:
    """What a build's program does before its exec: what it installs has the modes that the user has it have."""
    end_with_builder = ending_with_parent()

    def prepare() -> None:
        end_with_builder()
        umask.give_back()

    return prepare


def _watch(
    command: Sequence[str],
    variables: Mapping[str, str],
    stdin: IO[bytes],
    stdout: IO[bytes] | None,
    progress: Listener,
    limit_s: float,
) -> tuple[int | None, list[str]]:
    """Exit code (None: it was ended after `limit_s`) and the last lines of what it said."""
    last: collections.deque[str] = collections.deque(maxlen=_LAST_LINES)
    try:
        process = subprocess.Popen(
            command,
            stdin=stdin,
            stdout=stdout or subprocess.PIPE,
            stderr=subprocess.PIPE if stdout else subprocess.STDOUT,
            env={name: value for name, value in variables.items() if name not in _DISTURBING},
            cwd="/",  # a package that lies in some working directory must not be found
            preexec_fn=_as_tool(),  # or it would go on writing where its builder's successor removes
            start_new_session=True,
        )
    except OSError as e:
        raise Failure(f"{command[0]} cannot be run: {e.strerror}") from e
    late = threading.Event()

    def end() -> None:
        late.set()
        send_to_group(signal.SIGKILL, process.pid)  # a build tool has compilers below it

    timer = threading.Timer(limit_s, end)
    timer.start()
    try:
        for raw in process.stderr or process.stdout or ():
            text = plain(masked(raw.decode("utf-8", "replace")))
            if text and not text.startswith("+ "):  # uv lists all that it installed; so does the lock
                last.append(text)
                progress.say(text)
        code = process.wait()
    finally:
        timer.cancel()
        send_to_group(signal.SIGKILL, process.pid)
        process.wait()
    return None if late.is_set() else code, list(last)


def complaint(command: Sequence[str], code: int, lines: Sequence[str]) -> str:
    """One sentence for a tool that failed: the cause, if it is a known one, and its last words that tell something."""
    telling = [line for line in lines if _TELLING.match(line)] or lines
    said = " / ".join(plain(masked(line)) for line in telling) or "it said nothing"
    cause = next((cause for pattern, cause in _CAUSES if re.search(pattern, said)), None)
    ended = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    return f"{cause or ended}: {_named(command)}: {said}"


def _named(command: Sequence[str]) -> str:
    """'uv pip install', 'python3.11 -m pip wheel'."""
    words = itertools.takewhile(lambda word: not word.startswith(("--", "/")), command[1:])
    return " ".join([Path(command[0]).name, *(word for word in words if word != "-I")])
