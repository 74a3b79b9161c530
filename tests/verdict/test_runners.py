"""The closing lines of other runners: failures, skips, nothing run; and what only looks like one."""

from __future__ import annotations

import pytest

from orchestrator.verdict.closing_lines import Closing, read

RULE = "-" * 70


def unittest_says(ran: int, end: str) -> str:
    return f"..\n{RULE}\nRan {ran} tests in 0.001s\n\n{end}\n"


GO_OK = "ok  \texample.com/a\t0.002s\n"
GO_EMPTY = "?   \texample.com/b\t[no test files]\n"
GO_NONE = "ok  \texample.com/a\t0.002s [no tests to run]\n"
CARGO = "test result: {}. {} passed; {} failed; {} ignored; 0 measured; 0 filtered out; finished in 0.00s\n"
CTEST = "\n{}% tests passed, {} tests failed out of {}\n\nTotal Test time (real) =   0.01 sec\n"
CTEST_SKIPPED = CTEST.format(100, 0, 2) + "\nThe following tests did not run:\n\t  2 - gpu (Skipped)\n"


GTEST = "[==========] Running tests.\n{1}[==========] {0} tests from 1 test suite ran. (0 ms total)\n"
MESON = (
    "Ok:                {}   \nExpected Fail:     {}   \nFail:              {}   \nSkipped:           {}   \n"
    "\nFull log written to /b/meson-logs/testlog.txt\n"
)
PROVE = "t/a.t .. {}\nFiles=1, Tests={},  0 wallclock secs ( 0.01 usr +  0.03 cusr =  0.04 CPU)\nResult: {}\n"
TOX = "{}  a: {} (0.22=setup[0.14]+cmd[0.08] seconds)\n  congratulations :) (0.25 seconds)\n"


@pytest.mark.parametrize(
    ("text", "closing"),
    [
        (unittest_says(3, "OK"), Closing("unittest", 3)),
        (unittest_says(0, "OK"), Closing("unittest", 0)),
        (unittest_says(0, "NO TESTS RAN"), Closing("unittest", 0)),
        (unittest_says(2, "FAILED (failures=1)"), Closing("unittest", 2, "FAILED (failures=1)")),
        (unittest_says(2, "OK (skipped=1)"), Closing("unittest", 2, None, ("OK (skipped=1)",))),
        (
            "test_a (t.T) ... skipped 'no GPU'\n" + unittest_says(2, "OK (skipped=1)"),
            Closing("unittest", 2, None, ("no GPU",)),
        ),
        ("***Test Failed*** 2 failures.\ndone\n", Closing("doctest", 2, "***Test Failed*** 2 failures.")),
        (CTEST.format(100, 0, 5), Closing("ctest", 5)),
        (CTEST.format(50, 1, 2) + "\nThe following tests FAILED:\n\t  1 - a (Failed)\n",
         Closing("ctest", 2, "50% tests passed, 1 tests failed out of 2")),
        (CTEST_SKIPPED, Closing("ctest", 2, None, ("Skipped: gpu",))),
        ("No tests were found!!!\n", Closing("ctest", 0)),
        (GO_OK + GO_EMPTY, Closing("go", 1)),
        (GO_NONE + GO_EMPTY, Closing("go", 0)),
        (GO_OK + "FAIL\texample.com/c\t0.1s\nFAIL\n", Closing("go", 2 + 1, "FAIL\texample.com/c\t0.1s")),
        ("ok  \texample.com/d\t(cached)\n" + GO_OK, Closing("go", 1, None, ("ok example.com/d (cached)",))),
        ("//a:b   PASSED in 0.3s\n//a:c   FAILED in 1 out of 2 in 1s\n",
         Closing("bazel", 2, "//a:c   FAILED in 1 out of 2 in 1s")),
        ("//a:b FLAKY, failed in 1 out of 2 in 1s\n//a:c SKIPPED\n", Closing("bazel", 1, None, ("//a:c SKIPPED",))),
        ("//a:b (cached) PASSED in 0.3s\n", Closing("bazel", 0, None, ("//a:b (cached) PASSED in 0.3s",))),
        ("All 0 cases passed\n", Closing("the runner", 0)),
        ("test cases: 3 | 1 passed | 2 skipped\nassertions: 4 | 4 passed\n",
         Closing("the runner", 1, None, ("test cases: 3 | 1 passed | 2 skipped",))),
        ("    --- SKIP: TestGPU (0.00s)\n" + GO_OK, Closing("go", 1, None, ("--- SKIP: TestGPU (0.00s)",))),
        (CARGO.format("ok", 3, 0, 0) + CARGO.format("ok", 0, 0, 0), Closing("cargo", 3)),
        (CARGO.format("ok", 0, 0, 0), Closing("cargo", 0)),
        (CARGO.format("FAILED", 2, 1, 0), Closing("cargo", 3, CARGO.format("FAILED", 2, 1, 0).strip())),
        ("make: Nothing to be done for 'test'.\n", Closing("make", 0)),
        ("make: 'check' is up to date.\n", Closing("make", 0)),
        (GTEST.format(2, ""), Closing("gtest", 2)),
        (GTEST.format(0, ""), Closing("gtest", 0)),
        (GTEST.format(2, "[  SKIPPED ] A.B (0 ms)\n"), Closing("gtest", 1, None, ("[  SKIPPED ] A.B",))),
        (GTEST.format(1, "") + "  YOU HAVE 1 DISABLED TEST\n",
         Closing("gtest", 1, None, ("YOU HAVE 1 DISABLED TEST",))),
        (GTEST.format(1, "") + "[  FAILED  ] 1 test, listed below:\n",
         Closing("gtest", 1, "[  FAILED  ] 1 test, listed below:")),
        ("All tests passed (3 assertions in 2 test cases)\n", Closing("catch2", 3)),
        ("No tests ran\n", Closing("catch2", 0)),
        ("Test project /b\n  Test #1: parity\n\nTotal Tests: 1\n", Closing("ctest", 0)),
        ("  Test #1: parity\n\nTotal Tests: 1\n" + CTEST.format(100, 0, 5), Closing("ctest", 5)),
        (MESON.format(2, 0, 0, 0), Closing("meson", 2)),
        ("2/3 k:b SKIP  0.03s   exit status 77\n" + MESON.format(1, 1, 0, 1),
         Closing("meson", 2, None, ("k:b", "xfail: Expected Fail"))),
        (MESON.format(1, 0, 1, 0), Closing("meson", 2, "Fail: 1")),
        ("No tests defined.\n", Closing("meson", 0)),
        (PROVE.format("ok", 3, "PASS"), Closing("prove", 3)),
        (PROVE.format("skipped: no card", 0, "NOTESTS"), Closing("prove", 0, None, ("no card",))),
        (PROVE.format("Failed 1/1 subtests", 1, "FAIL"), Closing("prove", 1, "Result: FAIL")),
        ("1..2\nok 1 a\nok 2 - b\n", Closing("tap", 2)),
        ("1..2\nok 1 a\nnot ok 2 - b\n", Closing("tap", 2, "not ok 2 - b")),
        ("1..2\nok 1 a\n", Closing("tap", 1, "1..2, and 1 of them ran")),
        ("1..2\nok 1 a # skip no GPU\nok 2\n", Closing("tap", 1, None, ("skip no GPU",))),
        ("1..1\nnot ok 1 a # TODO later\n", Closing("tap", 0, None, ("TODO later",))),
        ("1..0 # Skipped: no GPU\n", Closing("tap", 0, None, ("Skipped: no GPU",))),
        (TOX.format("", "OK"), Closing("tox", 1)),
        (TOX.format("", "SKIP"), Closing("tox", 0, None, ("a: SKIP (0.22=setup[0.14]+cmd[0.08] seconds)",))),
        (TOX.format("", "IGNORED FAIL code 1"),
         Closing("tox", 1, "a: IGNORED FAIL code 1 (0.22=setup[0.14]+cmd[0.08] seconds)")),
        (TOX.format("a: exit 3 (0.08 seconds) /tree> python x.py pid=7\n"
                    "a: command failed but is marked ignore outcome so handling it as success\n", "OK"),
         Closing("tox", 1, "python x.py failed")),
        (TOX.format("a: exit 3 (0.08 seconds) /tree> rm none pid=7\n"
                    "a: command failed but is marked ignore outcome so handling it as success\n", "OK"),
         Closing("tox", 1)),
        ("========= ERROR SUMMARY: 2 errors\n", Closing("the sanitizer", 1, "========= ERROR SUMMARY: 2 errors")),
        ("========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)\n",
         Closing("the sanitizer", 1, "========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)")),
        ("==12== ERROR SUMMARY: 5 errors from 3 contexts (suppressed: 0 from 0)\n",
         Closing("the sanitizer", 1, "==12== ERROR SUMMARY: 5 errors from 3 contexts (suppressed: 0 from 0)")),
        ("k.cu:3:5: runtime error: signed integer overflow\n",
         Closing("the sanitizer", 1, "k.cu:3:5: runtime error: signed integer overflow")),
        ("nox > Session tests was successful.\n", Closing("nox", 1)),
        ("nox > Session tests skipped: no GPU.\n", Closing("nox", 0, None, ("no GPU",))),
        ("test a ... ignored, slow\n" + CARGO.format("ok", 1, 0, 1), Closing("cargo", 1, None, ("slow",))),
    ],
)  # fmt: skip
def test_what_a_runner_says_at_its_end(text: str, closing: Closing) -> None:
    assert read(text, everywhere=lambda runner: True) == [closing]


@pytest.mark.parametrize(
    "text",
    [
        unittest_says(2, "FAILED (failures=1)") + "the tool under test said so, as it should\n",
        "Ran 0 tests in 0.001s\n\nOK\n",
        CARGO.format("FAILED", 1, 1, 0) + "as expected\n",
        "FAIL\n",
        "make: Nothing to be done for 'all'.\nmake[1]: Nothing to be done for 'test'.\n",
        "No tests were found!!!\nmore\n",
        CTEST.format(0, 1, 1) + "retrying\n",
        "1 passed, 1 failed\nas it should\n",
        "1..5\n1, 2, 3, 4, 5\n",
        "100 steps, 2 errors\n",
        "found 3 errors, 2 warnings\n",
        "3 passed, 1 failed in 0.01s\n",
        "5 retries, 1 failed over\n",
        "tests: 3\n",
        "3 ok, 12 skipped\n",
        "97 ok, 3 failed\n",
        "97/100 ok\n",
        "0 of 12 tests failed\n",
        "ran 2 of 12 tests\n",
        "Ok: 3\n",
        "HumanEval: 97/100 passed\n",
        "========= ERROR SUMMARY: 0 errors\n========= RACECHECK SUMMARY: 0 hazards displayed (0 errors)\n",
        "==12== ERROR SUMMARY: 0 errors from 0 contexts (suppressed: 0 from 0)\n",
        "it was a runtime error: of another kind\n",
        "loss 0.5 passed, 1 failed\n",
    ],
)
def test_what_is_only_quoted_is_none(text: str) -> None:
    assert read(text, everywhere=lambda runner: False) == []


def test_the_last_lines_count_whoever_printed_them() -> None:
    text = "begin\n" + unittest_says(0, "OK")
    assert read(text, everywhere=lambda runner: False) == [Closing("unittest", 0)]
    assert read(CTEST_SKIPPED, everywhere=lambda runner: False)[0].skipped == ("Skipped: gpu",)


@pytest.mark.parametrize(
    ("text", "ran", "failed", "skipped"),
    [
        ("0 features passed, 0 failed, 1 skipped\nTook 0min 0.000s\n", 0, False, True),
        ("1 test, 0 passed, 1 failed\n=====\nOutput:  NONE\n", 1, True, False),
        ("Tests:       1 failed, 1 skipped, 2 passed, 4 total\nSnapshots:   0 total\nTime: 1s\n", 3, True, True),
        ("2 tests, 0 failures, 1 skipped\n", 1, False, True),
        ("3 runs, 3 assertions, 0 failures, 0 errors, 0 skips\n", 3, False, False),
        ("test cases:  1 |  0 passed | 1 skipped\n", 0, False, True),
        ("[doctest] test cases: 2 | 2 passed | 0 failed | 0 skipped\n", 2, False, False),
        ("Passed: 3, Failed: 1\n", 4, True, False),
        ("passed=3 failed=0\n", 3, False, False),
        ("3 of 4 tests passed.\n", 4, True, False),
        ("4/4 passed\n", 4, False, False),
        ("0 tests, 0 failures\n", 0, False, False),
        ("ran 0 of 2 tests\n", 0, False, False),
        ("0/12 cases executed\n", 0, False, False),
        ("Ran 12 checks: 11 passed and 1 failed\n\n", 12, True, False),
    ],
)
def test_lines_that_count_tests(text: str, ran: int, failed: bool, skipped: bool) -> None:
    (closing,) = read(text, everywhere=lambda runner: False)
    assert (closing.ran, bool(closing.failed), bool(closing.skipped)) == (ran, failed, skipped)
