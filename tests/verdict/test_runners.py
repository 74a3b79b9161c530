"""The closing lines of other runners: failures, skips, nothing run; and what only looks like one."""

from __future__ import annotations

import pytest

from orchestrator.verdict.runners import Closing, read

RULE = "-" * 70


def unittest_says(ran: int, end: str) -> str:
    return f"..\n{RULE}\nRan {ran} tests in 0.001s\n\n{end}\n"


GO_OK = "ok  \texample.com/a\t0.002s\n"
GO_EMPTY = "?   \texample.com/b\t[no test files]\n"
GO_NONE = "ok  \texample.com/a\t0.002s [no tests to run]\n"
CARGO = "test result: {}. {} passed; {} failed; {} ignored; 0 measured; 0 filtered out; finished in 0.00s\n"
CTEST = "\n{}% tests passed, {} tests failed out of {}\n\nTotal Test time (real) =   0.01 sec\n"
CTEST_SKIPPED = CTEST.format(100, 0, 2) + "\nThe following tests did not run:\n\t  2 - gpu (Skipped)\n"


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
        ("    --- SKIP: TestGPU (0.00s)\n" + GO_OK, Closing("go", 1, None, ("--- SKIP: TestGPU (0.00s)",))),
        (CARGO.format("ok", 3, 0, 0) + CARGO.format("ok", 0, 0, 0), Closing("cargo", 3)),
        (CARGO.format("ok", 0, 0, 0), Closing("cargo", 0)),
        (CARGO.format("FAILED", 2, 1, 0), Closing("cargo", 3, CARGO.format("FAILED", 2, 1, 0).strip())),
        ("make: Nothing to be done for 'test'.\n", Closing("make", 0)),
        ("make: 'check' is up to date.\n", Closing("make", 0)),
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
    ],
)
def test_what_is_only_quoted_is_none(text: str) -> None:
    assert read(text, everywhere=lambda runner: False) == []


def test_the_last_lines_count_whoever_printed_them() -> None:
    text = "begin\n" + unittest_says(0, "OK")
    assert read(text, everywhere=lambda runner: False) == [Closing("unittest", 0)]
    assert read(CTEST_SKIPPED, everywhere=lambda runner: False)[0].skipped == ("Skipped: gpu",)
