"""Between a launch and its following: the run goes on, whatever ends the command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.errors import Interrupted
from orchestrator.store import machines
from orchestrator.tasks import follow, validate
from orchestrator.ui import Progress


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def launched(session: Any, request: Any, plan: Any) -> None:
    validate.begin(plan, {}, request, session, session, session)


def brought_home(session: Any, request: Any, plan: Any) -> None:
    follow.bring_home(session, session, SimpleNamespace(path=Path("r"), plan=interrupted))  # type: ignore[arg-type]


@pytest.mark.parametrize("moment", [launched, brought_home])
def test_an_interrupt_says_that_the_run_goes_on(moment: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validate, "launch", lambda *_: None)
    monkeypatch.setattr(machines, "remember", interrupted)
    session = SimpleNamespace(progress=Progress(), open=None, pod=SimpleNamespace(name="p"))
    request = SimpleNamespace(pod=session.pod, artifacts=None, repo=SimpleNamespace(root=None))
    with pytest.raises(Interrupted, match="the run goes on: nsa-pod follow --pod p r, or nsa-pod cancel --pod p r"):
        moment(session, request, {"pod": "p", "run_id": "r", "facts": {}})
