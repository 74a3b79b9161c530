"""Arrive at a pod: find its Python, bring the agent, learn the facts and hold them against the inventory."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, BinaryIO

from orchestrator.config.inventory import Pod
from orchestrator.errors import IntegrityError, PodBusy, PodError
from orchestrator.pairing.table import table
from orchestrator.pod import bundle
from orchestrator.pod.answers import misfit
from orchestrator.results import State
from orchestrator.text import plain
from orchestrator.transports.base import COMMAND_LIMIT_S, Completed, Transport, full_disk

# Values by stage and name, which the plan only names.
Secrets = Mapping[str, Mapping[str, str]]
# A run that is gone on with is checked and gets its tree before the answer comes.
LAUNCH_LIMIT_S = 600.0
# What Python says of a program that is not there, and of one that goes while it is being read.
_AGENT_GONE = re.compile(r"can't open file|No such file or directory: '.*/agent-[0-9a-f]+\.pyz'")

_PYTHONS = ("python3", *(f"python3.{minor}" for minor in range(14, 7, -1)), "python")
# Prints, a line each: the Python itself (not a shim that takes its time), the workdir, and whether the whole agent is
# there already.
_ARRIVE = """\
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
# Words that make another model of a GPU's name: an `RTX 4090 D` is no `RTX 4090`, an `RTX 6000 Ada` no `RTX 6000`.
_MODEL_WORDS = frozenset("ada blackwell d laptop max mobile pro super ti".split())


def capability(gpu: Mapping[str, Any]) -> int:
    """A GPU's compute capability as 89 for 8.9: as the driver tells it, else by the GPU's name; 0 if neither does."""
    told = re.fullmatch(r"(\d{1,3})\.(\d)", str(gpu["compute_cap"]))
    return int(told[1] + told[2]) if told else table().sm_of(str(gpu["name"])) or 0


@dataclass(frozen=True)
class PodFacts:
    """What the agent found on the pod; `raw` is all of it."""

    raw: Mapping[str, Any]

    @property
    def gpu(self) -> Mapping[str, Any] | None:
        """The first GPU, None without one."""
        gpus: Sequence[Mapping[str, Any]] = self.raw["gpus"]
        return gpus[0] if gpus else None

    @property
    def sm(self) -> int | None:
        """Compute capability as 89 for 8.9; None without a GPU, 0 where nobody knows it."""
        return capability(self.gpu) if self.gpu else None

    @property
    def driver(self) -> str | None:
        """The driver's version; not the CUDA version that it supports, not torch's CUDA runtime."""
        return str(self.gpu["driver"]) if self.gpu else None

    @property
    def gpu_complaint(self) -> str | None:
        """Why there is no GPU although nvidia-smi is there, as it says itself; None with a GPU, or without it."""
        said = self.raw.get("gpu_complaint")
        return plain(said) if said else None

    def summary(self) -> dict[str, Any]:
        """What a plan records of the pod: the machine's identity, its GPU and driver."""
        machine = {key: self.raw[key] for key in ("hostname", "boot_id", "arch", "cpu_model", "cpus", "gpus")}
        return {**machine, "driver": self.driver, "driver_cuda": self.raw["driver_cuda"]}


@dataclass(frozen=True)
class Agent:
    """The agent on a pod, each command one question and one answer."""

    transport: Transport
    python: str
    workdir: str

    @property
    def pod(self) -> Pod:
        return self.transport.pod

    @property
    def _argv(self) -> list[str]:
        return [self.python, "-I", f"{self.workdir}/{_archive()[0]}"]

    def call(
        self, command: str, *arguments: str, input: bytes = b"", timeout: float = COMMAND_LIMIT_S
    ) -> dict[str, Any]:
        """The JSON answer of one agent command; PodError with its sentence when it fails."""
        done = self.transport.run([*self._argv, command, *arguments], input=input, timeout=timeout)
        answer = self._answer(command, done)
        if isinstance(answer.get("busy"), dict):
            raise self.busy(answer["busy"])
        if done.exit_code != 0:
            raise self._refusal(command, answer)
        what = f"{command} {arguments[0]}" if command == "env" and arguments else command
        wrong = misfit(what, answer)
        if wrong:
            raise IntegrityError(f"pod {self.pod.name!r}: the agent's {what} gives no {wrong} as it should be")
        return answer

    def _answer(self, command: str, done: Completed) -> dict[str, Any]:
        """The JSON that a command printed; PodError, with what it said instead, if there is none."""
        what = f"pod {self.pod.name!r}"
        try:
            return dict(json.loads(done.stdout))
        except (ValueError, TypeError, RecursionError):
            pass
        self._check_there(done.complaint())
        raise PodError(f"{what}: the agent's {command} failed: {done.complaint()}")

    def _check_there(self, complaint: str) -> None:
        """PodError if Python's complaint is that the agent is not there any more."""
        if _AGENT_GONE.search(complaint):
            what = f"pod {self.pod.name!r} has lost {self.workdir}"
            raise PodError(f"{what}: its disk was cleared, or it is another machine now")

    def _refusal(self, command: str, answer: Mapping[str, Any]) -> PodError:
        what, sentence = f"pod {self.pod.name!r}", plain(answer.get("error", f"{command} failed"))
        return full_disk(what, sentence.encode()) or PodError(f"{what}: {sentence}")

    def busy(self, holder: Mapping[str, Any]) -> PodBusy:
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
            with self.transport.stream([*self._argv, command, *arguments], input=input) as out:
                yield out
        except PodError as e:
            self._check_there(str(e))
            raise

    def run_directory(self, run_id: str) -> str:
        """Where the run lies on the pod."""
        return f"{self.workdir}/runs/{run_id}"

    def launch(self, run_id: str, plan: bytes, secrets: Secrets) -> dict[str, Any] | None:
        """Put the plan and start the run, detached; PodBusy, with the holder named, if another one goes on.

        `secrets` travel on stdin: neither a file nor a process list shows them. What a holder of the pod that died
        without letting it go had said of itself, if there was one. It may be repeated: a run that has begun goes on.
        """
        directory = self.run_directory(run_id)
        self.transport.put(plan, f"{directory}/plan.json")
        try:
            answer = self.call("launch", directory, input=json.dumps(secrets).encode(), timeout=LAUNCH_LIMIT_S)
        except PodError as refused:
            if self._has_begun(directory):
                return None
            if isinstance(refused, PodBusy):
                self.transport.check(["rm", "-r", directory])
            raise
        dead: dict[str, Any] | None = answer.get("dead")
        return dead

    def _has_begun(self, run_directory: str) -> bool:
        """Whether an agent has the run or had it: an earlier launch arrived, though its answer may not have."""
        found = self.call("status", run_directory)
        return bool(found["state"] == "running" or found["bytes"])

    def resume(self, run_id: str, by: str, secrets: Secrets) -> None:
        """Go on with a run whose agent died; PodError, with the reason, if that cannot be."""
        place = (self.run_directory(run_id), "--resume-by", by)
        self.call("launch", *place, input=json.dumps(secrets).encode(), timeout=LAUNCH_LIMIT_S)

    def plan(self, run_id: str) -> str:
        """The plan of a run as the pod has it."""
        return self.transport.check(["cat", f"{self.run_directory(run_id)}/plan.json"]).decode(errors="replace")

    def runs(self) -> list[dict[str, Any]]:
        """The runs on the pod: run_id, state, commit and more of each."""
        return [dict(run) for run in self.call("runs", self.workdir)["runs"]]

    def run_state(self, run_directory: str) -> State:
        """running, ended or lost."""
        state: State = self.call("status", run_directory)["state"]
        return state

    def tail(self, run_directory: str, offset: int, wait: float, limit: int) -> bytes:
        """The journal's bytes from `offset`, at most `limit`; waits up to `wait` seconds for some."""
        options = ["--offset", str(offset), "--wait", str(wait), "--limit", str(limit)]
        asked = [*self._argv, "tail", run_directory, *options]
        done = self.transport.run(asked, timeout=wait + COMMAND_LIMIT_S)
        if done.exit_code != 0:
            raise self._refusal("tail", self._answer("tail", done))
        return done.stdout

    def holder(self, wait: float = 0.0) -> dict[str, Any] | None:
        """Who holds the pod, after at most `wait` seconds in which it may become free; None if nobody does."""
        answer = self.call("holder", self.workdir, "--wait", str(wait), timeout=wait + COMMAND_LIMIT_S)
        found: dict[str, Any] | None = answer["holder"]
        return found

    def cancel(self, run_id: str, by: str, *, stolen: bool = False) -> bool:
        """Ask the run's agent to stop, `stolen` for another run; False if it was gone already."""
        how = ("--by", by, *(["--stolen"] if stolen else []))
        return bool(self.call("cancel", self.run_directory(run_id), *how)["signalled"])


def arrive(transport: Transport) -> Agent:
    """The agent on the pod that `transport` is connected to, brought there if it is not there yet."""
    pod = transport.pod
    name, content = _archive()
    names = [pod.python] if pod.python else _PYTHONS
    asked = ["sh", "-c", _ARRIVE, "sh", pod.workdir, name, str(len(content)), *names]
    told = [*transport.check(asked).decode(errors="replace").split("\n"), "", ""]
    python, workdir, there = told[0], told[1], told[2] == "there"
    if not python:
        raise PodError(f"pod {pod.name!r} has no Python 3.8 or newer: looked for {', '.join(names)}")
    if not workdir.startswith("/"):
        raise PodError(f"pod {pod.name!r} has no directory {pod.workdir}")
    if not there:
        transport.put(content, f"{workdir}/{name}")
    return Agent(transport, python, workdir)


def probe(agent: Agent) -> PodFacts:
    """The pod's facts."""
    return PodFacts(agent.call("probe", "--workdir", agent.workdir))


def broken_promises(pod: Pod, facts: PodFacts, *, allow_different_gpu: bool) -> list[str]:
    """Sentences on what differs from the inventory; PodError for another GPU model than the promised one.

    A GPU that is absent is no error here: the stages that need it are blocked.
    """
    said = []
    other = [plain(gpu["name"]) for gpu in facts.raw["gpus"] if pod.gpu and not _is_model(pod.gpu, str(gpu["name"]))]
    if facts.gpu is None and (pod.gpu or facts.gpu_complaint):
        promise = f"promises {pod.gpu} and " if pod.gpu else ""
        why = f" that works: nvidia-smi: {facts.gpu_complaint}" if facts.gpu_complaint else ""
        said.append(f"pod {pod.name!r} {promise}has no CUDA GPU{why}")
    if other:
        sentence = f"pod {pod.name!r} promises {pod.gpu} and has {', '.join(other)}"
        if not allow_different_gpu:
            raise PodError(f"{sentence}: correct the inventory, or go on with --allow-different-gpu")
        said.append(sentence)
    if pod.driver and facts.driver and facts.driver != pod.driver:
        said.append(f"pod {pod.name!r} promises driver {pod.driver} and has {plain(facts.driver)}")
    return said


def _is_model(promised: str, found: str) -> bool:
    """Whether every word of the promise is in the GPU's name, and no further word makes another model of it."""
    wanted, words = (set(re.findall(r"[a-z0-9]+", name.lower())) for name in (promised, found))
    return wanted <= words and not (words - wanted) & _MODEL_WORDS


@cache
def _archive() -> tuple[str, bytes]:
    content, digest = bundle.build()
    return f"agent-{digest}.pyz", content
