"""What the guard does to modules that it waits for, and takes with it into each Python of a stage."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.agent.injected import guard
from orchestrator.agent.injected.stage import Config, config_text
from tests.support import ROOT

DEAR = {
    "re", "enum", "json", "types", "typing", "signal", "importlib.machinery", "inspect", "subprocess", "threading",
}  # fmt: skip


class InOrOut:
    """As coverage's: of each file, why it is not measured."""

    def check_include_omit_etc(self, filename: str, frame: object) -> str | None:
        return "is installed" if "site-packages" in filename else None


@pytest.mark.unit
def test_coverage_measures_no_code_of_the_agent() -> None:
    guard._leave_out_of_coverage(SimpleNamespace(InOrOut=InOrOut))
    own = Path(guard.__file__).resolve()
    why = {name: InOrOut().check_include_omit_etc(name, None) for name in (str(own), "/a/b.py", "/site-packages/c.py")}
    assert why == {str(own): "is the agent's", "/a/b.py": None, "/site-packages/c.py": "is installed"}


@pytest.mark.unit
@pytest.mark.parametrize("make", dict.fromkeys(guard._LATE.values()), ids=lambda make: make.__name__)
def test_who_is_made_late_is_made_for_all_that_it_watches(
    make: Callable[[Any], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.agent.injected.hooks.replace", lambda *_: None)  # of this process's own loaders
    blank = dict.fromkeys(("sessions", "bytecode", "uncompiled"), "")
    config = Config(config_text({"tree": str(tmp_path), "report": str(tmp_path / "report"), **blank}))
    made = make(guard.Guard(config))
    assert made.after_import.keys() == {name for name, each in guard._LATE.items() if each is make}


@pytest.mark.process
def test_a_process_pays_for_little_that_the_guard_imports() -> None:
    code = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from orchestrator.agent.injected import guard
guard.stack_signal()
print(*sys.modules)
"""
    bare = subprocess.run([sys.executable, "-ISc", code], stdout=subprocess.PIPE, check=True, text=True)
    loaded = bare.stdout.split()
    assert "orchestrator.agent.injected.guard" in loaded and DEAR.isdisjoint(loaded)
