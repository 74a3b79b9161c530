"""What the agent brings into a stage's Pythons is none of the stage's own code, for who looks for that."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.agent.env.interpreter import inspect
from orchestrator.agent.layout import Layout
from orchestrator.agent.run.bytecode import Bytecode
from orchestrator.agent.run.injection import Injection
from orchestrator.verdict import execution
from tests.support.agent_pod import Pod, pytest_stage

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
    interpreter = inspect({"python": sys.executable, "kind": "system"}, ())
    injection = Injection(places, interpreter, Bytecode(interpreter, places))
    injection.renew()
    injection.tell("s", {"tree": str(places.tree)})
    session = [injection.venv.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"]
    ran = subprocess.run(session, cwd=places.tree, capture_output=True, text=True)
    assert "1 passed" in ran.stdout, ran.stdout + ran.stderr
    assert '"loaded"' in (places.stage("s") / execution.FILE).read_text()


FORGES = """
import ast, os
import pytest
from nsa_pod_injected import guard

def test_keeps_other_code_for_a_file(request):
    path, marking = os.path.abspath("test_false.py"), guard.installed().checks.marking
    with open(path, "rb") as f:
        source = f.read()

    def forged():
        text = "def test_it():\\n    assert len(path) == 4\\npath = 'true'\\n"
        module = ast.parse(text)
        marking.mark(module, text.encode(), path)
        return compile(module, path, "exec")

    way = pytest.__version__, str(request.config.getini("enable_assertion_pass_hook"))
    assert marking._once(path, source, way, forged) is not None
"""


@pytest.mark.process
def test_no_stage_takes_the_marks_that_another_one_has_left(pod: Pod) -> None:
    files = {"test_forges.py": FORGES, "test_false.py": "def test_it():\n    assert len('false') == 4\n"}
    judged = pod.run(files, *(pytest_stage(name, f"test_{name}.py") for name in ("forges", "false"))).judge()
    assert {name: each.status for name, each in judged.items()} == {"forges": "passed", "false": "failed"}
