"""What a stage may do to look green, and the honest stage beside it: the real agent, the one right status."""

from __future__ import annotations

import json
import re
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.agent.pod import SYSTEM, Pod, Run, artifact, make_environment, pytest_stage, script, stage

ROUTE = "def test_a(record_property):\n    record_property('route.selected', {!r})\n"
ONE_SKIPPED = """
    import pytest
    def test_a(): pass
    @pytest.mark.skip(reason="needs NSA_TEST_TRITON_SEL=1")
    def test_b(): pass
"""
TWO = "def test_a(): pass\ndef test_b(): pass\n"


@dataclass
class Case:
    """A stage called `name`, whose files lie in a directory of that name; `status` is the right one."""

    name: str
    status: str
    reason: str
    test: str = ""
    conftest: str = ""
    id: str = ""
    arguments: tuple[str, ...] = ()
    tests: dict[str, Any] = field(default_factory=dict)
    over: dict[str, Any] = field(default_factory=dict)

    def files(self) -> dict[str, str]:
        found = {f"{self.name}/test_it.py": self.test, f"{self.name}/conftest.py": self.conftest}
        return {path: textwrap.dedent(text) for path, text in found.items() if text}

    def stage(self) -> dict[str, Any]:
        if "argv" in self.over:
            return stage(self.name, **self.over)
        return pytest_stage(
            self.name, *self.arguments, f"{self.name}/test_it.py{self.id}", tests=self.tests, **self.over
        )


def writes(path: str, content: str) -> list[str]:
    return script(f"import os; open(os.environ['NSA_POD_ARTIFACTS'] + '/{path}', 'w').write({content!r})")


def owes(*artifacts: dict[str, Any]) -> dict[str, Any]:
    return {"artifacts": list(artifacts)}


CASES = [
    # tests that did not run, or not all
    Case("honest", "passed", "", TWO, tests={"min_passed": 2, "must_pass": ["test_a", "::test_b$"]}),
    Case("all_skip", "skipped", "1 test skipped: no GPU", "import pytest\n@pytest.mark.skip(reason='no GPU')\ndef test_a(): pass"),
    Case("one_skips", "skipped", "needs NSA_TEST", ONE_SKIPPED),
    Case("allowed_skip", "passed", "", ONE_SKIPPED, tests={"allow_skips": ["NSA_TEST_TRITON_SEL"]}),
    Case("only_allowed_skips", "skipped", "0 tests passed, expected at least 1",
         "import pytest\n@pytest.mark.skip(reason='no GPU')\ndef test_a(): pass", tests={"allow_skips": ["no GPU"]}),
    Case("fixture_skips", "skipped", "1 test skipped: no FA-2", """
        import pytest
        @pytest.fixture
        def fa2(): pytest.skip("no FA-2")
        def test_a(): pass
        def test_b(fa2): pass
    """),
    Case("module_skips", "blocked", "collected nothing.*no triton here",
         "import pytest\npytest.skip('no triton here', allow_module_level=True)\ndef test_a(): pass"),
    Case("subtest_skips", "skipped", "half of it",
         "import pytest\ndef test_a(subtests):\n    with subtests.test('x'):\n        pytest.skip('half of it')"),
    Case("missing_file", "blocked", "missing_file/test_it.py is not in the commit"),
    Case("no_tests", "blocked", "pytest collected nothing", "def helper(): pass"),
    Case("wrong_id", "blocked", "pytest collected nothing", TWO, id="::test_z"),
    Case("all_deselected", "blocked", "2 tests deselected", TWO, arguments=("-k", "nothing")),
    Case("deselected", "skipped", "1 test deselected.*test_b", TWO, arguments=("-k", "test_a")),
    Case("allowed_deselection", "passed", "", TWO, arguments=("-k", "test_a"), tests={"allow_skips": ["^deselected:.*test_b"]}),
    Case("dropped_in_silence", "invalid", "2 tests collected, but 1 selected and 0 deselected", TWO,
         "def pytest_collection_modifyitems(items):\n    del items[1:]"),
    Case("collect_only", "invalid", "2 tests selected, but 0 run to the end", TWO, arguments=("--collect-only",)),
    Case("setup_only", "invalid", "2 tests selected, but 0 run to the end", TWO, arguments=("--setup-only",)),
    Case("too_few", "skipped", "2 tests passed, expected at least 3", TWO, tests={"min_passed": 3}),
    Case("wrong_one_passed", "skipped", "no test that matches 'test_z' passed", TWO, tests={"must_pass": ["test_z"]}),
    # expected failures
    Case("xfail", "skipped", "1 test xfailed.*known", "import pytest\n@pytest.mark.xfail(reason='known')\ndef test_a(): assert 0\ndef test_b(): pass"),
    Case("allowed_xfail", "passed", "", "import pytest\n@pytest.mark.xfail(reason='known')\ndef test_a(): assert 0\ndef test_b(): pass",
         tests={"allow_skips": ["^xfail: known$"]}),
    Case("xpass", "skipped", "1 test xpassed", "import pytest\n@pytest.mark.xfail(reason='known')\ndef test_a(): pass\ndef test_b(): pass"),
    Case("strict_xpass", "failed", "test_a failed.*XPASS", "import pytest\n@pytest.mark.xfail(reason='known', strict=True)\ndef test_a(): pass"),
    # failures, and hiding them
    Case("fails", "failed", "test_a failed: assert 1 == 2", "def test_a(): assert 1 == 2"),
    Case("fixture_fails", "failed", "test_a had an error: RuntimeError: down",
         "import pytest\n@pytest.fixture\ndef f(): raise RuntimeError('down')\ndef test_a(f): pass"),
    Case("teardown_fails", "failed", "test_a had an error",
         "import pytest\n@pytest.fixture\ndef f():\n    yield\n    raise RuntimeError('down')\ndef test_a(f): pass"),
    Case("subtest_fails", "failed", "test_a failed", "def test_a(subtests):\n    with subtests.test('x'):\n        assert 0"),
    Case("syntax_error", "failed", "could not be collected", "def test_a(:"),
    Case("conftest_raises", "failed", "exit code 4", TWO, "raise ImportError('gone')"),
    Case("unknown_option", "failed", "exit code 4", TWO, arguments=("--no-such-option",)),
    Case("fails_but_exits_0", "failed", "test_a failed", "def test_a(): assert 0",
         "import os\ndef pytest_unconfigure(): os._exit(0)"),
    Case("status_set_to_0", "failed", "test_a failed", "def test_a(): assert 0",
         "import pytest\n@pytest.hookimpl(trylast=True)\ndef pytest_sessionfinish(session): session.exitstatus = 0"),
    Case("pytest_exit", "invalid", "stopped half-way.*enough",
         "import pytest\ndef test_a(): pass\ndef test_b(): pytest.exit('enough', returncode=0)\ndef test_c(): assert 0"),
    Case("os_exit", "invalid", "did not finish its session", "import os\ndef test_a(): pass\ndef test_b(): os._exit(0)"),
    Case("interrupt", "failed", "exit code 2", "def test_a(): pass\ndef test_b(): raise KeyboardInterrupt"),
    Case("closes_the_pipe", "failed", "", "import os\ndef test_a(): os.closerange(3, 50)"),
    # the JUnit file
    Case("junit_removed", "invalid", "junit.xml is missing", TWO,
         "import os\ndef pytest_unconfigure(config): os.remove(config.option.xmlpath)"),
    Case("junit_forged", "invalid", "junit.xml", "def test_a(): pass", """
        def pytest_unconfigure(config):
            with open(config.option.xmlpath, "w") as f:
                f.write('<testsuites><testsuite><testcase classname="x" name="test_a"/></testsuite></testsuites>')
    """),
    Case("junit_hides_a_skip", "invalid", "junit.xml does not say so", ONE_SKIPPED, """
        import re
        def pytest_unconfigure(config):
            text = open(config.option.xmlpath).read()
            open(config.option.xmlpath, "w").write(re.sub("<skipped.*?</skipped>", "", text))
    """, tests={"allow_skips": ["NSA"]}),
    Case("junit_empty", "invalid", "junit.xml", TWO,
         "def pytest_unconfigure(config): open(config.option.xmlpath, 'w').write('<testsuites/>')"),
    Case("junit_with_entities", "invalid", "document type", TWO,
         "def pytest_unconfigure(config): open(config.option.xmlpath, 'w').write('<!DOCTYPE t [<!ENTITY a \"b\">]><testsuites/>')"),
    Case("junit_elsewhere", "passed", "", TWO, arguments=("--junitxml", "elsewhere.xml")),
    Case("no_junit", "failed", "exit code 4", TWO, arguments=("-p", "no:junitxml")),
    Case("no_plugin", "invalid", "plugin was never started", TWO, arguments=("-p", "no:nsa_pod_pytest_plugin")),
    # routes
    Case("route", "passed", "", ROUTE.format("triton@cpu:interpreted"), over={"expect": {"routes": {"selected": "triton"}}}),
    Case("route_not_taken", "invalid", "no passed test recorded route.selected", TWO, over={"expect": {"routes": {"selected": "triton"}}}),
    Case("fell_back", "invalid", "route.selected was torch@cpu, expected triton", ROUTE.format("torch@cpu"),
         over={"expect": {"routes": {"selected": "triton"}}}),
    Case("one_fell_back", "invalid", "route.selected was sdpa@cuda:sm_90", ROUTE.format("triton@cuda:sm_90")
         + ROUTE.format("sdpa@cuda:sm_90").replace("test_a", "test_b"), over={"expect": {"routes": {"selected": "triton"}}}),
    Case("interpreted", "invalid", "was triton@cpu:interpreted, expected CUDA", ROUTE.format("triton@cpu:interpreted"),
         over={"expect": {"routes": {"selected": "triton"}}, "cuda": True}),
    Case("on_the_cpu", "invalid", "was torch@cpu, expected CUDA", ROUTE.format("torch@cpu"), over={"cuda": True}),
    Case("on_the_gpu", "passed", "", ROUTE.format("triton@cuda:sm_90"), over={"expect": {"routes": {"selected": "triton"}}, "cuda": True}),
    Case("nonsense_route", "invalid", "expected backend@device", ROUTE.format("triton"), over={"expect": {"routes": {"selected": "triton"}}}),
    # commands that are not pytest
    Case("no_evidence", "invalid", "no evidence asked", over={"argv": ["true"]}),
    Case("artifact", "passed", "", over={"argv": writes("artifact.txt", "1 of 1\n"), "expect": owes(artifact("artifact.txt"))}),
    Case("empty_artifact", "invalid", "empty.txt is empty", over={"argv": writes("empty.txt", ""), "expect": owes(artifact("empty.txt"))}),
    Case("blank_artifact", "invalid", "blank.txt is blank", over={"argv": writes("blank.txt", " \n\t"), "expect": owes(artifact("blank.txt"))}),
    Case("header_only", "invalid", "h.csv has only a header", over={"argv": writes("h.csv", "S,ms\n"), "expect": owes(artifact("h.csv", kind="csv"))}),
    Case("nan", "invalid", "n.csv holds nan in row 1, column ms", over={
        "argv": writes("n.csv", "S,ms\n1,nan\n"), "expect": owes(artifact("n.csv", kind="csv", columns=["ms"]))}),
    Case("above_the_roofline", "invalid", "fails in row 2: roofline_frac is 8.3, expected at most 1", over={
        "argv": writes("r.csv", "roofline_frac\n0.9\n8.3\n"),
        "expect": owes(artifact("r.csv", kind="csv", checks=[{"column": "roofline_frac", "max": 1}]))}),
    Case("traceback_exit_0", "invalid", "t.txt is missing", over={
        "argv": script("import traceback, os\ntry: 1/0\nexcept Exception: traceback.print_exc()"), "expect": owes(artifact("t.txt"))}),
    Case("stdout", "passed", "", over={"argv": ["echo", "said"], "expect": owes(artifact("said.txt", from_="stdout"))}),
    Case("silent_stdout", "invalid", "silent.txt is empty", over={"argv": ["true"], "expect": owes(artifact("silent.txt", from_="stdout"))}),
    Case("cut_stdout", "invalid", "not whole: 9[0-9]+ bytes of stdout were cut", over={
        "argv": script("print('x' * 99999)"), "limits": {"log_bytes": 1000}, "expect": owes(artifact("cut.txt", from_="stdout"))}),
    Case("link_out", "invalid", "link.txt is a symbolic link", over={
        "argv": script("import os; os.symlink('/etc/passwd', os.environ['NSA_POD_ARTIFACTS'] + '/link.txt')"),
        "expect": owes(artifact("link.txt"))}),
    Case("linked_folder", "invalid", "is a symbolic link or below one", over={
        "argv": script("import os; os.symlink('/etc', os.environ['NSA_POD_ARTIFACTS'] + '/etc')"),
        "expect": owes(artifact("etc/passwd"))}),
    Case("pipe", "invalid", "pipe is not a regular file", over={
        "argv": script("import os; os.mkfifo(os.environ['NSA_POD_ARTIFACTS'] + '/pipe')"), "expect": owes(artifact("pipe"))}),
    Case("tracked", "invalid", "tracked.txt was there before", over={
        "argv": ["true"], "expect": owes(artifact("tracked.txt", from_="tree:README.md"))}),
    Case("leaves_for_later", "passed", "", over={
        "argv": script("import os\nfor n in 'ab': open(os.environ['NSA_POD_ARTIFACTS'] + f'/{n}.txt', 'w').write('1')"),
        "expect": owes(artifact("a.txt"))}),
    Case("found_it_there", "invalid", "b.txt was there before the stage", over={"argv": ["true"], "expect": owes(artifact("b.txt"))}),
    Case("overwrites", "invalid", "earlier stages had delivered: a.txt", over={
        "argv": script("import os\nfor n in 'ac': open(os.environ['NSA_POD_ARTIFACTS'] + f'/{n}.txt', 'w').write('2')"),
        "expect": owes(artifact("c.txt"))}),
    Case("exit_code", "failed", "exit code 3", over={"argv": ["sh", "-c", "echo done; exit 3"], "expect": owes(artifact("e.txt", from_="stdout"))}),
    Case("signal", "crashed", "ended by SIGSEGV", over={"argv": script("import os; os.kill(os.getpid(), 11)")}),
    Case("without_guard", "invalid", "-I, -E or -S", over={
        "argv": ["python", "-I", "-c", "print(1)"], "expect": owes(artifact("i.txt", from_="stdout"))}),
    Case("no_program", "blocked", "the program no-such-thing is not on this pod", over={"argv": ["no-such-thing"]}),
    Case("no_module", "blocked", "no_such_module is neither in the commit nor installed", over={"argv": ["python", "-m", "no_such_module"]}),
    Case("no_submodule", "blocked", "honest.bench is not in the commit", over={"argv": ["python", "-m", "honest.bench"]}),
    Case("other_python", "blocked", "python2.7 is not the environment's Python", over={"argv": ["python2.7", "-c", ""]}),
    Case("needs_a_skip", "blocked", "needs all_skip, which is skipped", over={"argv": ["true"], "needs": ["all_skip"]}),
    Case("blocked_by_plan", "blocked", "requires cuda", over={"argv": ["true"], "blocked": "requires cuda: the pod has no CUDA GPU"}),
]  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, agent: Path, environment: dict[str, Any]) -> Run:
    """One run of all the cases, none of which leaves anything in the tree."""
    pod = Pod(tmp_path_factory.mktemp("lies"), agent, environment)
    files = {path: text for case in CASES for path, text in case.files().items()}
    return pod.run(files, *(case.stage() for case in CASES), promises={"cuda": True})


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_status(run: Run, case: Case) -> None:
    judgement = run.judge()[case.name]
    assert judgement.status == case.status, judgement
    assert re.search(case.reason, judgement.reason), judgement.reason
    assert bool(judgement.reason) == (case.status != "passed")


def test_allowed_shortfalls_are_counted_and_all_are_listed(run: Run) -> None:
    tests = run.judge()["allowed_skip"].tests
    assert (tests["passed"], tests["skipped"], tests["allowed_skips"]) == (1, 1, 1)
    (listed,) = tests["not_passed"]
    assert listed["reason"] == "needs NSA_TEST_TRITON_SEL=1" and listed["allowed"]


def test_routes_are_told(run: Run) -> None:
    assert run.judge()["on_the_gpu"].routes == {"selected": {"triton@cuda:sm_90": 1}}


def test_undeclared_artifacts_are_kept_but_not_credited(run: Run) -> None:
    files = [file["path"] for file in run.records["leaves_for_later"]["files"]]
    assert "artifacts/b.txt" in files
    assert [a["path"] for a in run.judge()["leaves_for_later"].artifacts] == ["a.txt"]


def test_what_is_no_regular_file_is_named(run: Run) -> None:
    assert {"path": "artifacts/pipe", "reason": "is not a regular file"} in run.records["pipe"]["refused"]


def test_every_file_is_recorded_with_its_hash(run: Run) -> None:
    import hashlib

    for record in run.records.values():
        for file in record["files"]:
            content = (run.path / file["path"]).read_bytes()
            if record["stage"] not in ("leaves_for_later",):  # another stage overwrote one of its artifacts
                assert (len(content), hashlib.sha256(content).hexdigest()) == (file["bytes"], file["sha256"])


# What a stage does to the tree, the environment or the agent -----------------------------------------------------

TOUCH = {"test_it.py": TWO, "pkg/__init__.py": "", "pkg/core.py": "VALUE = 1\n", "run.sh!": "#!/bin/sh\necho ok\n"}


def changed_by(pod: Pod, code: str) -> tuple[Run, list[tuple[str, str]]]:
    """A run of a stage that does `code` and an honest one after it."""
    expect = owes(artifact("said.txt", from_="stdout"))
    run = pod.run(
        TOUCH, stage("first", script(code + "\nprint('done')"), expect=expect), pytest_stage("second", "test_it.py")
    )
    return run, [(j.status, j.reason) for j in run.judge().values()]


@pytest.mark.parametrize(
    ("code", "named"),
    [
        ("open('pkg/core.py', 'a').write('#')", "pkg/core.py"),
        ("import os; os.remove('pkg/core.py')", "pkg/core.py"),
        ("import os; os.chmod('run.sh', 0o644)", "run.sh"),
        ("import os; os.remove('pkg/core.py'); os.symlink('/dev/null', 'pkg/core.py')", "pkg/core.py"),
        ("open('.git/HEAD', 'w').write('0' * 40)", ".git/HEAD"),
        ("import os; s = os.stat('pkg/core.py'); open('pkg/core.py', 'w').write('VALUE = 2\\n'); "
         "os.utime('pkg/core.py', ns=(s.st_atime_ns, s.st_mtime_ns))", "pkg/core.py"),
    ],
    ids=["edit", "remove", "mode", "link", "head", "edit with the old times"],
)  # fmt: skip
def test_a_changed_tree_ends_all_credit(pod: Pod, code: str, named: str) -> None:
    _, judged = changed_by(pod, code)
    assert [status for status, _ in judged] == ["invalid", "invalid"]
    assert all(named in reason for _, reason in judged)


@pytest.mark.parametrize("name", ["conftest.py", "pkg/_C.so", ".hidden", "core"])
def test_a_stray_file_ends_the_credit_of_later_stages(pod: Pod, name: str) -> None:
    run, judged = changed_by(pod, f"open({name!r}, 'w').write('')")
    assert [status for status, _ in judged] == ["passed", "invalid"]
    assert f"left files in the tree that are not the commit's: {name}" in judged[1][1]
    assert run.records["first"]["tree"]["strays"] == [name]


def test_an_edit_that_is_reverted_changes_nothing(pod: Pod) -> None:
    code = "t = open('pkg/core.py').read(); open('pkg/core.py', 'w').write('x'); open('pkg/core.py', 'w').write(t)"
    assert [status for status, _ in changed_by(pod, code)[1]] == ["passed", "passed"]


def test_an_artifact_made_in_the_tree_may_stay_there_as_it_is(pod: Pod) -> None:
    make = stage(
        "make", script("open('out.txt', 'w').write('1')"), expect=owes(artifact("out.txt", from_="tree:out.txt"))
    )
    use = pytest_stage("use", "test_it.py")
    change = stage(
        "change", script("open('out.txt', 'w').write('2'); print(1)"), expect=owes(artifact("c", from_="stdout"))
    )
    after = pytest_stage("after", "test_it.py")
    run = pod.run(TOUCH, make, use, change, after)
    assert [j.status for j in run.judge().values()] == ["passed", "passed", "passed", "invalid"]
    assert run.text("artifacts/out.txt") == "1"


def test_a_stage_that_writes_to_the_journal_is_found_out(pod: Pod) -> None:
    from orchestrator.agent import journal

    code = "import os, glob; open(os.environ['NSA_POD_ARTIFACTS'] + '/../journal.jsonl', 'a').write('{}\\n'); print('done')"
    run = pod.launch({}, [stage("s", script(code), expect=owes(artifact("said.txt", from_="stdout")))])
    path = run.path / "journal.jsonl"
    while b"run_ended" not in path.read_bytes():
        pass
    ended = next(json.loads(x) for x in path.read_bytes().splitlines() if b'"stage_ended"' in x)
    assert (ended["status"], ended["journal_ok"]) == ("invalid", False)
    with pytest.raises(journal.ChainBroken, match="line"):
        journal.read(path.read_bytes())


def test_a_changed_environment_ends_all_credit(pod: Pod, tmp_path: Path) -> None:
    environment = make_environment(tmp_path / "own")
    said = {"expect": owes(artifact("said.txt", from_="stdout"))}
    install = "import site; open(site.getsitepackages()[0] + '/torch.py', 'w').write('1'); print(1)"
    stages = [
        stage("honest", ["python", "-c", "print(1)"], **said),
        stage("installs", script(install), expect=owes(artifact("i.txt", from_="stdout"))),
        stage("after", ["python", "-c", "print(1)"], expect=owes(artifact("a.txt", from_="stdout"))),
    ]
    run = pod.run({}, *stages, environment=environment)
    assert [j.status for j in run.judge().values()] == ["passed", "invalid", "invalid"]
    again = pod.run({}, stages[0], environment=environment)
    assert again.only().status == "invalid", "changed since it was built and verified"


# Where modules come from -----------------------------------------------------------------------------------------

IMPORTS = "import nsa.core\ndef test_a(): assert nsa.core.VALUE\n"


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


OWN = {"nsa/__init__.py": "", "nsa/core.py": "VALUE = 'own'\n"}


def test_the_trees_own_module_wins_where_python_looks_there_first(pod: Pod, elsewhere: Path) -> None:
    own = pytest_stage("s", "t/test_it.py", env={"PYTHONPATH": str(elsewhere)})
    assert judged_import(pod, own, OWN)[0] == "passed"


@pytest.mark.parametrize("files", [OWN, {"nsa/core.py": "VALUE = 1\n"}, {"src/nsa/__init__.py": "", "src/nsa/core.py": ""}],
                         ids=["package", "namespace", "src"])  # fmt: skip
def test_a_module_of_that_name_from_elsewhere_is_named(pod: Pod, elsewhere: Path, files: dict[str, str]) -> None:
    other = pytest_stage("s", "t/test_it.py", env={"PYTHONPATH": str(elsewhere)}, start=["pytest"])
    status, reason = judged_import(pod, other, files)
    assert status == "invalid" and "module nsa" in reason and str(elsewhere) in reason


def test_also_in_children_and_when_the_process_ends_abruptly(pod: Pod, elsewhere: Path) -> None:
    child = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import nsa, os; os._exit(0)'], cwd='/'); print(1)"
    lying = stage("s", script(child), env={"PYTHONPATH": str(elsewhere)}, expect=owes(artifact("a", from_="stdout")))
    status, reason = judged_import(pod, lying, OWN)
    assert status == "invalid" and "module nsa was imported from" in reason


def test_names_that_only_look_alike_are_no_alarm(pod: Pod, elsewhere: Path) -> None:
    files = {"triton/kernels.py": "", "types.py": "", "json/data.txt": "", "t/test_it.py": "import triton, types, json\ndef test_a(): pass\n"}  # fmt: skip
    honest = pytest_stage("s", "t/test_it.py", env={"PYTHONPATH": str(elsewhere)}, start=["pytest"])
    assert judged_import(pod, honest, files) == ("passed", "")


def test_pytest_under_xdist_is_judged_alike(pod: Pod) -> None:
    pytest.importorskip("xdist")
    files = {"test_a.py": TWO + textwrap.dedent(ONE_SKIPPED).replace("test_a", "test_c")}
    honest = pytest_stage(
        "honest", "-n", "2", "-k", "not test_c", "test_a.py", tests={"allow_skips": ["^deselected", "NSA"]}
    )
    lying = pytest_stage("lying", "-n", "2", "test_a.py")
    run = pod.run(files, honest, lying, environment=SYSTEM)
    judged = run.judge()
    assert (judged["honest"].status, judged["lying"].status) == ("passed", "skipped"), judged
