"""The catalogue of stages that one run holds together: what each does, and the one right status."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Any

from tests.support.agent_pod import artifact, pytest_stage, script, stage

_PUT = """
import os
def put(path, text):
    with open(os.path.join(os.environ["NSA_POD_ARTIFACTS"], path), "w") as f:
        f.write(text)
here = os.environ["NSA_POD_ARTIFACTS"]
"""


@dataclass(frozen=True)
class Case:
    """A stage, the files of the tree that it needs, its right status and a pattern of the reason."""

    stage: dict[str, Any]
    status: str
    reason: str
    files: dict[str, str]

    @property
    def name(self) -> str:
        return str(self.stage["name"])


def tests(name: str, status: str, reason: str, source: str, *arguments: str, **over: Any) -> Case:
    """A pytest stage on the file `source`; `conftest`, more `files`, `id` (of one test), then as for `pytest_stage`."""
    files = {f"{name}/test_it.py": source, f"{name}/conftest.py": over.pop("conftest", ""), **over.pop("files", {})}
    target = f"{name}/test_it.py{over.pop('id', '')}"
    found = {path: textwrap.dedent(text) for path, text in files.items() if text}
    return Case(pytest_stage(name, *arguments, target, **over), status, reason, found)


def routed(name: str, status: str, reason: str, *routes: str, **over: Any) -> Case:
    """A pytest stage that owes the route triton for `selected`; each of its tests records one of `routes`."""
    body = "def test_{}(record_property):\n    record_property('route.selected', {!r})\n"
    source = "".join(body.format(i, route) for i, route in enumerate(routes)) or TWO
    return tests(name, status, reason, source, expect={"routes": {"selected": "triton"}}, **over)


def makes(name: str, status: str, reason: str, code: str, *expected: dict[str, Any], **over: Any) -> Case:
    """A Python stage that runs `code`, in which put(path, text) writes to artifacts/ and `here` names it."""
    files = over.pop("files", {})
    made = stage(name, script(_PUT + code), expect={"artifacts": list(expected)}, **over)
    return Case(made, status, reason, files)


def runs(name: str, status: str, reason: str, *argv: str, **over: Any) -> Case:
    """A stage that runs `argv` and owes its stdout."""
    expect = {"artifacts": [artifact(f"{name}.txt", from_="stdout")]}
    files = over.pop("files", {})
    return Case(stage(name, argv, **{"expect": expect, **over}), status, reason, files)


TWO = "def test_a(): pass\ndef test_b(): pass\n"
YAML_COLLECTOR = """
    import pytest
    def pytest_collect_file(parent, file_path):
        if file_path.suffix == ".case":
            return File.from_parent(parent, path=file_path)
    class File(pytest.File):
        def collect(self):
            for line in self.path.read_text().splitlines():
                name, value = line.split(":")
                yield Item.from_parent(self, name=name, value=int(value))
    class Item(pytest.Item):
        def __init__(self, *, value, **more):
            super().__init__(**more)
            self.value = value
        def runtest(self):
            assert self.value > 0
        def reportinfo(self):
            return self.path, 0, self.name
"""
SKIPPED = "import pytest\n@pytest.mark.skip(reason='no GPU')\ndef test_a(): pass\n"
ONE_SKIPPED = SKIPPED + "def test_b(): pass\n"
MODULE_SKIPS = "import pytest\npytest.skip('no triton here', allow_module_level=True)\n"
FIXTURE_SKIPS = """
    import pytest
    @pytest.fixture
    def fa2(): pytest.skip("no FA-2")
    def test_a(): pass
    def test_b(fa2): pass
"""
SUBTEST_SKIPS = """
    import pytest
    def test_a(subtests):
        with subtests.test("x"): pytest.skip("half of it")
"""
XFAIL = "import pytest\n@pytest.mark.xfail(reason='known')\ndef test_a(): assert 0\ndef test_b(): pass\n"
FIXTURE_FAILS = """
    import pytest
    @pytest.fixture
    def f(): raise RuntimeError("down")
    def test_a(f): pass
"""
TEARDOWN_FAILS = """
    import pytest
    @pytest.fixture
    def f():
        yield
        raise RuntimeError("down")
    def test_a(f): pass
"""
PYTEST_EXIT = """
    import pytest
    def test_a(): pass
    def test_b(): pytest.exit("enough", returncode=0)
    def test_c(): assert 0
"""
UNCONFIGURE = "import os, re\ndef pytest_unconfigure(config):\n    junit = config.option.xmlpath\n    "
FORGED = "<testsuites><testsuite><testcase classname='x' name='test_a'/></testsuite></testsuites>"
NO_SKIPS = "text = open(junit).read(); open(junit, 'w').write(re.sub('<skipped.*?</skipped>', '', text))"

TESTS = [
    tests("honest", "passed", "", TWO, tests={"min_passed": 2, "must_pass": ["test_a", "::test_b$"]}),
    # not run, or not all
    tests("all_skip", "skipped", "^1 test skipped: no GPU", SKIPPED),
    tests("one_skips", "skipped", "^1 test skipped: no GPU", ONE_SKIPPED),
    tests("allowed_skip", "passed", "", ONE_SKIPPED, tests={"allow_skips": ["^no GPU$"]}),
    tests("only_allowed", "skipped", "0 tests passed, expected at least 1", SKIPPED, tests={"allow_skips": ["GPU"]}),
    tests("fixture_skips", "skipped", "^1 test skipped: no FA-2", FIXTURE_SKIPS),
    tests("module_skips", "blocked", "collected nothing.*no triton here", MODULE_SKIPS),
    tests("subtest_skips", "skipped", "half of it", SUBTEST_SKIPS),
    tests("missing_file", "blocked", "missing_file/test_it.py is not in the commit", ""),
    tests("no_tests", "blocked", "pytest collected nothing", "def helper(): pass"),
    tests("wrong_id", "blocked", r"collected nothing: not found: wrong_id/test_it\.py::test_z", TWO, id="::test_z"),
    tests("all_deselected", "blocked", "2 tests deselected", TWO, "-k", "nothing"),
    tests("deselected", "skipped", "1 test deselected.*test_b", TWO, "-k", "test_a"),
    tests("allowed_deselection", "passed", "", TWO, "-k", "test_a", tests={"allow_skips": ["^deselected:.*test_b"]}),
    tests(
        "dropped_in_silence", "invalid", "2 tests collected, but 1 selected and 0 deselected", TWO,
        conftest="def pytest_collection_modifyitems(items):\n    del items[1:]",
    ),
    tests("collect_only", "invalid", "2 tests selected, but 0 run to the end", TWO, "--collect-only"),
    tests("setup_only", "invalid", "2 tests selected, but 0 run to the end", TWO, "--setup-only"),
    tests("too_few", "skipped", "2 tests passed, expected at least 3", TWO, tests={"min_passed": 3}),
    tests("wrong_one", "skipped", "no test that matches 'test_z' passed", TWO, tests={"must_pass": ["test_z"]}),
    # expected failures
    tests("xfail", "skipped", "1 test xfailed.*known", XFAIL),
    tests("allowed_xfail", "passed", "", XFAIL, tests={"allow_skips": ["^xfail: known$"]}),
    tests("xpass", "skipped", "1 test xpassed", XFAIL.replace("assert 0", "pass")),
    tests("strict_xpass", "failed", "test_a failed.*XPASS",
          XFAIL.replace("assert 0", "pass").replace("'known'", "'known', strict=True")),
    # failures, and hiding them
    tests("fails", "failed", "test_a failed: assert 1 == 2", "def test_a(): assert 1 == 2"),
    tests("fixture_fails", "failed", "test_a had an error: RuntimeError: down", FIXTURE_FAILS),
    tests("teardown_fails", "failed", "test_a had an error", TEARDOWN_FAILS),
    tests("subtest_fails", "failed", "test_a failed", SUBTEST_SKIPS.replace("pytest.skip", "pytest.fail")),
    tests("syntax_error", "failed", "could not be collected", "def test_a(:"),
    tests("conftest_raises", "failed", "exit code 4", TWO, conftest="raise ImportError('gone')"),
    tests("unknown_option", "failed", "exit code 4", TWO, "--no-such-option"),
    tests("exits_0", "failed", "test_a failed", "def test_a(): assert 0", conftest=UNCONFIGURE + "os._exit(0)"),
    tests(
        "status_set_to_0", "failed", "test_a failed", "def test_a(): assert 0",
        conftest="def pytest_sessionfinish(session): session.exitstatus = 0",
    ),
    tests("pytest_exit", "invalid", "stopped half-way.*enough", PYTEST_EXIT),
    tests("os_exit", "invalid", "did not finish its session", TWO + "import os\ndef test_c(): os._exit(0)"),
    tests("interrupt", "failed", "exit code 2", TWO + "def test_c(): raise KeyboardInterrupt"),
    tests("closes_the_pipe", "failed", "", "import os\ndef test_a(): os.closerange(3, 50)"),
    # the JUnit file
    tests("junit_removed", "invalid", "junit.xml is missing", TWO, conftest=UNCONFIGURE + "os.remove(junit)"),
    tests("junit_forged", "invalid", "junit.xml", TWO, conftest=UNCONFIGURE + f"open(junit, 'w').write({FORGED!r})"),
    tests("junit_cleaned", "invalid", "junit.xml does not say so", ONE_SKIPPED, conftest=UNCONFIGURE + NO_SKIPS,
          tests={"allow_skips": ["GPU"]}),
    tests("junit_empty", "invalid", "junit.xml", TWO, conftest=UNCONFIGURE + "open(junit, 'w').write('<testsuites/>')"),
    tests("junit_entities", "invalid", "document type", TWO,
          conftest=UNCONFIGURE + "open(junit, 'w').write('<!DOCTYPE t [<!ENTITY a \"b\">]><testsuites/>')"),
    tests("junit_elsewhere", "passed", "", TWO, "--junitxml", "elsewhere.xml"),
    tests("no_junit", "passed", "", TWO, "-p", "no:junitxml"),
    tests("no_plugin", "invalid", "plugin was kept out", TWO, "-p", "no:nsa_pod_injected.pytest_plugin"),
    # routes
    routed("route", "passed", "", "triton@cpu:interpreted"),
    routed("route_not_taken", "invalid", "no passed test recorded route.selected"),
    routed("fell_back", "invalid", "route.selected was torch@cpu, expected triton", "torch@cpu"),
    routed("one_fell_back", "invalid", "was sdpa@cuda:sm_90, expected triton", "triton@cuda:sm_90", "sdpa@cuda:sm_90"),
    routed("interpreted", "invalid", "triton@cpu:interpreted, expected CUDA", "triton@cpu:interpreted", cuda=True),
    routed("typed_gpu", "invalid", "launched no kernel of Triton's on the GPU", "triton@cuda:sm_90", cuda=True),
    routed("nonsense_route", "invalid", "expected backend@device", "triton"),
]  # fmt: skip

OTHERS = [
    makes("no_evidence", "invalid", "no evidence asked", ""),
    makes("artifact", "passed", "", "put('artifact.txt', '1 of 1')", artifact("artifact.txt")),
    makes("empty_artifact", "invalid", "empty.txt is empty", "put('empty.txt', '')", artifact("empty.txt")),
    makes("blank_artifact", "invalid", "blank.txt is blank", "put('blank.txt', ' \\n')", artifact("blank.txt")),
    makes("header_only", "invalid", "h.csv has only a header", "put('h.csv', 'S,ms\\n')",
          artifact("h.csv", kind="csv")),
    makes("nan", "invalid", "n.csv holds nan in row 1, column ms", "put('n.csv', 'S,ms\\n1,nan\\n')",
          artifact("n.csv", kind="csv", columns=["ms"])),
    makes("roofline", "failed", "fails in row 2: frac is 8.3, expected at most 1",
          "put('r.csv', 'frac\\n0.9\\n8.3\\n')", artifact("r.csv", kind="csv", checks=[{"column": "frac", "max": 1}])),
    makes("traceback_exit_0", "invalid", "t.txt is missing",
          "import traceback\ntry: 1 / 0\nexcept ZeroDivisionError: traceback.print_exc()", artifact("t.txt")),
    makes("link_out", "invalid", "link.txt is a symbolic link", "os.symlink('/etc/passwd', here + '/link.txt')",
          artifact("link.txt")),
    makes("linked_folder", "invalid", "a symbolic link or below one", "os.symlink('/etc', here + '/etc')",
          artifact("etc/passwd")),
    makes("pipe", "invalid", "pipe is not a regular file", "os.mkfifo(here + '/pipe')", artifact("pipe")),
    makes("tracked", "invalid", "tracked.txt was there before", "", artifact("tracked.txt", from_="tree:README.md")),
    makes("leaves_for_later", "passed", "", "put('a.txt', '1'); put('b.txt', '1')", artifact("a.txt")),
    makes("found_it_there", "invalid", "b.txt was there before the stage", "", artifact("b.txt")),
    makes("overwrites", "invalid", "earlier stages had delivered: a.txt", "put('a.txt', '2'); put('c.txt', '1')",
          artifact("c.txt")),
    makes("signal", "crashed", "ended by SIGSEGV", "os.kill(os.getpid(), 11)"),
    makes("cut_stdout", "invalid", "not whole: 9[0-9]+ bytes of stdout were cut", "print('x' * 99999)",
          artifact("cut.txt", from_="stdout"), limits={"log_bytes": 1000}),
    runs("stdout", "passed", "", "echo", "said"),
    runs("silent_stdout", "invalid", "silent_stdout.txt is empty", "true"),
    runs("exit_code", "failed", "exit code 3", "sh", "-c", "echo done; exit 3"),
    runs("shell_signal", "failed", "exit code 139", "sh", "-c", "echo done; exit 139"),
    runs("without_guard", "invalid", "ran with -S", "python", "-S", "-c", "print(1)"),
    runs("isolated", "passed", "", "python", "-I", "-c", "print(1)"),
    runs("no_program", "blocked", "the program no-such-thing is not on this pod", "no-such-thing"),
    runs("no_module", "blocked", "no_such_module is neither in the commit nor", "python", "-m", "no_such_module"),
    runs("no_submodule", "blocked", "honest.bench is not in the commit", "python", "-m", "honest.bench"),
    runs("other_python", "blocked", "python2.7 is not the environment's Python", "python2.7", "-c", ""),
    runs("ancient_python", "blocked", "python2 is not the environment's Python", "python2", "-c", ""),
    runs("needs_a_skip", "blocked", "needs all_skip, which is skipped", "true", needs=["all_skip"]),
    runs("blocked_by_plan", "blocked", "requires cuda", "true", blocked="requires cuda: the pod has no CUDA GPU"),
]  # fmt: skip

CASES = [*TESTS, *OTHERS]
