"""An environment that a stage has made itself: when its Pythons are led to the agent's modules."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.agent.injected.processes import environments
from orchestrator.agent.injected.stage import TEST_VARIABLE, Config

pytestmark = pytest.mark.unit
LED = {"PATH": "/bin", "PYTHONPATH": os.pathsep.join([environments.FOLDER, "src"])}


class Popen:
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.given = args, kwargs


@pytest.fixture
def popen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[Popen]:
    for inner in ("tree/v", "elsewhere/v"):
        (tmp_path / inner / "lib/python3.12/site-packages").mkdir(parents=True)
        (tmp_path / inner / "pyvenv.cfg").touch()
    (tmp_path / "tree/plain/lib/python3.12/site-packages").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "tree")
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.delenv(TEST_VARIABLE, raising=False)
    mine = type("Popen", (Popen,), {})
    made = environments.MadeEnvironments(Config(f"tree={tmp_path}/tree\nstart=import begins\n"))
    made.after_import["subprocess"](SimpleNamespace(Popen=mine))  # type: ignore[arg-type]
    return mine


def led(tmp_path: Path) -> list[str]:
    return [
        str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.pth") if path.read_text() == "import begins\n"
    ]


@pytest.mark.parametrize("program", ["v/bin/python", "{tmp}/tree/v/bin/pytest", b"v/bin/python"])
def test_where_nothing_else_leads_there(popen: Any, tmp_path: Path, program: Any) -> None:
    args = [program.format(tmp=tmp_path) if isinstance(program, str) else program, "-c", "pass"]
    assert popen(args, -1, env={"PATH": "/bin"}).given == ((args, -1), {"env": {"PATH": "/bin"}})
    assert led(tmp_path) == ["tree/v/lib/python3.12/site-packages/nsa_pod.pth"]


@pytest.mark.parametrize(
    ("program", "env"),
    [
        ("v/bin/python", LED),
        ("v/bin/python", None),
        ("plain/bin/python", {}),
        ("../elsewhere/v/bin/python", {}),
        ("", {}),
    ],
)
def test_where_it_is_led_already_or_is_no_such_environment(popen: Any, tmp_path: Path, program: str, env: Any) -> None:
    popen([program], env=env)
    popen([], env=env)
    assert led(tmp_path) == []


def test_what_a_test_starts_is_the_tests(popen: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TEST_VARIABLE, "test_a.py::test_a")
    popen(["v/bin/python"], env={})
    assert led(tmp_path) == []
