"""Tests that did not run, did not pass, or were made to look as if."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

from tests.honesty.case import Case, lie, truth
from tests.support.agent_pod import pytest_stage
from tests.support.project import Outcome, Project
from tests.support.stage_cases import (
    FIXTURE_SKIPS,
    FORGED,
    ONE_SKIPPED,
    PYTEST_EXIT,
    SKIPPED,
    TWO,
    UNCONFIGURE,
    XFAIL,
    YAML_COLLECTOR,
    runs,
    tests,
)
from tests.support.stage_cases import Case as StageCase

OPT_IN = """
    import os, pytest
    @pytest.mark.skipif(os.environ.get("TEST_TRITON") != "1", reason="opt-in: set TEST_TRITON=1")
    def test_triton(): pass
"""
FAILS = "def test_a(): assert 1 == 2\n"
# A test that runs another pytest, and looks at nothing of it.
RUNS_PYTEST = """
    import subprocess, sys
    def test_a(): subprocess.run([sys.executable, "-m", "pytest", "-q", "{0}/inner.py"])
    def test_b(): pass
"""
RUNS_FROM_ELSEWHERE = """
    import os, subprocess, sys
    def test_a(tmp_path):
        file = os.path.join(os.path.dirname(os.path.abspath(__file__)), "inner.py")
        subprocess.run([sys.executable, "-m", "pytest", "-q", str(tmp_path), file], cwd=tmp_path)
    def test_b(): pass
"""
# Of what makes projects: the tests of one fail, as they should.
TESTS_A_GENERATOR = """
    import subprocess, sys
    def test_a(tmp_path):
        (tmp_path / "test_made.py").write_text("def test_made(): assert 1 == 2\\n")
        done = subprocess.run([sys.executable, "-m", "pytest", "-q", str(tmp_path)], capture_output=True, text=True)
        assert done.returncode == 1 and "1 failed" in done.stdout
"""
# A plugin's own test, of what happens when a test fails.
TESTS_A_PLUGIN = """
    pytest_plugins = ["pytester"]
    def test_a(pytester):
        pytester.makepyfile("def test_fails(): assert 0")
        pytester.runpytest("-q").assert_outcomes(failed=1)
        pytester.runpytest_subprocess("-q").assert_outcomes(failed=1)
"""
# In which nothing of the session around it is to be seen.
CLEARS = """
    import os
    from unittest import mock
    pytest_plugins = ["pytester"]
    def test_a(pytester):
        pytester.makepyfile("import os\\ndef test_bare(): assert 'HOME' not in os.environ")
        with mock.patch.dict(os.environ, {"X": "1"}, clear=True):
            pytester.runpytest("-q").assert_outcomes(passed=1)
"""
REWRITES = """
    import pytest
    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(item, call):
        report = (yield).get_result()
        if report.failed:
            report.outcome, report.longrepr = {!r}, {!r}
"""
NOTES = """
    import pytest
    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(item, call):
        report = (yield).get_result()
        report.sections.append(("note", "seen"))
"""
RETRIES = """
    from _pytest.runner import runtestprotocol
    def pytest_runtest_protocol(item, nextitem):
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for attempt in range(3):
            reports = runtestprotocol(item, nextitem=nextitem, log=False)
            if all(report.passed for report in reports):
                break
        for report in reports:
            item.ihook.pytest_runtest_logreport(report=report)
        return True
"""
FORGES_REPORTS = """
    from _pytest.reports import TestReport
    def pytest_runtest_protocol(item, nextitem):
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for when in ("setup", "call", "teardown"):
            report = TestReport(item.nodeid, item.location, {}, "passed", None, when)
            item.ihook.pytest_runtest_logreport(report=report)
        return True
"""
ANSWERS = "def pytest_pyfunc_call(pyfuncitem): return True\n"
CALLS = "def pytest_pyfunc_call(pyfuncitem): print('about to be called')\n"
STUBS = "def pytest_collection_modifyitems(items):\n    for item in items: item.runtest = lambda: None\n"
SWALLOWS = """
    import pytest
    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(item):
        (yield).force_result(None)
"""
SKIPS_INSTEAD = """
    import pytest
    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(item):
        outcome = yield
        if outcome.excinfo:
            outcome.force_exception(pytest.skip.Exception("no GPU"))
"""
REPLACES_COLLECTED = """
    import pytest
    @pytest.hookimpl(hookwrapper=True)
    def pytest_make_collect_report(collector):
        report = (yield).get_result()
        {}
"""
IMPORTS_NOTHING = REPLACES_COLLECTED.format(
    "if report.failed: report.outcome, report.longrepr, report.result = 'passed', None, []"
)
DROPS_COLLECTED = REPLACES_COLLECTED.format("report.result = [x for x in report.result or () if x.name != 'test_b']")
RUNS_AGAIN = """
    from _pytest.runner import runtestprotocol
    def pytest_runtest_protocol(item, nextitem):
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        failed = True
        while failed:
            failed = False
            for report in runtestprotocol(item, nextitem=nextitem, log=False):
                if report.failed:
                    failed, report.outcome = True, "rerun"
                item.ihook.pytest_runtest_logreport(report=report)
        return True
"""
FLAKY = "tries = []\ndef test_a():\n    tries.append(1)\n    assert len(tries) > {}\n"
EMPTY_PARAMETERS = (
    "import pytest\n@pytest.mark.parametrize('sm', [{}])\ndef test_kernel(sm): pass\ndef test_b(): pass\n"
)
UNCOLLECTABLE = "class TestIt:\n    def __init__(self): pass\n    def test_c(self): assert 0\n"
CHECK = "def check(value):\n    assert value\n"
CHECKED = """
    from {}.helper import check
    def test_a(): check({})
"""
FIRST_RUN = "<testsuites><testsuite><testcase classname='{0}.test_it' name='test_a'/></testsuite></testsuites>"
NO_TESTS = "<testsuites><testsuite tests='0'/></testsuites>"


def writes_junit(text: str) -> str:
    """A conftest that puts `text` in the place of the session's JUnit file."""
    return UNCONFIGURE + f"open(junit, 'w').write({text!r})"


REPLACES_ARGUMENTS = """
def pytest_configure(config):
    config.args[:] = [folder + "/test_a.py" for folder in config.args]
"""
ADDS_ARGUMENT = """
def pytest_configure(config):
    config.args.append(config.args[0] + "/more")
"""


def folder(name: str, status: str, reason: str, files: Mapping[str, str], *arguments: str) -> StageCase:
    """A pytest stage that names the directory `name` with `files`, and not each of them."""
    made = pytest_stage(name, *arguments, name)
    return StageCase(made, status, reason, {f"{name}/{path}": textwrap.dedent(text) for path, text in files.items()})


def below_settings(project: Project) -> Outcome:
    """Validate on a pod whose working directory lies below someone's pytest.ini and conftest.py."""
    for file, text in {"pytest.ini": "[pytest]\npython_functions = test_a\n", "conftest.py": ANSWERS}.items():
        (project.root.parent / file).write_text(text)
    return project.validate("--runbook", "r")


def _shell(command: str) -> list[str]:
    return ["sh", "-c", command]


HONEST = [
    truth(tests("two_tests", "passed", "", TWO), "two tests, both run and pass"),
    truth(tests("opted_in", "passed", "", OPT_IN, env={"TEST_TRITON": "1"}), "the opt-in test, opted into"),
    truth(
        tests("allowed_skip", "passed", "", ONE_SKIPPED, tests={"allow_skips": ["^no GPU$"]}),
        "one test passes, the skip of the other is allowed by its reason",
    ),
    truth(
        tests("fixture_works", "passed", "", FIXTURE_SKIPS.replace('pytest.skip("no FA-2")', "return 1")),
        "the fixture is there",
    ),
    truth(tests("no_xfail", "passed", "", TWO.replace("pass", "assert 1")), "the known bug is fixed, the mark gone"),
    truth(
        tests(
            "allowed_deselection", "passed", "", TWO, "-k", "test_a", tests={"allow_skips": ["^deselected:.*test_b"]}
        ),
        "the runbook itself leaves one test out, and says so",
    ),
    truth(tests("parameters", "passed", "", EMPTY_PARAMETERS.format("89")), "the parameter set has an entry"),
    truth(
        tests(
            "ini",
            "passed",
            "",
            TWO,
            "-c",
            "ini/pytest.ini",
            files={"ini/pytest.ini": "[pytest]\naddopts = --strict-markers\n"},
        ),
        "a pytest.ini that leaves nothing out",
    ),
    truth(tests("report_hook", "passed", "", TWO, conftest=NOTES), "a hook that adds a section to the reports"),
    truth(tests("call_hook", "passed", "", TWO, conftest=CALLS), "a hook that only looks at the calls"),
    truth(
        folder(
            "whole_folder", "passed", "", {"test_a.py": TWO, "test_b.py": TWO, "conftest.py": "collect_ignore = ['x']"}
        ),
        "a directory of which all tests run",
    ),
    truth(
        folder(
            "arguments_added", "passed", "", {"test_a.py": TWO, "more/test_b.py": TWO, "conftest.py": ADDS_ARGUMENT}
        ),
        "a conftest adds a folder to what the command names",
    ),
    truth(tests("repeats_nothing", "passed", "", FLAKY.format(0), conftest=RETRIES), "a test that passes at once"),
    truth(
        tests(
            "run_again_as_allowed",
            "passed",
            "",
            FLAKY.format(1),
            conftest=RUNS_AGAIN,
            tests={"min_passed": 1, "allow_skips": ["^rerun: AssertionError$"]},
        ),
        "a test that is known to be flaky is run again, which is allowed",
    ),
    truth(
        tests(
            "asserting_helper",
            "passed",
            "",
            CHECKED.format("asserting_helper", 1),
            files={"asserting_helper/__init__.py": "", "asserting_helper/helper.py": CHECK},
        ),
        "the helper's assertion holds",
    ),
    truth(
        tests(
            "inner_passes",
            "passed",
            "",
            RUNS_PYTEST.format("inner_passes"),
            files={"inner_passes/inner.py": TWO},
        ),
        "a test runs a pytest that passes",
    ),
    truth(
        tests("tests_a_generator", "passed", "", TESTS_A_GENERATOR),
        "a test runs a pytest on a project that it has made elsewhere, whose test fails as it should",
    ),
    truth(
        tests("tests_a_plugin", "passed", "", TESTS_A_PLUGIN), "a plugin's test runs a pytest that fails as it should"
    ),
    truth(
        tests("tests_a_plugin_bare", "passed", "", CLEARS),
        "a plugin's test runs a pytest while the environment's variables are cleared",
    ),
    truth(
        tests(
            "two_files",
            "passed",
            "",
            TWO,
            "--shapes",
            "two_files/shapes.txt",
            "two_files/test_b.py",
            conftest="def pytest_addoption(parser): parser.addoption('--shapes')",
            files={"two_files/test_b.py": "def test_c(): pass", "two_files/shapes.txt": "512\n"},
        ),
        "tests from both files that the runbook names, the third being an option's",
    ),
    truth(
        tests("set_up", "passed", "", TWO, conftest="def pytest_configure(config): pass"),
        "a conftest that hides nothing",
    ),
    truth(
        runs(
            "pipeline",
            "passed",
            "",
            *_shell("python -m pytest -q -p no:cacheprovider pipeline/test_it.py | cat"),
            files={"pipeline/test_it.py": TWO},
        ),
        "a pytest in a pipeline whose tests all pass",
    ),
]

LIES = [
    # Not run, or not all
    lie(
        tests("opt_in_unset", "skipped", "^1 test skipped: opt-in", OPT_IN),
        "the only test is opt-in and prints `s`",
        honest="opted_in",
    ),
    lie(
        tests("all_skip", "skipped", "^1 test skipped: no GPU", SKIPPED),
        "all tests skip, exit code 0",
        honest="allowed_skip",
    ),
    lie(
        tests("only_allowed_skips", "skipped", "0 tests passed", SKIPPED, tests={"allow_skips": [".*"]}),
        "every skip is allowed, and nothing else is there",
        honest="allowed_skip",
    ),
    lie(
        tests("fixture_skips", "skipped", "^1 test skipped: no FA-2", FIXTURE_SKIPS),
        "the skip hides in a fixture",
        honest="fixture_works",
    ),
    lie(
        tests(
            "module_skips",
            "blocked",
            "collected nothing.*gone",
            "import pytest\npytest.importorskip('gone_module')\ndef test_a(): pass",
        ),
        "the whole module skips itself at import",
        honest="two_tests",
    ),
    lie(
        tests(
            "all_xfail",
            "skipped",
            "^2 tests xfailed: xfail: known",
            "import pytest\npytestmark = pytest.mark.xfail(reason='known')\n" + TWO.replace("pass", "assert 0"),
        ),
        "all tests are expected to fail, and do",
        honest="no_xfail",
    ),
    lie(
        tests("xpass", "skipped", "^1 test xpassed", XFAIL.replace("assert 0", "pass")),
        "a test that is expected to fail passes",
        honest="no_xfail",
    ),
    lie(
        tests("deselected", "skipped", "^1 test deselected.*test_b", TWO, "-k", "test_a"),
        "-k leaves the hard test out",
        honest="allowed_deselection",
    ),
    lie(
        tests(
            "ini_deselects",
            "skipped",
            "^1 test deselected",
            TWO,
            "-c",
            "ini_deselects/pytest.ini",
            files={"ini_deselects/pytest.ini": "[pytest]\naddopts = -k test_a\n"},
        ),
        "the commit's pytest.ini leaves the hard test out",
        honest="ini",
    ),
    lie(
        tests(
            "ini_collects_only",
            "invalid",
            "2 tests selected, but 0 run",
            TWO,
            "-c",
            "ini_collects_only/pytest.ini",
            files={"ini_collects_only/pytest.ini": "[pytest]\naddopts = --co\n"},
        ),
        "the commit's pytest.ini only collects",
        honest="ini",
    ),
    lie(
        tests("environment_deselects", "skipped", "^1 test deselected", TWO, env={"PYTEST_ADDOPTS": "-k test_a"}),
        "the runbook's PYTEST_ADDOPTS leaves the hard test out",
        honest="two_tests",
    ),
    lie(
        tests(
            "dropped_in_silence",
            "invalid",
            "2 tests collected, but 1 selected",
            TWO,
            conftest="def pytest_collection_modifyitems(items):\n    del items[1:]",
        ),
        "a conftest drops tests and tells nobody",
        honest="set_up",
    ),
    lie(
        tests(
            "uncollectable_class",
            "skipped",
            "written, but not collected.*uncollectable_class/test_b.py::TestIt::test_c",
            TWO,
            "uncollectable_class/test_b.py",
            files={"uncollectable_class/test_b.py": UNCOLLECTABLE},
        ),
        "a test class that pytest cannot collect is only a warning",
        honest="two_files",
    ),
    lie(
        tests("no_parameters", "skipped", "empty parameter set", EMPTY_PARAMETERS.format("")),
        "the set of parameters is empty",
        honest="parameters",
    ),
    lie(
        tests(
            "counted_twice",
            "invalid",
            "4 tests selected, but 2 run",
            TWO,
            "--keep-duplicates",
            "counted_twice/test_it.py",
            tests={"min_passed": 4},
        ),
        "the same tests, named twice, are to count twice",
        honest="two_tests",
    ),
    lie(
        tests(
            "counted_twice_of_its_kind",
            "invalid",
            "5 tests selected, but 3 run",
            "def test_a(): pass\n",
            "--keep-duplicates",
            "counted_twice_of_its_kind/x.case",
            "counted_twice_of_its_kind/x.case",
            conftest=YAML_COLLECTOR,
            files={"counted_twice_of_its_kind/x.case": "a:1\nb:2\n"},
            tests={"min_passed": 5},
        ),
        "a file of the conftest's own kind, named twice, is to count twice",
        honest="odd_collector",
    ),
    lie(
        tests("no_tests_at_all", "blocked", "collected nothing", "def helper(): pass"),
        "the file holds no test",
        honest="two_tests",
    ),
    lie(
        tests("not_committed", "blocked", "not_committed/test_it.py is not in the commit", ""),
        "the test file was never committed",
        honest="two_tests",
    ),
    lie(
        folder(
            "conftest_ignores",
            "skipped",
            "1 test deselected: ignored by pytest .*conftest_ignores/test_gpu.py",
            {"test_a.py": TWO, "test_gpu.py": FAILS, "conftest.py": "collect_ignore = ['test_gpu.py']"},
        ),
        "a conftest keeps a test file from being looked at",
        honest="whole_folder",
    ),
    lie(
        folder(
            "arguments_replaced",
            "skipped",
            "1 test deselected: written, but not collected .*arguments_replaced/test_gpu.py",
            {"test_a.py": TWO, "test_gpu.py": FAILS, "conftest.py": REPLACES_ARGUMENTS},
        ),
        "a conftest names other files than the command does",
        honest="arguments_added",
    ),
    lie(
        folder(
            "conftest_ignores_imported",
            "skipped",
            "2 tests deselected: ignored by pytest .*conftest_ignores_imported/test_gpu.py",
            {
                "test_a.py": TWO,
                "test_gpu.py": "from conftest_ignores_imported.gpu import *\n",
                "gpu.py": FAILS,
                "__init__.py": "",
                "conftest.py": "collect_ignore = ['test_gpu.py']",
            },
        ),
        "a conftest keeps a file from being looked at that has its tests from another",
        honest="whole_folder",
    ),
    lie(
        folder(
            "ini_ignores",
            "skipped",
            "1 test deselected: ignored by pytest .*ini_ignores/gpu",
            {"test_a.py": TWO, "gpu/test_b.py": FAILS, "pytest.ini": "[pytest]\naddopts = --ignore-glob=*gpu*\n"},
            "-c",
            "ini_ignores/pytest.ini",
        ),
        "the commit's pytest.ini keeps a directory of tests from being looked at",
        honest="whole_folder",
    ),
    lie(
        tests("settings_above", "failed", "test_a failed", FAILS + "def test_b(): pass\n"),
        "a pytest.ini and a conftest.py above the run's tree, not the commit's, answer for its tests",
        honest="ini",
        play=below_settings,
    ),
    lie(
        tests("drops_collected", "failed", "was replaced by a hook", TWO, conftest=DROPS_COLLECTED),
        "a hook drops a test from what its file holds",
        honest="report_hook",
    ),
    # Failures, hidden
    lie(
        tests(
            "reports_forged",
            "invalid",
            "test_a was reported passed, but was never called",
            FAILS,
            conftest=FORGES_REPORTS,
        ),
        "a conftest reports passes and runs nothing",
        honest="report_hook",
    ),
    lie(
        tests("answered_by_a_hook", "invalid", "test_a was .* never called", FAILS, conftest=ANSWERS),
        "a hook says that it has called the test, and has not",
        honest="call_hook",
    ),
    lie(
        tests("stubbed", "invalid", "test_a was .* never called", FAILS, conftest=STUBS),
        "a conftest gives each test an empty function to run",
        honest="call_hook",
    ),
    lie(
        tests(
            "swallowed", "invalid", "test_a raised AssertionError, but was reported passed", FAILS, conftest=SWALLOWS
        ),
        "a hook around the test swallows what it raises",
        honest="call_hook",
    ),
    lie(
        tests(
            "skipped_instead",
            "invalid",
            "test_a raised AssertionError, but was reported skipped",
            FAILS + TWO[19:],
            conftest=SKIPS_INSTEAD,
            tests={"allow_skips": ["^no GPU$"]},
        ),
        "a hook around the test makes a skip, which is allowed, of its failure",
        honest="call_hook",
    ),
    lie(
        tests("returns_false", "failed", "returned <class 'bool'>", "def test_a(): return 1 == 2\n"),
        "a test returns its comparison instead of asserting it",
        honest="no_xfail",
    ),
    lie(
        tests(
            "returns_false_patched",
            "failed",
            "returned <class 'bool'>",
            "import os\nfrom unittest import mock\n@mock.patch.dict(os.environ, A='1')\ndef test_a(): return 1 == 2\n",
        ),
        "a test that a library has wrapped returns its comparison",
        honest="no_xfail",
    ),
    lie(
        folder(
            "import_error_dropped",
            "failed",
            "import_error_dropped/test_b.py could not be collected",
            {"test_a.py": TWO, "test_b.py": "import gone_module", "conftest.py": IMPORTS_NOTHING},
        ),
        "a hook makes nothing of a test file that cannot be imported",
        honest="whole_folder",
    ),
    lie(
        tests("exit_0_after_failing", "failed", "test_a failed", FAILS, conftest=UNCONFIGURE + "os._exit(0)"),
        "a test fails, the process exits 0",
        honest="set_up",
    ),
    lie(
        tests(
            "status_set_to_0",
            "failed",
            "test_a failed",
            FAILS,
            conftest="def pytest_sessionfinish(session): session.exitstatus = 0",
        ),
        "a test fails, the session's status is set to 0",
        honest="set_up",
    ),
    lie(
        tests(
            "failures_rewritten",
            "invalid",
            "test_a raised AssertionError, but was reported passed",
            FAILS,
            conftest=REWRITES.format("passed", None),
        ),
        "a hook turns failures into passes",
        honest="report_hook",
    ),
    lie(
        tests(
            "failures_to_skips",
            "invalid",
            "test_a raised AssertionError, but was reported skipped",
            FAILS + TWO[19:],
            conftest=REWRITES.format("skipped", ("x", 1, "Skipped: no GPU")),
            tests={"allow_skips": ["no GPU"]},
        ),
        "a hook turns failures into skips that are allowed",
        honest="report_hook",
    ),
    lie(
        tests(
            "retried_in_silence",
            "invalid",
            "test_a raised AssertionError, but was reported passed",
            FLAKY.format(1),
            conftest=RETRIES,
        ),
        "a test is run until it passes, and only that is reported",
        honest="repeats_nothing",
    ),
    lie(
        tests("run_again", "skipped", "1 test rerun: rerun: AssertionError", FLAKY.format(1), conftest=RUNS_AGAIN),
        "a test fails and is run again until it passes, as plugins for flaky tests do",
        honest="run_again_as_allowed",
    ),
    lie(
        tests(
            "asserts_stripped",
            "invalid",
            "-O",
            CHECKED.format("asserts_stripped", 0),
            start=["python", "-O", "-m", "pytest"],
            files={"asserts_stripped/__init__.py": "", "asserts_stripped/helper.py": CHECK},
        ),
        "python -O strips the assertions of a helper",
        honest="asserting_helper",
    ),
    lie(
        tests(
            "asserts_stripped_by_variable",
            "invalid",
            "-O",
            CHECKED.format("asserts_stripped_by_variable", 0),
            env={"PYTHONOPTIMIZE": "1"},
            files={"asserts_stripped_by_variable/__init__.py": "", "asserts_stripped_by_variable/helper.py": CHECK},
        ),
        "PYTHONOPTIMIZE strips the assertions of a helper",
        honest="asserting_helper",
    ),
    lie(
        runs(
            "piped_failure",
            "failed",
            "test_a failed: assert 1 == 2",
            *_shell("python -m pytest -q -p no:cacheprovider piped_failure/test_it.py | cat"),
            files={"piped_failure/test_it.py": FAILS},
        ),
        "pytest | tee without pipefail: the exit code is tee's",
        honest="pipeline",
    ),
    lie(
        StageCase(
            pytest_stage("linked_aside", "linked_aside"),
            "skipped",
            "written, but not collected .linked_aside/hard.py::test_hard",
            {"linked_aside/test_it.py": TWO, "linked_hard/hard.py": "def test_hard(): assert 1 == 2\n"},
        ),
        "a file of hard tests is there by a link, under a name that pytest does not collect",
        honest="odd_alias",
        prepare=lambda root: (root / "linked_aside/hard.py").symlink_to("../linked_hard/hard.py"),
    ),
    lie(
        runs(
            "piped_skip",
            "skipped",
            "1 test skipped",
            *_shell("python -m pytest -q -p no:cacheprovider piped_skip/test_it.py | cat"),
            files={"piped_skip/test_it.py": ONE_SKIPPED},
        ),
        "behind a shell nobody sees that a test skips",
        honest="pipeline",
    ),
    lie(
        runs(
            "or_true",
            "failed",
            "could not be collected",
            *_shell("python -m pytest -q -p no:cacheprovider or_true/test_it.py || true"),
            files={"or_true/test_it.py": "def test_a(:"},
        ),
        "|| true after a pytest that cannot collect",
        honest="pipeline",
    ),
    lie(
        runs(
            "pluginless",
            "failed",
            "returned 1, in a pipeline",
            *_shell("python -m pytest -q -p no:nsa_pod_injected.pytest_plugin pluginless/test_it.py | cat"),
            files={"pluginless/test_it.py": FAILS},
        ),
        "behind a shell, -p no: removes the agent's plugin",
        honest="pipeline",
    ),
    lie(
        tests(
            "inner_failure_from_elsewhere",
            "skipped",
            "inner.py::test_a failed: assert 1 == 2",
            RUNS_FROM_ELSEWHERE,
            files={"inner_failure_from_elsewhere/inner.py": FAILS},
        ),
        "a test runs a pytest on a file of the tree from another folder, and does not look at it",
        honest="tests_a_generator",
    ),
    lie(
        tests(
            "inner_failure",
            "skipped",
            "inner.py::test_a failed: assert 1 == 2",
            RUNS_PYTEST.format("inner_failure"),
            files={"inner_failure/inner.py": FAILS},
        ),
        "a test runs a pytest that fails, and does not look at it",
        honest="inner_passes",
    ),
    lie(
        runs(
            "path_lost",
            "failed",
            "test_a failed: assert 1 == 2",
            *_shell("env -i PATH=$PATH PYTHONPATH=. python -m pytest -q path_lost/test_it.py | cat || true"),
            files={"path_lost/test_it.py": FAILS},
        ),
        "behind a shell, nothing of the stage's environment variables is left",
        honest="pipeline",
    ),
    lie(
        runs(
            "variables_lost",
            "invalid",
            "pytest ran without the stage's environment variables, as under env -i",
            *_shell("env -i PATH=$PATH PYTHONPATH=. python -m pytest -q variables_lost/test_it.py"),
            files={"variables_lost/test_it.py": TWO},
            env={"USE_KERNEL": "1"},
        ),
        "the tests pass without the variables that the stage is for",
        honest="pipeline",
    ),
    lie(
        runs(
            "guards_report_damaged",
            "invalid",
            "its report was damaged",
            *_shell(
                "python -m pytest -q -p no:cacheprovider guards_report_damaged/test_it.py;"
                " echo { >> $NSA_POD_ARTIFACTS/../stages/guards_report_damaged/observed.jsonl"
            ),
            files={"guards_report_damaged/test_it.py": TWO},
        ),
        "behind a shell, a line is added that makes the guard's report unreadable",
        honest="pipeline",
    ),
    # Ends
    lie(
        tests("os_exit", "invalid", "did not finish its session", TWO + "import os\ndef test_c(): os._exit(0)"),
        "a test ends the process with 0 half-way",
        honest="two_tests",
    ),
    lie(
        tests("killed", "crashed", "SIGKILL", TWO + "import os\ndef test_c(): os.kill(os.getpid(), 9)"),
        "a test kills pytest after two have passed",
        honest="two_tests",
    ),
    lie(
        tests("pytest_exit", "invalid", "stopped half-way.*enough", PYTEST_EXIT),
        "pytest.exit with return code 0 before the failing test",
        honest="two_tests",
    ),
    lie(
        tests(
            "ends_before_pytest",
            "invalid",
            "plugin was never started",
            TWO,
            env={"PYTHONPATH": "ends_before_pytest"},
            files={"ends_before_pytest/sitecustomize.py": "import os\nos._exit(0)\n"},
        ),
        "a sitecustomize in the tree ends every Python with 0",
        honest="two_tests",
    ),
    lie(
        tests(
            "no_plugin", "invalid", "the agent's plugin was kept out", TWO, "-p", "no:nsa_pod_injected.pytest_plugin"
        ),
        "-p no: removes the agent's plugin",
        honest="two_tests",
    ),
    # The JUnit file
    lie(
        tests(
            "junit_of_an_earlier_run",
            "invalid",
            "plugin saw .*test_b",
            TWO,
            conftest=writes_junit(FIRST_RUN.format("junit_of_an_earlier_run")),
        ),
        "the JUnit file is that of an earlier run with one test",
        honest="set_up",
    ),
    lie(
        tests("junit_without_tests", "invalid", "junit.xml does not say so", TWO, conftest=writes_junit(NO_TESTS)),
        "the JUnit file holds no test",
        honest="set_up",
    ),
    lie(
        tests("junit_forged", "invalid", "junit.xml", TWO, conftest=writes_junit(FORGED)),
        "the stage writes its own JUnit file",
        honest="set_up",
    ),
    lie(
        tests("junit_removed", "invalid", "junit.xml is missing", TWO, conftest=UNCONFIGURE + "os.remove(junit)"),
        "the stage removes its JUnit file",
        honest="set_up",
    ),
]

CASES: list[Case] = [*HONEST, *LIES]
