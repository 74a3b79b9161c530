"""Real shells with the recorder in them: what is lost is told by name, and an honest script runs as without it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from orchestrator.agent.evidence import exit_codes
from orchestrator.agent.evidence.processes import Processes
from orchestrator.agent.evidence.programs import Where, leaves_site_out, program_of
from orchestrator.agent.evidence.shell import recorder
from orchestrator.agent.layout import Layout
from orchestrator.shared.stage_record import blank
from orchestrator.verdict.case import Case, Run
from orchestrator.verdict.exit_codes import lost
from tests.support.agent_pod import stage

PYTHON = os.path.dirname(sys.executable)
FAILS = 'python -c "raise SystemExit(3)"'

LIES: Mapping[str, tuple[str, str]] = {
    "in_between": ("false; echo done", "^false returned 1"),
    "a_pipe": (f"{FAILS} | tee log", "SystemExit.* returned 3, in a pipeline"),
    "first_of_three": (f"{FAILS} | cat | tee log", "returned 3"),
    "middle_of_three": ("echo a | grep b | cat", "^grep b returned 1"),
    "two_pipes": ("true | cat; false | cat; true | cat", "^false returned 1"),
    "pipe_in_a_function": (f"run() {{ {FAILS} | tee log; }}; run; echo done", "returned 3"),
    "pipe_in_a_subshell": (f"( {FAILS} | tee log ); echo done", "returned 3"),
    "pipe_in_a_condition": (f"if {FAILS} | tee log; then echo good; fi", "returned 3"),
    "pipe_negated": (f"if ! {FAILS} | tee log; then exit 1; fi", "returned 3"),
    "tees_code_tested": (f"{FAILS} | tee log; rc=$?; exit $rc", "returned 3"),
    "group_in_a_pipe": (f"{{ {FAILS}; echo on; }} | cat", "SystemExit.* returned 3"),
    "last_of_a_group_in_a_pipe": (f"{{ echo on; {FAILS}; }} | cat", "SystemExit.* returned 3"),
    "loop_in_a_pipe": (f"for i in 1 2; do {FAILS}; done | tee log", "SystemExit.* returned 3"),
    "or_true": (f"{FAILS} || true", "returned 3, and its script dropped it"),
    "or_colon": (f"{FAILS} || :", "dropped it"),
    "or_exit_0": (f"{FAILS} || exit 0", "dropped it"),
    "trap_exits_with_0": (f"trap 'exit 0' EXIT; {FAILS}", "returned 3"),
    "trapped_by_a_function": (f"end() {{ echo bye; exit 0; }}; trap end EXIT; {FAILS}", "returned 3"),
    "found_all_or_true": ("find . -name fails.sh -exec ./fails.sh {} + || true", "^find .* dropped it"),
    "seeds_command": (f"PYTHONPATH=. {FAILS} 2>&1 | tee log || true", "returned 3"),
    "pipefail_or_true": (f"set -o pipefail; PYTHONPATH=. {FAILS} 2>&1 | tee log || true", "returned 3"),
    "pipefail_untested": (f"set -o pipefail; {FAILS} | tee log; echo on", "returned 3, in a pipeline"),
    "lines_for_a_shell_with_arguments": ("printf 'false\\necho on\\n' | bash -s /etc/hostname", "false returned 1"),
    "pipefail_beside_sigpipe": ("set -o pipefail; yes | head -1 | false; yes | head -1; echo on", "returned 1"),
    "script_or_true": ("./fails.sh || true", "fails.sh returned 4"),
    "function_or_true": (f"f() {{ {FAILS}; r=$?; echo x; return $r; }}; f || true", "SystemExit.* returned 3"),
    "variable_or_true": ("PY=python; $PY -c 'raise SystemExit(3)' || true", "returned 3"),
    "arguments_or_true": (f"f() {{ \"$@\" || true; }}; f {FAILS}", "returned 3"),
    "only_shown": (f"{FAILS}; echo \"exit code $?\"", "returned 3"),
    "held_and_shown": (f"{FAILS}; rc=$?; echo \"exit code $rc\"; exit 0", "returned 3"),
    "held_and_overwritten": (f"{FAILS}; rc=$?; true; rc=$?; exit $rc", "returned 3"),
    "background": (f"{FAILS} & wait; echo done", "returned 3, in the background"),
    "one_of_two_in_the_background": (f"true & {FAILS} & sleep 0.3; wait; echo done", "returned 3"),
    "background_not_awaited": (f"{FAILS} & sleep 0.5; echo done", "returned 3, in the background"),
    "awaited_together": (f"{FAILS} & a=$!; true & b=$!; wait $a $b; echo done", "returned 3"),
    "asked": ("i=0; [ $i = 1 ]; echo done", "asked for and did not look at"),
    "asked_by_path": ("/usr/bin/test 1 = 2; command [ 1 = 1 ]; echo done", "asked for and did not look at"),
    "asked_behind_a_pipe": ("set -o pipefail; echo a | cat; [[ a == b ]]; echo done", "asked for and did not look at"),
    "awaited_untested": (f"{FAILS} & a=$!; wait $a; echo done", "returned 3"),
    "group_in_the_background": (f"{{ sleep 0.1; {FAILS}; }} & wait; echo done", "returned 3"),
    "substitution": (f"echo \"it is $({FAILS})\"", "returned 3"),
    "local_substitution": (f"f() {{ local x=$({FAILS}); echo $x; }}; f", "returned 3"),
    "assigned_substitution": (f"x=$({FAILS}); echo $x", "SystemExit.* returned 3"),
    "no_such_program": ("no_such_program; echo done", "no_such_program returned 127"),
    "no_such_folder": ("cd no_such_folder; echo done", "^cd no_such_folder returned 1"),
    "signal_in_a_pipe": ('python -c "import os; os.kill(os.getpid(), 11)" | cat', "returned 139"),
    "own_exit_trap": (f"trap 'echo bye' EXIT; {FAILS} | cat", "returned 3"),
    "own_traps_reset": (f"trap - EXIT ERR DEBUG; {FAILS} | cat; false; echo on", "returned 3"),
    "in_the_exit_trap": ("trap 'python fails.py' EXIT; echo on", "returned 5, in the script's EXIT trap"),
    "own_err_trap": ("trap 'echo oops' ERR; false; echo on", "^false returned 1"),
    "err_trap_sets_for_nobody": (f"trap 'rc=1' ERR; {FAILS}; echo on", "returned 3, and its script did not test it"),
    "err_trap_says": (f"end() {{ echo line $1; }}; trap 'end $LINENO' ERR; {FAILS}; echo on", "did not test it"),
    "err_trap_not_in_a_function": (f"trap 'rc=1' ERR; f() {{ {FAILS}; echo on; }}; f; exit ${{rc-0}}", "did not test"),
    "after_an_err_trap": (f"trap 'rc=1' ERR; false; trap - ERR; {FAILS}; echo on; [ $rc = 1 ] || exit 1", "returned 3"),
    "in_a_condition_at_the_end_of_a_function": (f"f() {{ if {FAILS}; then echo a; fi; }}; f; echo on", "than words"),
    "job_that_failed_before_the_trap": (f"{FAILS} & trap 'kill %1; wait' EXIT; sleep 0.3; echo on", "returned 3"),
    "not_to_the_end": ("set +e; false; true", "^false returned 1"),
    "eval": (f"eval '{FAILS}; echo on'", "returned 3"),
    "sourced": (". ./lib.sh; pipes", "returned 4"),
    "a_script": ("bash loses.sh", "false returned 1.*loses.sh line 2"),
    "a_posix_script": ("sh loses.sh; echo on", "false returned 1"),
    "in_make": ("make -s pipes", "fails.sh returned 4"),
    "xargs_dropped": ("echo fails.py | xargs -n 1 python || true; echo on", "python returned 123.* dropped it"),
    "or_echo": (f"{FAILS} || echo failed", "returned 3, and its script made no more of it than words"),
    "if_not_echo": (f"if ! {FAILS}; then echo failed; fi; echo on", "no more of it than words"),
    "if_without_else": (f"if {FAILS}; then echo good; fi", "no more of it than words"),
    "kept_for_nobody": (f"{FAILS} || rc=$?; echo on", "nothing depends on the variable"),
    "overwritten": (f"{FAILS}; rc=$?; true; rc=$?; exit $rc", "nothing depends on the variable"),
    "chain": (f"{FAILS} && echo a && echo b; echo on", "dropped it"),
    "subshell_of_one": (f"true; ( {FAILS} ) || echo failed", "^python .* no more of it than words"),
    "a_subshell": (f"( echo a; {FAILS} ) || echo failed", "^python .* no more of it than words"),
    "in_a_here_document": (f"bash <<'X'\n{FAILS} || echo failed\nX\necho on", "no more of it than words"),
    "on_stdin": (f"echo '{FAILS} || echo failed' | bash; echo on", "no more of it than words"),
    "in_a_sourced_file": (". ./lib.sh; warns ./fails.sh; echo on", "no more of it than words"),
    "another_shells": ("bash ./fails.sh || echo failed", "^bash ./fails.sh returned 4"),
    "inner_shells": (f"bash -c '{FAILS}; exit $?' || echo failed", "returned 3"),
    "process": (f"while read -r x; do echo $x; done < <({FAILS}); echo on", "in a substitution that forgets it"),
    "for_words": (f"for x in $({FAILS}); do echo $x; done; echo on", "in a substitution that forgets it"),
    "given_up": (f"for i in 1 2; do {FAILS} && break; done; echo on", "dropped it"),
    "trap_that_reads_it": (f"end() {{ echo $?; exit 0; }}; trap end EXIT; {FAILS}", "returned 3"),
    "printed_for_words": (f"case $({FAILS}; echo $?) in *0) echo good ;; *) echo bad ;; esac", "did not test it"),
    "printed_too_late": (f"case $({FAILS}; echo; echo $?) in *0) echo good ;; *) exit 1 ;; esac", "did not test it"),
    "ends_a_sourced_file": ("load() { . ./ends.sh; }; load || true; echo on", "fails.sh returned 4.* dropped it"),
    "negated": ("set -e; ! grep -q . fails.py; echo on", "^grep .* returned 1, behind a !"),
    "negated_in_a_function": ("found() { grep -q . fails.sh; }; ! found; echo on", "^grep .* behind a !"),
    "negated_python": ("! python -c 1; echo on", "^python .* behind a !"),
    "in_xargs": ("echo x | xargs -I{} sh -c 'false; echo {}'", "^false returned 1"),
}  # fmt: skip

HONEST: Mapping[str, str] = {
    "what_is_caught": "( grep SigCgt /proc/$BASHPID/status; echo on ); grep SigCgt /proc/$$/status; echo on",
    "what_is_caught_for_a_trap": "trap 'echo bye' EXIT; grep SigCgt /proc/$$/status; echo on",
    "what_is_caught_in_a_subshell": "( trap 'echo bye' EXIT; grep SigCgt /proc/$BASHPID/status; true ); echo on",
    "strict": "set -euo pipefail; python -c 'print(1)' | tee log",
    "condition": "if false; then echo a; else echo b; fi; while false; do :; done; until true; do :; done",
    "negated": "! false; if ! grep -q x /dev/null; then echo none; fi",
    "negated_and_tested": "if ! grep -q . fails.sh; then exit 1; fi; ! grep -q . fails.sh && exit 1; "
    "! grep -q . fails.sh || echo none; ! true; [ $? = 1 ] || exit 1; while ! grep -q . fails.sh; do exit 1; done",
    "lists": "[ -f none ] && echo there; [ -f none ] || echo not there; grep -q x /dev/null || echo none",
    "or_true": "grep x /dev/null || true; rm none 2>/dev/null || :; kill 999999 2>/dev/null || true",
    "xargs_or_true": "echo none | xargs -n1 rm 2>/dev/null || true",
    "or_true_with_a_file": "echo a > made; grep x made || true; cmp made none 2>/dev/null || true",
    "head": "yes | head -1; seq 100000 | head -2 | tail -1",
    "head_of_three": "yes | cat | cat | head -1",
    "python_killed_at_the_end": "python -c 'import time; time.sleep(60)' & p=$!; "
    "trap 'kill $p 2>/dev/null || true' EXIT; echo",
    "head_under_pipefail": "set -o pipefail; seq 100000 | head -2 | tail -1; yes | head -1; "
    "seq 100000 | grep -q 7; echo on",
    "python_head_under_pipefail": "set -o pipefail; python -c 'for i in range(99999): print(i)' 2>log "
    "| head -1; cat log >&2",
    "python_head": "python -c 'for i in range(99999): print(i)' 2>log | head -1; cat log >&2",
    "counter": "i=0; ((i++)); let i=0; f() { [ $i = 1 ] && echo; }; f; echo $i",
    "read_to_the_end": "read -r -d '' text <<X\nhere\nX\necho \"$text\"",
    "acted_on": f"{FAILS} || ./odd.sh 2; if {FAILS}; then exit 1; fi; rc=0; {FAILS} || rc=$?; [ $rc = 3 ] || exit 1",
    "must_fail": f'set -e; ! {FAILS}; {FAILS} && exit 1; must() {{ ! "$@"; }}; must {FAILS}',
    "tried_again": "for i in 1 2; do ./odd.sh $i && break; done; until ./odd.sh $((i - 1)); do i=$((i + 1)); done",
    "processes": "diff <(echo a) <(echo a); while read -r x; do echo $x; done < <(grep x /dev/null); echo on",
    "err_trap": f"rc=0; trap 'rc=$?' ERR; {FAILS}; trap - ERR; echo $rc; [ $rc = 3 ] || exit 1; ./odd.sh 2",
    "lines_for_a_shell_all_tested": "printf 'false || x=1\\necho $x $1\\n' | bash -uo pipefail -s /etc/hostname",
    "err_trap_collects": f"f=(); trap 'f+=(\"$BASH_COMMAND\")' ERR; {FAILS}; ((${{#f[@]}} == 1)) || exit 1",
    "err_trap_of_a_function": "n=0; on_err() { s=$?; echo line $1 $s; n=$((n + 1)); }\nset -E\n"
    f"trap 'on_err $LINENO' ERR\nf() {{\n  {FAILS}\n  echo in f\n}}\nf\nfalse\n[ $n = 2 ] || exit 1",
    "negated_at_the_end_of_a_function": 't() { if "$@"; then echo ok; else bad=1; fi; }; not() { ! "$@"; }; '
    f't not {FAILS}; [ "${{bad-0}}" = 0 ]',
    "killed_and_awaited_in_the_trap": "set -e; python -c 'import time; time.sleep(60)' & p=$!; "
    "trap 'kill $p; wait $p 2>/dev/null || true' EXIT; sleep 0.2; python -c 'print(2)'",
    "killed_in_a_function_of_the_trap": 'end() { local p; p=$(jobs -p); [ -n "$p" ] && kill $p; wait; }; trap end EXIT;'
    " python -c 'import signal, sys, time; signal.signal(15, lambda *a: sys.exit(143)); time.sleep(60)' & sleep 0.5; "
    "echo on",
    "status_kept": "false; rc=$?; if [ $rc -ne 0 ]; then echo it failed; fi",
    "status_in_a_case": "false; case $? in 1) echo one ;; esac",
    "status_printed": f"case $({FAILS}; echo $?) in *3) ./odd.sh 2 ;; *) exit 1 ;; esac; echo on",
    "status_printed_and_kept": f"x=$({FAILS}; echo $?); [ $x = 3 ] || exit 1; echo on",
    "sourced_and_tested": "load() { . ./ends.sh || ./odd.sh 2; }; load; source ./ends.sh || r=0; [ $r = 0 ] || exit 1",
    "status_in_arithmetic": "fail=0; false; ((fail |= $?)); echo $fail",
    "pipe_status": "false | cat; [ ${PIPESTATUS[0]} = 1 ] && echo one",
    "pipe_status_kept": "false | cat; rc=${PIPESTATUS[0]}; if [ $rc = 1 ]; then echo one; fi",
    "pipefail_tested": "set -o pipefail; if false | cat; then echo a; else echo b; fi",
    "log_that_tests": 'log() { [ -n "$QUIET" ] && echo "$1"; }; log a; echo on',
    "status_of_a_function": "f() { false; }; f; rc=$?; [ $rc = 1 ] && echo one",
    "function_after_a_condition": "f() { ./odd.sh 2; }; if [ $# = 1 ]; then false; fi\nf\necho on",
    "function_tested": "f() { false; return 2; }; f || echo two",
    "awaited": "true & false & p=$!; wait $p || echo it failed",
    "awaited_in_turn": 'for i in 0 1; do (exit $i) & p+=($!); done; n=0; for q in "${p[@]}"; do wait $q || n=1; done; '
    "echo $n",
    "server": "sleep 60 & p=$!; echo up; kill $p; wait $p; echo down",
    "server_killed_at_the_end": "sleep 60 & p=$!; trap 'kill $p' EXIT; echo up",
    "cleanup": "trap 'rm none 2>/dev/null; kill 999999 2>/dev/null' EXIT; echo on",
    "empty_answer": '[ -z "$(grep x /dev/null)" ] && echo none; x=$(grep x /dev/null || true); echo "$x"',
    "substitution_tested": "if x=$(false); then echo a; else echo b; fi; y=$(false) || y=none; echo $y",
    "subshell_tested": "(exit 3) || echo three; if (cd none 2>/dev/null); then echo there; fi",
    "xtrace": "set -x; echo a | cat; f() { local x=1; echo $x; }; f; wait; trap 'echo bye' EXIT; (echo b); set +x",
    "last_argument": "echo a b; echo $_; f() { echo in $_; }; f x y; echo $_",
    "own_traps": "trap 'echo bye $?' EXIT; trap 'echo int' INT; trap; f() { trap 'echo back' RETURN; }; f",
    "own_err_trap": "trap 'echo oops' ERR; f() { if false; then :; fi; }; f; echo on",
    "own_debug_trap": "n=0; trap 'n=$((n+1))' DEBUG; echo a; echo b; trap - DEBUG; [ $n -gt 1 ] && echo counted",
    "strict_own_traps": "if bash strict.sh; then exit 1; fi; if bash strict.sh sub; then exit 1; fi; echo on",
    "asked_after_an_err_trap": "trap 'echo oops' ERR; python fails.py; rc=$?; [ $rc = 5 ] || exit 1; echo five",
    "strict_debug_trap": "set -eT; trap 'echo $? $BASH_COMMAND' DEBUG; if [[ -n '' ]]; then :; else x=1; fi; echo on",
    "nounset": "set -u; f() { echo $#; }; f; a=(); echo ${#a[@]}; b=1; echo $b",
    "nounset_and_tests": "set -eu; x=$(grep a /dev/null || true); f() { false || echo no; }; f; (false) || echo $x",
    "descriptors": "exec 3>out; echo a >&3; exec 3>&-; exec 4< <(echo b); read -r x <&4; echo $x; echo c | cat",
    "other_separators": "IFS=:; x=a:b; for y in $x; do echo $y; done; echo c | cat | cat",
    "here_documents": "cat <<X | tr a b\nabc\nX\nwhile read -r l; do echo $l; done < <(printf 'a\\nb\\n')",
    "retries": "n=0; until [ $n = 3 ]; do n=$((n+1)); done; for i in 1 2 3; do ./odd.sh $i && break; done; echo $i",
    "exit_code": "exit 3",
    "strict_failure": "set -e; false; echo never",
    "returned": "f() { return 3; }; f; exit $?",
    "signals": "kill -TERM $$; sleep 1",
    "coprocess": "coproc cat; echo a >&${COPROC[1]}; read -r x <&${COPROC[0]}; echo $x; kill $COPROC_PID",
    "options": "shopt -s lastpipe; echo a | read -r x; echo $x; set -o noclobber; echo b > fresh; cat fresh",
    "arguments": 'set -- a \'b c\'; echo $# "$2"; shift; echo $1; g() { echo "$@"; }; g 1 2',
    "sh_escapes": "sh -c 'printf \"a\\n\"; x=$(echo b); echo $x'",
    "make": "make -s good",
    "line_numbers": "echo $LINENO\necho $LINENO\nf() { echo $LINENO; }\nf",
}

FILES = {
    "fails.sh": "#!/bin/bash\nexit 4\n",
    "fails.py": "raise SystemExit(5)\n",
    "odd.sh": "#!/bin/sh\nexit $(( $1 % 2 ))\n",
    "lib.sh": 'pipes() { ./fails.sh | cat; }\nwarns() { "$@" || warn $*; }\nwarn() { echo $*; }\n',
    "ends.sh": "echo on\n./fails.sh\n",
    "strict.sh": "set -Eeuo pipefail\ntrap 'echo bye $?' EXIT\ntrap 'oops $? in $LINENO' ERR\n"
    "oops() {\n  echo $*\n  echo ${FUNCNAME[1]}\n}\n"
    "f() { ./odd.sh 1; }\nif [ $# = 1 ]; then x=$(./fails.sh); fi\nf\necho never\n",
    "loses.sh": "echo on\nfalse\necho off\n",
    "Makefile": "good:\n\t@echo $(words $(MAKEFILE_LIST)) | cat\npipes:\n\t./fails.sh | cat\n",
}

pytestmark = [pytest.mark.process, pytest.mark.slow]


class Done(NamedTuple):
    exit_code: int
    stdout: str
    stderr: str
    why: str | None
    unseen: str | None


@pytest.fixture
def places(tmp_path: Path) -> Layout:
    places = Layout(tmp_path / "work" / "runs" / "r")
    for folder in (places.tree, places.artifacts, places.injected, tmp_path / "tmp", places.stage("s")):
        folder.mkdir(parents=True)
    for name, text in FILES.items():
        (places.tree / name).write_text(text)
        (places.tree / name).chmod(0o755)
    recorder.install(places.injected)
    return places


def run(places: Layout, argv: list[str], programs: Sequence[str] = (PYTHON,), **expect: Any) -> Done:
    """A stage's command with the recorder in it, and what it lost."""
    folder = places.stage("s")
    env = {"PATH": f"{PYTHON}:{os.environ['PATH']}", "TMPDIR": str(places.run_dir.parents[2] / "tmp"), "LC_ALL": "C"}
    shells = recorder.recorded(argv, env, places, places.tree, folder / recorder.REPORT)
    done = subprocess.run(shells.argv, env=shells.env, cwd=places.tree, capture_output=True, text=True, timeout=30)
    ran = exit_codes.Command(argv, done.returncode)
    seen = exit_codes.read(folder, ran, Where(places.tree, places.tree, programs), (), Processes())
    for stream in ("stdout", "stderr"):
        (folder / stream).write_text(getattr(done, stream))
    record = blank([])
    record["lost_exit_codes"], record["unseen_exit_codes"] = seen.lost, seen.unseen
    record["files"] = [{"path": f"stages/s/{s}", "bytes": 0, "sha256": ""} for s in ("stdout", "stderr")]
    case = Case(Run(places.run_dir), stage("s", argv, expect=expect), record)  # type: ignore[arg-type]
    return Done(done.returncode, done.stdout, done.stderr, lost(case), seen.unseen)


@pytest.mark.parametrize("name", LIES)
def test_what_is_lost_is_told(places: Layout, name: str) -> None:
    script, told = LIES[name]
    done = run(places, ["bash", "-c", script])
    assert done.exit_code == 0, done
    assert done.why is not None and re.search(told, done.why), done


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_script_runs_as_it_does_without(places: Layout, name: str) -> None:
    bare = subprocess.run(
        ["bash", "-c", HONEST[name]],
        env={"PATH": f"{PYTHON}:{os.environ['PATH']}", "LC_ALL": "C"},
        cwd=places.tree,
        capture_output=True,
        text=True,
        timeout=30,
    )
    for made in ("out", "fresh", "log"):
        (places.tree / made).unlink(missing_ok=True)
    done = run(places, ["bash", "-c", HONEST[name]])
    assert (done.exit_code, done.stdout, sorted(done.stderr.splitlines())) == (
        bare.returncode,
        bare.stdout,
        sorted(bare.stderr.splitlines()),
    )
    assert (done.why, done.unseen) == (None, None)


@pytest.mark.parametrize(
    "argv", [["sh", "-c", "false; echo on"], ["/bin/sh", "loses.sh"], ["bash", "loses.sh"], ["env", "sh", "loses.sh"]]
)
def test_every_shell_of_a_command_is_recorded(places: Layout, argv: list[str]) -> None:
    assert str(run(places, argv).why).startswith("false returned 1")


def test_a_script_named_by_its_path_is_run_by_a_shell_that_records(places: Layout) -> None:
    (places.tree / "odd.sh").write_text("#!/bin/sh\nfalse\necho on\n")
    assert str(run(places, ["./odd.sh"]).why).startswith("false returned 1")


@pytest.mark.parametrize("argv", [["dash", "-c", "false; true"], ["make", "-k", "good"], ["bash", "-p", "loses.sh"]])
def test_what_cannot_be_recorded_is_said(places: Layout, argv: list[str]) -> None:
    assert "not recorded" in str(run(places, argv).unseen)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("find . -name fails.sh -exec ./fails.sh {} \\;; echo on", "find does not say what fails.sh returned"),
        ("find . -name '*.py' -exec python {} ';'; true", "find does not say what python returned"),
        ("make -k good; true", "go on after errors"),
        ("env A=1 make --keep-going good; true", "go on after errors"),
        ("dash -c 'false; true'; true", "not recorded of this dash"),
    ],
)
def test_a_program_that_forgets_what_its_own_returned_is_said(places: Layout, script: str, why: str) -> None:
    assert why in str(run(places, ["bash", "-c", script]).unseen)


def test_a_job_that_outlives_its_shell_is_said(places: Layout) -> None:
    outlives = "python -c 'import time; time.sleep(3)' & sleep 0.1"
    assert "still ran" in str(run(places, ["bash", "-c", outlives]).unseen)
    assert "still ran" in str(run(places, ["bash", "-c", f"trap 'echo bye' EXIT; {outlives}"]).unseen)
    assert "still ran" in str(run(places, ["bash", "-c", f"trap 'exit 0' EXIT; {outlives}"]).unseen)


def test_what_is_meant_is_allowed_by_program(places: Layout) -> None:
    script = ["bash", "-c", "echo a | grep b | cat; x=$(grep c /dev/null); echo $x"]
    assert run(places, script).why is not None
    assert run(places, script, allow_exit_codes={"grep": [1]}).why is None
    assert run(places, script, allow_exit_codes={"grep": [2]}).why is not None


def test_of_the_systems_programs_those_in_python_are_the_environments(places: Layout, tmp_path: Path) -> None:
    for name, first in (("tool", "#!/bin/bash"), ("runner", f"#!{sys.executable}")):
        (tmp_path / name).write_text(f"{first}\nimport_is_no_command\n")
        (tmp_path / name).chmod(0o755)
    script = ["bash", "-c", f"PATH={tmp_path}:$PATH; tool 2> log || echo none; runner 2> log || echo none"]
    assert str(run(places, script, programs=[str(tmp_path)]).why).startswith("runner 2> log returned 1")


def test_a_script_of_the_system_is_its_own(places: Layout, tmp_path: Path) -> None:
    script = tmp_path / "elsewhere" / "tool"
    script.parent.mkdir()
    script.write_text("#!/bin/bash\nfalse\ntrue\n")
    script.chmod(0o755)
    assert run(places, ["bash", "-c", f"{script}; echo on"]).why is None


def test_without_a_bash_nothing_is_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    recorder.install(tmp_path)
    places = Layout(tmp_path / "r")
    argv, env = recorder.recorded(["sh", "x.sh"], {"PATH": "/bin"}, places, tmp_path, tmp_path / "report")
    assert (argv, env) == (["sh", "x.sh"], {"PATH": "/bin"})
    where = Where(tmp_path, tmp_path, [PYTHON])
    assert "not recorded of this sh" in str(
        exit_codes.read(tmp_path, exit_codes.Command(argv, 0), where, (), Processes()).unseen
    )


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("grep -q x y", "grep"),
        ("A=1 B='x y' /usr/bin/grep x", "grep"),
        ("x=$(grep a b)", "grep"),
        ("local x=$(grep a b)", "grep"),
        ("env -u X A=1 timeout -k 5 10 python x.py", "python"),
        ("nohup nice -n 5 ./run.sh", "run.sh"),
        ("sudo -u me ls", "ls"),
        ("x=1", ""),
        ("", ""),
    ],
)
def test_the_program_of_a_command(command: str, program: str) -> None:
    assert program_of(command) == program


@pytest.mark.parametrize(
    "script", ["python -S x.py", "a; python3.11 -u -SI -c 'x'", "python -BS", "env python -I -S x"]
)
def test_a_script_runs_a_python_that_tells_nothing(script: str) -> None:
    assert leaves_site_out(script)


@pytest.mark.parametrize("script", ["python x.py -S", "python -c 'x' -S", "python -m x -S", "python -s -I x", "ls -S"])
def test_a_script_runs_none_such(script: str) -> None:
    assert not leaves_site_out(script)
