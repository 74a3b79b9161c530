"""Exit codes that a script loses, and runners of tests that ran none, skipped some or failed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tests.honesty.case import Case, lie, truth
from tests.support.stage_cases import TWO, artifact, runs

FAILS = "python -c 'raise SystemExit(3)'"
RUNS = "python -c 'print(1)'"
TESTS_OF_A_PROGRAM = """
import pytest
@pytest.mark.filterwarnings("error")
def test_a():
    assert len("a") == 1
    print("a is whole")
class TestB:
    def test_b(self): assert len("b") == 1
{}
"""
STARTS = """
import os, subprocess, sys
child = [sys.executable, "-c", "raise SystemExit(3)"]
{}
print("done")
"""
FAILING_TEST = "def test_a(): assert 1 == 2\n"
MAIN = "def check(): assert 1 == 1\ndef main():\n    check()\nif __name__ == '{}':\n    main()\n"
UNITTEST = """
import unittest
class T(unittest.TestCase):
    def test_a(self): pass
    {}
if __name__ == "__main__":
    unittest.main()
"""
BATS = """
export BATS_ROOT=$PWD
set -ET
run() {{ set +eET; output=$("$@" 2>&1) && status=0 || status=$?; set -eET; }}
run bash -c 'exit 4'; run python -c 'raise SystemExit(4)'
set +eET; [ $status -eq {} ] && found=ok || found="not ok"
echo 1..1; echo "$found 1 - it fails as it should"
"""
SYSTEM = "os.system(f'{sys.executable} -c \"raise SystemExit(0 if %s else 1)\"')"
THREAD = "import threading\nt = threading.Thread(target=sys.exit, args=(%s,)); t.start(); t.join()"
DOCTEST = '"""Of {}\n\n>>> 1 + 1\n{}\n"""\nimport doctest\ndoctest.testmod()\nprint("done")\n'
SKIPS = "def test_b(self): self.skipTest('no GPU')"
SHOWS = "echo '{}'"
NONE_OF_CTEST = "No tests were found!!!"
ONE_OF_CTEST = "100% tests passed, 0 tests failed out of 1"
NONE_OF_CARGO = "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 4 filtered out; finished in 0.00s"
ONE_OF_CARGO = NONE_OF_CARGO.replace("0 passed", "1 passed").replace("4 filtered", "0 filtered")
SEEDS = "PYTHONPATH=. python -m pytest -q {} 2>&1 | tee -a $TMPDIR/log"


def _leave_script(root: Path) -> None:
    script = root.parent / "elsewhere.sh"
    script.write_text("#!/bin/bash\necho 12 passed\n")
    script.chmod(0o755)
    os.utime(script, (1.6e9, 1.6e9))


def _bash(name: str, status: str, reason: str, script: str, **over: Any) -> Any:
    return runs(name, status, reason, "bash", "-c", script, **over)


def _lines(name: str, text: str, says: str, *, honest: str | None = None, status: str = "passed", reason: str = "",
           files: dict[str, str] | None = None, **expect: Any) -> Case:  # fmt: skip
    """A stage of `shell` lines that owes its stdout."""
    expect = {"artifacts": [artifact(f"{name}.txt", from_="stdout")], **expect}
    stage = {"name": name, "shell": text, "expect": expect}
    return Case(name, says, status, reason, honest=honest, stage=stage, files=files or {})


def _made(name: str, says: str, status: str = "passed", reason: str = "", *, recipe: str = "",
          source: str = "def test_a(): assert 1 + 1\n") -> Case:  # fmt: skip
    """A stage of make, by whose `recipe` the tests of a file run; it owes one that passes."""
    recipe = recipe or f"python -m pytest -q {name}/test_it.py"
    files = {f"{name}/Makefile": f"test:\n\t{recipe}\n", f"{name}/test_it.py": source}
    stage = {"name": name, "run": ["make", "-f", f"{name}/Makefile", "test"], "expect": {"tests": {"min_passed": 1}}}
    honest = None if status == "passed" else "made_tests"
    return Case(name, says, status, reason, honest=honest, stage=stage, files=files)


def _starts(name: str, status: str, reason: str, code: str, **over: Any) -> Any:
    """A program of the tree that starts another."""
    return runs(name, status, reason, "python", f"{name}.py", files={f"{name}.py": STARTS.format(code)}, **over)


HONEST = [
    truth(runs("with_a_main", "passed", "", "python", "tests/test_with_a_main.py",
               files={"tests/test_with_a_main.py": TESTS_OF_A_PROGRAM.format(
                   'def each():\n    test_a(); TestB().test_b()\nif __name__ == "__main__":\n    each()')}),
          "a file of tests is run as a program, which calls them"),
    truth(_starts("children_asked", "passed", "",
                  "assert subprocess.run(child).returncode == 3\nassert subprocess.call(child) == 3\n"
                  "assert subprocess.Popen(child).wait() == 3\nassert os.system('exit 3') >> 8 == 3\n"
                  "try: subprocess.run(child, check=True)\n"
                  "except subprocess.CalledProcessError as e: print('as expected', e.returncode)\n"
                  "assert all([r.returncode == 3 for r in [subprocess.run(child) for _ in range(2)]])\n"
                  "subprocess.run('echo a | cat; exit 0', shell=True, check=True)\nos.system('echo b | cat')"),
          "a program that looks at what others return"),
    truth(_starts("statuses_kept", "passed", "",
                  f"{THREAD % 0}\nif os.system('exit 0'): sys.exit(1)\nstatus = {SYSTEM % 1} >> 8\n"
                  "print('status', status)\nsys.exit(status)"),
          "a thread that ends, and a status of os.system that is returned"),
    truth(_starts("children_probed", "passed", "",
                  "subprocess.run(['git', 'no-such-command'], capture_output=True)\n"
                  "subprocess.run(['grep', '-q', 'x', '/dev/null'])\n"
                  "subprocess.run('which no-such-program', shell=True)\n"
                  "os.system('nvidia-smi > /dev/null 2> /dev/null')"),
          "a program that asks others for what may not be there"),
    truth(_starts("child_ended", "passed", "",
                  "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
                  "p.terminate(); p.wait()"),
          "a program that ends another"),
    truth(_starts("child_allowed", "passed", "", "print(subprocess.run(child, capture_output=True).stdout)",
                  expect={"artifacts": [artifact("child_allowed.txt", from_="stdout")],
                          "allow_exit_codes": {"python": [3], "python3": [3]}}),
          "the exit code is allowed"),
    truth(_bash("script_of_successes", "passed", "", f"{RUNS} | tee $TMPDIR/log; {RUNS} & wait; echo done"),
          "pipes and jobs, none of which fails"),
    truth(_bash("script_made_there", "passed", "",
                "mkdir -p ../made; echo 'echo made' > ../made/it.sh; bash ../made/it.sh"),
          "a script that the stage has made itself beside the tree"),
    lie(_bash("script_of_elsewhere", "invalid", "elsewhere.sh came from .*, neither the commit's nor the environment's",
              "../../../../elsewhere.sh"),
        "a script that is none of the commit's", honest="script_made_there", prepare=_leave_script),
    truth(_bash("script_of_readers", "passed", "",
                f"exec 3>&1; {RUNS} > >(cat >&3); {RUNS} | tee >(cat > $TMPDIR/log) > /dev/null; echo done"),
          "commands that write to substitutions, none of which fails"),
    truth(_bash("eval_checked", "passed", "",
                f'eval "{RUNS} | cat"; x="ls | head -1"; eval $x; eval "cd / && set -o pipefail"; eval "{RUNS} | cat"',
                expect={"artifacts": [artifact("eval_checked.txt", from_="stdout", contains=["1"])]}),
          "pipes at the end of evals, and their output is checked"),
    truth(_bash("silent_recipe", "passed", "",
                "make -s -f silent_recipe.mk; if make -s -f silent_recipe.mk fails 2> /dev/null; then exit 1; fi",
                files={"silent_recipe.mk": f"all:\n\t-rm none 2> /dev/null\n\t@{RUNS}\nfails:\n\t{FAILS}\n"}),
          "make -s ignores the error of rm, and the script tests the error of another recipe"),
    truth(_bash("posix_scripts_by_path", "passed", "",
                "cp posix_scripts_by_path.sh $TMPDIR; cd $TMPDIR; d=./posix_scripts_by_path; chmod +x $d.sh\n"
                "X=1 $d.sh a 'b c' | grep -q '1: a b c$' || exit 1\n"
                "if $d.sh fails; then exit 1; fi; (cd / && \"$OLDPWD/$d.sh\" > $TMPDIR/x); set -x; $d.sh; cat x",
                files={"posix_scripts_by_path.sh": '#!/bin/sh -e\n[ "$1" != fails ]\necho "$X: $@"\n'}),
          "scripts for /bin/sh, started by their paths, in pipes, conditions and elsewhere"),
    truth(_bash("chained_by_another", "passed", "",
                "perl -e 'exit system(\"/bin/sh\", \"-c\", \"python chained.py 2>&1 && test -d .\") >> 8'",
                files={"chained.py": "print(1)\n"}),
          "a program has a shell of its own run commands up to the first that fails, as ninja does"),
    truth(_bash("status_tested", "passed", "", f"{FAILS}; rc=$?; if [ $rc -ne 3 ]; then exit 1; fi; echo as expected"),
          "a status that is looked at"),
    truth(_bash("questions_asked", "passed", "",
                "log() { [ -n \"$LOUD\" ] && echo \"$1\"; }; log a; (( n++ )); let n--; echo a | cat\n"
                "has() { [[ -e $1 ]]; }; has none || echo none; [ -t 0 ]; tty=$?; ! [ -e none ]; [ ! -e none ]\n"
                "for f in a b; do [ -e $f ] && rm $f; done; test -e none; case $? in 0) exit 1 ;; esac; echo $tty"),
          "questions whose answers are used, or that end a function by accident; counters"),
    truth(_bash("guarded_program", "passed", "", "python guarded_program.py; python of_names.py; echo done",
                files={"guarded_program.py": MAIN.format("__main__"), "of_names.py": "SIZE = 3\ndef f(): pass\n"}),
          "a program whose guard holds, and a module of names"),
    truth(_bash("job_tested", "passed", "", f"{FAILS} & p=$!; wait $p && exit 1; echo it failed, as it should"),
          "a job in the background whose status is looked at"),
    truth(_bash("server_ended", "passed", "", "sleep 60 & p=$!; echo up; kill $p; wait $p; echo down"),
          "a server in the background, which the script ends"),
    truth(_bash("output_cut_short", "passed", "", "yes | head -1; python -c 'for i in range(9999): print(i)'|head -1"),
          "a reader that has read enough"),
    truth(_bash("nothing_found", "passed", "", "grep x /dev/null | wc -l",
                expect={"artifacts": [artifact("nothing_found.txt", from_="stdout")],
                        "allow_exit_codes": {"grep": [1]}}),
          "a grep that finds nothing, which is allowed"),
    truth(runs("posix_script", "passed", "", "sh", "posix_script.sh",
               files={"posix_script.sh": "[ -f none ] || echo none\nx=$(expr 1 - 1 || true)\necho $x\n"}),
          "a script of questions, tested"),
    truth(runs("recipe", "passed", "", "make", "-s", "-f", "recipe.mk",
               files={"recipe.mk": "all:\n\t@echo it is made | cat\n"}), "a recipe whose pipe succeeds"),
    truth(_bash("unittests", "passed", "", "python -m unittest -v unittests 2>&1",
                files={"unittests.py": UNITTEST.format("")}), "a unittest that passes"),
    truth(_bash("ctested", "passed", "", SHOWS.format(ONE_OF_CTEST)), "ctest, one test of one passes"),
    truth(_bash("found_and_run", "passed", "", "find found_and_run -name '*.py' -exec python {} +",
                files={"found_and_run/it.py": "print(1)\n"}), "what find runs all at once, whose status is find's"),
    truth(_bash("trap_cleans_up", "passed", "", "trap 'rm -f $TMPDIR/x; exit 0' EXIT; echo done"),
          "an EXIT trap after a success"),
    truth(_bash("err_trap_tested", "passed", "",
                f"rc=0; trap 'rc=$?' ERR; {FAILS}; trap - ERR\n[ $rc = 3 ] || exit 1; {RUNS}"),
          "an ERR trap that sets a variable, on which something depends"),
    truth(_bash("refused_by_a_function", "passed", "",
                'not() { ! "$@"; }\nt() { if "$@"; then echo ok; else bad=1; fi; }\n'
                f't not {FAILS}; [ "${{bad-0}}" = 0 ]'),
          "a function that negates what it runs, as runners of shell tests have it"),
    truth(_bash("ended_by_its_trap", "passed", "",
                "end() { kill $(jobs -p); wait; }; trap end EXIT\npython -c 'import signal, sys, time; "
                f"signal.signal(15, lambda *a: sys.exit(143)); time.sleep(60)' & sleep 0.5; {RUNS}"),
          "a server in the background, which a function of the EXIT trap ends and waits for"),
    truth(runs("docs_tested", "passed", "", "python", "docs_tested.py",
               files={"docs_tested.py": DOCTEST.format("docs_tested", 2)}), "a doctest that passes"),
    truth(runs("examples_tested", "passed", "", "python", "-m", "doctest", "-v", "examples_tested.py", "no_examples.py",
               files={"examples_tested.py": ">>> 1 + 1\n2\n".join(['"""Of it.\n\n', '"""\n']), "no_examples.py": ""}),
          "doctests of two files, one of which holds none"),
    truth(runs("examples_counted", "passed", "", "python", "-m", "doctest", "examples_counted.py",
               files={"examples_counted.py": '"""Of it.\n\n>>> 1 + 1\n2\n"""\n'}, expect={"tests": {"min_passed": 1}}),
          "a doctest, asked for as a test"),
    truth(_bash("nothing_to_clean", "passed", "", "make -f nothing_to_clean.mk clean || true; echo done",
                files={"nothing_to_clean.mk": "clean:\n\t@test -d none\n"}), "|| true after make clean"),
    _lines("lines", "set -x\n" + SEEDS.format("lines/test_it.py") + "\n",
           "the seeds' command as `shell` lines, on a good commit", files={"lines/test_it.py": TWO}),
    truth(_bash("cargo_docs", "passed", "",
                f"cargo() {{ echo '{ONE_OF_CARGO}'; echo '{NONE_OF_CARGO}'; }}; cargo test"),
          "cargo runs one test, and finds none in the documentation"),
    truth(_bash("bats_expects", "passed", "", "bash bats_expects/bats", files={"bats_expects/bats": BATS.format(4)}),
          "a test of bats runs programs that fail as they should"),
]  # fmt: skip

LIES = [
    lie(_bash("bats_refuses", "failed", "tap says: not ok 1 - it fails", "bash bats_refuses/bats",
              files={"bats_refuses/bats": BATS.format(5)}),
        "a test of bats fails, and bats exits with 0", honest="bats_expects"),
    lie(_bash("bats_only_named", "failed", "", "export BATS_ROOT=$PWD; bash bats_only_named/inner.sh",
              files={"bats_only_named/inner.sh": "python -c 'raise SystemExit(3)' || true\necho done\n"}),
        "a variable says that bats runs, and none does", honest="bats_expects"),
    lie(runs("without_a_main", "invalid", "no test of tests/test_without_a_main.py ran", "python",
             "tests/test_without_a_main.py", files={"tests/test_without_a_main.py": TESTS_OF_A_PROGRAM.format(
                 'if __name__ == "__main__":\n    print("done")')}),
        "a file of tests is run as a program, which calls none of them", honest="with_a_main"),
    lie(runs("unittest_without_a_main", "invalid", "no test of .* ran", "python", "unittest_without_a_main.py",
             files={"unittest_without_a_main.py": UNITTEST.partition("if __name__")[0].format(
                 "def test_b(self): self.assertTrue(0)") + "print('done')\n"}),
        "a file of unittests is run as a program without a main", honest="unittests"),
    lie(_bash("guard_mistyped", "invalid", "guard_mistyped.py only defines",
              "python guard_mistyped.py; echo done",
              files={"guard_mistyped.py": MAIN.format("__main_")}),
        "a program whose guard is mistyped: if __name__ == '__main_'", honest="guarded_program"),
    lie(_bash("main_uncalled", "invalid", "main_uncalled.py only defines",
              "python -m main_uncalled; echo done",
              files={"main_uncalled.py": MAIN.partition("if __name__")[0]}),
        "a program with a main that nothing calls", honest="guarded_program"),
    _made("made_tests", "make runs the tests that are owed"),
    _made("made_none", "make is to run the tests that are owed, and runs none", "skipped", "^0 tests passed",
          recipe="python -c 'print(\"1 passed in 0.01s\")'"),
    _made("made_failures", "make ignores that a test fails", "failed", "test_a failed", source=FAILING_TEST,
          recipe="-python -m pytest -q made_failures/test_it.py"),
    lie(_bash("err_trap_unread", "failed", "returned 3, and its script did not test it",
              f"trap 'rc=1' ERR; {FAILS}; trap - ERR; {RUNS}"),
        "an ERR trap sets a variable that nobody reads", honest="err_trap_tested"),
    lie(_bash("err_trap_says", "failed", "returned 3, and its script did not test it",
              f"trap 'echo failed in line $LINENO' ERR; {FAILS}; {RUNS}"),
        "an ERR trap says that something failed", honest="err_trap_tested"),
    lie(_bash("negated_condition_of_a_function", "failed", "returned 3, and its script made no more of it than words",
              f"t() {{ if {FAILS}; then echo ok; fi; }}\nt; {RUNS}"),
        "a function ends with an if that has no else", honest="refused_by_a_function"),
    lie(_bash("failed_before_its_trap", "failed", "returned 3, in the background",
              f"{FAILS} & trap 'kill %1; wait' EXIT; sleep 0.5; {RUNS}"),
        "a job has failed before the EXIT trap would end it", honest="ended_by_its_trap"),
    lie(_starts("child_ignored", "failed", "returned 3, and the Python that started it did not look .child_ignored.py",
                "subprocess.run(child)"),
        "a program ignores what another returned", honest="children_asked"),
    lie(_starts("status_of_256", "failed", "returned 256, and nobody was told",
                f"print('done')\nsys.exit({SYSTEM % 0})"),
        "a program ends with what os.system returned, 256, of which the system makes 0", honest="statuses_kept"),
    lie(_starts("thread_exits", "failed", "returned 3, and nobody was told", THREAD % 3),
        "a thread ends with sys.exit(3)", honest="statuses_kept"),
    lie(runs("examples_forgotten", "invalid", "no test of examples_forgotten.py ran", "python", "-m", "doctest", "-v",
             "examples_forgotten.py", files={"examples_forgotten.py": '"""Of it: 1 + 1 is 2."""\n'}),
        "doctest of a file without an example", honest="examples_tested"),
    lie(_starts("child_logged", "failed", "did not look",
                "print(subprocess.run(child, capture_output=True, text=True).stdout)"),
        "a program shows what another printed, and ignores what it returned", honest="children_asked"),
    lie(_starts("child_awaited", "failed", "did not look", "subprocess.Popen(child).wait()"),
        "a program waits for another, and drops what it returned", honest="children_asked"),
    lie(_starts("child_forgotten", "failed", "did not look",
                "import time\np = subprocess.Popen(child)\n"
                "while open(f'/proc/{p.pid}/stat').read().split()[2] != 'Z':\n"
                "    time.sleep(0.01)"),
        "a program does not wait for another, which has failed by then", honest="children_asked"),
    lie(_starts("system_ignored", "failed", "did not look",
                "os.system(f'{sys.executable} -c \"raise SystemExit(3)\"')"),
        "a program drops what os.system returned", honest="children_asked"),
    lie(_starts("piped_by_a_child", "failed", "returned 3, in a pipeline",
                "subprocess.run('python -c \"raise SystemExit(3)\" | cat', shell=True, check=True)"),
        "a program starts a pipe in a shell, and looks at its last member only", honest="children_asked"),
    lie(_starts("piped_by_system", "failed", "returned 3, in a pipeline",
                "sys.exit(os.system('python -c \"raise SystemExit(3)\" | cat'))"),
        "a program starts a pipe by os.system", honest="children_asked"),
    lie(_bash("lost_in_a_pipe", "failed", "returned 3, in a pipeline", f"{FAILS} | tee $TMPDIR/log; echo done"),
        "| tee takes the exit code", honest="script_of_successes"),
    lie(_bash("lost_in_between", "failed", "returned 3, and its script did not", f"{FAILS}; echo done"),
        "a script without set -e goes on", honest="script_of_successes"),
    lie(_bash("lost_in_a_function", "failed", "returned 3", f"f() {{ {FAILS} | cat; }}; f; echo done"),
        "a pipe that ends a function", honest="script_of_successes"),
    lie(_bash("lost_in_the_background", "failed", "in the background", f"{FAILS} & wait; echo done"),
        "`wait` does not say what a job returned", honest="job_tested"),
    lie(_bash("killed_in_the_background", "failed", "returned 137",
              "python -c 'import os; os.kill(os.getpid(), 9)' & wait; echo done"),
        "a job in the background is killed", honest="server_ended"),
    lie(_bash("segfault_in_a_pipe", "failed", "returned 139",
              "python -c 'import os; os.kill(os.getpid(), 11)' | cat; echo done"),
        "a segfault at the begin of a pipe", honest="output_cut_short"),
    lie(_bash("dropped", "failed", "dropped it", f"{FAILS} || true; echo done"),
        "|| true after a Python", honest="status_tested"),
    lie(_bash("gives_up", "failed", "returned 3, and its script made no more of it than words",
              f"set -e; n=0; until {FAILS}; do n=$((n + 1)); [ $n -ge 2 ] && break; done; echo done"),
        "a loop that tries again gives up and goes on", honest="gives_up_and_says_so"),
    truth(_bash("gives_up_and_says_so", "passed", "",
                f"set -e; n=0; until {FAILS}; do n=$((n + 1)); [ $n -ge 2 ] && break; done; [ $n -ge 2 ]; echo done"),
          "a loop that tries again gives up, as it must"),
    lie(_bash("found_behind_a_not", "failed", "grep .* returned 1, behind a !",
              "set -e; echo '3 FAILED' > $TMPDIR/log; ! grep FAILED $TMPDIR/log; echo done"),
        "! grep FAILED log in the midst of a script: bash drops its status, also under set -e", honest="status_tested"),
    lie(_bash("asked_alone", "failed", r"\[ .* returned 1, which its script asked for and did not look at",
              "seq 3 > $TMPDIR/log; [ $(wc -l < $TMPDIR/log) -eq 7 ]; echo done"),
        "[ a -eq b ] as a statement of its own, without set -e", honest="questions_asked"),
    lie(_bash("asked_in_brackets", "failed", r"\[\[ .* returned 1, which",
              "echo a | cat; [[ $(date) == none ]]; echo done"),
        "[[ a == b ]], likewise", honest="questions_asked"),
    lie(_bash("asked_in_a_function", "failed", r"x == 4.* returned 1, which",
              "is_4() { (( x == 4 )); }; x=3; for i in 1 2; do is_4; done; echo done"),
        "a function that asks, as a statement of its own", honest="questions_asked"),
    lie(_bash("status_only_shown", "failed", "returned 3", f"{FAILS}; rc=$?; echo exit code $rc; exit 0"),
        "the status is printed, and nothing more", honest="status_tested"),
    lie(_bash("command_not_found", "failed", "returned 127", "no_such_bench --all; echo done"),
        "the program is not there, and the script goes on", honest="script_of_successes"),
    lie(_bash("nothing_found_in_the_middle", "failed", "grep .* returned 1", "grep x /dev/null | wc -l"),
        "a grep in a pipe that finds nothing", honest="nothing_found"),
    lie(runs("posix_script_goes_on", "failed", "posix_script_goes_on.sh line 1", "sh", "posix_script_goes_on.sh",
             files={"posix_script_goes_on.sh": "python no_such_file.py\necho done\n"}),
        "a script for /bin/sh goes on", honest="posix_script"),
    lie(_bash("posix_script_by_path", "failed", "posix_script_by_path.sh line 2",
              "cp posix_script_by_path.sh $TMPDIR; cd $TMPDIR; chmod +x *.sh; ./posix_script_by_path.sh && echo done",
              files={"posix_script_by_path.sh": f"#!/bin/sh\n{FAILS}\necho done\n"}),
        "a script for /bin/sh, started by its path, goes on", honest="posix_scripts_by_path"),
    lie(_bash("posix_lines", "failed", "returned 3", f'/bin/sh -c "{FAILS}; echo done"'),
        "lines for /bin/sh go on", honest="posix_scripts_by_path"),
    lie(runs("recipe_with_a_pipe", "failed", "returned 3", "make", "-s", "-f", "recipe_with_a_pipe.mk",
             files={"recipe_with_a_pipe.mk": f"all:\n\t{FAILS} | cat; echo done\n"}),
        "a pipe in a recipe of make", honest="recipe"),
    lie(runs("ignored_by_make", "failed", "run by make, returned 3, and nobody was told",
             "make", "-f", "ignored_by_make.mk",
             files={"ignored_by_make.mk": f"all:\n\t-{FAILS}\n\t@echo done\n"}),
        "make ignores the error of a recipe", honest="recipe"),
    lie(runs("ignored_in_silence", "failed", "run by make, returned 4, and nobody was told",
             "make", "-s", "-f", "ignored_in_silence.mk",
             files={"ignored_in_silence.mk": "PYTHON = python\nall:\n\t-rm none\n"
                                             "\t@-$(PYTHON) -c 'raise SystemExit(4)'\n\t@echo done\n"}),
        "make -s ignores the error of a recipe, and does not say so", honest="silent_recipe"),
    lie(runs("make_goes_on", "invalid", "go on after errors", "make", "-sk", "-f", "make_goes_on.mk",
             files={"make_goes_on.mk": "all:\n\t@echo it is made\n"}),
        "make -k, and nothing else is owed", honest="recipe", caught="rule"),
    lie(_bash("made_before", "invalid", "make ran no test", "make -f made_before.mk test",
              files={"made_before.mk": f"test: made_before.stamp\nmade_before.stamp:\n\t{FAILS}\n\ttouch $@\n",
                     "made_before.stamp": ""}),
        "make test, whose stamp is committed: there is nothing to be done", honest="recipe", caught="rule"),
    lie(runs("another_shell", "invalid", "not recorded of this dash", "dash", "-c", "false; echo done"),
        "a shell that does not tell", honest="posix_script", caught="rule"),
    lie(_bash("unittest_skips", "skipped", "1 test skipped: no GPU", "python -m unittest -v unittest_skips 2>&1",
              files={"unittest_skips.py": UNITTEST.format(SKIPS)}),
        "a unittest skips", honest="unittests"),
    lie(_bash("unittest_runs_none", "invalid", "unittest ran no test",
              "python -m unittest discover -s unittest_runs_none -p 'no*.py' 2>&1; exit 0",
              files={"unittest_runs_none/__init__.py": ""},
              expect={"artifacts": [artifact("unittest_runs_none.txt", from_="stdout")],
                      "allow_exit_codes": {"python": [5]}}),
        "a unittest finds no test", honest="unittests", caught="rule"),
    lie(_bash("unittest_none_amid", "invalid", "unittest ran no test",
              "set -e\npython -m unittest discover -s unittest_none_amid -p 'no*.py' 2>&1 | cat; echo done",
              files={"unittest_none_amid/__init__.py": ""},
              expect={"artifacts": [artifact("unittest_none_amid.txt", from_="stdout")],
                      "allow_exit_codes": {"python": [5]}}),
        "a unittest finds no test, and the script says more", honest="unittests", caught="rule"),
    lie(_bash("ctest_runs_none", "invalid", "ctest ran no test", SHOWS.format(NONE_OF_CTEST)),
        "ctest finds no test", honest="ctested", caught="rule"),
    lie(_bash("cargo_runs_none", "invalid", "cargo ran no test", SHOWS.format(NONE_OF_CARGO)),
        "cargo filters all tests out", honest="ctested", caught="rule"),
    lie(_bash("seeds_command", "failed", "test_a failed", SEEDS.format("seeds_command/test_it.py") + " || true",
              files={"seeds_command/test_it.py": FAILING_TEST}),
        "the seeds' command, with || true, on a broken commit", honest="lines"),
    lie(_bash("found_and_lost", "failed", "run by find, returned 3, and nobody was told",
              "find found_and_lost -name '*.py' -exec python {} \\;; echo done",
              files={"found_and_lost/it.py": "raise SystemExit(3)\n"}),
        "find -exec, which drops what the programs return", honest="found_and_run"),
    lie(_bash("trap_exits_with_0", "failed", "returned 3", f"end() {{ exit 0; }}; trap end EXIT; echo done; {FAILS}"),
        "an EXIT trap that ends the script with 0", honest="trap_cleans_up"),
    lie(_bash("inner_make_goes_on", "invalid", "go on after errors", "make -sk -f inner_make_goes_on.mk; echo done",
              files={"inner_make_goes_on.mk": "all:\n\t@echo it is made\n"}),
        "make -k in a script", honest="recipe", caught="rule"),
    lie(_bash("lost_in_an_eval", "failed", "returned 3, and nobody was told", f'eval "{FAILS} | cat"; echo done'),
        "a pipe at the end of an eval", honest="eval_checked"),
    lie(_bash("lost_in_a_reader", "failed", "returned 3", f"echo 1 > >(cat; {FAILS})"),
        "a substitution that a command writes to", honest="script_of_readers"),
    lie(_bash("make_dropped", "failed", "dropped it", "make -s -f make_dropped.mk bench || true; echo done",
              files={"make_dropped.mk": f"bench:\n\t@{FAILS}\n"}), "|| true after make", honest="nothing_to_clean"),
    lie(_bash("inner_dash", "invalid", "not recorded of this dash", "dash -c 'false; echo done'"),
        "another shell in a script", honest="posix_script", caught="rule"),
    lie(runs("doctest_ignored", "failed", "1 of 1 examples of __main__ failed", "python", "doctest_ignored.py",
             files={"doctest_ignored.py": DOCTEST.format("doctest_ignored", 3)}),
        "what `doctest.testmod` returns is ignored", honest="docs_tested"),
    _lines("lines_that_fail", SEEDS.format("lines_that_fail/test_it.py"), "`shell` lines on a broken commit",
           honest="lines", status="failed", reason="test_a failed", files={"lines_that_fail/test_it.py": FAILING_TEST}),
]  # fmt: skip

CASES = [*HONEST, *LIES]
