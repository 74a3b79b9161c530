"""Runners that close with numbers of their own form."""

from __future__ import annotations

import pytest

from orchestrator.verdict.counted_tests import Counted, counted, without_assertions

NODE = "ℹ tests {}\nℹ suites 0\nℹ pass {}\nℹ fail {}\nℹ cancelled 0\nℹ skipped {}\nℹ todo {}\nℹ duration_ms 4.2\n"
JEST = '{{"numFailedTestSuites":0,"numFailedTests":{},"numPassedTests":{},"numPendingTests":{},"success":true}}\n'
MAVEN = "[INFO] Tests run: {}, Failures: {}, Errors: {}, Skipped: {}\n[INFO] BUILD SUCCESS\n"
LIT = "Testing Time: 0.05s\n\nTotal Discovered Tests: 3\n  Unsupported: {} (1.00%)\n  Passed     : {} (1.00%)\n"


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        (JEST.format(0, 3, 0), ("jest", 3, 0, 0)),
        (JEST.format(0, 0, 0), ("jest", 0, 0, 0)),
        (JEST.format(1, 2, 4), ("jest", 3, 1, 4)),
        ("\n  3 passing (2ms)\n", ("mocha", 3, 0, 0)),
        ("\n  0 passing (0ms)\n", ("mocha", 0, 0, 0)),
        ("\n  3 passing (1s)\n  2 pending\n  1 failing\n", ("mocha", 4, 1, 2)),
        (NODE.format(3, 3, 0, 0, 0), ("node", 3, 0, 0)),
        (NODE.format(0, 0, 0, 0, 0), ("node", 0, 0, 0)),
        (NODE.format(4, 2, 0, 1, 1), ("node", 3, 0, 2)),
        (MAVEN.format(2, 0, 0, 0), ("maven", 2, 0, 0)),
        (MAVEN.format(0, 0, 0, 0), ("maven", 0, 0, 0)),
        ("[INFO] No tests to run.\n" + MAVEN.format(3, 0, 1, 1), ("maven", 2, 1, 1)),
        ("> Task :a:test NO-SOURCE\n> Task :b:test\n", ("gradle", 1, 0, 0)),
        ("> Task :a:test NO-SOURCE\n\nBUILD SUCCESSFUL in 1s\n", ("gradle", 0, 0, 0)),
        ("> Task :test FROM-CACHE\n> Task :b:integrationTest\n", ("gradle", 1, 0, 1)),
        ("No test is available in /x/a.dll. Make sure of it.\n", ("dotnet", 0, 0, 0)),
        ("No test is available in /x/a.dll.\nPassed!  - Failed:     0, Passed:     3, Skipped:     1, Total: 4\n",
         ("dotnet", 3, 0, 1)),
        ("No tests executed!\n", ("phpunit", 0, 0, 0)),
        ("OK (3 tests, 4 assertions)\n", ("phpunit", 3, 0, 0)),
        ("Executed 0 tests, with 0 failures (0 unexpected) in 0.000 (0.000) seconds\n", ("xctest", 0, 0, 0)),
        ("\t Executed 3 tests, with 1 test skipped and 0 failures (0 unexpected) in 0.1 (0.1) seconds\n",
         ("xctest", 2, 0, 1)),
        ("INFO: Found 2 targets and 0 test targets...\n", ("bazel", 0, 0, 0)),
        ("[ FAIL 0 | WARN 2 | SKIP 0 | PASS 4 ]\n", ("testthat", 4, 0, 0)),
        ("[ FAIL 1 | WARN 2 | SKIP 3 | PASS 4 ]\n", ("testthat", 5, 1, 3)),
        (LIT.format(1, 2), ("lit", 2, 0, 1)),
    ],
)  # fmt: skip
def test_what_a_runner_counts(text: str, numbers: tuple[str, int, int, int]) -> None:
    assert [(said.runner, said.ran, said.failed, said.skipped) for said in counted(text)] == [numbers]


@pytest.mark.parametrize(
    "text",
    ["3 passing cars (2ms)\n", "Tests run: 3\n", "> Task :compileTestJava\n", '{"numPassedTests":1}\n', "tests 0\n"],
)
def test_what_only_looks_like_it(text: str) -> None:
    assert list(counted(text)) == []


def test_the_line_that_tells_of_the_worst_is_told() -> None:
    text = MAVEN.format(2, 0, 0, 0) + MAVEN.format(1, 0, 0, 1)
    worst = "[INFO] Tests run: 1, Failures: 0, Errors: 0, Skipped: 1"
    assert list(counted(text)) == [Counted("maven", 2, 0, 1, worst)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("test cases: 2 | 2 passed\nassertions: - none -\n", "assertions: - none -"),
        ("[doctest] assertions: 0 | 0 passed | 0 failed |\n", "[doctest] assertions: 0 | 0 passed | 0 failed |"),
        (
            "2 runs, 0 assertions, 0 failures, 0 errors, 0 skips\n",
            "2 runs, 0 assertions, 0 failures, 0 errors, 0 skips",
        ),
        ("Tests: 2, Assertions: 0, Risky: 2.\n", "Tests: 2, Assertions: 0, Risky: 2."),
        ("assertions: 10 | 10 passed\n", None),
        ("2 runs, 10 assertions, 0 failures\n", None),
        ("Tests: 2, Assertions: 12.\n", None),
    ],
)
def test_tests_that_made_no_assertion(text: str, said: str | None) -> None:
    assert without_assertions(text) == said
