"""A model of a run: stages whose right outcome is known, faults at random moments, and what must be true afterwards."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Each stage keeps its own account of what it did, outside of everything that the tool handles: begin, a beat for each
# tenth of a second in which it (or a daemon that it left) lived, and end, by the machine's uptime.
STAGE = """\
name=$1 tenths=$2 kind=$3 account="$ACCOUNTS/$NSA_POD_RUN.$1"
note() { read -r up idle < /proc/uptime; echo "$1 $up" >> "$account"; }
note begin
case $kind in
    stubborn) trap '' TERM; while sleep 0.1; do note beat; echo "$name"; done;;
    silent) while sleep 0.1; do note beat; done;;
esac
i=0
while [ $i -lt $tenths ]; do sleep 0.1; note beat; [ $kind = mute ] || echo "$name $i"; i=$((i + 1)); done
case $kind in
    files) for n in 1 2 3 4 5 6 7 8 9; do head -c 30000 /dev/urandom > "$NSA_POD_ARTIFACTS/$name.$n"; done;;
    daemon) setsid sh -c 'while sleep .1; do read -r up i < /proc/uptime; echo "beat $up" >> "$0"; done' "$account" & ;;
    crash) note crash; kill -SEGV $$;;
    fail) note end; exit 3;;
esac
note end
"""
# kind: what its status is when nothing else interferes, and its limits.
_KINDS: Mapping[str, tuple[str, Mapping[str, float]]] = {
    "plain": ("passed", {}),
    "files": ("passed", {}),
    "daemon": ("passed", {}),
    "mute": ("invalid", {}),
    "fail": ("failed", {}),
    "crash": ("crashed", {}),
    "stubborn": ("timed_out", {"wall": 0.5, "grace": 0.2}),
    "silent": ("stalled", {"silence": 0.5, "grace": 0.2}),
}
_WEIGHTS = (10, 4, 3, 1, 1, 1, 2, 2)
_FAILED = frozenset({"failed", "crashed", "timed_out", "stalled", "invalid"})


@dataclass(frozen=True)
class Stage:
    """One stage of the model's runbook."""

    name: str
    kind: str
    tenths: int
    required: bool
    needs: tuple[str, ...]

    @property
    def limits(self) -> Mapping[str, float]:
        return _KINDS[self.kind][1]

    @property
    def stdout(self) -> str:
        """What it prints if it runs to its end."""
        return "" if self.kind == "mute" else "".join(f"{self.name} {i}\n" for i in range(self.tenths))

    def planned(self, accounts: Path) -> dict[str, Any]:
        """Its entry in the runbook."""
        return {
            "name": self.name,
            "run": ["sh", "stage.sh", self.name, str(self.tenths), self.kind],
            "env": {"ACCOUNTS": str(accounts)},
            "needs": list(self.needs),
            "required": self.required,
            "limits": dict(self.limits),
            "expect": {"artifacts": [{"path": f"{self.name}.txt", "from": "stdout"}]},
        }


@dataclass(frozen=True)
class Fault:
    """Something that happens `at` so many seconds after the schedule's beginning."""

    at: float
    name: str
    lasting: float

    def __str__(self) -> str:
        return f"{self.at:.2f} s {self.name} ({self.lasting:.2f})"


_EVERYWHERE = {
    "kill laptop": 4, "interrupt laptop": 1, "laptop sleeps": 3, "kill agent": 4, "agent stands still": 2, "cancel": 3,
    "second validate": 2, "second validate waits": 1, "second validate steals": 1, "second follow": 4,
    "fetch what is there": 3, "power cut": 2, "kill reaper": 2, "agent and reaper stop": 1, "prune": 3,
    "another laptop follows": 2, "another laptop fetches": 2, "another laptop cancels": 1,
}  # fmt: skip
_CANCELS = frozenset({"cancel", "second validate steals", "another laptop cancels"})
_HARMLESS_TO_A_LAUNCH = frozenset(
    {"agent stands still", "agent and reaper stop", "cancel", "second follow", "fetch what is there", "kill reaper"}
    | {"prune", "another laptop follows", "another laptop fetches", "another laptop cancels"}
)
_CONNECTED = {"cut": 5, "cut soon": 5, "dead line": 1, "cut each": 3}
DISKS = {"the pod's disk is full": 2, "the laptop's disk is full": 2}


@dataclass(frozen=True)
class Schedule:
    """What one seed means. `place`: the machine itself, a pod behind SSH, or one in a box that can be rebooted.

    The faults' time begins when the command is given, or (`under_way`) when the first stage has begun on the pod.
    Afterwards a run whose agent died is gone on with (`resumes`), or is left as it is.
    """

    seed: int
    place: str
    under_way: bool
    resumes: bool
    stages: Sequence[Stage]
    faults: Sequence[Fault]

    @staticmethod
    def of(seed: int) -> Schedule:
        chance = random.Random(seed)
        place = chance.choices(("local", "ssh", "box"), (70, 15, 15))[0]
        stages: list[Stage] = []
        for number in range(chance.randint(1, 4)):
            kind = chance.choices(tuple(_KINDS), _WEIGHTS)[0]
            needs = (chance.choice(stages).name,) if stages and chance.random() < 0.3 else ()
            stages.append(Stage(f"s{number}", kind, chance.randint(1, 8), chance.random() < 0.8, needs))
        weights = {**_EVERYWHERE}
        if place == "local":
            weights |= DISKS
        else:
            weights |= {**_CONNECTED, **({"sshd restarts": 5} if place == "ssh" else {"power cut": 6})}
        if place == "ssh":
            del weights["power cut"]  # a server that shares this machine's kernel cannot take all down at once
        under_way = chance.random() < 0.6
        before = 0.0 if under_way else 0.6 if place == "local" else 1.4
        horizon = before + 0.2 + 0.12 * sum(stage.tenths for stage in stages)
        names = chance.choices(tuple(weights), tuple(weights.values()), k=chance.randint(1, 4))
        faults = [Fault(round(chance.uniform(0, horizon), 3), n, round(chance.uniform(0.05, 0.6), 3)) for n in names]
        resumes = chance.random() < 0.5
        return Schedule(seed, place, under_way, resumes, stages, sorted(faults, key=lambda fault: fault.at))

    def __str__(self) -> str:
        stages = ", ".join(
            f"{s.name}={s.kind}{'' if s.required else '?'}{' after ' + s.needs[0] if s.needs else ''}"
            for s in self.stages
        )
        since = "under way" if self.under_way else "launched"
        return f"seed {self.seed} on {self.place}: {stages}; {since}: {', '.join(map(str, self.faults))}"

    def runbook(self, accounts: Path) -> str:
        """The runbook of these stages; JSON is YAML."""
        stages = [stage.planned(accounts) for stage in self.stages]
        return json.dumps({"name": "r", "environment": {"python": "system"}, "stages": stages})

    def right_statuses(self) -> dict[str, str]:
        """The status that each stage of a run has which is left in peace."""
        statuses: dict[str, str] = {}
        for stage in self.stages:
            blocked = any(statuses[need] != "passed" for need in stage.needs)
            statuses[stage.name] = "blocked" if blocked else _KINDS[stage.kind][0]
        return statuses

    def verdict_of(self, statuses: Mapping[str, str]) -> str:
        """The verdict by the rule, of a run whose agent came to its end: of the last stage, or of a cancel."""
        required = {statuses[stage.name] for stage in self.stages if stage.required}
        if required & _FAILED:
            return "failed"
        return "passed" if required == {"passed"} else "incomplete"


@dataclass(frozen=True)
class Account:
    """What a stage wrote down of itself: seconds of the machine's uptime, and whether it came to its end."""

    times: Sequence[float] = ()
    ended: bool = False

    @staticmethod
    def read(accounts: Path, run_id: str, stage: str) -> Account:
        file = accounts / f"{run_id}.{stage}"
        lines = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
        return Account([float(words[1]) for words in lines if len(words) == 2], any(w[0] == "end" for w in lines if w))


@dataclass
class Claims:
    """Checks what a command said of a run against what the stages themselves wrote down."""

    schedule: Schedule
    accounts: Path
    right: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.right = self.schedule.right_statuses()

    def check(self, result: Mapping[str, Any], faults: set[str]) -> None:
        """No status may claim what did not happen, whenever it was said, of however much of the run."""
        run_id, verdict = result["run_id"], result["verdict"]
        for told in result["stages"]:
            name, status = told["name"], told["status"]
            allowed = {self.right[name], "not_run"} | ({"cancelled"} if faults & _CANCELS else set())
            if "the pod's disk is full" in faults:  # what cannot be written may end a stage in any way but one
                allowed |= {*_FAILED, "blocked"}
            assert status in allowed, f"{run_id}: {name} is {status} ({told['reason']}), expected one of {allowed}"
            if status == "passed":
                assert Account.read(self.accounts, run_id, name).ended, f"{run_id}: {name} passed and never ended"
        if verdict == "passed":
            bad = [s["name"] for s in result["stages"] if s["required"] and s["status"] != "passed"]
            assert not bad and result["state"] == "ended", f"{run_id}: passed, with {bad}, state {result['state']}"

    def check_end(self, result: Mapping[str, Any], events: Sequence[Mapping[str, Any]], faults: set[str]) -> None:
        """The last word on a run at rest: exactly what the pod's own journal, and the schedule, allow."""
        if "the pod's disk is full" in faults:
            return  # the journal's end is what a full disk let be written; `check` holds all the same
        statuses = {told["name"]: told["status"] for told in result["stages"]}
        last = events[-1] if events else {"event": "none"}
        if last["event"] != "run_ended":
            excuse = {"kill agent", "power cut"} if events else faults - _HARMLESS_TO_A_LAUNCH
            assert faults & excuse, f"{result['run_id']}: its agent died of nothing: {last}"
            assert (result["verdict"], result["state"]) == ("error", "lost"), result["verdict"]
            recorded = {e["stage"] for e in events if e["event"] == "stage_ended"}
            ends = {"cancelled"} if faults & _CANCELS else set()
            for name, status in statuses.items():
                assert status in ({self.right[name], *ends} if name in recorded else {"not_run"}), f"{name}: {status}"
            return
        assert last["reason"] in ("completed", "cancelled"), f"{result['run_id']}: {last['reason']}: {events[-2]}"
        assert result["verdict"] == self.schedule.verdict_of(statuses), f"{statuses}: {result['verdict']}"
        assert result["state"] == "ended"
        if last["reason"] == "completed":
            assert statuses == self.right, f"{statuses}, expected {self.right}"
            return
        assert faults & _CANCELS, "cancelled by nobody"
        left = [name for name, status in statuses.items() if status in ("cancelled", "not_run")]
        assert list(statuses)[len(statuses) - len(left) :] == left, f"stages ran after the cancel: {statuses}"

    def check_apart(self, run_ids: Sequence[str]) -> None:
        """Two runs were never on the pod at the same time."""
        spans = []
        for run_id in run_ids:
            found = [Account.read(self.accounts, run_id, stage.name).times for stage in self.schedule.stages]
            times = [t for account in found for t in account]
            if times:
                spans.append((min(times), max(times), run_id))
        for (_, end, first), (begin, _, second) in zip(sorted(spans), sorted(spans)[1:], strict=False):
            assert end <= begin, f"{first} was at work until {end}, {second} from {begin} on"
