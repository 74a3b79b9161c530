"""Real Pythons that end in every way: each tells of its own exit code, and none ends otherwise than without that."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent.injected.stage import TEST_VARIABLE
from tests.support import ROOT

pytestmark = pytest.mark.process

_TELLS_OF_ATEXIT = pytest.mark.skipif(sys.version_info < (3, 10), reason="Python only prints it")
START = """
import sys
from orchestrator.agent.injected.processes.ends import End
from orchestrator.agent.injected.stage import Config, Notes
end = End(Config("tree={tree}\\nname=ours\\n"), Notes({notes!r}))
end.start()
def leaves(code):
    end.leaves_by(code)
    import os
    os._exit(code)
"""
ENDS = [
    ("pass", 0),
    ("sys.exit()", 0),
    ("sys.exit(0)", 0),
    ("sys.exit(3)", 3),
    ("sys.exit(259)", 3),
    ("sys.exit('no')", 1),
    ("sys.exit((1, 2))", 1),
    ("raise SystemExit", 0),
    ("raise SystemExit(4)", 4),
    ("exit(5)", 5),
    ("1 / 0", 1),
    ("class E(SystemExit): pass\nraise E(6)", 6),
    ("def f():\n    try: sys.exit(7)\n    finally: print(1)\nf()", 7),
    ("try: sys.exit(8)\nexcept SystemExit as e: assert (e.code, e.args) == (8, (8,))", 0),
    ("try: sys.exit()\nexcept SystemExit as e: assert (e.code, e.args) == (None, ())", 0),
    ("e = SystemExit(1)\ne.code = 9\nraise e", 9),
    ("sys.excepthook = lambda *a: print('own')\n1 / 0", 1),
    ("try: 1 / 0\nexcept ZeroDivisionError: sys.exit(0)", 0),
    ("try: print(1)\nfinally: sys.exit(0)", 0),
    ("import atexit\natexit.register(lambda: 1 / 0)", 0),
    ("leaves(11)", 11),
    ("leaves(0)", 0),
    ("import threading\nthreading.Thread(target=sys.exit, args=(3,)).start()", 0),
    ("import os\nif not os.fork(): sys.exit(12)\nos.wait()", 12),
]


def told(tmp_path: Path, source: str) -> tuple[int, list[dict[str, Any]]]:
    """The exit code of the program `source`, and what its processes told of their ends."""
    notes = tmp_path / "notes"
    program = tmp_path / "program.py"
    program.write_text(START.format(tree=tmp_path, notes=str(notes)) + source)
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    env.pop(TEST_VARIABLE, None)
    done = subprocess.run([sys.executable, str(program)], env=env, capture_output=True, timeout=30)
    lines = notes.read_text().splitlines() if notes.exists() else []
    return done.returncode, [line for line in map(json.loads, lines) if "ended" in line]


@pytest.mark.parametrize(("source", "code"), ENDS)
def test_a_python_tells_how_it_ends(tmp_path: Path, source: str, code: int) -> None:
    returned, ends = told(tmp_path, source)
    assert [end["code"] for end in ends] == ([code] if code else [])
    assert returned == (0 if "fork" in source else code)
    assert not any(end["hidden"] for end in ends)


@pytest.mark.parametrize(
    "source",
    [
        "import atexit\natexit.register(leaves, 0)\nsys.exit(3)",
        "sys.excepthook = lambda *a: leaves(0)\n1 / 0",
        "end.ended_inside(3)",
        "sys.exit(256)",
        "leaves(512)",
        "try:\n    1 / 0\nfinally:\n    sys.exit(0)",
        pytest.param("import atexit\n@atexit.register\ndef check(): assert 1 == 2", marks=_TELLS_OF_ATEXIT),
    ],
)
def test_a_code_that_is_hidden_in_the_end(tmp_path: Path, source: str) -> None:
    returned, ends = told(tmp_path, source)
    assert (returned, [end["hidden"] for end in ends]) == (0, [True])


@pytest.mark.parametrize("leaves", ["leaves(0)", "sys.exit(0)"])
@pytest.mark.parametrize(("signal", "doubts"), [("SIGALRM", 1), ("SIGTERM", 0)])
def test_who_ends_with_0_in_the_handler_of_its_own_alarm_is_doubted(
    tmp_path: Path, signal: str, doubts: int, leaves: str
) -> None:
    """A server that somebody ends is none."""
    handles = f"import os, signal\nsignal.signal(signal.{signal}, lambda *_: {leaves})\n"
    returned, _ = told(tmp_path, f"{handles}os.kill(os.getpid(), signal.{signal})")
    notes = map(json.loads, (tmp_path / "notes").read_text().splitlines() if doubts else [])
    assert (returned, [note["doubt"] for note in notes if "doubt" in note]) == (
        0,
        ["it ended with 0 in its handler of SIGALRM (program.py line 12)"] * doubts,
    )


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_the_processes_above_are_named(tmp_path: Path) -> None:
    _, (end,) = told(tmp_path, "sys.exit(3)")
    assert end["above"][0][0] == os.getpid()
    assert end["above"][0][1]
    assert end["command"].endswith("program.py")


def test_who_asks_for_a_package_is_told_from_who_fails(tmp_path: Path) -> None:
    _, (end,) = told(tmp_path, "sys.argv = ['-c']\nimport none_such.inner")
    assert end["asks"]
    for source in ("import none_such", "sys.argv = ['-c']\nimport ours.none_such", "sys.argv = ['-c']\n1 / 0"):
        (tmp_path / "notes").unlink()
        assert not told(tmp_path, source)[1][0]["asks"]


@pytest.mark.parametrize(("target", "codes"), [("print", []), ("fails", [1]), ("leaves_by_exit", [3])])
def test_a_process_that_was_forked_in_a_pool_of_threads_ends_as_its_target(
    tmp_path: Path, target: str, codes: list[int]
) -> None:
    """Python itself fails to end the threads there, whatever the target did."""
    _, ends = told(
        tmp_path,
        f"""
import multiprocessing, os
from concurrent.futures import ThreadPoolExecutor
def fails(): raise ValueError
def leaves_by_exit(): sys.exit(3)
def ends(code, leave=os._exit):
    end.leaves_by(code)
    leave(code)
os._exit = ends
def run():
    child = multiprocessing.get_context("fork").Process(target={target})
    child.start()
    child.join()
with ThreadPoolExecutor() as pool:
    pool.submit(run).result()
""",
    )
    assert [end["code"] for end in ends] == codes
