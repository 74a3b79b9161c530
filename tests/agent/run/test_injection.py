"""What the agent brings into a stage's Pythons is none of the stage's own code, for who looks for that."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.agent.host.interpreter import inspect
from orchestrator.agent.layout import Layout
from orchestrator.agent.run.injection import Injection
from orchestrator.verdict import execution

HYPOTHESIS_TRIES = """
import own
from hypothesis.internal.conjecture import providers

def test_of_its_own_code():
    found = providers._get_local_constants()
    assert [*found.integers, *found.strings] == [7654321]
"""


@pytest.mark.process
def test_hypothesis_tries_nothing_of_the_agents_code(tmp_path: Path) -> None:
    """It reads the numbers and words of all modules that are not installed, and tries them beside its own."""
    places = Layout(tmp_path / "runs" / "one")
    places.tree.mkdir(parents=True)
    (places.tree / "own.py").write_text("NUMBER = 7654321\n")
    (places.tree / "test_it.py").write_text(HYPOTHESIS_TRIES)
    places.stage("s").mkdir(parents=True)
    injection = Injection(places, inspect({"python": sys.executable, "kind": "system"}, ()))
    injection.renew()
    injection.tell("s", {"tree": str(places.tree)})
    session = [injection.venv.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"]
    ran = subprocess.run(session, cwd=places.tree, capture_output=True, text=True)
    assert "1 passed" in ran.stdout, ran.stdout + ran.stderr
    assert '"loaded"' in (places.stage("s") / execution.FILE).read_text()
