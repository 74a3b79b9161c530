"""Artifacts that are not what the stage owes: empty, old, someone else's, impossible."""

from __future__ import annotations

import os
from pathlib import Path
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
    {"column": "device", "matches": "^cpu"},
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


YESTERDAY = "../../../../yesterday.csv"
"""Beside the pod's folder, as a run's tree sees it."""


def _leave_table(root: Path) -> None:
    table = root.parent / "yesterday.csv"
    table.write_text("S,ms\n512,1.53417\n1024,2.94418\n2048,5.71022\n")
    os.utime(table, (1.6e9, 1.6e9))


def bench(name: str, status: str, reason: str, *rows: str, header: str = HEADER) -> StageCase:
    """A stage that owes a bench table of two rows, with every check of the matrix."""
    expected = artifact(f"{name}.csv", kind="csv", columns=["S", "ms_total"], min_rows=2, checks=BENCH)
    return makes(name, status, reason, f"put({name + '.csv'!r}, {header + ''.join(rows)!r})", expected)


def jsons(name: str, status: str, reason: str, text: str, **over: Any) -> StageCase:
    """A stage that owes a JSON file with the key `selected` and writes `text`."""
    expected = artifact(f"{name}.json", kind="json", keys=["selected"], **over)
    return makes(name, status, reason, f"put({name + '.json'!r}, {text!r})", expected)


def _arrays(name: str, status: str, reason: str, *numbers: str) -> StageCase:
    """A stage that owes a `.npz` of whole numbers, and of these."""
    code = f"""
import struct, zipfile
def array(kind, code, numbers):
    header = repr({{"descr": kind, "fortran_order": False, "shape": (len(numbers),)}}).encode() + b"\\n"
    begin = b"\\x93NUMPY\\1\\0" + struct.pack("<H", len(header)) + header
    return begin + struct.pack(f"<{{len(numbers)}}{{code}}", *numbers)
with zipfile.ZipFile(here + "/{name}.npz", "w") as file:
    file.writestr("sizes.npy", array("<i8", "q", [512, 1024]))
    file.writestr("ms.npy", array("<f4", "f", [float(n) for n in {numbers!r}]))
"""
    return makes(name, status, reason, code, artifact(f"{name}.npz"))


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
    truth(
        makes(
            "measured_again",
            "passed",
            "",
            f"import csv, time\nsizes = [row['S'] for row in csv.DictReader(open({YESTERDAY!r}))]\n"
            "t = time.perf_counter()\nms = [(time.perf_counter() - t) * 1e3 for s in sizes]\n"
            "put('measured_again.csv', 'S,ms\\n' + ''.join('%s,%r\\n' % row for row in zip(sizes, ms)))",
            artifact("measured_again.csv", kind="csv", columns=["S", "ms"]),
        ),
        "it measures again what a table of yesterday, from outside the tree, holds",
        prepare=_leave_table,
    ),
    truth(
        _arrays("arrays_of_numbers", "passed", "", "nan", "3"),
        "NumPy's arrays, in which NaN stands beside numbers",
    ),
    truth(runs("says_something", "passed", "", "echo", "done"), "its stdout, which says something"),
    truth(text("text_file", "passed", "", "put(it, '1 of 1')"), "a text file that it writes itself"),
    truth(rows("printed_table", "passed", "", "1,2,3,cpu", "2,3,4,cpu", ""), "a table with a blank line at its end"),
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
        sweep("sweep", "passed", "", "512,1.5,2,cpu:0", "1024,2.5,4,cpu:0"),
        "the sweep that was asked for, on the device that was asked for",
    ),
    truth(
        sweep("out_of_memory", "passed", "", "512,1.5,2,cpu:0", "1024,OOM,OOM,cpu:0", allow=OOM),
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
    truth(
        jsons(
            "own_status",
            "passed",
            "",
            '{"selected": 1.5, "status": "ok", "failed": 0, "error": "none", "error_max": 0.01}',
        ),
        "a JSON file that says of itself that nothing failed, in words such as `failed` and `error`",
    ),
    truth(
        jsons(
            "rows_of_their_own",
            "passed",
            "",
            '{"selected": [{"ms": 1.5, "status": "ok"}, {"ms": null, "status": "FAIL"}],'
            ' "failed": [{"config": "128x128", "error": "OutOfResources: shared memory"}]}',
        ),
        "a JSON file of rows, one of which failed, and a list of what failed",
    ),
    truth(
        jsons(
            "failure_is_meant",
            "passed",
            "",
            '{"selected": 1.5, "status": "FAILED"}',
            checks=[{"values": {"status": ["FAILED"]}}],
        ),
        "a JSON file about something that is to fail, of which a check says so",
    ),
    truth(
        rows(
            "cells_as_written",
            "passed",
            "",
            "512, 12e4567, 1.2ms, 33.3, 33.3, 33.3",
            "1024, abcdef0, 1.3ms, 33.4, 33.3, 33.2",
            header="S, commit, wall, cmp_pct, sel_pct, win_pct",
            columns=["S", "commit", "wall"],
            checks=[{"sum": ["cmp_pct", "sel_pct", "win_pct"], "near": 100, "within": 0.1}, {"distinct": ["commit"]}],
        ),
        "hashes that begin as numbers do, units, blanks behind commas, shares that were rounded",
    ),
    truth(
        makes(
            "samples",
            "passed",
            "",
            r"put('samples.jsonl', '{\"S\": 512, \"ms\": [1.5, 1.5], \"norms\": [\"l2\", \"inf\"]}\n' * 2)",
            artifact("samples.jsonl", kind="jsonl", columns=["ms", "norms"], checks=[{"finite": ["S", "ms"]}]),
        ),
        "JSON lines with lists of samples, and a list of names",
    ),
    truth(
        makes(
            "coloured_text",
            "passed",
            "",
            r"put('coloured.txt', 'FA-2: 4 \033[32mpassed\033[0m, failed: 0, skipped: none\n')",
            artifact("coloured.txt", contains=["4 passed"], lacks=["Skipping", "1 failed"]),
        ),
        "a text in colours, which says that nothing failed or was skipped",
    ),
]

LIES = [
    lie(
        jsons(
            "status_is_fail", "invalid", "says that it failed: status is 'FAIL'", '{"selected": 1.5, "status": "FAIL"}'
        ),
        "a bench writes into its file that it failed, and exits 0",
        honest="own_status",
    ),
    lie(
        jsons(
            "not_all_passed",
            "invalid",
            "says that it failed: all_passed is False",
            '{"selected": 1.5, "all_passed": false}',
        ),
        "a JSON file says that not all has passed",
        honest="own_status",
    ),
    lie(
        jsons(
            "all_rows_fail",
            "invalid",
            "says that it failed: status is 'FAIL'.*each of 2 rows under selected",
            '{"at": "cpu", "selected": {"512": {"ms": 1.5, "status": "FAIL"}, "1024": {"ms": 2.5, "status": "FAIL"}}}',
        ),
        "a JSON file, each of whose rows says that it failed",
        honest="rows_of_their_own",
    ),
    lie(
        jsons(
            "error_occurred",
            "invalid",
            "says that it failed: error_occurred is True",
            '{"selected": [{"name": "BM_sel/512", "error_occurred": true, "error_message": "max error 3.5"}]}',
        ),
        "a file of google-benchmark whose only benchmark had an error",
        honest="rows_of_their_own",
    ),
    lie(
        jsons(
            "errors_alone",
            "invalid",
            "says that it failed: error is 'no kernel image is available'.*each of 2 rows under selected",
            '{"selected": {"512": {"error": "no kernel image is available"}, "1024": {"error": "OutOfResources"}}}',
        ),
        "a JSON file whose rows are error messages",
        honest="rows_of_their_own",
    ),
    lie(
        jsons(
            "not_close",
            "invalid",
            "says that it failed: allclose is False",
            '{"selected": [{"ms": 1.5, "allclose": false}, {"ms": 2.5, "allclose": false}]}',
        ),
        "each row says that the results were not close",
        honest="rows_of_their_own",
    ),
    lie(
        jsons(
            "error_beside_figures",
            "invalid",
            "says that it failed: error is 'OutOfMemoryError",
            '{"selected": 1.5, "error": "OutOfMemoryError: CUDA out of memory"}',
        ),
        "an exception under `error`, beside the key that it owes",
        honest="failure_is_meant",
    ),
    lie(
        rows(
            "cuda_on_a_cpu",
            "invalid",
            "holds 'cuda:0' in row 1, column device, but the pod has no CUDA GPU",
            "512,1.5,2,cuda:0",
            "1024,2.5,4,cuda:0",
            checks=[{"column": "device", "matches": "^cuda"}],
        ),
        "the rows say `cuda:0`, on a pod that has no GPU",
        honest="sweep",
    ),
    lie(
        rows(
            "word_beside_a_unit",
            "invalid",
            "holds 'OOM' in row 2, column wall",
            "512,9e9f0a1,1.2",
            "1024,abcdef0,OOM",
            "2048,1234567,1.3ms",
            header="S,commit,wall",
            columns=["S", "commit", "wall"],
        ),
        "OOM among times of which one has a unit",
        honest="cells_as_written",
    ),
    lie(
        rows("number_and_word", "invalid", r"holds '0 \(skipped\)' in row 2", "512,1.5,2,c", "1024,0 (skipped),4,c"),
        "a number for what was skipped, and the word behind it",
        honest="all_kinds_of_columns",
    ),
    lie(
        rows("header_again", "invalid", "holds its header again in row 2", "512,1,2,c", "S,a,b,device", "512,1,2,c"),
        "the tables of two runs in one file, to reach min_rows",
        honest="all_kinds_of_columns",
    ),
    lie(
        rows(
            "equally_absent",
            "invalid",
            "a is 'n/a' and b is 'n/a', expected the same",
            "512,n/a,n/a,c",
            columns=["S"],
            checks=[{"equal": ["a", "b"]}],
        ),
        "two columns that agree, because both say n/a",
        honest="bench_table",
    ),
    lie(
        makes(
            "finite_without_key",
            "invalid",
            "lacks the column 'ms' in row 2, expected a finite number",
            r"put('no_ms.jsonl', '{\"S\": 512, \"ms\": 1.5}\n{\"S\": 1024, \"error\": \"OOM\"}\n')",
            artifact("no_ms.jsonl", kind="jsonl", checks=[{"finite": "all"}]),
        ),
        "a JSON line without the figure, where all were to be finite",
        honest="samples",
    ),
    lie(
        makes(
            "nan_among_samples",
            "invalid",
            "holds nan in row 1, column ms, expected a number as beside it",
            r"put('nan_sample.jsonl', '{\"ms\": [1.5, \"nan\"]}\n')",
            artifact("nan_sample.jsonl", kind="jsonl", columns=["ms"]),
        ),
        "nan as text among samples",
        honest="samples",
    ),
    lie(
        _arrays("arrays_of_nan", "invalid", "arrays_of_nan.npz holds no number, or none but NaN", "nan", "nan"),
        "NumPy's arrays, all of whose numbers are NaN",
        honest="arrays_of_numbers",
    ),
    lie(
        text("text_of_a_skip", "invalid", "holds no more than 'Skipped: no GPU'", "put(it, 'Skipped: no GPU\\n')"),
        "a text that says no more than that it was skipped",
        honest="coloured_text",
    ),
    lie(
        makes(
            "other_encoding",
            "invalid",
            "contains 'Skipping', which it must not",
            "open(here + '/utf16.txt', 'w', encoding='utf-16').write('Skipping FA-2: 4 passed')",
            artifact("utf16.txt", contains=["4 passed"], lacks=["Skipping"]),
        ),
        "a text in UTF-16, in whose bytes no phrase is found",
        honest="coloured_text",
    ),
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
        sweep("skipped_in_a_row", "invalid", "a is 'skipped'", "512,1,2,cpu", "1024,skipped,4,cpu", allow=OOM),
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
        sweep("all_out_of_memory", "invalid", "allowed words", "512,OOM,1,cpu", "1024,OOM,1,cpu", allow=OOM),
        "every row is OOM, which is allowed",
        honest="out_of_memory",
    ),
    lie(
        sweep("another_sweep", "failed", "S is 64, expected one of 512, 1024", "64,1,2,cpu", "128,1,2,cpu"),
        "a shorter sweep than the one that was asked for",
        honest="sweep",
    ),
    lie(
        sweep("half_a_sweep", "failed", "no row in which S is 1024", "512,1,2,cpu:0", "512,1,2,cpu:1"),
        "as many rows, of half the sweep",
        honest="sweep",
    ),
    lie(
        sweep("on_another_device", "failed", "device is 'mps'", "512,1,2,mps", "1024,1,2,mps"),
        "the sweep, on another device",
        honest="sweep",
    ),
    lie(
        sweep("part_above_whole", "failed", "a is 2.5, expected at most b", "512,1,2,cpu", "1024,2.5,2,cpu"),
        "a part that takes longer than the whole",
        honest="sweep",
    ),
    lie(
        sweep("impossible", "invalid", "a is 9, expected at most 3", "512,1,2,cpu", "1024,9,10,cpu"),
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
        makes(
            "copied_from_yesterday",
            "invalid",
            "holds what .*/yesterday.csv holds, which was there before the stage",
            f"import shutil\nshutil.copyfile({YESTERDAY!r}, here + '/copied_from_yesterday.csv')",
            artifact("copied_from_yesterday.csv", kind="csv", columns=["S", "ms"]),
        ),
        "a table of yesterday, from outside the tree",
        honest="measured_again",
        prepare=_leave_table,
    ),
    lie(
        runs(
            "copied_by_a_shell",
            "invalid",
            "holds what .*/yesterday.csv holds, which was there before the stage",
            *("bash", "-c", f"OLD={YESTERDAY[:-13]}\n. ./copied.sh"),
            files={"copied.sh": '(cd "$OLD" && cp yesterday.csv "$NSA_POD_ARTIFACTS/copied_by_a_shell.csv")\n'},
            expect={"artifacts": [artifact("copied_by_a_shell.csv", kind="csv", columns=["S", "ms"])]},
        ),
        "the same, by `cp` in a script, in the folder of the table",
        honest="measured_again",
        prepare=_leave_table,
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
        rows("row_without_cells", "invalid", "has 0 fields in row 2", "1,2,3,cpu", "", "2,3,4,cpu"),
        "a row of a table is blank",
        honest="printed_table",
    ),
    lie(
        makes(
            "changes_beside",
            "invalid",
            "earlier stages had delivered: beside.txt",
            "put('beside.txt', '2')",
            artifact("beside.txt"),
            needs=["changes_beside.first"],
        ),
        "it changes what an earlier stage has left beside its artifacts, which stays passed, and owes it",
        honest="text_file",
        before=first(
            "changes_beside",
            "open(here + '/beside.txt', 'w').write('1')\nopen(here + '/owed.txt', 'w').write('1')",
            "owed.txt",
        ),
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
