"""What scripts make of a status, by their text alone: of the command that starts with `X`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.agent.evidence.shell.commands import ends_its_loop
from orchestrator.agent.evidence.shell.reactions import fate
from orchestrator.agent.evidence.shell.record import ShellRecord
from orchestrator.agent.evidence.shell.scripts import Call, Scripts
from orchestrator.agent.evidence.shell.syntax import Unparsable, parse
from orchestrator.agent.evidence.shell.tree import Simple, condensed
from orchestrator.agent.evidence.shell.worded import only_worded

pytestmark = pytest.mark.unit

FATES: Mapping[str, list[str]] = {
    "tested": [
        "X || y",
        "X || exit 1",
        "X && y || z",
        "if X; then y; fi",
        "if X; then :; else y; fi; echo",
        "X || { echo a; exit 2; }",
        "die() { echo $1; exit 1; }\nX || die no; echo",
        "if ! X; then\n  echo no\n  exit 1\nfi\necho",
        "while X; do y; done; echo",
        "until X; do y; done; echo",
        "n=0; until X; do n=$((n + 1)); [ $n -ge 2 ] && exit 1; done; echo",
        "set -e; fail=0; X || fail=1; ([ $fail = 0 ] && echo fine); echo",
        "set -e; fail=0; X || fail=1; f() { [ $fail = 0 ] && echo fine; }; f; echo",
        "set -e; fail=0; X || fail=1; [ $fail = 0 ] && echo fine",
        "set -e; n=0; until X; do n=$((n + 1)); [ $n -ge 2 ] && break; done; [ $n -lt 2 ]; echo",
        "! X\necho",
        "X && exit 1; echo",
        "if X; then exit 1; fi; echo",
        "(X) || y",
        "{ X; } || y",
        "rc=0; X || rc=$?; [ $rc -eq 3 ] || exit 1; echo",
        "X; rc=$?; exit $rc",
        "X; rc=$?; y --rc $rc; echo",
        "X; case $? in 0) ;; *) exit 1 ;; esac",
        "fail=0; for i in 1 2; do X || fail=$((fail + 1)); done; [ $fail = 0 ]",
        'X && ok=1; if [ -n "$ok" ]; then y; fi; echo',
        "bad=(); X || bad+=(x); if (( ${#bad[@]} )); then exit 1; fi; echo",
        "X || export FAILED=1; echo",
        'if [ "$(X)" = a ]; then y; fi; echo',
        "v=$(X || echo none); y $v; echo",
        "v=$(X) || y; echo",
        "X || eval 'exit 1'; echo",
        "set -e; X || rc=$?; test $rc = 3; echo",
        "f() { X; }\nf || y",
        "X; f() { return $?; }; f || y",
        "X > f || echo '{}' > f; y --from f",
        'if ! X > "$T/f"; then printf none > "$T/f"; fi; y "$(cat "$T/f")"',
        "X | tee f || echo none | tee f; y ${T} f",
        'X > $T/f || echo none > "${T}/f"; y --from=${T}/f',
        "out=$(X) || true; case $out in *a*) y ;; esac",
        "out=$(X) || :; [[ $out == *a* ]] || exit 1; echo",
        'for i in 1 2; do out=$(X) || continue; best=$out; done; [ -n "$best" ] || exit 1; echo',
        "of() { X; echo $?; }\n[ $(of) = 3 ] || exit 1; echo",
        "code=$(X; echo $?); y $code",
        "s=0; while read -r x; do X || s=1; done < f; exit $s",
        "shopt -s lastpipe; s=0; y | while read -r x; do X || s=1; done; exit $s",
        "y | { s=0; X || s=1; exit $s; }",
        "X || touch .failed; [ ! -e .failed ] || exit 1",
        "X || echo a >> f; while read -r x; do y $x; done < f",
        "F=0; is() { if [ $1 != $2 ]; then echo no; F=1; fi; }\nX; is $? 3\nexit $F",
        "set -e; X || [ $? -eq 124 ]; echo",
        "ok() { [ $1 -eq 3 ]; }\nX; ok $? || exit 1; echo",
        "ok() { test $1 -eq 3; }\nX; rc=$?; ok $rc || exit 1; echo",
        "X || python -c 'import b; b.run()'; echo",
        "X || bash -c 'y; echo'; echo",
        "X || exec y; echo",
        "X || env A=1 y; echo",
        "for f in a b; do X; rc=$?; [ $rc = 0 ] || break; done; exit $rc",
        "for f in a b; do X; rc=$?; [ $rc -gt $max ] && max=$rc; done; exit $max",
        "for f in a b; do X; rc=$?; done; [ $rc = 3 ] || exit 1; echo",
        "(for f in a b; do X; rc=$?; done; exit $rc) || y; echo",
        "f() { local rc=0; X || rc=1; return $rc; }; f || exit 1; echo",
        "f() { local rc; X || rc=1; g; }; g() { exit $rc; }; f; echo",
        "f() { local -n rc=$1; X || rc=1; }; f rc; exit $rc",
        "f() { local a; X || rc=1; }; f; exit $rc",
    ],
    "as 0": [
        "X; [ $? -ne 124 ]",
        "X\n[[ $? != 124 ]] || exit 1; echo",
        "X; if [ $? -eq 124 ]; then echo late; exit 1; fi; echo",
        "X; case $? in 0|1) ;; *) exit 1;; esac",
        "X; case $? in 2) exit 1;; *) echo on;; esac; y",
        "X; rc=$?; (( rc == 2 )) && exit 1; echo",
        "X; rc=$?; if (( rc > 1 && rc != 5 )); then exit $rc; fi; echo",
        'rc=0; X || rc=$?; test "$rc" -gt 1 && exit $rc; echo',
        "X; rc=$?; if [ $rc -ne 0 ] && [ $rc -ne 1 ]; then exit $rc; fi; echo",
        "X; rc=$?; echo $rc; [ ${rc} -le 1 ] || { echo bad; exit 1; }",
        "set -e; X || [ $? -ne 124 ]; echo",
        "f() { X; return $(($? / 2)); }\nf || exit 1; echo",
        "X; exit $(($? / 2))",
        "X | cat; [ ${PIPESTATUS[0]} -le 1 ]",
        'X; [ "$?" ] && y',
        'X; rc=$?; [ -n "$rc" ] || exit 1',
        "if ! X; then rc=$?; if [ $rc -ge 2 ]; then exit $rc; fi; fi; echo",
        "X || { rc=$?; [ $rc -le 1 ] || exit $rc; }; echo",
        "X; rc=$?; exit $((rc * 0))",
        "X; rc=$?; [[ $rc =~ ^[3-9] ]] && exit 1; echo",
        "y; a=$?; X; b=$?; echo; exit $((a < b ? a : b))",
        "y; a=$?; X; b=$?; exit $((a * b))",
        "y; a=$?; X; b=$?; [ $a -ne 0 ] && [ $b -ne 0 ] && exit 1; echo",
        "MOST=5; X; rc=$?; [ $rc -gt $MOST ] && exit 1; echo",
        'X; let "rc = $? / 4"; exit $rc',
        "X; rc=$(($? >= 8)); [ $rc -eq 0 ] || exit 1",
        "bad() { [ $1 -gt 3 ]; }\nX; if bad $?; then exit 1; fi; echo",
        "f() { local rc; X; rc=$?; if [ $rc -ge 2 ]; then return 1; fi; }\nf || exit 1",
    ],
    "said": [
        "set -e; n=0; until X; do n=$((n + 1)); [ $n -ge 2 ] && break; done; echo",
        "set -e; n=0; while ! X; do n=$((n + 1)); [ $n -lt 2 ] || break; done; echo",
        "X || echo no",
        "X || echo no; echo on",
        "X || echo no >> f; cat f; echo",
        "of() { X; echo $?; }\necho $(of)",
        "code=$(X; echo $?); echo $code",
        "X || echo no >> f; column -t f | head; echo",
        "X || echo no > f; cp f $A; echo",
        "X || touch .failed; echo",
        "X || kill $pid; echo",
        "X || python -c 'print(\"no\")'; echo",
        "X || bash -c 'echo no'; echo",
        "X || [ $? -eq 124 ]; echo",
        "X || { echo a; printf b; }; echo",
        "X || echo no | tee log",
        "X || cat <<E\nno\nE\necho",
        "if X; then echo a; fi; echo",
        "if X; then echo a; else echo b; fi; echo",
        "if ! X; then echo b; fi",
        "X && echo a || echo b; echo",
        'log() { echo "$*" >&2; }\nX || log no; echo',
        "X || /bin/echo no; echo",
        "X || command echo no; echo",
        "X || exec echo no; echo",
        "X || env A=1 echo no; echo",
        "X; [ $? -eq 0 ] && echo a; echo",
        "X; case $? in 0) echo a ;; *) echo b ;; esac; echo",
        "while X; do echo; done; echo",
        "until X; do sleep 1; done; echo",
        "v=$(X || echo none); echo $v",
        "X || eval 'echo no'; echo",
        'if [ "$(X)" = a ]; then echo; fi; echo',
        "! X && echo no; echo",
    ],
    "ignored": [
        "X || true",
        "X || :; echo",
        "X || exit 0; echo",
        "X && y; echo",
        "for i in 1; do X || continue; y; done; echo",
        "X || (exit 0); echo",
        "X || exec true; echo",
    ],
    "kept": [
        "set -e; fail=0; X || fail=1; { [ $fail = 0 ] && echo fine; }; echo",
        "s=0; y | while read -r x; do X || s=1; done; exit $s",
        "s=0; (X || s=1); exit $s",
        "X || rc=$?; echo",
        "X; rc=$?; echo $rc; echo",
        "X && ok=1; echo",
        "X; rc=$?; if [ $rc -ne 0 ]; then echo no; fi; echo",
        "n=0; X || n=$((n + 1)); echo $n",
        "X && m=a || m=b; echo $m",
        "X; rc=$?; y; rc=$?; exit $rc",
        'X; rc=$?; s=$rc; echo "$s"',
        "f() { local rc=0; X || rc=$?; echo $rc; }; f; echo",
        "codes=(); X; codes+=($?); echo ${codes[*]}",
        "for f in a b; do X; rc=$?; done; exit $rc",
        "rc=0; while read -r f; do X; rc=$?; done < l; echo; exit $rc",
        "rc=0; f() { local rc; X || rc=1; }; f; exit $rc",
        "f() { declare rc=0; X || rc=1; echo $rc; }; f; exit $rc",
    ],
    "substituted": [
        "for i in $(X); do y; done; echo",
        "while read a; do y; done < <(X); echo",
        "diff <(X) <(y) && z",
        "cat <<E\n$(X)\nE\necho",
    ],
    "untested": ["echo $(X)", 'y "$(X)"; echo', "local v=$(X); echo"],
}


def the(command: str, scripts: Scripts, text: str) -> Simple:
    lines = text.count("\n") + 2
    return next(found for line in range(1, lines) for found in scripts.find("s", line, command))


@pytest.mark.parametrize(("expected", "text"), [(fate, text) for fate, texts in FATES.items() for text in texts])
def test_what_becomes_of_a_status(expected: str, text: str) -> None:
    scripts = Scripts({"s": text})
    calls = [Call("f", "s", text.count("\n") + 1)] if "f" in text.split() or "f()" in text else []
    code = 1 if expected == "as 0" else None
    assert fate(scripts, the("X", scripts, text), calls, tested=True, left=False, code=code) == expected


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (1, "X; [ $? -eq 1 ]"),
        (1, "X; [ $? -ne 1 ] || y; echo"),
        (3, "set -e; X || [ $? -eq 3 ]; echo"),  # which somebody has chosen
        (77, "X; case $? in 0|77) ;; *) exit 1;; esac"),
        (124, "X; rc=$?; if [ $rc -ne 0 ] && [ $rc -ne 124 ]; then exit $rc; fi; echo"),
        (2, "X; rc=$?; if [ $rc -gt 1 ]; then exit $rc; fi; echo"),
        (1, "X; rc=$?; [ $rc -gt $MOST ] && exit 1; echo"),  # nobody knows
        (1, "X; case $? in $FINE) ;; *) exit 1;; esac"),
        (1, "X; rc=$?; if [ $rc -eq 124 ]; then exit 1; fi; exit $rc"),
        (1, "X; rc=$?; [ $rc -eq 124 ] && exit 1; y --rc $rc; echo"),
        (1, "X; rc=$?; [ -z $MOST ] && exit 1; echo; exit $rc"),
        (2, "X || { rc=$?; [ $rc -le 1 ] || exit $rc; }; echo"),
        (1, "X | cat; [ ${PIPESTATUS[0]} -eq 0 ]"),
        (2, "X; test $? -eq 2 || exit 1; echo"),
        (1, "X; if [ $? -ne 1 ]; then exit 1; fi; echo"),
        (1, "y; a=$?; X; b=$?; exit $((a > b ? a : b))"),
        (1, "y; a=$?; X; b=$?; [ $a -eq 0 ] && [ $b -eq 0 ] || exit 1; echo"),
        (1, "MOST=0; X; rc=$?; [ $rc -gt $MOST ] && exit 1; echo"),
        (1, "MOST=1; [ $CI ] && MOST=0; X; rc=$?; [ $rc -gt $MOST ] && exit 1; echo"),
        (1, "X; a=$?; y; b=$?; [ $a -ne 0 ] && [ $b -ne 0 ] || exit 1; echo"),  # both are to fail
        (1, "X; a=$?; y; b=$?; if [ $a -ne 0 ] && [ $b -ne 0 ]; then echo; else exit 1; fi; echo"),
        (1, "y; a=$?; X; b=$?; [ $a -ne 0 ] && [ $b -ne 0 ] || exit 1; echo"),
        (1, "X; rc=$?; [ $rc -gt 5 ] && exit 1; export rc; y"),
        (1, "ok() { [ $1 -eq 1 ]; }\nX; ok $? || exit 1; echo"),
        (3, "X; rc=$(($? == 3)); [ $rc -eq 1 ] || exit 1"),
        (1, "X; rc=$?; [[ $rc =~ [1-9] ]] && exit 1; echo"),
        (1, "X; rc=$?; bad=$((bad + rc)); [ $bad -gt 9 ] && exit 1; echo"),
    ],
)
def test_a_question_that_tells_a_status_from_0_tests_it(code: int, text: str) -> None:
    scripts = Scripts({"s": text})
    assert fate(scripts, the("X", scripts, text), [], tested=True, left=False, code=code) == "tested"


def test_a_status_that_leaves_its_script_is_tested_by_who_runs_that() -> None:
    scripts = Scripts({"s": "for i in 1 2; do X && echo a; done"})
    command = the("X", scripts, "")
    assert fate(scripts, command, [], tested=True, left=True) == "tested"
    assert fate(scripts, command, [], tested=True, left=False) == "ignored"


def test_a_function_is_followed_to_its_call() -> None:
    scripts = Scripts({"s": ". lib\nf || echo no\nf || exit 1\necho", "lib": "f() {\n  g\n}\ng() { X; }\n"})
    command = scripts.find("lib", 4, "X")[0]
    calls = [Call("g", "lib", 2), Call("f", "s", 2)]
    assert fate(scripts, command, calls, tested=True, left=False) == "said"
    assert fate(scripts, command, [*calls[:1], Call("f", "s", 3)], tested=True, left=False) == "tested"


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("for i in 1 2; do X && break; done", True),
        ("until X; do y; done", True),
        ("while ! X; do y; done", True),
        ("retry() { for i in 1 2; do X && return 0; done; return 1; }", True),
        ("for i in 1 2; do if X; then break; fi; done", True),
        ("for i in 1 2; do X || echo no; done", False),
        ("for i in 1 2; do X; done", False),
    ],
)
def test_a_command_that_is_tried_until_it_succeeds(text: str, ends: bool) -> None:
    assert ends_its_loop(the("X", Scripts({"s": text}), text)) is ends


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("a b; c", ["a b", "c"]),
        ("x=1 y=$(a b) c", ["a b", "x=1 y=$(a b) c"]),
        ("a \\\n  b # c\nd", ["a b", "d"]),
        ("a 'b; c' \"d $(e) f\"", ["e", "a 'b; c' \"d $(e) f\""]),
        ("if [[ a < b && (c) ]]; then d; fi", ["[[", "d"]),
        ("(( a < b )); $((c))", ["((", "$((c))"]),
        ("case $a in (x|y) b;; *) c; esac", ["b", "c"]),
        ("a <<'E' | b\n$(no)\nE\nc", ["a", "b", "c"]),
        ("a <<-E\n\t$(yes)\n\tE\nc", ["yes", "a", "c"]),
        ("f() { a; } 2>&1; function g { b; }", ["a", "b"]),
        ("a=(1 $(b) 2); c ${d:-$(e)} `f`", ["b", "a=(1 $(b) 2)", "e", "f", "c ${d:-$(e)} `f`"]),
        ("for ((i = 0; i < 3; i++)); do a; done; for i; do b; done", ["a", "b"]),
        ("time a; ! b; coproc c", ["a", "b", "c"]),
        ("eval 'a; b'; bash <<E\nc\nE\n", ["a", "b", "eval 'a; b'", "c", "bash"]),
        ("a 2>&1 >b <c &>d >&2 | e |& f &", ["a", "e", "f"]),
        ("[ -n \"${a[*]/#/x }\" ] && echo @(a|b) !(c)", ["[ -n \"${a[*]/#/x }\" ]", "echo @(a|b) !(c)"]),
    ],
)  # fmt: skip
def test_the_commands_of_a_script(text: str, commands: list[str]) -> None:
    found = {node.key for node in parse(text).walk() if isinstance(node, Simple)}
    expected = set(map(condensed, commands))
    assert {key if not key.startswith(("[[", "((")) else key[:2] for key in found} == expected


@pytest.mark.parametrize("text", ["if a; then b", "a )", "'a", "$(a", "done", "case a in b", "a <<<", "${a"])
def test_what_is_no_script_is_not_understood(text: str) -> None:
    with pytest.raises(Unparsable):
        parse(text)
    assert Scripts({"s": text}).find("s", 1, "a") == []


TOKENS = ["if", "then", "fi", "for", "in", "do", "done", "case", "esac", "{", "}", "(", ")", "[[", "]]", "((", "))"]
TOKENS += ["X", "f()", "a=1", "$(", "`", '"', "'", "\\", "${a", "|", "||", "&&", "&", ";", ";;", "!", "<(", "<<E", "E"]
TOKENS += ["\n", " ", "#", "$?", "rc=$?", "exit", "return", "eval", "'X || echo'", ">", "2>&1", "echo"]


@pytest.mark.parametrize(
    ("script", "question"),
    [
        ('[ "$a" = "$b" ] || echo differs\necho', '[ "$a" = "$b" ]'),
        ("test $a -ge 3 || printf 'FAILED: %s' $a\necho", "test $a -ge 3"),
        ("if [ $a = b ]; then echo same; else echo 'results differ, see log'; fi\necho", "[ $a = b ]"),
        ("cmp -s a b || echo 'ERROR: a is not b' >&2\necho", "cmp -s a b"),
        ("cmp -s a b || echo 'they differ'\necho", ""),
        ("[ $a = b ] || { echo FAILED; exit 1; }\necho", ""),
        ("[ $a = b ] || { echo FAILED; bad=1; }\n[ -z $bad ] || exit 1", ""),
        ("if [ $a = b ]; then y; else echo FAILED; fi\necho", ""),
        ("[ $a = b ] || echo FAILED >> f\ny < f", ""),
        ("[ -f a ] || echo 'failed before'\necho", ""),
        ("X; rc=$?; if [ $rc -ne 0 ]; then echo failed; fi", ""),
        ("X || b=1; [ -n $b ]; [ $b != 1 ] || echo failed", ""),
        ('[ "$(y; echo $?)" = 0 ] || echo failed', ""),
        ("[ $# -eq 2 ] || echo 'wrong arguments'\necho", ""),
        ("[ $a = b ] || { echo FAILED; cat log; }\necho", "[ $a = b ]"),
        ("for i in 1 2; do if [ $i != 2 ]; then echo failed; continue; fi; y; done", ""),
        ("f() { if [ $1 != 2 ]; then echo failed; return 0; fi; y; }; f 1", ""),
        ("[ $a = b ] || echo 'warning: versions differ'\necho", ""),
        ("[ $a = b ] || echo 'failed to find a, which is fine'\necho", ""),
        ("[ $a = b ] || echo 'nothing to do'\necho", ""),
    ],
)
def test_what_only_words_make_of_a_comparison(script: str, question: str) -> None:
    scripts = Scripts({"s": f"a=$(x)\n{script}"})
    commands = [*scripts.called("echo"), *scripts.called("printf")]
    assert {only_worded(scripts, command) for command in commands} - {""} == {question} - {""}


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(TOKENS), max_size=40).map(" ".join))
def test_any_text_is_read_or_not_understood(text: str) -> None:
    scripts = Scripts({"s": text})
    for line in range(1, text.count("\n") + 2):
        for command in scripts.find("s", line, "X"):
            fate(scripts, command, [Call("f", "s", 1)], tested=True, left=False)


RECORD = [
    "loaded\t5\t4\t0\t0\t\thB\t\t\t\t0\tX || echo",
    "enters\t6\t5\t0\t1\t\tX\t\t\t\t1\t",
    "passed\t6\t5\t3\t1\t\tX\t\tX\t\t1\t",
    "tested\t5\t4\t3\t1\t\tX\t\tX\tf\x1fs\x1f1\x1e\t1\t=echo",
    "background\t5\t4\t3\t1\t\tX\t\tX\t\t1\t6",
    "again\t5\t4\t0\t1\t\tX\t\tX\t\t1\t",
    "passed\t5\t4\t3\t1\t\tX\t\tX\t\t1\t4\x1fperl\x1e3\x1f",
]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(RECORD), st.integers(0, 60), st.text(max_size=3))))
def test_any_record_is_read(lines: list[tuple[str, int, str]]) -> None:
    text = "\n".join(line[:at] + more + line[at:] if at < len(line) else line for line, at, more in lines)
    record = ShellRecord(text, Path("/"))
    assert {failure.line.how for failure in record.failures} <= {"said", "ignored", "untested", "background"}
    assert all(process.pid for line in record.ends for process in line.above)
