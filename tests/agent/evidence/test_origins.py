"""Where a stage's code came from: each way by which another one's may, and those that are honest."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.agent_pod import Pod, make_environment, said
from tests.support.files import write_files

WIDGET = {"widget/__init__.py": "VALUE = 'tree'\n"}
pytestmark = [pytest.mark.process, pytest.mark.slow]

OTHER_PYTHON = shutil.which("python3", path="/usr/bin:/bin") or ""
SHOWS = "import widget; print(widget.VALUE)"
TEST = "import widget\ndef test_a(): assert widget.VALUE\n"


@dataclass
class Case:
    """Lines of a shell on a tree of `files`; `there` are files outside of it, below the folder {there}."""

    name: str
    status: str
    reason: str
    lines: str
    files: Mapping[str, str]
    there: Mapping[str, str] = field(default_factory=dict)
    outside: Sequence[str] = ()


HAS_WIDGET = {"widget/__init__.py": "VALUE = 'other'\n"}
HAS_HELPER = {"helper.py": "VALUE = 1\n"}
HAS_TEST = {"test_there.py": "def test_a(): pass\n"}
AT = "cd /; PYTHONPATH={there} "
TESTED = {**WIDGET, "test_it.py": TEST}
OLD = {"old.log": "===== 5 passed in 0.00s =====\n"}
DELETES = f"{SHOWS}; import colorsys, sys; del sys.modules['widget']"
INSERTS = f"import sys; sys.path.insert(0, '{{there}}'); {SHOWS}"
EXTENSION = {"setup.py": "setup(ext_modules=[Extension('library', ['x.c'])])"}
NAMESAKE = {"library/notes.txt": "x", "library/kernel.py": ""}
OWN_CUSTOM = {"sitecustomize.py": "OWN = 1\n"}

CASES = [
    Case("from_the_tree", "passed", "", f'python -c "{SHOWS}"', WIDGET),
    Case("inserted", "invalid", "module widget was", f'cd /; python -c "{INSERTS}"', {"lib/widget.py": ""}, HAS_WIDGET),
    Case("forgotten", "invalid", "module widget was", f'{AT} python -c "{DELETES}"', WIDGET, HAS_WIDGET),
    Case("at_once", "invalid", "module widget was",
         f'{AT} python -c "{SHOWS}; import os; os._exit(0)"', WIDGET, HAS_WIDGET),
    Case("helper", "invalid", "helper came from .*helper.py", AT + 'python -c "import helper"', WIDGET, HAS_HELPER),
    Case("helper_allowed", "passed", "", AT + 'python -c "import helper"', WIDGET, HAS_HELPER, ["{there}"]),
    Case("program", "invalid", "__main__ came from", "python {there}/helper.py", WIDGET, HAS_HELPER),
    Case("built", "passed", "", f'cp -r widget $TMPDIR; cd /; PYTHONPATH=$TMPDIR python -c "{SHOWS}"', WIDGET),
    Case("tests", "invalid", "collected from .*test_there.py",
         "python -m pytest -q {there}/test_there.py", WIDGET, HAS_TEST),
    Case("tests_allowed", "passed", "",
         "python -m pytest -q {there}/test_there.py", WIDGET, HAS_TEST, ["{there}/*.py"]),
    Case("tests_copied", "passed", "",
         "cp test_it.py $TMPDIR; PYTHONPATH=. python -m pytest -q $TMPDIR/test_it.py", TESTED),
    Case("tests_made_up", "invalid", "collected from",
         "echo 'def test_a(): pass' > $TMPDIR/test_x.py; python -m pytest -q $TMPDIR", WIDGET),
    Case("pyargs", "invalid", "collected from", "python -m pytest -q --pyargs library.test_library", WIDGET),
    Case("other_python", "invalid", "not the environment's Python, imported .*tool.py",
         "{other} tool.py", {"tool.py": ""}),
    Case("other_shebang", "invalid", "not the environment's Python",
         "cp tool $TMPDIR; "
         "chmod +x $TMPDIR/tool; PYTHONPATH=.:$PYTHONPATH $TMPDIR/tool",
         {**WIDGET, "tool": "#!{other}\nimport widget\n"}),
    Case("other_python_aside", "passed", "", "{other} -c 'print(1)'", WIDGET),
    Case("own_venv", "passed", "",
         f'python -m venv --without-pip $TMPDIR/v; $TMPDIR/v/bin/python -c "{SHOWS}"', WIDGET),
    Case("escaped", "invalid", "out of the agent's sight: it printed '1 passed in",
         "env -i PYTHONPATH=. {pytest} -m pytest -q test_it.py", TESTED),
    Case("old_log", "passed", "", "cat old.log; python -m pytest -q test_it.py", {**TESTED, **OLD}),
    Case("only_an_old_log", "passed", "", "cat old.log", OLD),
    Case("namesake", "passed", "", "python -c 'import library'", NAMESAKE),
    Case("kept_in_lib", "invalid", "module library was", "python -c 'import library'", {"lib/library/__init__.py": ""}),
    Case("stale_extension", "invalid", "module library was", "python -c 'import library'", EXTENSION),
    Case("own_sitecustomize", "passed", "",
         "PYTHONPATH=$PYTHONPATH:. python -c 'import sitecustomize; assert sitecustomize.OWN'", OWN_CUSTOM),
]  # fmt: skip


@pytest.fixture(scope="module")
def pod(tmp_path_factory: pytest.TempPathFactory, agent: Path) -> Pod:
    """A pod whose own Python has an installed `library`."""
    folder = tmp_path_factory.mktemp("origins")
    environment = make_environment(folder / "env")
    (site,) = (folder / "env").glob("lib/python*/site-packages")
    (site / "library").mkdir()
    (site / "library" / "__init__.py").write_text("")
    (site / "library" / "test_library.py").write_text("def test_a(): pass\n")
    return Pod(folder / "pod", agent, {**environment, "kind": "system"})


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_where_code_came_from(pod: Pod, tmp_path: Path, case: Case) -> None:
    def filled(text: str) -> str:
        return (
            text.replace("{there}", str(tmp_path / "there"))
            .replace("{other}", OTHER_PYTHON)
            .replace("{pytest}", sys.executable)
        )

    write_files(tmp_path / "there", case.there)
    made = said(case.name, ["bash", "-euc", filled(case.lines) + "\necho done"])
    made["expect"]["outside"] = [filled(pattern) for pattern in case.outside]
    judgement = pod.run({path: filled(text) for path, text in case.files.items()}, made).only()
    assert (judgement.status, bool(judgement.reason)) == (case.status, case.status != "passed"), judgement.reason
    assert re.search(case.reason, judgement.reason), judgement.reason
