"""Planted lies through the real road, each beside an honest twin: never a wrong `passed`."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from tests.main.project import Project

HONEST_TEST = "def test_it():\n    assert 1 + 1 == 2\n"
PYTEST = "[python, -m, pytest, -q, tests/test_it.py]"


@dataclass(frozen=True)
class Case:
    """A repository's files and its one stage `s`; `status` is the one that is right."""

    name: str
    status: str
    reason: str = ""
    run: str = PYTEST
    expect: str = "{}"
    limits: str = "{wall: 60, silence: 20, grace: 1}"
    env: str = "{}"
    requires: str = "[]"
    test: str = HONEST_TEST
    files: dict[str, str] = field(default_factory=dict)

    def runbook(self) -> str:
        return (
            f"name: r\nrequires: {self.requires}\nenvironment: {{python: system}}\nstages:\n"
            f"  - name: s\n    run: {self.run}\n    expect: {self.expect}\n"
            f"    limits: {self.limits}\n    env: {self.env}\n"
        )


STDOUT = "{artifacts: [{path: out.txt, from: stdout}]}"
CSV = "{artifacts: [{path: out.csv, kind: csv, columns: [a], checks: [{finite: all}]}]}"
WRITE_CSV = "import os, pathlib\npathlib.Path(os.environ['NSA_POD_ARTIFACTS'], 'out.csv').write_text(%r)\n"
RUN_TOOL = "[python, tool.py]"
ROUTED = "def test_it(record_property):\n    record_property('route.selected', %r)\n"
TRITON = "{routes: {selected: triton}}"

CASES = [
    Case("honest tests", "passed"),
    Case("all skipped", "skipped", "no GPU",
         test="import pytest\n\n@pytest.mark.skip(reason='no GPU')\ndef test_it(): pass\n"),
    Case("a skip that is allowed", "passed", expect="{tests: {allow_skips: ['no GPU']}}",
         test=HONEST_TEST + "\nimport pytest\n@pytest.mark.skip(reason='no GPU')\ndef test_b(): pass\n"),
    Case("missing test file", "blocked", "tests/test_gone.py", run="[python, -m, pytest, tests/test_gone.py]"),
    Case("missing program", "blocked", "no-such-program", run="[no-such-program]", expect=STDOUT),
    Case("missing module", "blocked", "no_such_module", run="[python, -m, no_such_module]", expect=STDOUT),
    Case("nothing collected", "blocked", test="x = 1\n"),
    Case("exit 0, empty artifact", "invalid", "out.txt", run="[python, -c, pass]", expect=STDOUT),
    Case("honest stdout", "passed", run="[python, -c, 'print(1)']", expect=STDOUT),
    Case("header-only CSV", "invalid", "out.csv", run=RUN_TOOL, expect=CSV, files={"tool.py": WRITE_CSV % "a,b\n"}),
    Case("NaN in a CSV", "invalid", "out.csv", run=RUN_TOOL, expect=CSV, files={"tool.py": WRITE_CSV % "a,b\nnan,1\n"}),
    Case("honest CSV", "passed", run=RUN_TOOL, expect=CSV, files={"tool.py": WRITE_CSV % "a,b\n1,2\n"}),
    Case("hung", "stalled", run="[python, -c, 'import time; time.sleep(100)']", expect=STDOUT,
         limits="{wall: 60, silence: 1, grace: 1}"),
    Case("over its time", "timed_out", run="[python, -u, tool.py]",
         expect=STDOUT, limits="{wall: 1, silence: 20, grace: 1}",
         files={"tool.py": "import time\nwhile True:\n    print(1)\n    time.sleep(0.1)\n"}),
    Case("pytest.exit half-way", "invalid",
         test="import pytest\ndef test_a(): pass\ndef test_b(): pytest.exit('x', returncode=0)\ndef test_c(): pass\n"),
    Case("os._exit half-way", "invalid", test="import os\ndef test_a(): pass\ndef test_b(): os._exit(0)\n"),
    Case("XPASS", "skipped", "xpass",
         test=HONEST_TEST + "\nimport pytest\n@pytest.mark.xfail(reason='known')\ndef test_b(): pass\n"),
    Case("xfail", "skipped", "xfail",
         test=HONEST_TEST + "\nimport pytest\n@pytest.mark.xfail(reason='known')\ndef test_b(): assert 0\n"),
    Case("deselected", "skipped", "deselected", run="[python, -m, pytest, tests/test_it.py, -k, not other]",
         test=HONEST_TEST + "\ndef test_other(): pass\n"),
    Case("a failing test", "failed", test="def test_it(): assert 0\n"),
    Case("exit 0 after a failing test", "failed", run="[python, tool.py]",
         files={"tool.py": "import sys\nsys.exit(3)\n"}, expect=STDOUT),
    Case("killed by a signal", "crashed", "SIGSEGV", expect=STDOUT,
         run="[python, -c, 'import os; os.kill(os.getpid(), 11)']"),
    Case("no evidence asked", "invalid", "no evidence asked", run="[python, -c, 'print(1)']"),
    Case("artifact of an earlier run in the commit", "invalid", "out.txt", run="[python, -c, 'print(1)']",
         expect="{artifacts: [{path: out.txt, from: 'tree:out.txt'}]}", files={"out.txt": "old\n"}),
    Case("CUDA route, but interpreted, on a pod without a GPU", "blocked", "cuda", expect=TRITON, requires="[cuda]",
         test=ROUTED % "triton@cpu:interpreted", env="{TRITON_INTERPRET: '1'}"),
    Case("another route than the one asked", "invalid", "torch", expect=TRITON, test=ROUTED % "torch@cpu"),
    Case("the route asked", "passed", expect=TRITON, test=ROUTED % "triton@cpu:interpreted"),
    Case("a route that never ran", "invalid", "selected", expect=TRITON),
    Case("a module of the tree's name imported from elsewhere", "invalid", "thing", run="[python, sub/tool.py]",
         expect=STDOUT, env="{PYTHONPATH: ELSEWHERE}",
         files={"sub/tool.py": "import thing\nprint(thing.__file__)\n", "thing/__init__.py": ""}),
    Case("the tree's own module, with another of its name on PYTHONPATH", "passed", env="{PYTHONPATH: ELSEWHERE}",
         files={"thing/__init__.py": "OWN = 1\n"}, test="import thing\ndef test_it(): assert thing.OWN\n"),
    Case("a stage that edits the tree", "invalid", "tests/test_it.py",
         test="import pathlib\ndef test_it(): pathlib.Path(__file__).write_text('def test_it(): pass')\n"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_one_right_status(project: Project, case: Case) -> None:
    elsewhere = project.root.parent / "elsewhere"
    (elsewhere / "thing").mkdir(parents=True)
    (elsewhere / "thing" / "__init__.py").touch()
    runbook = case.runbook().replace("ELSEWHERE", str(elsewhere))
    project.commit({"runbooks/r.yaml": runbook, "tests/test_it.py": case.test, **case.files})
    outcome = project.validate("--runbook", "r")
    stage = outcome.stage("s")
    assert stage["status"] == case.status, (stage, outcome.stderr)
    assert case.reason in stage["reason"]
    assert outcome.json["verdict"] == _verdict(case.status)
    assert outcome.exit_code == {"passed": 0, "failed": 1, "incomplete": 3}[outcome.json["verdict"]]


def test_an_artifact_of_an_earlier_run_is_never_credited(project: Project) -> None:
    """The second commit's stage writes nothing: yesterday's file must not stand in for it."""
    case = Case("", "", run=RUN_TOOL, expect=CSV, files={"tool.py": WRITE_CSV % "a\n1\n"})
    project.commit({"runbooks/r.yaml": case.runbook(), **case.files})
    assert project.validate("--runbook", "r").exit_code == 0
    project.commit({"tool.py": "print('nothing written')\n"})
    outcome = project.validate("--runbook", "r")
    assert (outcome.exit_code, outcome.stage("s")["status"]) == (1, "invalid")


def _verdict(status: str) -> str:
    if status == "passed":
        return "passed"
    return "incomplete" if status in ("skipped", "blocked") else "failed"
