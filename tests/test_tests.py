"""The tests' own house: where they stand, what they import, and that a unit test is one."""

from __future__ import annotations

import ast
import multiprocessing
import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import orchestrator
from tests.support import ROOT, kinds

SUITES = {"main", "honesty", "faults", "fuzz", "volume"}  # they cross rooms
OTHERS = {"support", "bench", "data"}
MODULES = sorted(path.relative_to(ROOT) for path in (ROOT / "tests").rglob("*.py"))


def test_each_folder_is_a_room_or_a_suite() -> None:
    house = Path(orchestrator.__file__).parent
    rooms = {path.parent.relative_to(house) for path in house.rglob("*.py")}
    folders = {module.parent.relative_to("tests") for module in MODULES}
    assert {folder for folder in folders if folder.parts[:1] not in [(name,) for name in SUITES | OTHERS]} <= rooms


def test_helpers_come_from_no_test_module() -> None:
    taken = {
        f"{module}: {node.module}"
        for module in MODULES
        for node in ast.walk(ast.parse((ROOT / module).read_text()))
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "tests"
        for part in (*str(node.module).split("."), *(alias.name for alias in node.names))
        if part.startswith("test_") or part == "conftest"
    }
    assert not taken, "what tests share stands in tests/support"


@pytest.mark.parametrize(
    "start",
    [
        lambda: subprocess.Popen(["true"]),
        lambda: os.system("true"),
        os.fork,
        lambda: os.posix_spawnp("true", ["true"], {}),
        lambda: multiprocessing.get_context("spawn").Process(target=print).start(),
        socket.socket,
        lambda: socket.getaddrinfo("localhost", 22),
    ],
    ids=["Popen", "system", "fork", "posix_spawn", "spawn", "socket", "getaddrinfo"],
)
def test_a_unit_test_starts_no_process_and_opens_no_socket(start: Callable[[], object]) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"^a unit test (starts a process|opens a socket|asks the network)"):
        start()
    assert len(kinds.GUARD.seen) == 1, "it fails the test, also where the exception is swallowed"
    kinds.GUARD.seen.clear()
