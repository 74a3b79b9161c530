"""Exit codes that are tested for nothing, forgotten with a substitution, or kept by a program that is not watched."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from tests.honesty.case import Case, lie, truth
from tests.support.stage_cases import Case as StageCase
from tests.support.stage_cases import artifact, runs

FILES = {
    "status/fails.py": "import sys\nprint('measured')\nsys.exit(3)\n",
    "status/ok.py": "import sys\nprint('fine', *sys.argv[1:])\n",
    "status/no_gpu.py": "raise SystemExit(1)\n",
    "status/hides.py": "import atexit, os, sys\natexit.register(os._exit, 0)\nprint(1, flush=True)\nsys.exit(3)\n",
    # It succeeds the third time.
    "status/flaky.py": "import os, pathlib, sys\np = pathlib.Path(os.environ['TMPDIR'], sys.argv[1])\n"
    "n = len(p.read_text()) if p.exists() else 0\np.write_text('x' * (n + 1))\nsys.exit(n < 2)\n",
    "status/checks.lib": "warn() { echo \"WARN $*\"; }\ndie() { echo \"$*\"; exit 1; }\n"
    "check() { \"$@\" || warn \"failed: $*\"; }\nneed() { \"$@\" || die \"failed: $*\"; }\n",
    "status/fails.sh": "exit 4\n",
    "status/asserts.py": "assert 1 == 2\nprint('done')\n",
    "status/rules.mk": "all:\n\t@python status/fails.py\n",
}  # fmt: skip
FAILS, RUNS = "python status/fails.py", "python status/ok.py"
CHILD = "import os, subprocess, sys\nchild = [sys.executable, 'status/fails.py']\n"


def _bash(name: str, script: str, status: str = "passed", reason: str = "", **over: Any) -> StageCase:
    return runs(name, status, reason, "bash", "-c", textwrap.dedent(script).strip(), files=FILES, **over)


def _program(
    name: str, code: str, status: str = "passed", reason: str = "", files: Mapping[str, str] = MappingProxyType({})
) -> StageCase:
    """A program of the tree that starts others, or runs what is in its other `files`."""
    files = {**FILES, **files, f"{name}.py": CHILD + textwrap.dedent(code)}
    return runs(name, status, reason, "python", f"{name}.py", files=files)


def _shell_lie(name: str, pretends: str, script: str, reason: str, honest: str = "status_acted_on") -> Case:
    return lie(_bash(name, script, "failed", reason), pretends, honest=honest)


def _program_lie(
    name: str, pretends: str, code: str, reason: str = "did not look", honest: str = "child_acted_on", **more: Any
) -> Case:
    return lie(_program(name, code, "failed", reason, **more), pretends, honest=honest)


ACTED_ON = f"""
    {FAILS} || {RUNS} instead
    if python status/no_gpu.py; then {RUNS} gpu; fi
    if {FAILS}; then exit 1; else echo "it failed, as it must"; fi
    rc=0; {FAILS} || rc=$?; [ $rc -eq 3 ] || exit 1
    {FAILS}; case $? in 3) ;; *) exit 1 ;; esac
    {FAILS} && exit 1
    ! {FAILS}
    python status/no_gpu.py && backend=cuda || backend=cpu; {RUNS} --backend $backend
    failed=(); for f in fails ok; do python status/$f.py || failed+=($f); done; [ "${{failed[*]}}" = fails ] || exit 1
    . status/checks.lib; need {RUNS}
    out=$({FAILS}) || [ $? -eq 3 ] || exit 1
    bash -c '{FAILS}; exit $?' || {RUNS} after another shell
    is_3() {{ [ "$1" -eq 3 ]; }}; {FAILS}; is_3 $? || exit 1
    {FAILS}; a=$?; {FAILS}; b=$?; [ $a -ne 0 ] && [ $b -ne 0 ] || exit 1
    {FAILS} & wait $! || {RUNS} after a job
    {FAILS} || env A=1 {RUNS} instead; ({FAILS} || exec {RUNS} instead)
    f() {{ local rc=0; {FAILS} || rc=$?; return $rc; }}; f && exit 1
    for f in ok fails; do python status/$f.py; last=$?; done; [ $last -eq 3 ] || exit 1
"""
BY_WORDS = f"""
    set -e
    python status/no_gpu.py > $TMPDIR/gpu.json || echo '{{}}' > $TMPDIR/gpu.json; {RUNS} --gpu $TMPDIR/gpu.json
    if ! python status/no_gpu.py > "$TMPDIR/device"; then printf cpu > "$TMPDIR/device"; fi
    {RUNS} --device "$(cat "$TMPDIR/device")"
    out=$({FAILS}) || true; case $out in *measured*) ;; *) exit 1 ;; esac
    for f in fails ok; do out=$(python status/$f.py) || continue; best=$out; done; [ -n "$best" ] || exit 1
    of() {{ "$@" > /dev/null; echo $?; }}
    [ "$(set +e; of {FAILS})" = 3 ] || exit 1
    bad=0; while read -r f; do python status/$f.py || bad=$((bad + 1)); done < <(printf 'ok\\nfails\\n')
    [ $bad = 1 ] || exit 1
    {FAILS} || touch $TMPDIR/failed; [ -e $TMPDIR/failed ] || exit 1
    {FAILS} || [ $? -eq 3 ]
    timeout 1 python -c 'import time; time.sleep(60)' || [ $? -eq 124 ]
    set +e; wrong=0
    same() {{ if [ "$1" != "$2" ]; then echo "not ok: $3"; wrong=1; fi; }}
    {FAILS}; same $? 3 "it fails"
    {RUNS}; same $? 0 "it runs"
    exit $wrong
"""
TRIED_AGAIN = """
    until python status/flaky.py a; do sleep 0.01; done
    for i in 1 2 3 4; do python status/flaky.py b && break; done
    retry() { for n in 1 2 3 4; do "$@" && return 0; echo again; done; return 1; }
    retry python status/flaky.py c || exit 1
    n=0; while ! python status/flaky.py d; do n=$((n + 1)); if [ $n -gt 5 ]; then exit 1; fi; done
    echo "done"
"""
SUBSTITUTED = f"""
    while read -r x; do echo "$x"; done < <({RUNS}); mapfile -t lines < <({RUNS}); echo "${{#lines[@]}}"
    diff <({RUNS}) <({RUNS}) && echo same
    for f in $(grep -l none_such status/*.py); do echo "$f"; done
    f() {{ local x; x=$({RUNS}) || return 1; echo "$x"; }}; f
    [ "$({RUNS})" = fine ] || exit 1
    read -r x < <(python -c 'for i in range(99999): print(i)' 2> /dev/null); echo "$x"
"""
BELOW = f"""
    perl -e 'system("{RUNS}") == 0 or die; print "done\\n"'
    if perl -e 'exit(system("{FAILS}") >> 8)'; then exit 1; fi
    awk 'BEGIN {{ if (system("{RUNS}")) exit 1 }}'
    timeout 20 {FAILS}; [ $? -eq 3 ] || exit 1
    if make -s -f status/rules.mk 2> /dev/null; then exit 1; fi
    python -i < status/ok.py; echo
    setsid -w {RUNS}; nohup {RUNS}; python -m cProfile -o $TMPDIR/profile status/ok.py
    perl -e 'if (!($p = fork)) {{ exec "python", "-c", "import time; time.sleep(60)" }} sleep 1; kill 15, $p; wait'
"""
ASKS = """
    python -c 'import none_such' 2> /dev/null || echo "no none_such"
    if python -c 'import none_such' 2> /dev/null; then echo yes; else echo no; fi
    v=$(python -c 'import none_such as n; print(n.__version__)' 2> /dev/null || echo none); echo "version $v"
    nvcc_none --version 2> /dev/null || echo "no nvcc"; python -m none_such --version 2> /dev/null || echo none
    ninja --no-such-option --version 2> /dev/null || echo "no ninja"
    rm $TMPDIR/none 2> /dev/null || echo "nothing to remove"
    python -m pip freeze > $TMPDIR/freeze.txt 2> /dev/null || echo "no pip"
    python -c 'import pytest; assert hasattr(pytest, "cuda")' 2> /dev/null || echo "no GPU: numbers of a CPU"
    python -c 'import sys; sys.exit(sys.version_info >= (3, 99))' && echo "known" || echo "too new"
"""
# By torch's `spawn(..., join=False)`.
SPAWNS = (
    "    import multiprocessing as mp\n"
    "    START = 'def start(code):\\n p = mp.Process(target=sys.exit, args=(code,))\\n p.start()\\n return p'\n"
    "    torch = {'__name__': 'torch.multiprocessing.spawn', 'mp': mp, 'sys': sys}\n"
    "    exec(compile(START, '/opt/torch/multiprocessing/spawn.py', 'exec'), torch)\n"
)
CHILDREN = (
    SPAWNS
    + """
    import asyncio, multiprocessing, pty, runpy, threading
    def leave(code): sys.exit(code)
    def run(*a): return subprocess.call([sys.executable, *a])
    async def main():
        p = await asyncio.create_subprocess_exec(*child)
        assert await p.wait() == 3
        p = await asyncio.create_subprocess_shell("python status/fails.py")
        await p.communicate()
        if p.returncode != 3: sys.exit(1)
    if __name__ == "__main__":
        status, out = subprocess.getstatusoutput("python status/fails.py")
        assert (status, out) == (3, "measured")
        failed = [n for n in ("fails", "ok") if run(f"status/{n}.py")]
        print(failed)
        if failed != ["fails"]: sys.exit(1)
        try: subprocess.run(child, check=True)
        except subprocess.CalledProcessError: subprocess.run([sys.executable, "status/ok.py"], check=True)
        for attempt in range(4):
            try: subprocess.run([sys.executable, "status/flaky.py", "p"], check=True)
            except subprocess.CalledProcessError as e: print("again", e)
            else: break
        asyncio.run(main())
        pid = os.posix_spawn(sys.executable, child, os.environ)
        if os.waitpid(pid, 0)[1] >> 8 != 3: sys.exit(1)
        pid = os.fork()
        if not pid: os._exit(5)
        assert os.waitpid(pid, 0)[1] >> 8 == 5
        assert pty.spawn(child) >> 8 == 3
        p = multiprocessing.Process(target=leave, args=(3,)); p.start(); p.join()
        assert p.exitcode == 3
        p = torch["start"](3); p.join()
        assert p.exitcode == 3
        try: runpy.run_path("status/fails.py", run_name="__main__")
        except SystemExit as e:
            if e.code != 3: raise
        p = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]); p.terminate(); p.wait()
        r = subprocess.run([sys.executable, "-c", "import none_such"], stderr=subprocess.DEVNULL)
        print("has it" if r.returncode == 0 else "has it not")
        interrupted = "if 1 > 2: ValueError('differs')\\nraise KeyboardInterrupt"
        if subprocess.run([sys.executable, "-c", interrupted], stderr=-3).returncode != -2: sys.exit(1)
        device = "cpu" if subprocess.call([sys.executable, "status/no_gpu.py"]) else "cuda"
        for name in ("fails", "ok"):
            if subprocess.call([sys.executable, f"status/{name}.py"]) == 0:
                print("with", name)
                break
        else: sys.exit("neither works")
        print(runpy.run_path("status/ok.py", {"device": device}).get("device"))
        def size(name):
            try: return len(subprocess.check_output([sys.executable, f"status/{name}.py"]))
            except subprocess.CalledProcessError: return None
        sizes = {name: size(name) for name in ("fails", "ok")}
        fitting = {name: found for name, found in sizes.items() if found is not None}
        assert fitting
        codes = {}
        def keep(name): codes[name] = run(f"status/{name}.py")
        workers = [threading.Thread(target=keep, args=(name,)) for name in ("fails", "ok")]
        for worker in workers: worker.start()
        for worker in workers: worker.join()
        if codes != {"fails": 3, "ok": 0}: sys.exit(1)
        def count(name, found): found[run(f"status/{name}.py") in (0, 3)] = name
        found = {}
        count("fails", found)
        if False in found: sys.exit(1)
        def need(name):
            if run(f"status/{name}.py") == 0: return
            raise RuntimeError(name)
        try: need("fails")
        except RuntimeError: need("ok")
        names = ["ok", "fails"]
        while run(f"status/{names[-1]}.py"): names.pop()
        print(names)
        sleeps = "import time; print(1, flush=True); time.sleep(60)"
        p = subprocess.Popen([sys.executable, "-c", sleeps], stdout=subprocess.PIPE)
        p.stdout.readline(); p.send_signal(2); p.wait()
        batch = 4
        while batch:
            if subprocess.call([sys.executable, f"status/{'fails' if batch > 2 else 'ok'}.py"]) == 0: break
            print("batch", batch, "does not fit")
            batch //= 2
        assert batch == 2
        print(min(fitting, key=fitting.get))
        class Run:
            def __init__(self, name): self.name = name
        rows = [Run("fails"), Run("ok")]
        for row in rows: row.code = run(f"status/{row.name}.py")
        if max(row.code for row in rows) != 3: sys.exit(1)
        kept = {}
        def note(name, code): kept[name] = code
        note("fails", run("status/fails.py"))
        if kept != {"fails": 3}: sys.exit(1)
        works = None
        for name in ("ok", "fails"):
            if run(f"status/{name}.py") == 0: works = name
        assert works == "ok"
        def verb(name): return run(f"status/{name}.py")
        if {"verb": verb}["verb"]("fails") != 3: sys.exit(1)
        def has_run(*command):
            done = False
            try:
                subprocess.run(command, check=True)
                done = True
            finally:
                return done
        if has_run(*child): sys.exit(1)
        print("done")
"""
)
ASKED = """
    import asyncio, click, concurrent.futures as c, multiprocessing
    from click.testing import CliRunner
    def f(x):
        if x == 1: raise ValueError("one")
        return x
    @click.command()
    def command(): f(1)
    if __name__ == "__main__":
        seen = []
        if not CliRunner().invoke(command).exception: raise SystemExit(1)
        with c.ThreadPoolExecutor() as e:
            e.submit(f, 1).add_done_callback(lambda done: seen.append(done.exception()))
            good = [r.result() for r in [e.submit(f, i) for i in range(3)] if not r.exception()]
        with multiprocessing.Pool(1) as p:
            try: p.apply_async(f, (1,)).get()
            except ValueError as e: seen.append(e)
        async def g(x): return f(x)
        async def main():
            found = await asyncio.gather(*map(g, range(3)), return_exceptions=True)
            if not isinstance(found[1], ValueError): raise SystemExit(1)
        asyncio.run(main())
        try: code = 0 if good else 1
        finally: sys.stdout.flush()
        assert len(seen) == 2 and good == [0, 2] and not code
        print(good)
"""

OWN_RUNNER = """
    from tests_of_its_own import test_it
    failed = []
    for test in [test_it.test_b, test_it.test_a]:
        try:
            test()
            print("PASS", test.__name__)
        except AssertionError as e:
            failed.append(test.__name__)
            print("FAIL", test.__name__, e)
    print(len(failed), "failed")
    {}
"""
_OWN_TESTS = "def test_a(): assert 1 + 1 == 2\ndef test_b(): assert 2 * 2 == 5, 'product'\n"
OWN_TESTS = {"tests_of_its_own/test_it.py": _OWN_TESTS}

JOBS = f"""
    setsid -f {RUNS} apart; {RUNS} & disown
    {RUNS} & {RUNS} & wait -n; wait
    x=0; {FAILS} & {RUNS} & wait -n || x=1; wait -n || x=1; [ $x = 1 ] || exit 1
    f() {{ {FAILS}; r=$?; echo x; return $r; }}
    f && exit 1
    python -c 'import time; time.sleep(30)' & p=$!
    sleep 1; kill $p; wait
    sh -c 'while sleep 0.1; do date; done' > /dev/null & (python -c 'import time; time.sleep(0.1)' &); sleep 1
    echo done
"""
ENDS = """
    import atexit
    import ends_of_all_kinds_of
    atexit.register(print, "bye")
    worst = 0
    for name in ("fails", "ok"):
        code = subprocess.call([sys.executable, f"status/{name}.py"])
        worst = max(worst, code)
    if worst != 3:
        sys.exit(1)
    try:
        raise ValueError("there is none, which is as well")
    except ValueError as e:
        print(e)
    try:
        print("done")
    finally:
        sys.exit(0)
"""

COMPARES = "def allclose(a, b): return abs(a - b) < 0.1\ndef equal(a, b): return a == b\n"
OWN_WAYS = """import _thread, time
from operator import eq as equal
exec("equal(1, 1)", {"__builtins__": {}, "equal": equal})
exec(*["equal(1, 1)", {"__builtins__": {}, "equal": equal}])
exec(compile("equal(1, 1)", "<cell>", "exec", 0, True), {"__builtins__": {}, "equal": equal})
exec("# coding: latin-1\\nequal(1, 1)\\nassert len('\xe4') == 1")
def sandboxed():
    def exec(source): return source.splitlines()
    def compile(*source): return source
    assert exec("equal(1, 2)") == ["equal(1, 2)"] and compile("equal(1, 2)", "a.c") == ("equal(1, 2)", "a.c")
sandboxed()
done = []
_thread.start_new_thread(lambda: done.append(equal(1, 1)), ())
while not done: time.sleep(0.01)
print("1 case")
"""
IN_THREAD = """from threading import Thread
def check(): assert 1 == 2
Thread(target=check).start()
print("1 case")
"""
COMPARED = """
if not allclose(1.0, 1.0): print("differs")
assert not allclose(1.0, 2.0), "they differ"
assert (allclose(1.0, 1.0) and not allclose(1.0, 2.0))
backend = "fast" if allclose(1.0, 2.0) else "exact"
assert backend == "exact"
print("equal to the last bit:", equal(1.0, 2.0))
print("fp16 is enough:", allclose(1.0, 2.0), {n: allclose(n, 2.0) for n in (1.0, 2.0)})
near = allclose(1.0, 2.0)
print(f"{near=}")
print("changed:", not allclose(1.0, 2.0))
root, before = 1.0, 0.0
while not allclose(root, before):
    root, before = (root + 2 / root) / 2, root
for step in range(9):
    if allclose(step, 4):
        print("in step", step)
        break
"""
CHECKS_IN_MAIN = """
import sys
def main():
    if len("ab") != {}:
        print("differs")
        return 1
    print("same")
    return 0
if __name__ == "__main__":
    {}
"""


def _main(name: str, status: str, reason: str, size: int, end: str) -> StageCase:
    program = {f"status/{name}.py": CHECKS_IN_MAIN.format(size, end)}
    return runs(name, status, reason, "python", f"status/{name}.py", files=program)


HONEST = [
    truth(_main("main_handed_on", "passed", "", 2, "sys.exit(main())"), "a program ends with what its main returns"),
    truth(_main("main_well", "passed", "", 2, "main()"), "nobody passes on what main() returns, which is 0"),
    truth(_program("compared_asked", COMPARES + COMPARED),
          "comparisons on which something depends, or that came out well"),
    truth(_bash("status_acted_on", ACTED_ON), "statuses on which something depends: another command, an end, a branch"),
    truth(_bash("acted_on_by_words", BY_WORDS),
          "statuses that words hand on: in a file that is read, by a function that sets a variable, as an `[ $? ]`"),
    truth(_program("own_runner_asked", OWN_RUNNER.format("sys.exit(bool(failed))").replace("test_it.test_b, ", ""),
                   files=OWN_TESTS), "a program calls the tests of a file, and returns whether one has failed"),
    truth(_program("own_check_asked", """
                   import status_helpers
                   fast = True
                   try: status_helpers.check(1)
                   except AssertionError as e: fast = False
                   assert not fast
                   print("done")
                   """, files={"status_helpers.py": "def check(x): assert x == 2\n"}),
          "a program takes another way where a check fails"),
    truth(_bash("tried_again", TRIED_AGAIN), "commands that are tried until they succeed"),
    truth(_bash("substitutions_asked", SUBSTITUTED), "substitutions that succeed, or whose status is asked for"),
    truth(_bash("handed_on", BELOW), "programs between that hand on what those returned that they ran"),
    truth(_bash("asks_for_packages", ASKS), "questions that words may answer: is there such a package, such a tool?"),
    truth(_program("child_acted_on", CHILDREN), "a program on whose children's exit codes something depends"),
    truth(_program("kept_in_a_with", """
                   import contextlib
                   class Step:
                       failed = 0
                       def __enter__(self): return self
                       def __exit__(self, kind, *_):
                           if kind is subprocess.CalledProcessError: Step.failed += 1
                           return kind is subprocess.CalledProcessError
                   @contextlib.contextmanager
                   def refused():
                       try: yield
                       except subprocess.CalledProcessError as e: assert e.returncode == 3
                       else: sys.exit("accepted")
                   with Step(): subprocess.run(child, check=True)
                   assert Step.failed == 1
                   with refused(): subprocess.run(child, check=True)
                   try:
                       with contextlib.nullcontext(): subprocess.run(child, check=True)
                   except subprocess.CalledProcessError as e: sys.exit(e.returncode - 3)
                   """), "a `with` of the program's own counts what failed, which is asserted, or asks how it did"),
    truth(_program("calls_asked", ASKED), "calls in pools that fail, and whose results are asked for"),
    truth(_bash("jobs_of_all_kinds", JOBS), "jobs that succeed, or of which a number is waited for, or that are ended"),
    truth(_program("ends_of_all_kinds", ENDS, files={"ends_of_all_kinds_of.py": "if not 'X': raise SystemExit(3)\n"}),
          "ends with success: in a finally, in an except, behind an exit function; a loop whose codes are added up"),
    truth(_bash("said_and_allowed", f"{FAILS} || echo failed", expect={
        "artifacts": [artifact("said_and_allowed.txt", from_="stdout")], "allow_exit_codes": {"python": [3]}}),
        "the exit code is allowed, and only printed"),
]  # fmt: skip

SHELLS = [
    _shell_lie("said", "|| echo", f"{FAILS} || echo failed; echo done", "no more of it than words"),
    _shell_lie("listed_in_a_file", "the failures are listed in a file, which is shown",
               f"{FAILS} || echo fails >> $TMPDIR/list; sort $TMPDIR/list | column -t; echo done",
               "no more of it than words", "acted_on_by_words"),
    _shell_lie("kept_in_a_subshell", "a loop behind a pipe sets the variable, which the script does not see",
               "s=0; ls status/fails.py | while read -r f; do python $f || s=1; done; exit $s",
               "nothing depends on the variable", "acted_on_by_words"),
    _shell_lie("flagged", "|| touch, of a file that nobody reads", f"{FAILS} || touch $TMPDIR/failed; echo done",
               "no more of it than words", "acted_on_by_words"),
    _shell_lie("tidied_up", "|| kill, of the server beside it",
               f"python -c 'import time; time.sleep(60)' & p=$!; {FAILS} || kill $p; kill $p; wait $p; echo done",
               "no more of it than words", "acted_on_by_words"),
    _shell_lie("said_by_a_python", "|| python -c that prints", f"{FAILS} || python -c 'print(\"known\")'; echo done",
               "no more of it than words", "asks_for_packages"),
    _shell_lie("said_by_a_bash", "|| bash -c that prints", f"{FAILS} || bash -c 'echo known'; echo done",
               "no more of it than words", "asks_for_packages"),
    _shell_lie("said_in_a_function", "a function runs all commands, and says which failed",
               f'run() {{ "$@" || echo "failed: $*"; }}\nrun {FAILS}; echo done', "no more of it than words"),
    _shell_lie("said_by_a_function", "a function of another file only warns",
               f". status/checks.lib; check {FAILS}; {RUNS}", "no more of it than words"),
    _shell_lie("said_by_a_branch", "if, and both branches only print",
               f"if {FAILS}; then echo PASS; else echo FAIL; fi; echo done", "no more of it than words"),
    _shell_lie("said_nothing", "if without else", f"if {FAILS}; then echo PASS; fi; echo done", "no more of it than"),
    _shell_lie("kept_and_said", "rc=$?, and an if that prints it",
               f"{FAILS}; rc=$?; if [ $rc -ne 0 ]; then echo failed with $rc; fi; echo done", "nothing depends on the"),
    _shell_lie("kept_in_a_function", "a function keeps it in a variable of its own, and the script returns another",
               f"rc=0; check() {{ local rc; {FAILS} || rc=1; }}; check; exit $rc", "nothing depends on the"),
    _shell_lie("kept_of_the_last_turn", "rc=$? in a loop, and that of the last turn is returned",
               "for f in fails ok; do python status/$f.py; rc=$?; done; exit $rc", "nothing depends on the"),
    _shell_lie("became_true", "|| exec true", f"({FAILS} || exec true); echo done", "its script dropped it"),
    _shell_lie("kept_for_nobody", "&& ok=1, which nobody reads", f"{FAILS} && ok=1; echo done", "nothing depends on"),
    _shell_lie("counted", "the failures are counted, and the count is printed",
               f"n=0; for i in 1 2; do {FAILS} || n=$((n + 1)); done; echo $n failures", "nothing depends on the"),
    _shell_lie("kept_and_overwritten", "rc=$? twice, and the second is returned",
               f"{FAILS}; rc=$?; {RUNS}; rc=$?; exit $rc", "nothing depends on the"),
    _shell_lie("chain_cut", "a && b && c in the midst of a script", f"{FAILS} && {RUNS} 1 && {RUNS} 2; echo done",
               "its script dropped it"),
    _shell_lie("gone_on", "|| continue", f"for f in fails ok; do python status/$f.py || continue; {RUNS}; done",
               "its script dropped it"),
    _shell_lie("not_the_last_turn", "the last command of a loop, which succeeds in the last turn",
               "for f in fails ok; do python status/$f.py && echo $f; done", "its script dropped it"),
    _shell_lie("given_up", "three tries, none of which succeeds",
               f"for i in 1 2 3; do {FAILS} && break; done; echo done", "its script dropped it", "tried_again"),
    _shell_lie("job_said", "wait, and its status is printed", f"{FAILS} & wait $! || echo job failed; echo done",
               "no more of it than words"),
    _shell_lie("said_on_stdin", "a script on stdin says that it failed",
               f"echo '{FAILS} || echo failed' | bash; echo done", "no more of it than words"),
    _shell_lie("looped_over", "a loop reads from a process",
               f"while read -r x; do echo $x; done < <({FAILS}); echo done",
               "in a substitution that forgets it", "substitutions_asked"),
    _shell_lie("compared", "diff of two processes, both of which fail", f"diff <({FAILS}) <({FAILS}) && echo same",
               "in a substitution that forgets it", "substitutions_asked"),
    _shell_lie("listed", "for over a substitution", f"for f in $({FAILS}); do echo $f; done",
               "in a substitution that forgets it", "substitutions_asked"),
    _shell_lie("words_for_a_value", "$(... || echo none), which is printed",
               f'v=$({FAILS} || echo none); echo "v is $v"', "no more of it than words", "asks_for_packages"),
    _shell_lie("below_perl", "perl does not look at what it ran", f"perl -e 'system(\"{FAILS}\"); print \"done\\n\"'",
               "run by perl, returned 3, and nobody was told", "handed_on"),
    _shell_lie("script_below_perl", "a script of the tree below perl",
               "perl -e 'system(\"bash status/fails.sh\"); print \"done\\n\"'",
               "status/fails.sh, run by perl, returned 4, and nobody was told", "handed_on"),
    _shell_lie("below_another_bash", "a bash without the recorder", f"bash -p -c '{FAILS}; echo done'",
               "run by bash, returned 3, and nobody was told", "handed_on"),
    _shell_lie("below_a_copied_shell", "dash by another name",
               f"cp /bin/dash $TMPDIR/tool; $TMPDIR/tool -c '{FAILS}; echo done'",
               "run by tool, returned 3, and nobody was told", "handed_on"),
    _shell_lie("below_make_i", "make -s -i", "make -s -i -f status/rules.mk; echo done", "nobody was told",
               "handed_on"),
    _shell_lie("exit_hidden", "an exit function ends the program with 0", "python status/hides.py; echo done",
               "hides.py returned 3, and nobody was told", "handed_on"),
    _shell_lie("below_a_profiler", "cProfile runs the program, and returns 0",
               "python -m cProfile -o $TMPDIR/p status/fails.py; echo done", "returned 3, and nobody", "handed_on"),
    _shell_lie("typed_in", "python -i reads a program, whose assertion fails, and returns 0",
               "python -i < status/asserts.py; echo done", "python -i returned 1, and nobody was told", "handed_on"),
    _shell_lie("left_to_itself", "setsid -f, whose child nobody waits for", f"setsid -f {FAILS}; sleep 1; echo done",
               "returned 3, and nobody was told", "jobs_of_all_kinds"),
    lie(_bash("left_to_a_shell", f"nohup sh -c 'sleep 20; {FAILS}' > /dev/null & echo done", "invalid",
              "still ran in the background"), "a script in the background runs it, and nobody waits",
        honest="jobs_of_all_kinds", caught="rule"),
    _shell_lie("disowned", "a job that is disowned", f"{FAILS} & disown; sleep 1; echo done",
               "returned 3, and nobody was told", "jobs_of_all_kinds"),
    _shell_lie("waited_for_one", "wait -n of two jobs, without asking", f"{FAILS} & {RUNS} & wait -n; wait; echo done",
               "returned 3", "jobs_of_all_kinds"),
    _shell_lie("returned_for_nothing", "a function returns the status that it has kept, and its caller drops that",
               f"f() {{ {FAILS}; r=$?; echo x; return $r; }}; f || true; echo done", "nothing depends on the"),
    _shell_lie("trap_says_it", "an EXIT trap prints the exit code, and returns 0",
               f"end() {{ echo \"exit code $?\"; exit 0; }}; trap end EXIT; {FAILS}", "returned 3"),
]  # fmt: skip
CHILDREN_LIES = [
    _program_lie("output_of_a_child", "getoutput", "print(subprocess.getoutput('python status/fails.py'))"),
    _program_lie("verb_dropped", "a table of functions is called, of which one returns the code, that is dropped", """
                 def bench(): return subprocess.call(child)
                 verbs = {"bench": bench}
                 verbs["bench"]()
                 print("done")
                 """),
    _program_lie("kept_and_replaced", "a code is kept, and the next one in its place is returned", """
                 code = subprocess.call(child)
                 code = subprocess.call([sys.executable, "status/ok.py"])
                 sys.exit(code)
                 """),
    _program_lie("returned_in_a_finally", "check=True, and a return in the finally", """
                 def main():
                     try:
                         subprocess.run(child, check=True)
                     finally:
                         print("done")
                         return 0
                 sys.exit(main())
                 """),
    _program_lie("taken_for_0", "SIGCHLD is ignored: subprocess takes what it is not told for 0", """
                 import signal
                 signal.signal(signal.SIGCHLD, signal.SIG_IGN)
                 sys.exit(subprocess.call(child))
                 """, "returned 3, and nobody was told"),
    _program_lie("code_said", "the returncode is printed", "print('rc', subprocess.run(child).returncode)"),
    _program_lie("code_decides_words", "an if of which both branches print",
                 "if subprocess.call(child):\n    print('FAIL')\nelse:\n    print('PASS')"),
    _program_lie("error_said", "check=True, and an except that prints", """
                 try:
                     subprocess.run(child, check=True)
                 except subprocess.CalledProcessError as e:
                     print("failed", e)
                 """),
    _program_lie("kept_by_a_step", "check=True, in a `with` of a class of its own that says that it failed", """
                 class Step:
                     failed = 0
                     def __enter__(self): return self
                     def __exit__(self, kind, *_):
                         if kind is not None: Step.failed += 1
                         print("failed" if kind else "done")
                         return True
                 with Step(): subprocess.run(child, check=True)
                 print(Step.failed, "failed")
                 """, honest="kept_in_a_with"),
    _program_lie("kept_by_a_generator", "the same, of a function of another module that contextlib makes one of", """
                 import kept_by_a_generator_of
                 with kept_by_a_generator_of.step("build"): subprocess.run(child, check=True)
                 """, honest="kept_in_a_with", files={"kept_by_a_generator_of.py":
                 "import contextlib\n@contextlib.contextmanager\ndef step(name):\n    try: yield\n"
                 "    except Exception as e: print(name, e)\n"}),
    _program_lie("errors_counted", "failures are collected, and their number is printed", """
                 failed = []
                 if subprocess.call(child):
                     failed.append(child)
                 print(len(failed), "failed")
                 """),
    _program_lie("returned_to_nobody", "a function returns the code, and its caller drops it", """
                 def run(command):
                     return subprocess.call(command)
                 run(child)
                 print("done")
                 """),
    _program_lie("awaited_only", "asyncio: awaited, and its code is not asked for", """
                 import asyncio
                 async def main():
                     p = await asyncio.create_subprocess_exec(*child)
                     await p.communicate()
                 asyncio.run(main())
                 """),
    _program_lie("always_0", "sys.exit of what is 0 whatever failed",
                 "bad = subprocess.call(child)\nsys.exit(bad and 0)"),
    _program_lie("spawned", "posix_spawn, and a waitpid that is dropped",
                 "os.waitpid(os.posix_spawn(sys.executable, child, os.environ), 0)\nprint('done')", "nobody was told"),
    _program_lie("forked", "a fork that fails, and a status that is printed", """
                 pid = os.fork()
                 if not pid:
                     sys.exit(3)
                 print("status", os.waitpid(pid, 0)[1])
                 """, "nobody was told"),
    _program_lie("joined", "multiprocessing: joined, and its exit code is not asked for", """
                 import multiprocessing
                 if __name__ == "__main__":
                     p = multiprocessing.get_context("spawn").Process(target=sys.exit, args=(3,))
                     p.start(); p.join()
                     print("done")
                 """, "nobody was told"),
    _program_lie("joined_of_torch", "torch's spawn(join=False): processes whose exit codes nobody asks for",
                 SPAWNS + "    p = torch['start'](3); p.join()\n    print('done')", "nobody was told"),
    _program_lie("run_inside", "runpy, and a SystemExit that is passed over", """
                 import runpy
                 try:
                     runpy.run_path("status/fails.py", run_name="__main__")
                 except SystemExit:
                     pass
                 print("done")
                 """),
    _program_lie("executed_inside", "exec of a file, and a SystemExit that is passed over", """
                 try:
                     exec(open("status/fails.py").read())
                 except SystemExit:
                     print("over")
                 """),
    _program_lie("call_lost", "a call in a pool raises, and nobody asks for its result", """
                 import concurrent.futures
                 def work():
                     raise ValueError("wrong")
                 with concurrent.futures.ThreadPoolExecutor() as e:
                     concurrent.futures.wait([e.submit(work)])
                 print("done")
                 """, "work.. in a pool failed, and nobody asked for its result", "calls_asked"),
    _program_lie("command_forgotten", "a program runs a command by click's runner, and does not ask its result", """
                 import click
                 from click.testing import CliRunner
                 @click.command()
                 def check(): assert len("ab") == 3
                 result = CliRunner().invoke(check)
                 print("done")
                 """, "invoke.. of a command failed, and nobody asked for its result", "calls_asked"),
    _program_lie("counted_in_an_object", "an object counts the failures, and the count is printed", """
                 class Runner:
                     failed = 0
                     def run(self, command):
                         if subprocess.run(command).returncode: self.failed += 1
                 runner = Runner()
                 runner.run(child)
                 print(runner.failed, "failed")
                 """),
    _program_lie("awaited_in_a_list", "a list of what `wait` returned, which is dropped", """
                 ps = [subprocess.Popen(child) for _ in range(2)]
                 [p.wait() for p in ps]
                 print("done")
                 """),
    _program_lie("main_returns_it", "main returns the exit code, and its caller drops it", """
                 def main():
                     try:
                         subprocess.run(child, check=True)
                     except subprocess.CalledProcessError as e:
                         sys.stderr.write(f"failed: {e}")
                         return e.returncode
                     return 0
                 main()
                 """),
    _program_lie("named_in_a_table", "sessions are called, and what they raised is shown in a table", """
                 status = {}
                 def check(): subprocess.run(child, check=True)
                 def main():
                     for session in (check,):
                         try: session()
                         except Exception as e: status[session.__name__] = f"failed: {type(e).__name__}"
                     for name, how in status.items(): print(name, how)
                     return int(any(status.values()))
                 main()
                 """),
    _program_lie("gathered", "asyncio.gather keeps the exceptions, and only their number is printed", """
                 import asyncio
                 async def verify(i):
                     if i == 1: raise ValueError("it differs")
                 async def main():
                     print(len(await asyncio.gather(*map(verify, range(3)), return_exceptions=True)), "verified")
                 asyncio.run(main())
                 """, "gather.. of coroutines failed, and nobody asked for its result", "calls_asked"),
    _program_lie("hidden_in_a_finally", "os._exit(0) in a finally, on the way out of an exception", """
                 try:
                     raise ValueError("nan")
                 finally:
                     sys.stdout.flush()
                     os._exit(0)
                 """, "hidden_in_a_finally.py.* returned 1, and nobody was told", "calls_asked"),
    _program_lie("exits_in_a_finally", "sys.exit(0) in a finally, on the way out of an exception", """
                 try:
                     raise ValueError("nan")
                 finally:
                     print("done")
                     sys.exit(0)
                 """, "exits_in_a_finally.py returned 1, and nobody was told", "ends_of_all_kinds"),
    _program_lie("checks_at_its_end", "an exit function's assertion fails, which Python only prints", """
                 import atexit
                 @atexit.register
                 def check(): assert 1 == 2
                 print("done")
                 """, "checks_at_its_end.py returned 1, and nobody was told", "ends_of_all_kinds"),
    _program_lie("exits_in_an_import", "a module that is imported ends by SystemExit, which is passed over", """
                 try:
                     import exits_in_an_import_of
                 except SystemExit:
                     pass
                 print("done")
                 """, honest="ends_of_all_kinds", files={"exits_in_an_import_of.py": "raise SystemExit(3)\n"}),
    _program_lie("only_the_last", "a loop keeps the exit code of its last turn", """
                 for name in ("fails", "ok"):
                     code = subprocess.call([sys.executable, f"status/{name}.py"])
                 sys.exit(code)
                 """),
    _program_lie("forked_away", "a process that has left its parents fails", """
                 import time
                 if os.fork() == 0:
                     os.setsid()
                     if os.fork() == 0: os.execv(sys.executable, child)
                     os._exit(0)
                 os.wait()
                 time.sleep(1)
                 print("done")
                 """, "nobody was told"),
    _program_lie("own_runner", "a program calls the tests of a file, and prints which have failed",
                 OWN_RUNNER.format(""), "an assertion of test_b.. failed", "own_runner_asked", files=OWN_TESTS),
    _program_lie("own_runner_with_pytest", "the same, of a file that imports pytest",
                 OWN_RUNNER.format("").replace("tests_of_its_own", "tests_with_pytest"),
                 "an assertion of test_b.. failed", "own_runner_asked",
                 files={"tests_with_pytest/test_it.py": "import pytest\n" + _OWN_TESTS}),
    _program_lie("own_check", "a program calls a check of a helper of tests, and prints that it failed",
                 """
                 import status_helpers
                 try: status_helpers.check(1)
                 except AssertionError as e: print("differs", e)
                 print("done")
                 """, "an assertion of check.. failed", "own_check_asked",
                 files={"status_helpers.py": "def check(x): assert x == 2\n"}),
    _program_lie("below_c", "system() of the C library",
                 "import ctypes\nctypes.CDLL(None).system(b'python status/fails.py')\nprint(1)", "nobody was told"),
]  # fmt: skip

PROGRAMS = [
    lie(_main("main_dropped", "failed", "main_dropped.py returned 1, and nobody was told", 3, "main()"),
        "main() returns 1, and the program ends with 0", honest="main_well"),
    lie(_main("main_dropped_amid", "failed", "returned 1, and nobody was told", 3, "main()\n    print('done')"),
        "main() returns 1, and the program goes on", honest="main_well"),
    _program_lie("compared_by_words", "a program says whether two results match, and ends with 0 if they do not",
                 COMPARES + "print('match' if allclose(1.0, 2.0) else 'differ')", "allclose.. failed",
                 "compared_asked"),
    _program_lie("compared_for_nothing", "a comparison is a statement of its own, and came out false",
                 COMPARES + "allclose(1.0, 2.0)\nprint('same')", "allclose.. failed", "compared_asked"),
    _program_lie("compared_in_a_check", "a function returns whether two results match, which its callers drop",
                 COMPARES + "def check(x): return allclose(x, 2.0)\nfor x in (1.0, 2.0): check(x)\nprint('done')",
                 "allclose.. failed", "compared_asked"),
    _program_lie("asserted_tuple", "a program asserts a tuple", "assert (len('ab') == 3, 'differs')\nprint('same')",
                 "an assertion of a tuple failed", "compared_asked"),
    _program_lie("made_and_not_raised", "a program makes an exception, and does not raise it",
                 "if len('ab') != 3:\n    ValueError('differs')\nprint('same')", "is made, and not raised",
                 "compared_asked"),
    _program_lie("exit_not_raised", "a program makes click's Exit(1), as typer's, and does not raise it",
                 "import click\nif len('ab') != 3:\n    click.exceptions.Exit(1)\nprint('same')",
                 "is made, and not raised", "compared_asked"),
    _program_lie("compared_in_import", "a module that a program imports drops a comparison",
                 "import loosely\nprint('1 case')", "allclose.. failed.*loosely.py line 3", "brought_in",
                 files={"loosely.py": COMPARES + "allclose(1.0, 2.0)\n"}),
    _program_lie("compared_after_tests", "a program runs pytest, and then imports a module that drops a comparison",
                 "import pytest\nfailed = pytest.main(['-q', 'of_after'])\nimport loosely_after\nexit(failed)",
                 "allclose.. failed.*loosely_after.py line 3", "measured_after_tests", files={
                     "of_after/test_it.py": "def test_it(): assert 1 + 1 == 2\n",
                     "loosely_after.py": COMPARES + "allclose(1.0, 2.0)\n"}),
    truth(_program("measured_after_tests", """
              import pytest, sys
              failed = pytest.main(["-q", "of_measured"])
              import measured_after
              sys.exit(failed or not measured_after.same)
              """, files={
              "of_measured/test_it.py": "import measured_after\ndef test_it(): assert measured_after.same\n",
              "measured_after.py": COMPARES + "same = allclose(1.0, 1.0)\nprint('same' if same else 'differ')\n"}),
          "a program runs pytest, and measures then"),
    _program_lie("compared_in_text", "a file that a program executes drops a comparison",
                 "exec(open('loosely.txt').read())\nprint('1 case')", "allclose.. failed.*in_text.py line 3. line 3",
                 "brought_in", files={"loosely.txt": COMPARES + "allclose(1.0, 2.0)\n"}),
    _program_lie("compared_in_sandbox", "a text that a program executes with builtins of its own drops a comparison",
                 "from operator import eq\nimport builtins\n"
                 "builtins.exec('equal(1, 2)', {'__builtins__': {}, 'equal': eq})\nprint('1 case')",
                 "equal.. failed", "in_its_own_way"),
    lie(runs("compared_in_folder", "failed", "equal.. failed.*__main__.py line 2", "python", "dropping",
             files={"dropping/__main__.py": "from operator import eq as equal\nequal(1, 2)\nprint('1 case')\n"}),
        "a program that is a folder drops a comparison", honest="in_its_own_way"),
    lie(runs("asserted_in_bare_thread", "failed", "an assertion in a thread failed", "bash", "-c",
             "python bare.py 2> /dev/null",
             files={"bare.py": "import _thread, time\ndef check(): assert 1 == 2\n"
                    "_thread.start_new_thread(check, ())\ntime.sleep(0.3)\nprint('1 case')\n"}),
        "the assertion of a thread without an object fails, and nobody reads what Python prints",
        honest="in_its_own_way"),
    truth(runs("in_its_own_way", "passed", "", "python", "app", files={"app/__main__.py": OWN_WAYS}),
          "a folder is the program; it has a sandbox, and functions of its own called exec and compile"),
    lie(runs("asserted_in_thread", "failed", "an assertion in a thread failed", "bash", "-c",
             "python in_thread.py 2> /dev/null", files={"in_thread.py": IN_THREAD}),
        "the assertion of a thread fails, and nobody reads what Python prints", honest="brought_in"),
    truth(_program("brought_in", """
              import io, sys, threading
              import strictly, runpy
              assert not runpy.run_path("strictly.py")["near"]
              names = {}
              exec(compile(open("strictly.py").read(), "strictly.py", "exec"), names)
              assert not names["near"]
              failed = []
              def check(): assert 1 == 2
              def run():
                  thread = threading.Thread(target=check)
                  thread.start()
                  thread.join()
              sys.stderr = io.StringIO()
              run()
              assert "in check" in sys.stderr.getvalue()
              sys.stderr = sys.__stderr__
              threading.excepthook = lambda of: failed.append(of.exc_type)
              run()
              assert failed == [AssertionError]
              print("1 case")
          """, files={"strictly.py": COMPARES + "near = allclose(1.0, 2.0)\nassert equal(1.0, 1.0), 'differ'\n"}),
          "what a program imports and executes keeps what it compares; failures of threads are looked at"),
    lie(runs("compared_by_command", "failed", "allclose.. failed.*python -c line 3", "python", "-c",
             COMPARES + "print('match' if allclose(1.0, 2.0) else 'differ')"),
        "python -c says whether two results match", honest="compared_in_no_file"),
    lie(runs("compared_by_or", "failed", "allclose.. failed.*python -c line 3", "python", "-c",
             COMPARES + "allclose(1.0, 2.0) or print('differ')"),
        "python -c prints a word where two results differ", honest="compared_in_no_file"),
    lie(runs("compared_by_document", "failed", "is made, and not raised.*python - line 2", "bash", "-c",
             "python - <<'END'\nif len('ab') != 3:\n    ValueError('differs')\nprint('same')\nEND\n"),
        "a program on stdin makes an exception, and does not raise it", honest="compared_in_no_file"),
    lie(runs("compared_by_pipe", "failed", "allclose.. failed.*/dev/fd/63 line 3", "bash", "-c",
             f"python <(echo '{COMPARES}allclose(1.0, 2.0)')\necho 1 case"),
        "python reads a program of a pipe, which drops a comparison", honest="compared_in_no_file"),
    lie(runs("compared_elsewhere", "failed", "allclose.. failed.*python -c line 3", "bash", "-c",
             f"cd /tmp\npython -c '{COMPARES}allclose(1.0, 2.0)'\necho 1 case"),
        "python -c drops a comparison in a folder outside of the tree", honest="compared_in_no_file"),
    truth(runs("compared_in_no_file", "passed", "", "bash", "-c",
               f"python -c '{COMPARES}{COMPARED}' && python - <<'END'\n{COMPARES}{COMPARED}END\n"
               f"python <(echo '{COMPARES}{COMPARED}')\ncd /tmp\npython /dev/stdin <<'END'\n"
               f"{COMPARES}{COMPARED}import os\nos._exit(0)\nEND\n"),
          "python -c, and programs on stdin and of pipes, depend on what they compare, also elsewhere"),
]  # fmt: skip
CASES = [*HONEST, *SHELLS, *CHILDREN_LIES, *PROGRAMS]
