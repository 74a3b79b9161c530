"""Going on with a run whose agent died: what its finished stages left stays, what was half done is put aside."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence

from orchestrator.agent.env.interpreter import Interpreter
from orchestrator.agent.evidence.secret_files import take_away
from orchestrator.agent.host.removal import remove
from orchestrator.agent.layout import CANCEL_FILE, Layout
from orchestrator.shared import journal, stage_record
from orchestrator.shared.events import Cancelled, Event
from orchestrator.shared.failure import Failure
from orchestrator.shared.files import Refused, describe, walk
from orchestrator.shared.plan import Plan, Stage, plan_hash
from orchestrator.shared.redaction import Redactor
from orchestrator.shared.tree import scan, tree_hash

_ASIDE = "interrupted"
_NEXT_TREE = "tree.next"


@dataclass(frozen=True)
class Past:
    """What the agents before left of a run: the whole lines of its journal, and the records of the finished stages."""

    places: Layout
    data: bytes
    events: List[Event]
    records: Dict[str, Dict[str, Any]]

    def require_same(self, gpus: Sequence[Mapping[str, Any]], python: Interpreter) -> None:
        """Failure unless this is the same machine and environment, and the finished stages' files are as recorded."""
        then, now = (_uuids(found) for found in (self._latest("run_started")["gpus"], gpus))
        if then != now:
            raise Failure(f"it began on {_named(then)}, and the pod has {_named(now)} now: start a new run")
        checked = self._latest("environment_checked")
        if checked and not python.still(checked["fingerprint"]):
            raise Failure("the environment's installed files are not those that it began with: start a new run")
        for name, found in self.records.items():
            for file in found["files"]:
                if not self._is_here(file):
                    raise Failure(f"{file['path']} is not as stage {name} left it: start a new run")
            built = found.get("built")
            if built and tree_hash(scan(self.places.builds / name)) != built["tree"]:
                raise Failure(f"what stage {name} built is not as it left it: start a new run")

    def next_tree(self) -> Path:
        """Where the tree to go on with is made, before anything of the run is moved."""
        found = self.places.run_dir / _NEXT_TREE
        if found.exists():
            shutil.rmtree(found)
        return found

    def put_aside(self, stages: Sequence[Stage], redactor: Redactor) -> None:
        """Move what unfinished stages left (logs, artifacts) to interrupted/, and put the next tree in the place of the
        one that they worked in.

        Files that hold a secret value are deleted too.
        """
        aside = self._new_folder()
        for name in [stage["name"] for stage in stages if stage["name"] not in self.records]:
            _move(self.places.run_dir, f"stages/{name}", aside)
            shutil.rmtree(self.places.builds / name, ignore_errors=True)
        kept = {file["path"] for found in self.records.values() for file in found["files"]}
        for name, _ in list(walk(self.places.artifacts)):
            if f"artifacts/{name}" not in kept:
                _move(self.places.run_dir, f"artifacts/{name}", aside)
        take_away(aside, [name for name, _ in walk(aside)], redactor)
        for folder in (self.places.tree, *(self.places.tmp(number) for number in range(len(stages)))):
            remove(str(folder))
        (self.places.run_dir / _NEXT_TREE).rename(self.places.tree)

    def _latest(self, event: str) -> Event:
        return next((found for found in reversed(self.events) if found["event"] == event), {})

    def _is_here(self, file: Mapping[str, Any]) -> bool:
        try:
            return describe(self.places.run_dir, file["path"]) == file
        except (OSError, Refused):
            return False

    def _new_folder(self) -> Path:
        folders = (self.places.run_dir / _ASIDE / str(number) for number in itertools.count(1))
        return next(folder for folder in folders if not folder.exists())


def look(plan: Plan, places: Layout) -> Past:
    """What is left of the run; Failure, with the reason, if it is not one to go on with."""
    try:
        content = places.journal.read_bytes()
    except FileNotFoundError:
        content = b""
    data = content[: content.rfind(b"\n") + 1]
    try:
        events = journal.read(data)
    except journal.ChainBroken as e:
        raise Failure(f"{e}: start a new run") from e
    if not events or events[0]["event"] != "run_started":
        raise Failure("it had not begun: start a new run")
    if events[0]["plan_sha256"] != plan_hash(plan):
        raise Failure("its journal is that of another plan: start a new run")
    if events[-1]["event"] == "run_ended":
        raise Failure(f"it has ended ({events[-1]['reason']}): there is nothing to go on with")
    if (places.run_dir / CANCEL_FILE).exists():
        raise Failure(f"it was cancelled by {cancelled(places)['by']}: start a new run")
    return Past(places, data, events, stage_record.by_stage(events))


def cancelled(places: Layout) -> Cancelled:
    """Who asked, as `cancel` wrote it down; a signal from elsewhere has no name."""
    try:
        found = json.loads((places.run_dir / CANCEL_FILE).read_bytes())
        return Cancelled(event="cancelled", by=str(found["by"]), stolen=found.get("stolen") is True)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return Cancelled(event="cancelled", by="a signal", stolen=False)


def _uuids(gpus: Sequence[Mapping[str, Any]]) -> List[str]:
    return sorted(str(gpu.get("uuid")) for gpu in gpus)


def _named(uuids: Sequence[str]) -> str:
    return f"GPU {', '.join(uuids)}" if uuids else "no GPU"


def _move(run_dir: Path, name: str, aside: Path) -> None:
    if os.path.lexists(run_dir / name):
        (aside / name).parent.mkdir(parents=True, exist_ok=True)
        (run_dir / name).rename(aside / name)
