"""What is watched goes on working when a test takes what the watcher is made of."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from orchestrator.agent.injected.checks.records import Checks
from orchestrator.agent.injected.processes.ends import End
from orchestrator.agent.injected.processes.lost import Lost
from orchestrator.agent.injected.stage import Config, Notes


@pytest.mark.unit
def test_what_a_test_takes_from_python_is_not_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Notes(str(tmp_path / "notes"))
    config = Config(f"tree={tmp_path}\nreport={tmp_path}/notes\n")
    lost = Lost(Checks(config, notes), End(config, notes))

    class suppress(contextlib.suppress):  # its own, not that of this session
        pass

    lost.after_import["contextlib"](SimpleNamespace(suppress=suppress))  # type: ignore[arg-type]
    with monkeypatch.context() as taken:
        taken.delattr(sys, "_getframe")
        for name in ("write", "fstat"):
            taken.setattr(os, name, None)
        with suppress(KeyError):
            {}["missing"]
        notes.write("{}")
    assert (tmp_path / "notes").read_text() == "{}\n"
