"""The rules, asked about one stage."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orchestrator.verdict.case import Run, Sessions
from orchestrator.verdict.outcomes import Session, Test, read
from orchestrator.verdict.rules import Judgement, judge_stage


def judge(
    stage: dict[str, Any],
    record: object,
    folder: Path,
    statuses: Mapping[str, Any] | None = None,
    devices: frozenset[str] | None = None,
) -> Judgement:
    """The judgement of a planned stage by its record and the files in `folder`."""
    return judge_stage(Run(folder, devices=devices), stage, record, statuses or {})  # type: ignore[arg-type]


def session_of(**routes: str) -> Session:
    """A session of passed tests, by name, each with the route that it recorded for `selected`; none where it is ""."""
    tests = {name: Test(name, name, "passed", finished=True) for name in routes}
    for name, route in routes.items():
        tests[name].routes = {"route.selected": [route]} if route else {}
    return Session(started=True, tests=tests)


def sessions_of(session: Session) -> Sessions:
    """What a pytest stage leaves that consists of this session."""
    return Sessions([session], session, [], None, [], None)


def events(*lines: dict[str, Any]) -> Session:
    """The session that these lines of the plugin tell of."""
    return read(io.BytesIO(b"".join(json.dumps(line).encode() + b"\n" for line in lines)))


def phases(id_: str, *phases: tuple[str, str], **over: Any) -> list[dict[str, Any]]:
    """The phases of a test, each as when and outcome."""
    return [{"event": "phase", "id": id_, "when": when, "outcome": outcome, **over} for when, outcome in phases]
