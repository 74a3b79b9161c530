"""What a stage does to the tree, the environment, the journal, and where its modules come from."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from orchestrator.shared import journal
from tests.support.agent_pod import Pod, Run, artifact, make_environment, pytest_stage, said, script, stage
from tests.support.stage_cases import TWO

FILES = {"test_it.py": TWO, "pkg/__init__.py": "", "pkg/core.py": "VALUE = 1\n", "run.sh!": "#!/bin/sh\necho ok\n"}
OLD_TIMES = """
import os
s = os.stat("pkg/core.py")
open("pkg/core.py", "w").write("VALUE = 2\\n")
os.utime("pkg/core.py", ns=(s.st_atime_ns, s.st_mtime_ns))
"""


def statuses(run: Run) -> list[str]:
    return [judgement.status for judgement in run.judge().values()]


def run_before_an_honest_one(pod: Pod, code: str) -> Run:
    return pod.run(FILES, said("first", script(code + "\nprint('done')")), pytest_stage("second", "test_it.py"))


@pytest.mark.parametrize(
    ("code", "named"),
    [
        ("open('pkg/core.py', 'a').write('#')", "pkg/core.py"),
        (OLD_TIMES, "pkg/core.py"),
        ("import os; os.remove('pkg/core.py')", "pkg/core.py"),
        ("import shutil; shutil.rmtree('pkg')", "pkg/__init__.py"),
        ("import os; os.chmod('run.sh', 0o644)", "run.sh"),
        ("import os; os.remove('pkg/core.py'); os.symlink('/dev/null', 'pkg/core.py')", "pkg/core.py"),
        ("open('.git/HEAD', 'w').write('0' * 40)", ".git/HEAD"),
    ],
    ids=["edit", "old times", "remove", "remove folder", "mode", "link", "head"],
)
def test_a_changed_tree_costs_its_own_stage_the_credit(pod: Pod, code: str, named: str) -> None:
    run = run_before_an_honest_one(pod, code)
    assert statuses(run) == ["invalid", "passed"]
    assert named in run.judge()["first"].reason


@pytest.mark.parametrize("name", ["conftest.py", "pkg/_C.so", ".hidden"])
def test_what_a_stage_leaves_is_gone_before_the_next_begins(pod: Pod, name: str) -> None:
    looks = f"import os\ndef test_a(): assert not os.path.exists({name!r})\n"
    first = said("first", script(f"open({name!r}, 'w').write('raise SystemExit'); print(1)"))
    run = pod.run({**FILES, "test_it.py": looks}, first, pytest_stage("second", "test_it.py"))
    assert statuses(run) == ["passed", "passed"]
    assert run.records["first"]["left"] == {"count": 1, "first": [name]}
    assert run.records["second"]["left"]["count"] == 0


def test_what_a_stage_builds_is_there_for_every_later_one(pod: Pod) -> None:
    """Also where one of them has spoiled it; what it does not declare is not."""
    code = "import os; os.makedirs('build/lib'); [open(f'build/{n}', 'w').write('1') for n in ('lib/a.so', 'log')]"
    build = said("build", script(code + "; print(1)"), builds=["build/**/*.so"])
    reads = "import os; print(open('build/lib/a.so').read(), os.listdir('build'))"
    spoils = said("spoils", script(reads + "; open('build/lib/a.so', 'w').write('2')"))
    run = pod.run(FILES, build, spoils, said("after", script(reads)))
    assert statuses(run) == ["passed"] * 3
    assert run.text("stages/spoils/stdout") == run.text("stages/after/stdout") == "1 ['lib']\n"
    assert run.records["build"]["built"]["first"] == ["build/lib/a.so"]
    assert run.records["build"]["left"]["first"] == ["build/log"]


def test_an_edit_that_is_reverted_costs_its_own_stage_the_credit(pod: Pod) -> None:
    code = "t = open('pkg/core.py').read(); open('pkg/core.py', 'w').write('x'); open('pkg/core.py', 'w').write(t)"
    run = run_before_an_honest_one(pod, code)
    assert statuses(run) == ["invalid", "passed"]
    assert "pkg/core.py" in run.judge()["first"].reason


def test_an_artifact_made_in_the_tree_may_stay_there_as_it_is(pod: Pod) -> None:
    expected = {"artifacts": [artifact("out.txt", from_="tree:out.txt")]}
    make = stage("make", script("open('out.txt', 'w').write('1')"), expect=expected)
    change = said("change", script("open('out.txt', 'w').write('2'); print(1)"))
    after = said("after", script("print(open('out.txt').read())"))
    run = pod.run(FILES, make, pytest_stage("use", "test_it.py"), change, after)
    assert statuses(run) == ["passed", "passed", "passed", "passed"]
    assert run.text("artifacts/out.txt") == "1" and run.text("stages/after/stdout") == "1\n"


def test_a_stage_that_writes_to_the_journal_is_found_out(pod: Pod) -> None:
    code = "import os; open(os.environ['NSA_POD_ARTIFACTS'] + '/../journal.jsonl', 'a').write('{}\\n'); print(1)"
    run = pod.launch({}, [said("s", script(code))])
    path = run.path / "journal.jsonl"
    while b"run_ended" not in path.read_bytes():
        time.sleep(0.02)
    ended = next(json.loads(line) for line in path.read_bytes().splitlines() if b'"stage_ended"' in line)
    assert (ended["status"], ended["journal_ok"]) == ("invalid", False)
    with pytest.raises(journal.ChainBroken, match="line"):
        journal.read(path.read_bytes())


def test_a_changed_environment_ends_all_credit(pod: Pod, tmp_path: Path) -> None:
    environment = make_environment(tmp_path / "own")
    honest = said("honest", ["python", "-c", "print(1)"])
    install = "import sys; (site,) = [p for p in sys.path if p.startswith(%r)]; open(site + '/torch.py', 'w'); print(1)"
    install %= environment["root"]
    after = said("after", ["python", "-c", "print(1)"])
    run = pod.run({}, honest, said("installs", script(install)), after, environment=environment)
    assert statuses(run) == ["passed", "invalid", "invalid"]
    again = pod.run({}, honest, environment=environment)
    assert again.only().status == "invalid", "changed since it was built and verified"


# Where modules come from -----------------------------------------------------------------------------------------

IMPORTS = "import nsa.core\ndef test_a(): assert nsa.core.VALUE\n"
OWN = {"nsa/__init__.py": "", "nsa/core.py": "VALUE = 'own'\n"}
NAMESPACE = {"nsa/core.py": "VALUE = 1\n"}
IN_SRC = {"src/nsa/__init__.py": "", "src/nsa/core.py": ""}


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A directory with another `nsa` package and a `triton` package."""
    for name in ("nsa", "triton"):
        (tmp_path / "elsewhere" / name).mkdir(parents=True)
        (tmp_path / "elsewhere" / name / "__init__.py").write_text("")
        (tmp_path / "elsewhere" / name / "core.py").write_text("VALUE = 'elsewhere'\n")
    return tmp_path / "elsewhere"


def judged_import(pod: Pod, stage: dict[str, Any], files: dict[str, str]) -> tuple[str, str]:
    judgement = pod.run({"t/test_it.py": IMPORTS, **files}, stage).only()
    return judgement.status, judgement.reason


def test_the_trees_own_module_wins_where_python_looks_there_first(pod: Pod, elsewhere: Path) -> None:
    own = pytest_stage("s", "t/test_it.py", env={"PYTHONPATH": str(elsewhere)})
    assert judged_import(pod, own, OWN) == ("passed", "")


@pytest.mark.parametrize("files", [OWN, NAMESPACE, IN_SRC], ids=["package", "namespace", "src"])
def test_a_module_of_that_name_from_elsewhere_is_named(pod: Pod, elsewhere: Path, files: dict[str, str]) -> None:
    other = pytest_stage("s", "t/test_it.py", env={"PYTHONPATH": str(elsewhere)}, start=["pytest"])
    status, reason = judged_import(pod, other, files)
    assert status == "invalid" and "nsa" in reason and str(elsewhere) in reason


def test_also_in_children_that_end_abruptly(pod: Pod, elsewhere: Path) -> None:
    child = [sys.executable, "-c", "import nsa, os; os._exit(0)"]
    lying = said("s", script(f"import subprocess; subprocess.run({child}, cwd='/'); print(1)"))
    lying["env"]["PYTHONPATH"] = str(elsewhere)
    status, reason = judged_import(pod, lying, OWN)
    assert status == "invalid" and "module nsa was imported from" in reason


def test_names_that_only_look_alike_are_no_alarm(pod: Pod, elsewhere: Path) -> None:
    imports = "import triton, types, json\ndef test_a(): pass\n"
    files = {"triton/kernels.py": "", "types.py": "", "json/data.txt": "", "t/test_it.py": imports}
    honest = pytest_stage("s", "t/test_it.py", env={"PYTHONPATH": str(elsewhere)}, start=["pytest"])
    honest["expect"]["outside"] = [str(elsewhere)]
    assert judged_import(pod, honest, files) == ("passed", "")


def test_a_displaced_sitecustomize_still_runs(pod: Pod, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import os\nos.environ['DISPLACED'] = 'yes'\n")
    shows = said("s", script("import os; print(os.environ['DISPLACED'])"), env={"PYTHONPATH": str(tmp_path)})
    shows["expect"]["outside"] = [str(tmp_path)]
    run = pod.run({}, shows)
    assert (run.only().status, run.text("stages/s/stdout")) == ("passed", "yes\n")


# Too much of everything ------------------------------------------------------------------------------------------


def test_a_sparse_file_of_terabytes_is_left_out(pod: Pod) -> None:
    code = "import os; a = os.environ['NSA_POD_ARTIFACTS']; open(a + '/big', 'wb').truncate(1 << 42); print(1)"
    run = pod.run({}, said("s", script(code)))
    (refused,) = run.records["s"]["refused"]
    assert refused["path"] == "artifacts/big" and "4398046511104 bytes: too much" in refused["reason"]
    assert statuses(run) == ["passed"]


def test_no_journal_line_is_longer_than_a_reader_takes(pod: Pod) -> None:
    """Names are what the stage chooses: long, and of letters that JSON writes in six."""
    code = """
import os
root = os.environ["NSA_POD_ARTIFACTS"]
folder = "/".join(["\\u00e9" * 120] * 10)
os.makedirs(f"{root}/{folder}", exist_ok=True)
for n in range(400):
    with open(f"{root}/{folder}/{n}", "a") as f:
        f.write("x")
print(1)
"""
    run = pod.run({}, said("first", script(code)), said("second", script(code)))
    assert max(map(len, (run.path / "journal.jsonl").read_bytes().splitlines())) < 2 << 20
    assert len([f for f in run.records["first"]["files"] if f["path"].startswith("artifacts/\u00e9")]) == 400
    assert statuses(run) == ["passed", "invalid"] and len(run.records["second"]["overwritten"]) == 100
