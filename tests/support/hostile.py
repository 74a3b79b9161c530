"""Pods that answer whatever they like: a fake agent behind the real SSH of the tests, and servers that are none.

The fake is the pod's `python`: it says that it is one, passes the honest questions on to a real agent, and answers
those of its case as that says. What each case costs the laptop is measured on the real command line.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain, cycle, islice
from pathlib import Path
from typing import Any

from orchestrator.shared import frames
from tests.support import ROOT
from tests.support.measured import measured, peak_mib
from tests.support.project import Project, new_project
from tests.support.sshd import Sshd

MOST_MIB = 100.0
_PIECE = b"x" * 65536
_ENDLESS = 1 << 40
_RUNBOOK = """\
name: r
environment: {python: system}
stages:
  - {name: only, run: [python, -c, "print(1)"], expect: {artifacts: [{path: said.txt, from: stdout}]}}
"""

Say = Callable[[int, bytes], None]
_asked_for: list[str] = []  # the question that is answered


# what the fake answers


def _over(data: bytes, times: int = _ENDLESS, kind: int = frames.OUT) -> Callable[[Say], None]:
    """`data` again and again."""

    def answer(say: Say) -> None:
        for _ in range(times):
            say(kind, data)

    return answer


def _all(*parts: bytes) -> Callable[[Say], None]:
    """An answer that is whole, and ends well."""

    def answer(say: Say) -> None:
        for part in parts:
            for at in range(0, len(part), len(_PIECE)):
                say(frames.OUT, part[at : at + len(_PIECE)])
        say(frames.END, b"0")

    return answer


def _runs(say: Say) -> None:
    one: dict[str, Any] = {
        "run_id": "20260101-000000-abcdef0-00000000",
        "state": "ended",
        "commit": "c" * 40,
        "runbook": "r",
        "bytes": 1,
    }
    many = ",".join([json.dumps(one)] * 300).encode()
    say(frames.OUT, b'{"more": 0, "holder": null, "runs": [' + many)
    _over(b"," + many, 999)(say)
    say(frames.OUT, b"]}")
    say(frames.END, b"0")


def _slowly(say: Say) -> None:
    for byte in b'{"more": 0, "holder": null, "runs": [' + b" " * 1000:
        say(frames.OUT, bytes([byte]))
        time.sleep(1)


def _journal(*events: dict[str, Any], repeat: int = 1) -> Iterator[bytes]:
    """Lines whose chain is whole; the last event `repeat` times."""
    prev, number = "0" * 64, 0
    for event in chain(events[:-1], islice(cycle(events[-1:]), repeat)):
        record = {"seq": number, "t": 1.0, "wall": "2026-01-01T00:00:00.000Z", **event, "prev": prev}
        line = json.dumps(record, separators=(",", ":")).encode()
        prev, number = sha256(line).hexdigest(), number + 1
        yield line + b"\n"


def _told(*events: dict[str, Any], repeat: int = 1) -> Callable[[Say], None]:
    """The journal of these, from the byte on that is asked for."""

    def answer(say: Say) -> None:
        left = int(_asked_for[_asked_for.index("--offset") + 1])
        for line in _journal(*events, repeat=repeat):
            line, left = line[left:], max(0, left - len(line))
            for at in range(0, len(line), len(_PIECE)):
                say(frames.OUT, line[at : at + len(_PIECE)])
        say(frames.END, b"0")

    return answer


def _files(number: int, **fields: Any) -> dict[str, Any]:
    file = {"path": "artifacts/a", "bytes": 1, "sha256": "0" * 64, **fields}
    files = [{**file, "path": f"{file['path']}{n}"} for n in range(number)]
    return {"event": "stage_files", "stage": "only", "files": files}


def _ended() -> tuple[dict[str, Any], dict[str, Any]]:
    return {"event": "stage_ended", "stage": "only", "status": "passed", "files": []}, {"event": "run_ended"}


def _as_many(say: Say) -> None:
    many = (_files(5_000, path=f"artifacts/{n}/") for n in range(8))
    _told(*many, *_ended())(say)


@dataclass(frozen=True)
class Case:
    """`asked` is the beginning of the question that the fake answers itself; `verb` what the laptop is told to do."""

    verb: str
    asked: str
    answer: Callable[[Say], None] | None = None
    bulk: Callable[[], None] | None = None


def _endless_stdout() -> None:
    while True:
        os.write(1, b"+\n" + _PIECE)


def _endless_stderr(say: Say) -> None:
    while True:
        os.write(2, _PIECE)


def _raw(data: bytes) -> Callable[[Say], None]:
    def answer(say: Say) -> None:
        while True:
            os.write(1, data)

    return answer


_OUTPUT = {"event": "output", "last_line": "x" * 999}
_LONG_NAME = "artifacts/" + "n" * 1_000_000
CASES: dict[str, Case] = {
    "300,000 runs": Case("runs", "runs", _runs),
    "an answer of a byte a second": Case("runs", "runs", _slowly),
    "100,000 brackets": Case("runs", "runs", _all(b'{"runs":' + b"[" * 100_000 + b"]" * 100_000 + b"}")),
    "a million empty lists": Case("runs", "runs", _all(b'{"more":0,"runs":[' + b"[]," * 1_000_000 + b"[]]}")),
    "a million numbers": Case("runs", "runs", _all(b'{"more":0,"runs":[' + b"1.5," * 1_000_000 + b"1]}")),
    "a number of a million digits": Case("runs", "runs", _all(b'{"more":' + b"9" * 1_000_000 + b',"runs":[]}')),
    "an answer without end": Case("runs", "runs", _over(_PIECE)),
    "stderr without end": Case("runs", "runs", _over(_PIECE, kind=frames.ERR)),
    "the connection's stderr without end": Case("runs", "runs", _endless_stderr),
    "answers to nothing, without end": Case("runs", "runs", _raw(frames.frame(3, 9999, _PIECE))),
    "a frame of 4 GiB": Case("runs", "runs", _raw(struct.pack(">BII", 3, 1, 2**32 - 1) + _PIECE)),
    "an exit code of a million digits": Case("runs", "runs", _over(b"9" * 1_000_000, 1, frames.END)),
    "a plan of 60 MB": Case("fetch", "cat", _over(_PIECE, 1000)),
    "a plan of a million empty lists": Case("fetch", "cat", _all(b'{"a":[' + b"[]," * 1_000_000 + b"[]]}")),
    "a journal line of 1 GB": Case("fetch", "tail", _over(_PIECE, 16_000)),
    "a million artifacts": Case("fetch", "tail", _told(_files(5_000), repeat=200)),
    "as many artifacts as are held": Case("fetch", "tail", _as_many),
    "events without end": Case("fetch", "tail", _told(_OUTPUT, repeat=_ENDLESS)),
    "events of many values": Case("fetch", "tail", _told({"event": "e", "x": [[]] * 40_000}, repeat=50)),
    "a name of a million letters": Case("fetch", "tail", _told(_files(1, path=_LONG_NAME), *_ended())),
    "a file of -1 bytes": Case("fetch", "tail", _told(_files(1, bytes=-1), *_ended())),
    "a file of 10^30 bytes": Case("fetch", "tail", _told(_files(1, bytes=10**30), *_ended())),
    "more files than were asked for": Case("fetch", "send", _over(b"+\n" + _PIECE)),
    "bulk without end": Case("fetch", "tail", _told(_files(1, bytes=2_000_000), *_ended()), bulk=_endless_stdout),
}


def main(name: str, real: str, arguments: list[str]) -> None:
    """The fake: called as a Python of the pod is."""
    case = CASES[name]
    if arguments[0].startswith("-IS"):
        print(os.path.abspath(sys.argv[0]))
        return
    asked = _command(arguments)
    if asked not in ("serve", "send"):
        os.execv(real, [real, *arguments])
    elif asked == "send":
        assert case.bulk
        case.bulk()
    else:
        _serve(case, real)


def _command(arguments: list[str]) -> str:
    """The agent's command, of `-I AGENT COMMAND` or `-I -c CHECK AGENT SHA256 COMMAND`; else empty."""
    at = 5 if arguments[1:2] == ["-c"] else 2
    return arguments[at] if arguments[:1] == ["-I"] and len(arguments) > at else ""


def _serve(case: Case, real: str) -> None:
    questions = frames.Frames(frames.QUESTION_LIMIT)
    while data := os.read(0, 65536):
        for asked in questions.feed(data):
            if asked.kind == frames.ASK:
                argv, given = frames.read_question(asked.payload)[0]["argv"], frames.read_question(asked.payload)[1]
                _answer(case, asked.number, argv, given, real)


def _answer(case: Case, number: int, argv: list[str], given: bytes, real: str) -> None:
    def say(kind: int, payload: bytes) -> None:
        rest = frames.frame(kind, number, payload)
        while rest:
            rest = rest[os.write(1, rest) :]

    command = _command(argv[1:]) if argv[0] == os.path.abspath(sys.argv[0]) else argv[0]
    if command == case.asked and case.answer:
        _asked_for[:] = argv
        case.answer(say)
        return
    honest = [real, *argv[1:]] if argv[0] == os.path.abspath(sys.argv[0]) else argv
    done = subprocess.run(honest, input=given, capture_output=True)
    say(frames.OUT, done.stdout)
    say(frames.ERR, done.stderr)
    say(frames.END, b"%d" % done.returncode)


# the laptop


@dataclass(frozen=True)
class Ended:
    """How a command of the laptop ended, how long it took, and the largest memory of its process."""

    exit_code: int
    seconds: float
    peak_mib: float
    said: str


class Laptop:
    """With a run on an honest pod, which a hostile one has in its hands."""

    def __init__(self, folder: Path, server: Sshd) -> None:
        self.folder, self.server = folder, server
        self._workdir = folder / "workdir"
        self.project: Project = new_project(folder, {"p": server.entry(workdir=str(self._workdir))})
        self.project.commit({"runbooks/r.yaml": _RUNBOOK})
        done = self.project.run("validate", "--pod", "p", "--runbook", "r", "--json")
        assert done.exit_code == 0, done.stderr
        self._run_id = done.json["run_id"]

    def meets(self, name: str) -> Ended:
        """What the case does to it."""
        fake = self.folder / "fake"
        fake.write_text(
            f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n"
            f"from tests.support.hostile import main\nmain({name!r}, {sys.executable!r}, sys.argv[1:])\n"
        )
        fake.chmod(0o755)
        return self.ends(CASES[name].verb, self.server.entry(workdir=str(self._workdir), python=str(fake)))

    def ends(self, verb: str, entry: dict[str, Any]) -> Ended:
        """One command, of a laptop that knows nothing yet, with the pod of `entry`."""
        inventory, home = self.folder / "hostile.yaml", self.folder / f"home-{time.monotonic_ns()}"
        inventory.write_text(json.dumps({"pods": {"p": entry}}))
        kept = ["--artifacts", str(home / "artifacts")]
        more = [*kept, self._run_id] if verb == "fetch" else kept
        peak = self.folder / "peak"
        program = measured(peak, verb, "--pod", "p", "--inventory", str(inventory), *more)
        environment = self.project.environment(PYTHONPATH=str(ROOT), NSA_POD_HOME=str(home))
        began = time.monotonic()
        with (self.folder / "said").open("w+b") as said:
            process = subprocess.Popen(
                program, cwd=self.project.root, env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said
            )
            process.wait()
            said.seek(0)
            lines = said.read().decode(errors="replace").strip().splitlines()
        return Ended(process.returncode, time.monotonic() - began, peak_mib(peak), lines[-1] if lines else "")


# servers that are none

NO_SERVERS: dict[str, bytes] = {
    "a first line without end": b"",
    "first lines without end": b"no SSH here\r\n",
    "a packet of 4 GiB": b"SSH-2.0-OpenSSH_9.9\r\n" + struct.pack(">I", 0xFFFFFFF4),
}


@contextmanager
def no_server(beginning: bytes) -> Iterator[int]:
    """A port at which somebody says `beginning` and goes on without end; lines, if it ends with one."""
    more = beginning * 1000 if beginning.endswith(b"here\r\n") else _PIECE
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def talk() -> None:
            with suppress(OSError):
                while True:
                    connection = listener.accept()[0]
                    with suppress(OSError), connection:
                        connection.sendall(beginning)
                        while True:
                            connection.sendall(more)

        threading.Thread(target=talk, daemon=True).start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)  # nobody accepts on a number that another socket has by then
