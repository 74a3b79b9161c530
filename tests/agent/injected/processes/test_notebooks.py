"""Cells that raise and commands that fail are told; not what a test runs, nor a code that a cell has asked for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.agent.injected.processes.notebooks import Notebooks
from orchestrator.agent.injected.stage import TEST_VARIABLE, Notes

pytestmark = pytest.mark.unit


class Shell:
    """As IPython's: `register` is that of its events."""

    def __init__(self) -> None:
        self.user_ns: dict[str, Any] = {"In": [""]}
        self.callbacks: dict[str, Callable[[Any], None]] = {}
        self.events = SimpleNamespace(register=self.callbacks.__setitem__)
        self.init_events()

    def init_events(self) -> None:
        self.callbacks.clear()

    def run(self, cell: str, error: BaseException | None = None, code: int | None = None) -> None:
        self.user_ns["In"].append(cell)
        if code is not None:
            self.user_ns["_exit_code"] = code
        info = SimpleNamespace(raw_cell=cell)
        self.callbacks["post_run_cell"](SimpleNamespace(info=info, error_in_exec=error, error_before_exec=None))


@pytest.fixture
def told(tmp_path: Path) -> Callable[[], list[tuple[str, int]]]:
    def read() -> list[tuple[str, int]]:
        notes = map(json.loads, (tmp_path / "notes").read_text().splitlines())
        return [(note["child"], note["code"]) for note in notes if "child" in note]

    return read


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.delenv(TEST_VARIABLE, raising=False)

    class Own(Shell):
        pass

    module: Any = SimpleNamespace(InteractiveShell=Own)
    Notebooks(Notes(str(tmp_path / "notes"))).after_import["IPython.core.interactiveshell"](module)
    return Own()


def test_that_cells_ran_is_told_once(shell: Shell, tmp_path: Path) -> None:
    shell.run("x = 1")
    shell.run("x = 2")
    assert (tmp_path / "notes").read_text().count('"cells"') == 1


def test_a_cell_that_raises(shell: Shell, told: Callable[[], object]) -> None:
    shell.run("x = 1")
    shell.run("assert x == 2", AssertionError())
    shell.run("while True: pass", KeyboardInterrupt())
    assert told() == [("cell of a notebook (AssertionError)", 1)]


def test_a_command_that_fails(shell: Shell, told: Callable[[], object]) -> None:
    shell.run("!python fine.py", code=0)
    shell.run("%cd x\n!python a.py\n!python b.py", code=3)
    shell.run("x = 2")
    assert told() == [("python b.py", 3)]


def test_a_code_that_is_asked_for(shell: Shell, told: Callable[[], object]) -> None:
    shell.run("!python a.py\nassert _exit_code == 3", code=3)
    assert told() == []


def test_what_a_test_runs_is_its_affair(
    shell: Shell, told: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TEST_VARIABLE, "test_a")
    shell.run("assert 0", AssertionError())
    assert told() == []


@pytest.mark.parametrize(("name", "cells", "doubts"), [
    ("ZMQInteractiveShell", 0, 1), ("ZMQInteractiveShell", 1, 0), ("TerminalInteractiveShell", 0, 0),
])  # fmt: skip
def test_a_kernel_that_ran_no_cell_is_a_doubt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, cells: int, doubts: int
) -> None:
    monkeypatch.delenv(TEST_VARIABLE, raising=False)
    at_exit: list[Callable[[], None]] = []
    monkeypatch.setattr("atexit.register", at_exit.append)
    kind: Any = type(name, (Shell,), {})
    notes = Notes(str(tmp_path / "notes"))
    Notebooks(notes).after_import["IPython.core.interactiveshell"](SimpleNamespace(InteractiveShell=kind))
    shell = kind()
    for _ in range(cells):
        shell.run("x = 1")
    for leave in at_exit:
        leave()
    assert notes.since(0).count(b"had run no cell") == doubts
