"""What is written, and of which nothing ran: checks in helpers, in what is lazy or has to be entered, in scripts whose
branches are not taken; and what was only said of a comparison, or by a program that shows how it is called.
"""

from __future__ import annotations

import textwrap
from typing import Any

from tests.honesty.case import Case, lie, truth
from tests.support.stage_cases import Case as StageCase
from tests.support.stage_cases import artifact, makes, runs, tests

_HELPERS = """\
import asyncio, time
from contextlib import contextmanager
def check(n): assert n * n == 9
async def check_later(n):
    await asyncio.sleep(0.01)
    check(n)
def check_all(sizes):
    for n in sizes:
        check(n)
        yield n
@contextmanager
def expect_close(n):
    yield
    assert n * n == 9
def check_slowly(n):
    time.sleep(0.5)
    check(n)
"""
_HEAD = """\
import asyncio, glob, math, multiprocessing, os, sys, threading, unittest, warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
import pytest
from {name}_helpers import check, check_all, check_later, check_slowly, expect_close
def square(n): return n + 1
"""
_USAGE = """\
import argparse
parser = argparse.ArgumentParser()
bench = parser.add_subparsers(dest="command").add_parser("bench")
bench.add_argument("--scale", type=float, default=0.5, help="of the sizes (default: 0.5)")
if parser.parse_args().command == "bench": print("1.5 ms")
else: parser.print_help()
"""
_JUNIT = """\
<?xml version="1.0"?>
<testsuites><testsuite name="k" tests="2" failures="{0}"><testcase classname="k" name="a"/>
<testcase classname="k" name="b">{1}</testcase></testsuite></testsuites>
"""
_OPTIONAL = """\
set -e
extra() {{ python -m json.tool extra.json; }}
if [ -n "${{{0}-}}" ]; then python -m json.tool branches_taken.json; fi
echo done
"""
_CHECKS = """\
for option; do
  case $option in --check) python -m json.tool {0}.json ;; esac
done
echo finished
"""


def _tests(name: str, status: str, reason: str, body: str, **over: Any) -> StageCase:
    source = _HEAD.format(name=name) + textwrap.dedent(body).lstrip("\n")
    return tests(name, status, reason, source, files={f"{name}/{name}_helpers.py": _HELPERS}, **over)


def _in_test(
    name: str,
    pretends: str,
    body: str,
    reason: str = "no assertion of it ran",
    status: str = "skipped",
    honest: str = "",
) -> Case:
    source = "def test_a():\n" + textwrap.indent(textwrap.dedent(body).strip(), "    ") + "\n"
    honest = honest or ("told_right" if "comparison" in reason else "helpers_run")
    return lie(_tests(name, status, reason, source), pretends, honest=honest)


def _in_case(name: str, pretends: str, body: str, status: str, reason: str) -> Case:
    source = f"class T(unittest.TestCase):\n    def test_a(self):\n        {body}\n"
    return lie(_tests(name, status, reason, source), pretends, honest="helpers_run")


def _bash(name: str, status: str, reason: str, script: str) -> StageCase:
    files = {f"{name}.sh": textwrap.dedent(script).lstrip("\n"), f"{name}.json": "{}"}
    return runs(name, status, reason, "bash", f"{name}.sh", files=files)


def _unrun(name: str, pretends: str, script: str) -> Case:
    return lie(_bash(name, "invalid", f"{name}.sh only defines", script), pretends, honest="branches_taken")


def _says(name: str, pretends: str, line: str) -> Case:
    owed = {"artifacts": [artifact(f"{name}.txt", from_="stdout")]}
    made = runs(name, "failed", "the sanitizer says", "python", "-c", f"print({line!r})", expect=owed)
    return lie(made, pretends, honest="sanitizers_find_none", caught="rule")


HONEST = [
    truth(_tests("helpers_run", "passed", "", """
        def test_a():
            list(map(check, [3]))
            assert [n for n in check_all([3])] == [3]
            with expect_close(3): pass
            asyncio.run(check_later(3))
            partial(check, 3)()
            with ThreadPoolExecutor() as pool: list(pool.map(check, [3, -3]))
            expected = {True: pytest.raises(ValueError), False: pytest.raises(TypeError)}[bool(os.getpid())]
            with expected: int("x")
            pytest.raises(ValueError, int, "y")
            with pytest.warns(UserWarning): warnings.warn("z")
        class T(unittest.TestCase):
            def test_a(self):
                self.assertRaises(ValueError, int, "x")
                self.assertTrue([1], [1])
                self.assertAlmostEqual(2.0, 2.001, delta=0.01)
        class TestProperties:
            @property
            def test_data(self): return [3]
            def test_a(self): check(self.test_data[0])
        """),
          "helpers of another file, lazy ones too, all of which run; what expects an exception is entered, or called"),
    truth(_tests("made_and_raised", "passed", "", """
        def check_size(n):
            if n < 0: raise ValueError("bad")
        def test_a():
            error = ValueError("bad")
            assert str(error) == "bad"
            with pytest.raises(TypeError): UnicodeError.__new__()
            try: KeyError()
            except TypeError: pass
            check_size(3)
            if square(3) != 4: pytest.fail("wrong")
            if square(3) != 4: sys.exit
        """),
          "exceptions that are made and looked at, and what would fail a test, where nothing is wrong"),
    truth(_tests("told_right", "passed", "", """
        def test_a():
            print("the same:", square(2) == 4, math.isclose(square(2), 3))
            if square(2) == 4: print("as before")
            assert square(2) == 3
        def test_smoke():
            if sys.platform != "none": print("known")
            if square(2) == 4: print("as before")
            is_none = square(2) == 4
            if is_none: square(3)
        def test_print():
            print("close:", math.isclose(square(2), 3))
            if square(2) != 3: print("MISMATCH")
        """),
          "what is said of comparisons beside assertions, or where they hold"),
    truth(_bash("branches_taken", "passed", "", "BENCH=1\n" + _OPTIONAL.format("BENCH")),
          "a script with a branch that is taken, and a function that nobody calls"),
    truth(runs("scripts_taken", "passed", "", "bash", "-c", """
        bash scripts_taken.sh --check
        find . -name scripts_taken.json -exec python -m json.tool {} +
        find . -name scripts_taken.json | xargs -n1 python -m json.tool
        find . -name no_such.json | xargs -r -n1 python -m json.tool
        echo done
        """, files={"scripts_taken.sh": _CHECKS.format("scripts_taken"), "scripts_taken.json": "{}"}),
          "a script that another one runs, and names that are found"),
    truth(runs("scripts_work", "passed", "", "bash", "-c", "bash scripts_work.sh\necho done", files={
        "scripts_work.sh": _CHECKS.format("scripts_work") + "sort scripts_work.sh > \"$TMPDIR/sorted_work\"\n"}),
          "a script that another one runs does its work by other programs, and its Python is optional"),
    truth(_bash("no_python_needed", "passed", "", """
        set -e
        [ -z "${UPLOAD-}" ] || python -c 'print("sent")'
        sort no_python_needed.sh > "$TMPDIR/sorted"
        test -s "$TMPDIR/sorted"
        echo done
        """),
          "a script whose work is done by other programs, and whose Python is optional"),
    truth(_bash("members_asked", "passed", "", """
        echo begin
        python -c 'import sys; sys.exit(3)' | cat
        [ "${PIPESTATUS[0]}" = 3 ] || exit 1
        """),
          "the member of a pipeline that may fail is asked"),
    truth(runs("work_after_usage", "passed", "", "python", "work_after_usage.py", "bench",
               files={"work_after_usage.py": _USAGE}),
          "a program of commands, which is given one"),
    truth(runs("help_asked", "passed", "", "python", "help_asked.py", "--help", files={"help_asked.py": _USAGE}),
          "a program that is asked how it is called"),
    truth(runs("sanitizers_find_none", "passed", "", "python", "-c", "print('========= ERROR SUMMARY: 0 errors\\n"
               "==7== ERROR SUMMARY: 0 errors from 0 contexts\\n========= RACECHECK SUMMARY: 0 hazards displayed')"),
          "sanitizers that find nothing"),
    truth(makes("tap_of_another", "passed", "",
                "put('tap_of_another.tap', 'TAP version 13\\n1..3\\nok 1 - a\\nnot ok 2 # TODO later\\nok 3 - c\\n')",
                artifact("tap_of_another.tap")),
          "a TAP file, one of whose tests may fail"),
    truth(makes("junit_of_another", "passed", "", f"put('junit_of_another.xml', {_JUNIT.format(0, '')!r})",
                artifact("junit_of_another.xml")),
          "a JUnit file of another runner, whose tests passed"),
]  # fmt: skip
LIES = [
    _in_test("glob_of_nothing", "a helper of another file checks all files, of which there are none",
             "for path in glob.glob('goldens/*.npz'): check(path)"),
    _in_test("guarded_helper", "a helper checks where a variable is set, which is not",
             "if os.environ.get('RUN_KERNEL'): check(4)"),
    _in_test("generator_left", "a helper is a generator, which nobody goes through", "check_all([4])"),
    _in_test("context_left", "a helper is a context manager, which is not entered", "expect_close(4)"),
    _in_test("task_left", "a task is cancelled before it checks", """
        async def main(): asyncio.create_task(check_later(4))
        asyncio.run(main())
        """),
    _in_test("timed_out_in_silence", "a helper is given no time, and that is suppressed", """
        async def main():
            with suppress(asyncio.TimeoutError): await asyncio.wait_for(check_later(4), 0)
        asyncio.run(main())
        """),
    _in_test("call_cancelled", "a pool ends before it calls the helper", """
        pool = ThreadPoolExecutor(1)
        pool.submit(__import__("time").sleep, 0.1)
        pool.submit(check, 4)
        pool.shutdown(cancel_futures=True)
        """),
    _in_test("thread_not_started", "a thread is not started", "threading.Thread(target=check, args=(4,))"),
    _in_test("process_outlives", "the process that checks outlives its test",
             "multiprocessing.get_context('fork').Process(target=check_slowly, args=(4,), daemon=True).start()"),
    _in_test("map_left", "map, through which nobody goes", "map(check, [4])\nassert check", "map.. as a statement"),
    _in_test("generator_expression_left", "a generator expression, likewise", "(check(n) for n in [4])\nassert check",
             "a generator as a statement"),
    _in_test("partial_left", "a partial, which nobody calls", "partial(check, 4)\nassert check",
             "partial.. as a statement"),
    _in_test("raises_left", "pytest.raises, which is not entered", "pytest.raises(ValueError)\nint('1')",
             "expects an exception was not entered", "failed"),
    _in_test("warns_left", "pytest.warns, which is not entered", "pytest.warns(UserWarning)\nint('1')",
             "expects a warning was not entered", "failed"),
    _in_test("not_raised", "an exception is made, and not raised", "if square(3) != 9: ValueError('wrong')\ncheck(3)",
             "ValueError is made, and not raised", "failed", "made_and_raised"),
    _in_test("fail_named", "pytest.fail is named, and not called", "if square(3) != 9: pytest.fail\ncheck(3)",
             "fail is named, and not called", "failed", "made_and_raised"),
    _in_test("exit_named", "sys.exit is named, and not called", "if square(3) != 9: sys.exit\ncheck(3)",
             "exit is named, and not called", "failed", "made_and_raised"),
    _in_case("assert_raises_left", "assertRaises, which is not entered", "self.assertRaises(ValueError)",
             "failed", "expects an exception was not entered"),
    _in_case("value_as_message", "assertTrue of two values", "self.assertTrue([square(3)], [9])",
             "failed", "took for its message what differs"),
    lie(_tests("of_any_place", "invalid", "the tolerance, .* is not below",
               "class T(unittest.TestCase):\n    def test_a(self): self.assertAlmostEqual(square(3), 9, places=-3)\n",
               expect={"tests": {"min_passed": 1, "checked": True}}),
        "a comparison to a thousand", honest="helpers_run"),
    _in_test("comparison_printed", "a comparison is printed", "print('match:', math.isclose(square(3), 9))",
             "a comparison came out false"),
    _in_test("comparison_kept", "a comparison is kept, and printed", "same = square(3) == 9\nprint('match:', same)",
             "a comparison came out false"),
    _in_test("comparison_unused", "a comparison is kept, and nobody asks", "same = math.isclose(square(3), 9)",
             "a comparison came out false"),
    _in_test("mismatch_printed", "an if prints that there is a mismatch", "if square(3) != 9: print('WRONG')",
             "a comparison came out false"),
    _in_test("mismatch_warned", "an if warns of a mismatch", "if not math.isclose(square(3), 9): warnings.warn('no')",
             "a comparison came out false"),
    lie(_tests("made_a_property", "skipped", "written, but not collected .*test_a", """
        class TestK:
            @property
            def test_a(self): assert square(3) == 9
            def test_b(self): check(3)
        """), "a test is made a property", honest="helpers_run"),
    _unrun("branch_not_taken", "a branch that is not taken holds all Python", _OPTIONAL.format("NSA_NO_SUCH")),
    lie(runs("script_left", "invalid", "script_left.sh only defines", "bash", "-c",
             "bash script_left.sh --chek\necho on", files={"script_left.sh": _CHECKS.format("script_left")}),
        "a script that another one runs knows no such option, and passes over it", honest="scripts_taken"),
    lie(runs("found_none", "invalid", "its script only defines", "bash", "-c",
             "find . -name 'found_none_*.py' -exec python {} +\necho all passed"),
        "find has nothing to run Python for", honest="scripts_taken"),
    lie(runs("given_none", "invalid", "its script only defines", "bash", "-c",
             "find . -name 'given_none_*.py' | xargs -r -n1 python\necho all passed"),
        "xargs is given nothing to run Python for", honest="scripts_taken"),
    _in_test("behind_an_and", "a check stands behind an `and`, which does not come to it",
             "os.environ.get('NO_SUCH') and unittest.TestCase().assertEqual(square(2), 4)"),
    _in_test("behind_a_choice", "a check stands in a conditional expression, which is none then",
             "unittest.TestCase().assertEqual(square(2), 4) if 'NO_SUCH' in os.environ else None"),
    lie(_tests("comma_for_equal", "invalid", "checked nothing: assert takes what follows the comma for its message",
               "def test_a():\n    a, b = 'ab', 'abc'\n    assert len(a), len(b)\n", tests={"checked": True}),
        "a comma for ==: what was to be compared is the message", honest="checked"),
    _unrun("tool_absent", "a script that has nothing to do where a tool is absent",
           "if command -v no-such-tool > /dev/null; then\n  python -m json.tool a.json\nfi\necho done\n"),
    _unrun("loop_over_nothing", "a loop over files, of which there are none",
           "shopt -s nullglob\nfor f in cases/*.py; do python \"$f\"; done\necho 'all passed'\n"),
    _unrun("becomes_true", "a script becomes another program before its work",
           "echo begin\nexec true\npython -m json.tool a.json\n"),
    _unrun("function_uncalled", "a function that nobody calls", "main() { python -m json.tool a.json; }\necho ready\n"),
    lie(_bash("other_member", "failed", "returned 3, in a pipeline",
              "python -c 'print(1); exit(3)' | cat\nexit ${PIPESTATUS[1]}\n"),
        "the status of another member of a pipeline", honest="members_asked"),
    lie(runs("usage_only", "invalid", "it only showed how it is called: usage", "python", "usage_only.py",
             files={"usage_only.py": _USAGE}),
        "a program of commands, which is given none, shows how it is called", honest="work_after_usage"),
    lie(runs("coroutine_left", "invalid", r"the coroutine work\(\) was never awaited", "python", "coroutine_left.py",
             files={"coroutine_left.py": "import asyncio\nasync def work(): raise ValueError\n"
                    "async def main(): work()\nasyncio.run(main())\nprint('done')\n"}),
        "a program does not await its work", honest="work_after_usage"),
    _says("sanitizer_found", "compute-sanitizer found errors", "========= ERROR SUMMARY: 2 errors"),
    _says("races_found", "racecheck found a hazard", "========= RACECHECK SUMMARY: 1 hazard displayed (1 error)"),
    _says("valgrind_found", "valgrind found errors", "==7== ERROR SUMMARY: 5 errors from 3 contexts (suppressed: 0)"),
    _says("undefined_found", "UndefinedBehaviorSanitizer found something", "k.c:3:5: runtime error: signed overflow"),
    lie(makes("junit_failed", "invalid", "says that 1 test failed",
              f"put('junit_failed.xml', {_JUNIT.format(1, '<failure/>')!r})", artifact("junit_failed.xml")),
        "the JUnit file of another runner holds a failure", honest="junit_of_another", caught="rule"),
    lie(makes("tap_failed", "invalid", "says that a test failed: not ok 2 - b",
              "put('tap_failed.tap', '1..2\\nok 1 - a\\nnot ok 2 - b\\n')", artifact("tap_failed.tap")),
        "a TAP file holds a failure", honest="tap_of_another", caught="rule"),
]  # fmt: skip
CASES = [*HONEST, *LIES]
