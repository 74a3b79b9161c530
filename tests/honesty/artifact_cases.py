"""Artifacts that are not what the stage owes: empty, old, someone else's, impossible."""

from __future__ import annotations

from typing import Any

from tests.honesty.case import Case, first, lie, truth
from tests.support.stage_cases import Case as StageCase
from tests.support.stage_cases import artifact, makes, runs

BENCH = [
    {"finite": "all"},
    {"column": "cmp_pct", "max": 100},
    {"sum": ["cmp_pct", "sel_pct", "win_pct"], "near": 100, "within": 2},
    {"equal": ["reads_actual", "reads_expected"]},
    {"column": "roofline_frac", "max": 1},
    {"distinct": ["S"]},
]
HEADER = "S,ms_total,cmp_pct,sel_pct,win_pct,reads_actual,reads_expected,roofline_frac\n"
ROWS = ["512,1.5,30,50,20,1055,1055,0.4\n", "1024,2.5,31,50,19,1599,1599,0.5\n"]
IMPOSSIBLE = "import traceback\ntry: 1 / 0\nexcept ZeroDivisionError: traceback.print_exc()\n"
SWEEP = [
    {"values": {"S": [512, 1024]}},
    {"at_most": ["a", "b"]},
    {"column": "device", "matches": "^cuda"},
    {"column": "a", "max": 3, "impossible": True},
]
OOM = {"a": ["OOM"], "b": ["OOM"]}
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "4" * 64 + "\nsize 12345\n"
# Made in the stage's own folder, and brought to artifacts/ as archives and `cp -p` do.
KEPT_TIMES = """
import shutil, tarfile, tempfile
made = os.path.join(tempfile.mkdtemp(), "made.txt")
open(made, "w").write("3 of 3 passed")
{}
with tarfile.open(made + ".tar", "w", format=tarfile.GNU_FORMAT) as archive: archive.add(made, it)
os.unlink(made)
tarfile.open(made + ".tar").extractall(os.path.dirname(made))
shutil.copy2(os.path.join(os.path.dirname(made), it), here)
"""
LATER = """
import subprocess, sys
code = "import os, time; time.sleep({}); open(os.path.join({{!r}}, {{!r}}), 'w').write('1')".format(here, "{}")
subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
"""


def bench(name: str, status: str, reason: str, *rows: str, header: str = HEADER) -> StageCase:
    """A stage that owes a bench table of two rows, with every check of the matrix."""
    expected = artifact(f"{name}.csv", kind="csv", columns=["S", "ms_total"], min_rows=2, checks=BENCH)
    return makes(name, status, reason, f"put({name + '.csv'!r}, {header + ''.join(rows)!r})", expected)


def jsons(name: str, status: str, reason: str, text: str, **over: Any) -> StageCase:
    """A stage that owes a JSON file with the key `selected` and writes `text`."""
    expected = artifact(f"{name}.json", kind="json", keys=["selected"], **over)
    return makes(name, status, reason, f"put({name + '.json'!r}, {text!r})", expected)


def text(name: str, status: str, reason: str, code: str, **over: Any) -> StageCase:
    """A stage that runs `code` and owes the text file NAME.txt; in the code, `it` is that name."""
    return makes(name, status, reason, f"it = {name + '.txt'!r}\n{code}", artifact(f"{name}.txt"), **over)


def rows(name: str, status: str, reason: str, *lines: str, header: str = "S,a,b,device", **asked: Any) -> StageCase:
    """A stage that owes the CSV table NAME.csv of `lines`."""
    content = "".join(f"{line}\n" for line in (header, *lines))
    expected = artifact(f"{name}.csv", **{"kind": "csv", "columns": ["S", "a"], **asked})
    return makes(name, status, reason, f"put({name + '.csv'!r}, {content!r})", expected)


def sweep(name: str, status: str, reason: str, *lines: str, **asked: Any) -> StageCase:
    """A stage that owes a table of a sweep, with every check of the kinds that the bench has not."""
    return rows(name, status, reason, *lines, checks=SWEEP, **asked)


HONEST = [
    truth(runs("says_something", "passed", "", "echo", "done"), "its stdout, which says something"),
    truth(text("text_file", "passed", "", "put(it, '1 of 1')"), "a text file that it writes itself"),
    truth(runs("colours", "passed", "", "printf", r"\033[32mok\033[0m\n"), "a word, in green"),
    truth(bench("bench_table", "passed", "", *ROWS), "a bench table that holds what it must"),
    truth(jsons("json_file", "passed", "", '{"selected": 1.5}'), "a JSON object with its key, once"),
    truth(
        text(
            "handled",
            "passed",
            "",
            IMPOSSIBLE.replace("traceback.print_exc()", "print('divided by zero: skipped')") + "put(it, '1 of 1')",
        ),
        "an error that is handled in a sentence",
    ),
    truth(
        text(
            "waits_for_its_helper",
            "passed",
            "",
            LATER.format(0, "waits_for_its_helper.txt").replace("subprocess.Popen(", "subprocess.call("),
        ),
        "a helper process writes the artifact, and is waited for",
    ),
    truth(
        text("linked_within", "passed", "", "put('own.txt', '1')\nos.link(here + '/own.txt', here + '/' + it)"),
        "a second name for a file that it has just made",
    ),
    truth(
        text(
            "from_input",
            "passed",
            "",
            "put(it, open('from_input/in.txt').read() + 'passed')",
            files={"from_input/in.txt": "3 of 3\n"},
        ),
        "what it makes of a file of the commit",
    ),
    truth(
        makes(
            "reproducible",
            "passed",
            "",
            "put('golden.txt', ''.join(f'{n * n}\\n' for n in range(9)))",
            artifact("golden.txt", reproducible=True),
            files={"reproducible/golden.txt": "".join(f"{n * n}\n" for n in range(9))},
        ),
        "the committed golden file, made again, of which the runbook says that it is `reproducible`",
    ),
    truth(
        text("kept_times", "passed", "", KEPT_TIMES.format("")),
        "a file that it has made elsewhere, copied with its times through an archive",
    ),
    truth(
        makes(
            "stderr_text",
            "passed",
            "",
            "import sys\nprint('FA-2: 4 passed', file=sys.stderr)",
            artifact("stderr_text.txt", from_="stderr", contains=["4 passed"], lacks=["Skipping"]),
        ),
        "its stderr, which holds what it must and nothing that it must not",
    ),
    truth(
        sweep("sweep", "passed", "", "512,1.5,2,cuda:0", "1024,2.5,4,cuda:0"),
        "the sweep that was asked for, on the device that was asked for",
    ),
    truth(
        sweep("out_of_memory", "passed", "", "512,1.5,2,cuda:0", "1024,OOM,OOM,cuda:0", allow=OOM),
        "OOM in the columns for which the runbook allows it",
    ),
    truth(
        rows(
            "all_kinds_of_columns",
            "passed",
            "",
            "512,1.5,2.8,1.2ms,4106f1b,2026-11-22,fa2,True,",
            "1024,2.5,2.8.1,1.3ms,1234567,2026-11-23,3,False,0.5",
            header="S,ms,version,wall,commit,day,backend,causal,speedup",
            columns=["S", "ms", "version", "wall", "commit", "day", "causal"],
        ),
        "versions, units, hashes, dates, names, truth values, and a column that is filled now and then",
    ),
    truth(
        makes(
            "deep_json",
            "passed",
            "",
            r"put('deep.json', '{\"selected\": {\"ms\": [0, false]}, \"notes\": []}')",
            artifact("deep.json", kind="json", keys=["selected"]),
        ),
        "a JSON key with zeros under it, beside an empty list that nobody owes",
    ),
    truth(
        makes(
            "jsonl_file",
            "passed",
            "",
            r"put('rows.jsonl', '{\"S\": 1}\n{\"S\": 2}\n')",
            artifact("rows.jsonl", kind="jsonl", columns=["S"], min_rows=2),
        ),
        "two whole rows of JSON lines",
    ),
]

LIES = [
    lie(
        rows("no_value_at_all", "invalid", "and no value in any", "512,OOM,2,cuda:0", "1024,OOM,4,cuda:0"),
        "OOM in each row of a column that is owed",
        honest="out_of_memory",
    ),
    lie(
        jsons("key_of_a_word", "invalid", "holds 'OOM' under the key 'selected'", '{"selected": "OOM"}'),
        "OOM under a key that it owes",
        honest="json_file",
    ),
    lie(
        runs("silent", "invalid", "silent.txt is empty", "true"),
        "exit code 0 and a 0-byte artifact",
        honest="says_something",
    ),
    lie(
        runs("blank", "invalid", "blank.txt is blank", "printf", r" \n\t\n"),
        "only blanks on stdout",
        honest="says_something",
    ),
    lie(
        runs("only_escapes", "invalid", "only_escapes.txt is blank", "printf", r"\033[32m\033[0m\033[2K\r\n\0"),
        "only colour codes on stdout",
        honest="colours",
    ),
    lie(
        runs("no_script", "blocked", "no_script.py is not in the commit", "python", "no_script.py"),
        "the training script does not exist",
        honest="says_something",
    ),
    lie(
        runs("bad_import", "failed", "exit code 1", "python", "-c", "print('starting'); import no_such_module"),
        "the script fails on an import after its first line",
        honest="says_something",
    ),
    lie(
        text("traceback_exit_0", "invalid", "Python traceback", "put(it, 'step 1 of 9')\n" + IMPOSSIBLE),
        "exit code 0 after a traceback, the artifact half done",
        honest="handled",
    ),
    lie(
        runs(
            "traceback_in_a_pipe",
            "failed",
            "returned 1, in a pipe",
            "sh",
            "-c",
            "python -c 'print(1); 1 / 0' 2>&1 | cat",
        ),
        "a script dies in a pipeline whose end succeeds",
        honest="says_something",
    ),
    lie(
        text("traceback_and_nothing", "invalid", "traceback_and_nothing.txt is missing", IMPOSSIBLE),
        "exit code 0 after a traceback, the artifact not written",
        honest="handled",
    ),
    lie(
        runs(
            "syntax_error_in_a_shell",
            "failed",
            "syntax_error.py returned 1",
            "sh",
            "-c",
            "echo step 1; python syntax_error.py || true",
            files={"syntax_error.py": "def f(:\n"},
        ),
        "|| true after a script that does not parse",
        honest="says_something",
    ),
    lie(
        runs(
            "no_script_in_a_shell",
            "failed",
            "no_script.py returned 2",
            "sh",
            "-c",
            "echo step 1; python no_script.py || true",
        ),
        "|| true after a script that does not exist",
        honest="says_something",
    ),
    lie(
        runs(
            "no_module_in_a_shell",
            "failed",
            "gone.bench returned 1",
            "sh",
            "-c",
            "echo step 1; python -m gone.bench | cat",
        ),
        "a module that does not exist, in a pipeline whose end succeeds",
        honest="says_something",
    ),
    lie(
        runs("exit_code_lost", "failed", "exit code 3", "sh", "-c", "echo COMPLETE SUCCESS; exit 3"),
        "says success and exits 3",
        honest="says_something",
    ),
    lie(
        runs("no_evidence", "invalid", "no evidence asked", "true", expect={}),
        "asks for no evidence at all",
        honest="says_something",
    ),
    # Tables
    lie(bench("header_only", "invalid", "has only a header"), "a table with a header only", honest="bench_table"),
    lie(
        bench("nan", "failed", "holds nan in row 2", ROWS[0], ROWS[1].replace("2.5", "nan")),
        "a CSV with NaN",
        honest="bench_table",
    ),
    lie(
        bench(
            "above_roofline",
            "failed",
            "roofline_frac is 8.3, expected at most 1",
            ROWS[0],
            ROWS[1].replace("0.5\n", "8.3\n"),
        ),
        "a bench row 8 times above the roofline",
        honest="bench_table",
    ),
    lie(
        bench(
            "above_100_percent",
            "failed",
            "cmp_pct is 106.3, expected at most 100",
            ROWS[0],
            ROWS[1].replace("31,50,19", "106.3,108.8,110.5"),
        ),
        "each branch takes more than the whole",
        honest="bench_table",
    ),
    lie(
        bench(
            "shares",
            "failed",
            r"cmp_pct \+ sel_pct \+ win_pct is 150",
            ROWS[0],
            ROWS[1].replace("31,50,19", "50,50,50"),
        ),
        "the branches' shares sum to 150 %",
        honest="bench_table",
    ),
    lie(
        bench(
            "reads",
            "failed",
            "reads_actual is 1091 and reads_expected is 1599",
            ROWS[0],
            ROWS[1].replace("1599,", "1091,", 1),
        ),
        "reads 1091/1599, called correctly tracked",
        honest="bench_table",
    ),
    lie(
        bench("same_row_twice", "failed", "S is 512 in rows 1 and 2", ROWS[0], ROWS[0]),
        "one row, written twice, to reach min_rows",
        honest="bench_table",
    ),
    lie(
        bench(
            "same_column_twice",
            "invalid",
            "two columns of the same name",
            *(r.replace("\n", ",9\n") for r in ROWS),
            header=HEADER.replace("\n", ",S\n"),
        ),
        "two columns of one name, one of them right",
        honest="bench_table",
    ),
    lie(
        bench("empty_rows", "invalid", "holds nothing in row 1", *["," * 7 + "\n"] * 2),
        "a table of empty rows",
        honest="bench_table",
    ),
    lie(
        jsons("key_of_nothing", "invalid", "holds nothing under the key 'selected'", '{"selected": null, "S": 1}'),
        "a JSON object with its key, and nothing under it",
        honest="json_file",
    ),
    lie(
        makes(
            "lines_of_nothing",
            "invalid",
            "holds nothing in row 1",
            r"put('nothing.jsonl', 'null\n{}\n')",
            artifact("nothing.jsonl", kind="jsonl", min_rows=2),
        ),
        "JSON lines that hold nothing",
        honest="jsonl_file",
    ),
    lie(
        makes(
            "lines_without_key",
            "invalid",
            "lacks the column 'ranges' in row 1",
            r"put('keys.jsonl', '{\"S\": 1}\n')",
            artifact("keys.jsonl", kind="jsonl", keys=["S", "ranges"]),
        ),
        "JSON lines without a key that they owe",
        honest="jsonl_file",
    ),
    lie(
        jsons("key_twice", "invalid", "same key twice", '{"selected": "torch", "selected": "triton"}'),
        "a JSON key twice: each reader sees another one",
        honest="json_file",
    ),
    lie(
        jsons("json_nan", "invalid", "NaN is not a JSON number", '{"selected": NaN}'), "NaN in JSON", honest="json_file"
    ),
    lie(
        makes(
            "half_a_line",
            "invalid",
            "is not JSON: line 2",
            r"put('half.jsonl', '{\"S\": 1}\n{\"S\": ')",
            artifact("half.jsonl", kind="jsonl", columns=["S"], min_rows=1),
        ),
        "JSON lines cut off in the middle",
        honest="jsonl_file",
    ),
    lie(
        jsons("key_of_empty_list", "invalid", "holds nothing under the key 'selected'", '{"selected": []}'),
        "an empty list under a key that it owes",
        honest="deep_json",
    ),
    lie(
        jsons("key_of_nulls", "invalid", "holds nothing under the key 'selected'", '{"selected": {"ms": [null]}}'),
        "nothing but null in what stands under a key that it owes",
        honest="deep_json",
    ),
    lie(
        jsons("key_of_nan", "invalid", "holds nan under the key 'selected'", '{"selected": "nan"}'),
        "nan as text under a key that it owes",
        honest="deep_json",
    ),
    lie(
        makes(
            "lines_of_empty_lists",
            "invalid",
            "is empty in row 2, column ranges",
            r"put('ranges.jsonl', '{\"S\": 1, \"ranges\": [[0, 64]]}\n{\"S\": 2, \"ranges\": []}\n')",
            artifact("ranges.jsonl", kind="jsonl", keys=["ranges"]),
        ),
        "a JSON line with an empty list under a key that it owes",
        honest="jsonl_file",
    ),
    # Words, sweeps, limits
    lie(
        rows("oom", "invalid", "holds 'OOM' in row 2, column a", "512,1.5,2,cuda:0", "1024,OOM,4,cuda:0"),
        "OOM in a column of times",
        honest="out_of_memory",
    ),
    lie(
        sweep("skipped_in_a_row", "invalid", "a is 'skipped'", "512,1,2,cuda", "1024,skipped,4,cuda", allow=OOM),
        "another word than the one that is allowed",
        honest="out_of_memory",
    ),
    lie(
        rows(
            "not_measured",
            "invalid",
            r"holds 'n/a \(no sm_90\)' in row 3, column b",
            *("512,1,2,cuda", "1024,2,3,cuda", "2048,3,n/a (no sm_90),cuda"),
        ),
        "a word in a column of numbers for which nothing is asked",
        honest="all_kinds_of_columns",
    ),
    lie(
        rows("nan_as_text", "invalid", "holds nan in row 3, column b", "512,1,2,c", "1024,2,3,c", "2048,3,nan,c"),
        "nan in a column of numbers for which nothing is asked",
        honest="all_kinds_of_columns",
    ),
    lie(
        sweep("all_out_of_memory", "invalid", "allowed words", "512,OOM,1,cuda", "1024,OOM,1,cuda", allow=OOM),
        "every row is OOM, which is allowed",
        honest="out_of_memory",
    ),
    lie(
        sweep("another_sweep", "failed", "S is 64, expected one of 512, 1024", "64,1,2,cuda", "128,1,2,cuda"),
        "a shorter sweep than the one that was asked for",
        honest="sweep",
    ),
    lie(
        sweep("half_a_sweep", "failed", "no row in which S is 1024", "512,1,2,cuda:0", "512,1,2,cuda:1"),
        "as many rows, of half the sweep",
        honest="sweep",
    ),
    lie(
        sweep("on_another_device", "failed", "device is 'cpu'", "512,1,2,cpu", "1024,1,2,cpu"),
        "the sweep, on the CPU",
        honest="sweep",
    ),
    lie(
        sweep("part_above_whole", "failed", "a is 2.5, expected at most b", "512,1,2,cuda", "1024,2.5,2,cuda"),
        "a part that takes longer than the whole",
        honest="sweep",
    ),
    lie(
        sweep("impossible", "invalid", "a is 9, expected at most 3", "512,1,2,cuda", "1024,9,10,cuda"),
        "a value that cannot be",
        honest="sweep",
    ),
    lie(
        makes(
            "stderr_skips",
            "invalid",
            "contains 'Skipping', which it must not",
            "import sys\nprint('Skipping FA-2 on CPU: 4 passed', file=sys.stderr)",
            artifact("stderr_skips.txt", from_="stderr", contains=["4 passed"], lacks=["Skipping"]),
        ),
        "says on stderr that it skips, and exits 0",
        honest="stderr_text",
    ),
    # Whose file it is
    lie(
        text(
            "copy_of_the_commits",
            "invalid",
            "equals copy_of_the_commits/golden.txt, a file of the commit",
            "put(it, open('copy_of_the_commits/golden.txt').read())",
            files={"copy_of_the_commits/golden.txt": "9 of 9 passed\n"},
        ),
        "a copy of a result that was committed",
        honest="reproducible",
    ),
    lie(
        text("old_times", "invalid", "is older than the stage", KEPT_TIMES.format("os.utime(made, (1.6e9, 1.6e9))")),
        "a result from before the run, unpacked from a cache",
        honest="kept_times",
    ),
    lie(
        makes(
            "old_in_the_tree",
            "invalid",
            "is older than the stage",
            "open('old_in_the_tree.out', 'w').write('1 of 1')\nos.utime('old_in_the_tree.out', (1.6e9, 1.6e9))",
            artifact("old_in_the_tree.txt", from_="tree:old_in_the_tree.out"),
        ),
        "a result from before the run, brought into the tree",
        honest="kept_times",
    ),
    lie(
        text("pointer", "invalid", "is a Git LFS pointer", f"put(it, {POINTER!r})"),
        "a Git LFS pointer for the artifact",
        honest="text_file",
    ),
    lie(
        makes(
            "pointer_for_a_table",
            "invalid",
            "is a Git LFS pointer",
            f"put('pointer.csv', {POINTER!r})",
            artifact("pointer.csv", kind="csv", columns=["S"]),
        ),
        "a Git LFS pointer for a table",
        honest="sweep",
    ),
    lie(
        text(
            "pointer_in_the_commit",
            "blocked",
            "weights.bin is a Git LFS pointer",
            "put(it, 'read ' + open('pointer_in_the_commit/weights.bin').readline())",
            paths=["pointer_in_the_commit/weights.bin"],
            files={"pointer_in_the_commit/weights.bin": POINTER},
        ),
        "it reads a file of which the commit holds no more than a Git LFS pointer",
        honest="from_input",
    ),
    lie(
        makes(
            "tracked",
            "invalid",
            "old_result.txt was there before",
            "",
            artifact("old_result.txt", from_="tree:old_result.txt"),
            files={"old_result.txt": "PASSED\n"},
        ),
        "the artifact is a result that was committed",
        honest="from_input",
    ),
    lie(
        text("late_writer", "invalid", "late_writer.txt is missing", LATER.format(30, "late_writer.txt")),
        "a background process writes the artifact after the stage has ended",
        honest="waits_for_its_helper",
    ),
    lie(
        text("link_outside", "invalid", "is a symbolic link", "os.symlink('/etc/hostname', here + '/' + it)"),
        "the artifact is a symbolic link to another file",
        honest="linked_within",
    ),
    lie(
        text(
            "link_to_old",
            "invalid",
            "has another name outside",
            "import pathlib\nold = pathlib.Path(here).parent.parent / 'old.txt'\nold.write_text('old')\n"
            "os.link(old, here + '/' + it)",
        ),
        "the artifact is a hard link to a file from before the run",
        honest="linked_within",
    ),
    lie(
        text(
            "link_to_another",
            "invalid",
            "earlier stages had delivered: another.txt",
            "os.link(here + '/another.txt', here + '/' + it)",
        ),
        "the artifact is a hard link to an earlier stage's",
        honest="linked_within",
        before=first("link_to_another", "open(here + '/another.txt', 'w').write('1')", "another.txt"),
    ),
    lie(
        text("made_earlier", "invalid", "earlier stages had delivered: made_earlier.txt", "os.utime(here + '/' + it)"),
        "an earlier stage has left the artifact; this one only makes it look new",
        honest="text_file",
        before=first("made_earlier", "open(here + '/made_earlier.txt', 'w').write('1')"),
    ),
    lie(
        text("found_there", "invalid", "found_there.txt was there before the stage", "print('nothing to do')"),
        "an earlier stage has left the artifact, and this one relies on it",
        honest="text_file",
        before=first("found_there", "open(here + '/found_there.txt', 'w').write('1')"),
    ),
    lie(
        text(
            "overwrites", "invalid", "earlier stages had delivered: theirs.txt", "put('theirs.txt', '2')\nput(it, '1')"
        ),
        "it overwrites what an earlier stage had delivered",
        honest="text_file",
        before=first("overwrites", "open(here + '/theirs.txt', 'w').write('1')", "theirs.txt"),
    ),
    lie(
        runs(
            "cut", "invalid", "cut.txt is not whole", "python", "-c", "print('x' * 99999)", limits={"log_bytes": 1000}
        ),
        "the artifact is a stdout of which most was cut",
        honest="says_something",
    ),
]

CASES: list[Case] = [*HONEST, *LIES]
