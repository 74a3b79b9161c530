"""The agent on a pod: installed there, and asked, each command one question and one answer of a known shape."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, BinaryIO, TypeVar, overload

from orchestrator.config.inventory import Pod
from orchestrator.errors import IntegrityError, PodBusy, PodError, PodFull
from orchestrator.pod import bundle
from orchestrator.shared.answers import Holder, Runs, RunSummary, StageOutput
from orchestrator.shared.schema import first_error
from orchestrator.text import plain
from orchestrator.transports.base import COMMAND_LIMIT_S, Completed, Transport, full_disk

T = TypeVar("T")

# What Python says of a program that is not there, and of one that goes while it is being read.
_AGENT_GONE = re.compile(r"can't open file|No such file or directory: '.*/agent-[0-9a-f]+\.pyz'")

_PYTHONS = ("python3", *(f"python3.{minor}" for minor in range(14, 7, -1)), "python")
# Prints, a line each: the Python itself (not a shim that takes its time), the workdir, and whether the whole agent is
# there already.
_FIND_PLACE = """\
absolute() { case $1 in /*) echo "$1";; "~") echo "$HOME";; "~/"*) echo "$HOME/${1#??}";; *) echo "$HOME/$1";; esac; }
workdir=$(absolute "$1") agent=$2 bytes=$3; shift 3
for name do
    case $name in */*) name=$(absolute "$name");; esac
    python=$("$name" -c 'import sys; sys.version_info >= (3, 8) and print(sys.executable)' 2>/dev/null)
    [ -n "$python" ] && break
done
printf '%s\\n' "$python" "$workdir"
[ -f "$workdir/$agent" ] && [ "$(wc -c < "$workdir/$agent")" -eq "$bytes" ] && echo there
exit 0
"""


# Of stdin, the agent is what comes first; what it is to read itself follows.
_FROM_MEMORY = """\
import os, sys
left, fd = int(sys.argv[1]), os.memfd_create("agent")
while left:
    piece = os.read(0, left)
    if not piece:
        sys.exit("the agent did not arrive whole")
    left -= len(piece)
    while piece:
        piece = piece[os.write(fd, piece):]
os.set_inheritable(fd, True)
os.execv(sys.executable, [sys.executable, "-I", f"/proc/self/fd/{fd}", *sys.argv[2:]])
"""


@dataclass(frozen=True)
class Agent:
    """The agent on a pod, each command one question and one answer.

    `hold` is the file on the pod of what this laptop holds there; `carried` the agent itself, where the pod has no room
    for it: then it comes with each command, and runs from memory.
    """

    transport: Transport
    python: str
    workdir: str
    hold: str = ""
    carried: bytes = field(default=b"", repr=False)

    @property
    def pod(self) -> Pod:
        return self.transport.pod

    def _argv(self, *command: str) -> list[str]:
        holding = ["--hold", self.hold] if self.hold else []
        if self.carried:
            return [self.python, "-I", "-c", _FROM_MEMORY, str(len(self.carried)), *command, *holding]
        return [self.python, "-I", f"{self.workdir}/{_archive()[0]}", *command, *holding]

    @overload
    def call(self, shape: type[T], *command: str, input: bytes = ..., timeout: float = ...) -> T: ...

    @overload
    def call(self, shape: object, *command: str, input: bytes = ..., timeout: float = ...) -> Any: ...

    def call(self, shape: object, *command: str, input: bytes = b"", timeout: float = COMMAND_LIMIT_S) -> Any:
        """The JSON answer of an agent command, of this shape; PodError with its sentence when it fails."""
        done = self.transport.run(self._argv(*command), input=self.carried + input, timeout=timeout)
        answer = self._answer(command[0], done)
        if isinstance(answer.get("busy"), dict):
            raise self.busy(answer["busy"])
        if done.exit_code != 0:
            raise self._refusal(command[0], answer)
        wrong = first_error(answer, shape, "answer")
        if wrong:
            raise IntegrityError(f"pod {self.pod.name!r}: the agent's {command[0]} gives no {wrong} as it should be")
        return answer

    def _answer(self, command: str, done: Completed) -> dict[str, Any]:
        """The JSON that a command printed; PodError, with what it said instead, if there is none."""
        what = f"pod {self.pod.name!r}"
        try:
            return dict(json.loads(done.stdout))
        except (ValueError, TypeError, RecursionError):
            pass
        self._require_there(done.complaint())
        raise PodError(f"{what}: the agent's {command} failed: {done.complaint()}")

    def _require_there(self, complaint: str) -> None:
        """PodError if Python's complaint is that the agent is not there any more."""
        if _AGENT_GONE.search(complaint):
            what = f"pod {self.pod.name!r} has lost {self.workdir}"
            raise PodError(f"{what}: its disk was cleared, or it is another machine now")

    def _refusal(self, command: str, answer: Mapping[str, Any]) -> PodError:
        what, sentence = f"pod {self.pod.name!r}", plain(answer.get("error", f"{command} failed"))
        return full_disk(what, sentence.encode()) or PodError(f"{what}: {sentence}")

    def busy(self, holder: Holder) -> PodBusy:
        """The error that names who holds the pod, and the three ways on."""
        run, by, since = (plain(holder.get(key, "unknown")) for key in ("run_id", "holder", "since"))
        name = self.pod.name
        return PodBusy(
            f"pod {name!r} is held by {by} since {since} for run {run}: follow that run (nsa-pod follow --pod {name} "
            f"{shlex.quote(run)}), wait for its end (--wait), or cancel it and take the pod (--steal)",
            holder,
        )

    @contextmanager
    def stream(self, command: str, *arguments: str, input: bytes = b"") -> Iterator[BinaryIO]:
        """The output of one agent command as a file."""
        try:
            with self.transport.stream(self._argv(command, *arguments), input=self.carried + input) as out:
                yield out
        except PodError as e:
            self._require_there(str(e))
            raise

    def let_go(self) -> None:
        """Hold nothing on the pod any more."""
        if self.hold:
            self.transport.run(["rm", "-f", self.hold])

    def run_directory(self, run_id: str) -> str:
        """Where the run lies on the pod."""
        return f"{self.workdir}/runs/{run_id}"

    def plan(self, run_id: str) -> str:
        """The plan of a run as the pod has it."""
        return self.transport.output(["cat", f"{self.run_directory(run_id)}/plan.json"]).decode(errors="replace")

    def runs(self) -> list[RunSummary]:
        """The runs on the pod."""
        return self.call(Runs, "runs", self.workdir)["runs"]

    def tail(self, run_directory: str, offset: int, wait: float, limit: int) -> bytes:
        """The journal's bytes from `offset`, at most `limit`; waits up to `wait` seconds for some."""
        options = ["--offset", str(offset), "--wait", str(wait), "--limit", str(limit)]
        asked = self._argv("tail", run_directory, *options)
        done = self.transport.run(asked, input=self.carried, timeout=wait + COMMAND_LIMIT_S)
        if done.exit_code != 0:
            raise self._refusal("tail", self._answer("tail", done))
        return done.stdout

    def log(self, run_id: str, stage: str, offsets: Mapping[str, int], wait: float = 0.0) -> StageOutput:
        """What a stage has written to the streams of `offsets` from there on; waits up to `wait` seconds for some."""
        options = [word for stream, offset in offsets.items() for word in (f"--{stream}", str(offset))]
        command = ("log", self.run_directory(run_id), stage, "--wait", str(wait), *options)
        return self.call(StageOutput, *command, timeout=wait + COMMAND_LIMIT_S)


def install_agent(transport: Transport, token: str = "") -> Agent:
    """The agent on the pod that `transport` is connected to, brought there if it is not there yet; what is to be used
    there is held under `token`. On a disk that is full it works from memory: what can be removed is still found.
    """
    pod = transport.pod
    name, content = _archive()
    names = [pod.python] if pod.python else _PYTHONS
    asked = ["sh", "-c", _FIND_PLACE, "sh", pod.workdir, name, str(len(content)), *names]
    told = [*transport.output(asked).decode(errors="replace").split("\n"), "", ""]
    python, workdir, there = told[0], told[1], told[2] == "there"
    if not python:
        raise PodError(f"pod {pod.name!r} has no Python 3.8 or newer: looked for {', '.join(names)}")
    if not workdir.startswith("/"):
        raise PodError(f"pod {pod.name!r} has no directory {pod.workdir}")
    agent = Agent(transport, python, workdir, f"{workdir}/holds/{token}" if token else "")
    if not there:
        try:
            transport.put(content, f"{workdir}/{name}")
        except PodFull:
            return replace(agent, carried=content)
    return agent


@cache
def _archive() -> tuple[str, bytes]:
    content, digest = bundle.build()
    return f"agent-{digest}.pyz", content
