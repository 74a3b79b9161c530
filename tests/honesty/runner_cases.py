"""Runners of tests in any language: what their closing lines tell, whatever their exit codes."""

from __future__ import annotations

from tests.honesty.case import Case, lie, truth
from tests.support.stage_cases import Case as StageCase
from tests.support.stage_cases import artifact, runs


def _shows(name: str, status: str, reason: str, *lines: str, **expect: object) -> StageCase:
    owed = {"artifacts": [artifact(f"{name}.txt", from_="stdout")], **expect}
    return runs(name, status, reason, "python", "-c", f"print({chr(10).join(lines)!r})", expect=owed)


def _lie(name: str, status: str, reason: str, *lines: str, pretends: str, honest: str = "runners_pass") -> Case:
    return lie(_shows(name, status, reason, *lines), pretends, honest=honest, caught="rule")


CASES = [
    truth(_shows("runners_pass", "passed", "", "1..2", "ok 1 - a", "ok 2 - b", "[==========] Running 1 test.",
                  "[==========] 1 test from 1 test suite ran. (0 ms total)", "[  PASSED  ] 1 test.",
                  "  py: OK (0.2=setup[0.1]+cmd[0.1] seconds)", "nox > Session tests was successful.",
                  "the run that is to fail: 1 passed, 1 failed", "as it should",
                  "//ops:parity_test   PASSED in 0.3s", "test cases: 3 | 3 passed", "assertions: 4 | 4 passed",
                  "  3 passing (2ms)", "ok  \texample.com/a\t0.002s", "?   \texample.com/b\t[no test files]",
                  "> Task :a:test NO-SOURCE", "> Task :b:test", "Tests run: 3, Failures: 0, Errors: 0, Skipped: 0",
                  "3 examples, 0 failures", "Ok: 3", "Fail: 0", "4/4 passed"),
          "closing lines of runners whose tests all pass, and one that is quoted"),
    truth(_shows("runners_skip", "passed", "", "2 scenarios passed, 0 failed, 1 skipped", "Took 0min 0.002s",
                  tests={"allow_skips": ["1 skipped"]}),
          "a runner skips one, which is allowed by its line"),
    _lie("count_of_failures", "failed", "the runner says: 3 checks, 2 passed, 1 failed",
         "begin", "3 checks, 2 passed, 1 failed", pretends="a runner of its own counts a failure, and exits 0"),
    _lie("parts_passed", "failed", "says: 3 of 4 tests passed", "3 of 4 tests passed",
         pretends="the last line says that 3 of 4 passed"),
    _lie("scenarios_skipped", "skipped", "1 skipped", "2 scenarios passed, 0 failed, 1 skipped", "Took 0min 0.002s",
         pretends="behave skips a scenario", honest="runners_skip"),
    _lie("scenarios_none", "invalid", "ran no test", "0 tests, 0 failures", pretends="bats finds no test"),
    _lie("tap_not_ok", "failed", "tap says: not ok 2 - b", "1..2", "ok 1 - a", "not ok 2 - b",
         pretends="a line of TAP says not ok"),
    _lie("tap_cut", "failed", "1..3, and 2 of them ran", "1..3", "ok 1 - a", "ok 2 - b",
         pretends="TAP of which the plan names more tests than ran"),
    _lie("gtest_none", "invalid", "gtest ran no test", "[==========] Running 0 tests from 0 test suites.",
         "[==========] 0 tests from 0 test suites ran. (0 ms total)", "[  PASSED  ] 0 tests.",
         pretends="a filter of GoogleTest matches no test"),
    _lie("gtest_disabled", "skipped", "gtest skipped 1 test: YOU HAVE 1 DISABLED TEST",
         "[==========] Running 1 test from 1 test suite.", "[==========] 1 test from 1 test suite ran. (0 ms total)",
         "[  PASSED  ] 1 test.", "", "  YOU HAVE 1 DISABLED TEST", pretends="a test of GoogleTest is called DISABLED_"),
    _lie("all_of_none", "invalid", "the runner ran no test", "All 0 cases passed",
         pretends="a program finds no case, all of which pass"),
    _lie("catch2_skips", "skipped", "2 skipped", "test cases: 3 | 1 passed | 2 skipped", "assertions: 4 | 4 passed",
         pretends="Catch2 skips two, and counts assertions below", honest="runners_skip"),
    _lie("bazel_cached", "skipped", "bazel skipped 1 test: //ops:parity_test \\(cached\\) PASSED in 0.3s",
         "//ops:mask_test                   PASSED in 0.2s", "//ops:parity_test        (cached) PASSED in 0.3s",
         pretends="bazel tells what an earlier run of a test said", honest="runners_skip"),
    _lie("meson_none", "invalid", "meson ran no test", "No tests defined.", pretends="meson has no test"),
    _lie("meson_skips", "skipped", "meson skipped 1 test: ops:parity", "1/2 ops:shape  OK    0.04s",
         "2/2 ops:parity SKIP  0.03s   exit status 77", "", "Ok:                1", "Fail:              0",
         "Skipped:           1", pretends="a test of meson skips itself", honest="runners_skip"),
    _lie("prove_none", "skipped", "prove skipped 1 test: no GPU", "t/a.t .. skipped: no GPU",
         "Files=1, Tests=0,  0 wallclock secs ( 0.01 usr +  0.03 cusr =  0.04 CPU)", "Result: NOTESTS",
         pretends="prove skips its only file", honest="runners_skip"),
    _lie("ctest_lists", "invalid", "ctest ran no test", "Test project /b", "  Test #1: parity", "", "Total Tests: 1",
         pretends="ctest lists its tests (-N)"),
    _lie("ran_none_of", "invalid", "the runner ran no test", "ran 0 of 2 tests",
         pretends="a runner of its own chooses by a filter that no test matches"),
    _lie("tox_ignores", "failed", "tox says: python test.py failed",
         "py: exit 3 (0.08 seconds) /tree> python test.py pid=7",
         "py: command failed but is marked ignore outcome so handling it as success",
         "  py: OK (0.2=setup[0.1]+cmd[0.1] seconds)", pretends="tox is told by a - to ignore what a Python returns"),
    _lie("mocha_none", "invalid", "mocha ran no test", "", "  0 passing (2ms)", "", pretends="mocha finds no test"),
    _lie("mocha_pending", "skipped", "mocha skipped 2 tests", "  3 passing (2ms)", "  2 pending", "",
         pretends="mocha leaves two out", honest="runners_skip"),
    _lie("go_none", "invalid", "go ran no test", "?   \texample.com/x\t[no test files]",
         pretends="a script runs go's tests, and there are none"),
    _lie("maven_none", "invalid", "maven ran no test", "[INFO] No tests to run.", "[INFO] BUILD SUCCESS",
         pretends="maven builds, and has no test"),
    _lie("gradle_cached", "skipped", "gradle skipped 1 test: > Task :test FROM-CACHE", "> Task :test FROM-CACHE", "",
         "BUILD SUCCESSFUL in 1s", pretends="gradle takes what an earlier run said", honest="runners_skip"),
    _lie("jest_json", "invalid", "jest ran no test", '{"numFailedTests":0,"numPassedTests":0,"success":true}',
         pretends="jest finds no test, and says so as JSON"),
    _lie("tox_skips", "skipped", "tox skipped 1 test: py: SKIP", "  py: SKIP (0.00 seconds)",
         "  lint: OK (0.2=setup[0.1]+cmd[0.1] seconds)", pretends="tox skips an environment", honest="runners_skip"),
    _lie("nox_skips", "skipped", "nox skipped 1 test: no GPU", "nox > Session tests skipped: no GPU.",
         pretends="a session of nox skips itself", honest="runners_skip"),
]  # fmt: skip
