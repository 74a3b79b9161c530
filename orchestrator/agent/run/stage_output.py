"""What a stage writes to its streams, read while it runs or afterwards."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any, Dict, Mapping, Optional

from orchestrator.agent.runs import state_of
from orchestrator.shared import plan as plans
from orchestrator.shared.answers import StageOutput
from orchestrator.shared.failure import Failure
from orchestrator.shared.files import Refused, open_inside

STREAMS = ("stdout", "stderr")
_POLL_S = 0.1


def read_on(run_dir: Path, stage: str, offsets: Mapping[str, int], limit: int, wait: float) -> StageOutput:
    """At most `limit` bytes of each stream of `offsets`, from there on; waits up to `wait` seconds for the first of
    them, or the stage's end. Failure for a stage that the run does not have.
    """
    known = [planned["name"] for planned in plans.load(run_dir)["stages"]]
    if stage not in known:
        raise Failure(f"run {run_dir.name} has no stage {stage!r}: expected one of {', '.join(known)}")
    end = time.monotonic() + wait
    past = _Past(run_dir, stage)
    while True:
        past.look()  # before the streams: what is read after the end is all there is
        found = {name: _read(run_dir, stage, name, offset, limit) for name, offset in offsets.items()}
        if past.ended or any(found.values()) or time.monotonic() >= end:
            break
        time.sleep(_POLL_S)
    more = any(len(piece) >= limit for piece in found.values())
    written = {name: base64.b64encode(found.get(name, b"")).decode() for name in STREAMS}
    return StageOutput(
        begun=past.begun,
        ended=past.ended and not more,
        reason=past.reason,
        stdout=written["stdout"],
        stderr=written["stderr"],
    )


class _Past:
    """What the journal says of the stage so far."""

    def __init__(self, run_dir: Path, stage: str) -> None:
        self._run_dir = run_dir
        self._stage = stage
        self._seen = 0
        self.begun = self.ended = False
        self.reason: Optional[str] = None

    def look(self) -> None:
        running = state_of(self._run_dir)["state"] == "running"  # before the journal: its end is in there
        for event in self._fresh_events():
            if event.get("stage") == self._stage:
                self.begun = self.begun or event["event"] == "stage_started"
                self._note_end(event)
        if not running and not self.ended:
            self.ended = True
            self.reason = None if self.begun else "the run ended before it"

    def _note_end(self, event: Mapping[str, Any]) -> None:
        if event["event"] == "stage_ended":
            self.ended = True
            self.reason = None if self.begun else str(event.get("reason"))

    def _fresh_events(self) -> "list[Dict[str, Any]]":
        try:
            with (self._run_dir / "journal.jsonl").open("rb") as f:
                f.seek(self._seen)
                data = f.read()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._seen += len(whole)
        return [json.loads(line) for line in whole.splitlines() if b'"stage' in line]


def _read(run_dir: Path, stage: str, stream: str, offset: int, limit: int) -> bytes:
    try:
        with open_inside(run_dir, f"stages/{stage}/{stream}") as f:
            f.seek(offset)
            return f.read(limit)
    except (Refused, OSError):  # it has not begun, or somebody has put something else there
        return b""
