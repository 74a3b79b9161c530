"""The agent on a pod: installed there, and asked, each command one question and one answer of a known shape."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any, BinaryIO, TypeVar, overload

from orchestrator.config.inventory import Pod
from orchestrator.errors import IntegrityError, NsaPodError, PodBusy, PodError, PodFull
from orchestrator.files import Writer
from orchestrator.pod import bundle
from orchestrator.pod.dialogue import Dialogue, Feed
from orchestrator.pod.served import Served
from orchestrator.pod.upload import upload
from orchestrator.shared.answers import READY, Holder, Runs, RunSummary, StageOutput
from orchestrator.shared.schema import first_error
from orchestrator.text import plain
from orchestrator.told import TooMuch, told
from orchestrator.transports.base import Channel, Completed, Transport
from orchestrator.transports.limits import COMMAND_LIMIT_S

T = TypeVar("T")

# What Python says of a program that is not there, and of one that goes while it is being read.
_AGENT_GONE = re.compile(r"can't open file|No such file or directory: '.*/agent-[0-9a-f]+\.pyz'")

_READY = re.compile(rb"\A%s (\d{1,18})\n" % READY.encode())
_PYTHONS = ("python3", *(f"python3.{minor}" for minor in range(14, 7, -1)), "python")
# Finds the Python itself (not a shim that takes its time) and the workdir, and leaves the rest to `boot`.
_FIND_AND_SERVE = """\
absolute() { case $1 in /*) echo "$1";; "~") echo "$HOME";; "~/"*) echo "$HOME/${1#??}";; *) echo "$HOME/$1";; esac; }
workdir=$(absolute "$1") agent=$2 digest=$3 boot=$4; shift 4
for name do
    case $name in */*) name=$(absolute "$name");; esac
    python=$("$name" -ISc 'import sys; sys.version_info >= (3, 8) and print(sys.executable)' </dev/null 2>/dev/null)
    [ -n "$python" ] && break
done
case $python:$workdir in /*:/*) exec "$python" -I -c "$boot" "$python" "$workdir" "$agent" "$digest";; esac
printf '%s\\n' "$python" "$workdir" ''
"""
_REFUSED, _UNUSABLE = "refused: ", "unusable: "
# Becomes the agent, if that is the one that was meant: the file, the SHA-256 of its content, what it is to do.
_CHECKED = """\
import hashlib, os, sys
with open(sys.argv[1], "rb") as f:
    if hashlib.sha256(f.read()).hexdigest() != sys.argv[2]:
        sys.exit("the agent there is damaged: repeat the command, which brings another")
os.execv(sys.executable, [sys.executable, "-I", sys.argv[1], *sys.argv[3:]])
"""
_NO_ANSWER = "there is no answer: does a login script of the pod wait for input, or never end?"
_READS_INPUT = (
    "a login script of the pod (.bashrc) reads the input of commands: let it return where there is no terminal, by "
    "`[ -t 0 ] || return` at its top"
)
_PLACE_LIMIT_S = 60.0
_LOGIN_S = 8.0
"""After which a login script that still goes on may be waiting for input."""
_LONGEST_PLACE = 1 << 14


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
    for it: then it comes with each command, and runs from memory. `reached` is told how much is done of what
    takes long.
    """

    transport: Transport
    python: str
    workdir: str
    hold: str = ""
    carried: bytes = field(default=b"", repr=False)
    reached: Callable[[str, int], None] = field(default=lambda part, amount: None, repr=False, compare=False)

    @property
    def pod(self) -> Pod:
        return self.transport.pod

    def _argv(self, *command: str) -> list[str]:
        holding = ["--hold", self.hold] if self.hold else []
        if self.carried:
            return [self.python, "-I", "-c", _FROM_MEMORY, str(len(self.carried)), *command, *holding]
        return [*_start(self.python, self.workdir), *command, *holding]

    @overload
    def call(self, shape: type[T], *command: str, input: bytes = ..., timeout: float = ...) -> T: ...

    @overload
    def call(self, shape: object, *command: str, input: bytes = ..., timeout: float = ...) -> Any: ...

    def call(self, shape: object, *command: str, input: bytes = b"", timeout: float = COMMAND_LIMIT_S) -> Any:
        """The JSON answer of an agent command, of this shape; PodError with its sentence when it fails."""
        done = self.transport.run(self._argv(*command), input=self.carried + input, timeout=timeout)
        return self._checked(shape, command[0], done)

    def supply(self, shape: type[T], write: Callable[[Writer, int], None], *command: str) -> T:
        """As `call`, of a command whose stdin is too much to be held: `write` writes it, from the byte on that the pod
        asks for.
        """

        def write_rest(line: bytes, stdin: Writer) -> None:
            ready = _READY.fullmatch(line)
            if ready:
                write(stdin, int(ready[1]))

        done = self.transport.supply(self._argv(*command), write_rest, input=self.carried)
        found: T = self._checked(shape, command[0], replace(done, stdout=_READY.sub(b"", done.stdout, 1)))
        return found

    def _checked(self, shape: object, command: str, done: Completed) -> Any:
        """The answer in what a command printed."""
        answer = self._answer(command, done)
        if isinstance(answer.get("busy"), dict):
            raise self.busy(answer["busy"])
        if done.exit_code != 0:
            raise self._refusal(command, answer)
        wrong = first_error(answer, shape, "answer")
        if wrong:
            raise IntegrityError(f"pod {self.pod.name!r}: the agent's {command} gives no {wrong} as it should be")
        return answer

    def _answer(self, command: str, done: Completed) -> dict[str, Any]:
        """The JSON that a command printed; PodError, with what it said instead, if there is none."""
        what = f"pod {self.pod.name!r}: the agent's {command}"
        try:
            return dict(told(done.stdout))
        except TooMuch as e:
            raise IntegrityError(f"{what} gives an answer that is not read: {e}") from None
        except (ValueError, TypeError):
            self._require_there(done.complaint())
            raise PodError(f"{what} failed: {done.complaint()}") from None

    def _require_there(self, complaint: str) -> None:
        """PodError if Python's complaint is that the agent is not there any more."""
        if _AGENT_GONE.search(complaint):
            what = f"pod {self.pod.name!r} has lost {self.workdir}"
            raise PodError(f"{what}: its disk was cleared, or it is another machine now")

    def _refusal(self, command: str, answer: Mapping[str, Any]) -> PodError:
        what, sentence = f"pod {self.pod.name!r}", plain(answer.get("error", f"{command} failed"))
        return PodFull.of(what, sentence) or PodError(f"{what}: {sentence}")

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
    def stream(
        self, command: str, *arguments: str, input: bytes = b"", expected: int | None = None
    ) -> Iterator[BinaryIO]:
        """The output of one agent command as a file, of about as many bytes as `expected`."""
        try:
            argv = self._argv(command, *arguments)
            with self.transport.stream(argv, input=self.carried + input, expected=expected) as out:
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
        data = self.transport.output(["cat", f"{self.run_directory(run_id)}/plan.json"])
        try:
            told(data)
        except ValueError as e:
            raise IntegrityError(f"pod {self.pod.name!r}: the plan of run {run_id} cannot be read: {e}") from e
        return data.decode(errors="replace")

    def runs(self, begin: str = "") -> list[RunSummary]:
        """The newest runs on the pod whose ids begin so."""
        return self.told_of_runs(begin)["runs"]

    def told_of_runs(self, begin: str = "") -> Runs:
        """As `runs`, with how many more there are."""
        return self.call(Runs, "runs", self.workdir, "--begin", begin)

    def tail(self, run_directory: str, offset: int, wait: float, limit: int) -> bytes:
        """The journal's bytes from `offset`, at most `limit`; waits up to `wait` seconds for some."""
        options = ["--offset", str(offset), "--wait", str(wait), "--limit", str(limit)]
        asked = self._argv("tail", run_directory, *options)
        return self.journal(self.transport.run(asked, input=self.carried, timeout=wait + COMMAND_LIMIT_S))

    @contextmanager
    def following(self, run_directory: str) -> Iterator[Tail]:
        """The journal of the run as it grows, for as long as the run's agent lives."""
        with ExitStack() as opened:
            yield Tail(self, run_directory, opened)

    def feed(self, run_directory: str, offset: int) -> AbstractContextManager[Feed] | None:
        """The journal from `offset`, sent as it grows; None where each question has a connection of its own."""
        if not isinstance(self.transport, Served):
            return None
        return self.transport.feed(self._argv("tail", run_directory, "--follow", "--offset", str(offset)))

    def journal(self, done: Completed) -> bytes:
        """What a `tail` gave."""
        if done.exit_code != 0:
            raise self._refusal("tail", self._answer("tail", done))
        return done.stdout

    def log(self, run_id: str, stage: str, offsets: Mapping[str, int], wait: float = 0.0) -> StageOutput:
        """What a stage has written to the streams of `offsets` from there on; waits up to `wait` seconds for some."""
        options = [word for stream, offset in offsets.items() for word in (f"--{stream}", str(offset))]
        command = ("log", self.run_directory(run_id), stage, "--wait", str(wait), *options)
        return self.call(StageOutput, *command, timeout=wait + COMMAND_LIMIT_S)


@dataclass
class Tail:
    """The journal of one run as it grows on the pod."""

    agent: Agent
    run_directory: str
    opened: ExitStack
    _feed: Feed | None = field(default=None, init=False)
    _held: bytes = field(default=b"", init=False)  # what came, from the byte `_at` of the journal on
    _at: int = field(default=0, init=False)

    @property
    def goes_on(self) -> bool:
        """Whether the run's agent was alive a moment ago: the pod says by itself when it is not."""
        return self._feed is not None

    def read(self, offset: int, wait: float, limit: int) -> bytes:
        """The bytes from `offset`, at most `limit`; waits up to `wait` seconds for more than the last time."""
        if self._feed is None or offset < self._at:
            self._held, self._at = b"", offset
            self._open(offset)
        if self._feed is None:
            return self.agent.tail(self.run_directory, offset, wait, limit)
        self._held += self._feed.read(wait, max(0, limit - len(self._held)))
        behind = min(offset - self._at, len(self._held))  # the laptop may have got some of it from somewhere else
        self._held, self._at = self._held[behind:], self._at + behind
        if self._feed.is_cut:
            self._open(self._at + len(self._held))
        elif self._feed.has_ended:
            self.agent.journal(self._feed.completed())
            self._feed = None
        return self._held

    def _open(self, offset: int) -> None:
        self.opened.close()
        feed = self.agent.feed(self.run_directory, offset)
        self._feed = self.opened.enter_context(feed) if feed else None


def install_agent(transport: Transport, token: str = "") -> Agent:
    """The agent on the pod that `transport` is connected to, brought there if it is not there yet; what is to be used
    there is held under `token`. On a disk that is full it works from memory: what can be removed is still found.
    """
    pod = transport.pod
    name, content, digest = _archive()
    names = [pod.python] if pod.python else _PYTHONS
    channel = transport.converse(["sh", "-c", _FIND_AND_SERVE, "sh", pod.workdir, name, digest, _boot(), *names])
    dialogue = None
    try:
        python, workdir, there, begun = _place(channel, transport)
        if not python:
            raise PodError(
                f"pod {pod.name!r} has no Python 3.8 or newer: looked for {', '.join(names)}: install one, or name one "
                "as `python` in the inventory"
            )
        if not workdir.startswith("/"):
            raise PodError(f"pod {pod.name!r} has no directory {pod.workdir}")
        hold = f"{workdir}/holds/{token}" if token else ""
        if there.startswith(_REFUSED):
            raise PodError(
                f"pod {pod.name!r}: {plain(there[len(_REFUSED) :], 500)}: give that folder to this user alone (chown, "
                "chmod go-w), or set another `workdir`"
            )
        if there.startswith(_UNUSABLE):
            why = plain(there[len(_UNUSABLE) :], 500)
            raise PodError(f"pod {pod.name!r}: its `workdir` cannot be used: {why}: set another one")
        if there:
            dialogue = Dialogue(channel, pod.name, begun)
        else:
            channel.close()  # there may be one session at a time: by the end of the upload this one is gone
            upload(transport, python, content, f"{workdir}/{name}")
    except PodFull:
        return Agent(transport, python, workdir, hold, content)
    finally:
        if dialogue is None:
            channel.close()
    served = Served(transport, [*_start(python, workdir), "serve"], dialogue)
    return Agent(served, python, workdir, hold)


def _place(channel: Channel, transport: Transport) -> tuple[str, str, str, bytes]:
    """Python, workdir, what `boot` says of the agent; and what came after the lines that say so."""
    told, deadline = b"", time.monotonic() + _PLACE_LIMIT_S
    data = channel.receive(_LOGIN_S)
    if data == b"" and not channel.has_begun and _runs_without_input(transport):
        data = channel.receive(_LOGIN_S)  # the first time it may only have been slow
        if data == b"" and not channel.has_begun:
            raise PodError(f"pod {transport.pod.name!r} runs no command: {_READS_INPUT}")
    while True:
        data = channel.receive(max(0.0, deadline - time.monotonic())) if data == b"" else data
        if not data or len(told) > _LONGEST_PLACE:
            why = _NO_ANSWER if data is not None else channel.complaint()
            raise PodError(f"pod {transport.pod.name!r} does not say where its Python is: {plain(why)}")
        told, data = told + data, b""
        if told.count(b"\n") >= 3:
            break
    python, workdir, there, begun = told.split(b"\n", 3)
    return python.decode(errors="replace"), workdir.decode(errors="replace"), there.decode(errors="replace"), begun


def _runs_without_input(transport: Transport) -> bool:
    """Whether the pod runs a command whose input has ended before it begins."""
    with suppress(NsaPodError):
        return transport.run(["true"], timeout=_LOGIN_S).exit_code == 0
    return False


@cache
def _boot() -> str:
    return (files(__package__) / "boot.py").read_text(encoding="utf-8")


@cache
def _archive() -> tuple[str, bytes, str]:
    """The agent's file name, its content, and the SHA-256 of that."""
    content, digest = bundle.build()
    return f"agent-{digest[:16]}.pyz", content, digest


def _start(python: str, workdir: str) -> list[str]:
    """What starts the agent that lies in the workdir, its arguments to follow; see `serve`, which knows it again."""
    name, _, digest = _archive()
    return [python, "-I", "-c", _CHECKED, f"{workdir}/{name}", digest]
