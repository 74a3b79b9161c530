"""Artifacts against what is expected: each way to be wrong gets a sentence."""

from __future__ import annotations

import bz2
import gzip
import lzma
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.verdict.artifacts import asked as asking
from orchestrator.verdict.artifacts.kind import Finding
from tests.support.agent_pod import artifact

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "4" * 64 + "\nsize 12345\n"
ALL = [{"finite": "all"}]
FINITE_A = [{"finite": ["a"]}]
AT_LEAST_0 = [{"column": "a", "min": 0, "max": None}]
AT_MOST_100 = [{"column": "a", "max": 100}]
SUM = [{"sum": ["a", "b"], "near": 100, "within": 2}]
DISTINCT = [{"distinct": ["a", "b"]}]
EQUAL = [{"equal": ["a", "b"]}]
MATCHES = [{"column": "a", "matches": "^cuda"}]


def findings(tmp_path: Path, content: bytes | str, **expected: Any) -> list[Finding]:
    path = tmp_path / "artifact"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with path.open("rb") as f:
        return asking.findings(artifact("artifact", **expected), f)


def problem(tmp_path: Path, content: bytes | str, **expected: Any) -> str | None:
    """The first thing that was wrong with an artifact before they had weights."""
    return next((found.sentence for found in findings(tmp_path, content, **expected) if found.since == 1), None)


@pytest.mark.parametrize(
    ("kind", "content", "expected", "sentence"),
    [
        ("text", "x", {}, None),
        ("text", b"\xff", {}, None),
        ("text", "", {}, "is empty"),
        ("text", " \n\t\r\n", {}, "is blank"),
        ("text", "\x1b[1m\x1b[0m\0\u200b\n", {}, "is blank"),
        ("text", "\x1b[1mok\x1b[0m\n", {}, None),
        ("text", "FA-2: 4 passed\n", {"contains": ["4 passed"], "lacks": ["Skipping"]}, None),
        ("text", "FA-2: not run\n", {"contains": ["FA-2", "passed"]}, "does not contain 'passed'"),
        ("text", "Skipping FA-2\n", {"lacks": ["Skipping"]}, "contains 'Skipping', which it must not"),
        ("text", " \n", {"contains": [" "]}, "is blank"),
        ("text", "a.c\n", {"contains": ["a.c"], "lacks": ["abc"]}, None),
        ("text", "x" * 65_530 + "4 passed", {"contains": ["4 passed"]}, None),
        ("csv", "a,b\n1,2\n", {"columns": ["a"]}, None),
        ("csv", "\ufeffa,b\r\n1,2\r\n", {"columns": ["a"]}, None),
        ("csv", 'a,b\n"1,5",2\n', {"columns": ["a"]}, None),
        ("csv", "", {}, "is empty"),
        ("csv", "\n1,2\n", {}, "begins with a blank line instead of a header"),
        ("csv", "a,b\n", {}, "has only a header, expected at least 1 rows"),
        ("csv", "a,b\n", {"min_rows": 0}, None),
        ("csv", "a,b\n1,2\n", {"min_rows": 4}, "has 1 rows, expected at least 4 rows"),
        ("csv", "a,a\n1,2\n", {}, "has two columns of the same name"),
        ("csv", "a,b\n1,2\n1,3\n", {"checks": DISTINCT}, None),
        ("csv", "a,b\n1,2\n3,4\n1.0,2\n", {"checks": DISTINCT}, "repeats itself: a is 1.0, b is 2 in rows 1 and 3"),
        ("csv", "a,b\n1\n", {}, "has 1 fields in row 1, expected 2"),
        ("csv", "a,b\n1,2\n1,2,3\n", {}, "has 3 fields in row 2, expected 2"),
        ("csv", "a,b\n1,2\n\n3,4\n", {}, "has 0 fields in row 2, expected 2"),
        ("csv", "a,b\n1,2\n\n", {}, None),
        ("csv", 'a,b\n1,"2\n', {}, "is not CSV: line 2: unexpected end of data"),
        ("csv", b"a,b\n1,\xff\n", {}, "is not UTF-8 text"),
        ("csv", "a,b\n1,2\n", {"columns": ["ms"]}, "lacks the column 'ms' in the header"),
        ("csv", "a,b\n1,\n", {"columns": ["b"]}, "is empty in row 1, column b"),
        ("csv", "a,b\n1,NaN\n", {"columns": ["b"]}, "holds NaN in row 1, column b, expected a finite value"),
        ("csv", "a,b\n1,oom\n", {"columns": ["b"]}, None),
        ("csv", "a,b\n1,x\n2,x\n", {"checks": ALL}, None),
        ("csv", "a,b\n1,x\n,\n", {}, "holds nothing in row 2"),
        ("csv", "a,b\n1,1\n2,-inf\n", {"checks": ALL}, "holds -inf in row 2, column b, expected a finite number"),
        ("csv", "a,b\n1,1\n2,oom\n", {"checks": ALL}, "holds 'oom' in row 2, column b, expected a finite number"),
        ("csv", "a,b\n1,\n2,3\n", {"checks": ALL}, "holds '' in row 1, column b, expected a finite number"),
        ("csv", "a,b\n1,nan\n", {"checks": ALL}, "holds nan in row 1, column b, expected a finite number"),
        ("csv", "a,b\n1,x\n", {"checks": FINITE_A}, None),
        ("csv", "a,b\n1,x\n", {"checks": [{"finite": ["b"]}]}, "fails in row 1: b is 'x', expected a finite number"),
        ("csv", "a\n1_000\n", {"checks": FINITE_A}, "fails in row 1: a is '1_000', expected a finite number"),
        ("csv", "a\n100\n110.5\n", {"checks": AT_MOST_100}, "fails in row 2: a is 110.5, expected at most 100"),
        ("csv", "a\n-1\n", {"checks": AT_LEAST_0}, "fails in row 1: a is -1, expected at least 0"),
        ("csv", "a\nnan\n", {"checks": AT_LEAST_0}, "fails in row 1: a is nan, expected a finite number"),
        ("csv", "a\n1\n", {"checks": [{"column": "z", "min": 0}]}, "lacks the column 'z' in the header"),
        ("csv", "a,b\n60,41\n", {"checks": SUM}, None),
        ("csv", "a,b\n60,41\n60,60\n", {"checks": SUM}, "fails in row 2: a + b is 120, expected 100 within 2"),
        ("csv", "a,b\n1571,1571\n", {"checks": EQUAL}, None),
        ("csv", "a,b\n1571,1571.0\n", {"checks": EQUAL}, None),
        ("csv", "a,b\n1091,1571\n", {"checks": EQUAL}, "fails in row 1: a is 1091 and b is 1571, expected the same"),
        ("csv", "a,b\nnan,nan\n", {"checks": EQUAL}, "fails in row 1: a is nan and b is nan, expected the same"),
        ("csv", "a,b,c\n,,1\n", {"checks": EQUAL}, "fails in row 1: a is '' and b is '', expected the same"),
        ("csv", "a,b\n9007199254740993,9007199254740992\n", {"checks": EQUAL}, "expected the same"),
        ("csv", "a\n1\n", {"checks": [{"median": "a"}]}, "cannot be checked: the check ['median'] is unknown"),
        ("json", '{"selected": 1}', {"keys": ["selected"]}, None),
        ("json", '{"selected": 1}', {"keys": ["window"]}, "lacks the key 'window'"),
        ("json", '{"selected": ""}', {"keys": ["selected"]}, "holds nothing under the key 'selected'"),
        ("json", "[1]", {"keys": ["window"]}, "is not an object with keys"),
        ("json", "", {}, "is not JSON: Expecting value: line 1 column 1 (char 0)"),
        ("json", "{}", {}, "holds nothing"),
        ("json", "null", {}, "holds nothing"),
        ("json", '{"a": NaN}', {}, "is not JSON: NaN is not a JSON number"),
        ("json", '{"a": 1e999}', {}, "is not JSON: 1e999 is out of range"),
        ("json", '{"a": 1, "a": 2}', {}, "is not JSON: an object has the same key twice"),
        ("json", "[" * 100_000, {}, "is not JSON"),
        ("json", b"\xff\xff\xff", {}, "is not UTF-8 text"),
        ("json", '[{"a": 1}, {"a": 300}]', {"checks": AT_MOST_100}, "fails in row 2: a is 300, expected at most 100"),
        ("json", '{"a": %s}' % ("9" * 400), {"checks": FINITE_A}, "expected a finite number"),
        ("jsonl", '{"a": 1}\n{"a": 2}\n', {"columns": ["a"], "min_rows": 2}, None),
        ("jsonl", "", {}, "has 0 rows, expected at least 1 rows"),
        ("jsonl", '{"a": 1}\n{"a": null}\n', {}, "holds nothing in row 2"),
        ("jsonl", '{"a": 1}\n{"b": 1}\n', {"keys": ["a"]}, "lacks the column 'a' in row 2"),
        ("jsonl", '{"a": 1}\n{"a": \n', {}, "is not JSON: line 2: Expecting value"),
        ("jsonl", '{"a": 1}\n\n{"a": 1}\n', {}, "is not JSON: line 2"),
        ("jsonl", '{"a": 1}\n \n\n', {}, None),  # as print(text) leaves it
        ("jsonl", '{"a": 1}\n\n', {"min_rows": 2}, "has 1 rows, expected at least 2 rows"),
        ("jsonl", '{"a": 1}\n{"b": 1}\n', {"columns": ["a"]}, "lacks the column 'a' in row 2"),
        ("jsonl", "[1]\n", {"columns": ["a"]}, "holds no object in row 1, expected the keys a"),
        ("jsonl", '{"a": true}\n', {"checks": FINITE_A}, "fails in row 1: a is True, expected a finite number"),
        ("jsonl", '{"a": [1, 2.5]}\n', {"checks": FINITE_A}, None),
        ("jsonl", '{"a": [1, "nan"]}\n', {"checks": FINITE_A}, "row 1: a is [1, 'nan'], expected a finite number"),
        ("jsonl", '{"a": [1, "nan"]}\n', {"checks": ALL}, "column a, expected a finite number"),
        ("jsonl", '{"a": []}\n{"a": 1}\n', {"checks": FINITE_A}, "fails in row 1: a is [], expected a finite number"),
        ("jsonl", '{"a": ["cuda:0", "cuda:1"]}\n', {"checks": MATCHES}, None),
        ("jsonl", '{"a": ["cpu", "cuda:1"]}\n', {"checks": MATCHES}, "expected a match of '^cuda'"),
        # Sums are of what is written, not of its nearest binary fractions.
        ("csv", "a,b\n33.3,66.6\n", {"checks": [{"sum": ["a", "b"], "near": 100, "within": 0.1}]}, None),
        ("csv", "a,b\n0.1,0.2\n", {"checks": [{"sum": ["a", "b"], "near": 0.3, "within": 0}]}, None),
        ("csv", "a,b\n0.1,0.3\n", {"checks": [{"sum": ["a", "b"], "near": 0.3, "within": 0}]}, "a + b is 0.4"),
        ("csv", "a,b\n1e308,1e308\n", {"checks": SUM}, "fails in row 1: a + b is"),
        # The same has one meaning for all checks.
        ("csv", "a,b\nTrue,true\n", {"checks": EQUAL}, None),
        ("jsonl", '{"a": true, "b": 1}\n', {"checks": EQUAL}, "a is True and b is 1, expected the same"),
        ("jsonl", '{"a": [1, 2], "b": [1, 2.0]}\n', {"checks": EQUAL}, None),
        ("csv", "a,b\nn/a,n/a\n", {"checks": EQUAL}, "a is 'n/a' and b is 'n/a', expected the same"),
        ("csv", "a,b\nOOM,OOM\n", {"checks": EQUAL}, "a is 'OOM' and b is 'OOM', expected the same"),
        ("csv", "a,b\nnone,none\n", {"checks": EQUAL}, None),
        # Headers
        ("csv", "a, b\n1, 2\n", {"columns": ["b"]}, None),
        ("csv", "a,b, b\n1,2,3\n", {"columns": ["b"]}, "has two columns of the same name"),
        ("csv", "a,b\n1,x\na, b\n2,y\n", {}, "holds its header again in row 2"),
        ("csv", "a,b\na,c\n", {}, None),
        # A commit's digits are no number that is too large.
        ("csv", "a,b\n12e4567,1\n", {"columns": ["a"]}, None),
        ("csv", "a,b\n1e23456,1\n1e34567,1\n", {"checks": DISTINCT}, None),
        ("csv", "a,b\n1e400,1\n", {"columns": ["a"]}, "holds 1e400 in row 1, column a, expected a finite value"),
        ("csv", "a,b\n1.#QNAN,1\n", {"columns": ["a"]}, "holds"),
        ("csv", "a,b\n-nan(ind),1\n", {"columns": ["a"]}, "holds"),
        # Phrases are those that a reader sees, in any encoding.
        ("text", "4 \x1b[32mpassed\x1b[0m", {"contains": ["4 passed"]}, None),
        ("text", "\x1b[32m4 passed", {"contains": ["\x1b[32m4"]}, None),
        ("text", "Skip\x1b[1mping FA-2", {"lacks": ["Skipping"]}, "contains 'Skipping'"),
        ("text", "4 passed".encode("utf-16"), {"contains": ["4 passed"]}, None),
        ("text", ("x" * 32_764 + "Skipping").encode("utf-16"), {"lacks": ["Skipping"]}, "contains 'Skipping'"),
        ("text", "skipping: 0", {"lacks": ["Skipping"]}, None),
    ],
)  # fmt: skip
def test_problem(
    tmp_path: Path, kind: str, content: bytes | str, expected: dict[str, Any], sentence: str | None
) -> None:
    found = problem(tmp_path, content, kind=kind, **expected)
    assert (found is None) == (sentence is None), found
    assert sentence is None or sentence in str(found)


AT_MOST = [{"at_most": ["a", "b"]}]
SWEEP = [{"values": {"a": [512, 1024]}}]
OOM = {"b": ["OOM"]}


@pytest.mark.parametrize(
    ("kind", "content", "expected", "weights"),
    [
        # A value that does not hold is another matter than one that is not there.
        ("csv", "a\n110\n", {"checks": AT_MOST_100}, {"unmet"}),
        ("csv", "a\nx\n", {"checks": AT_MOST_100}, {"absent"}),
        ("csv", "a\nx\n110\n", {"checks": AT_MOST_100}, {"absent", "unmet"}),
        ("csv", "a\n110\n", {"checks": [{"column": "a", "max": 100, "impossible": True}]}, {"impossible"}),
        ("csv", "a\n110\n", {"checks": [{"column": "a", "max": 100, "impossible": False}]}, {"unmet"}),
        ("csv", "a\nnan\n", {"checks": ALL}, {"unmet"}),
        ("csv", "a,b\n1,2\n1,2\n", {"checks": DISTINCT}, {"unmet"}),
        ("csv", "a,b\n1,2\n", {"checks": EQUAL}, {"unmet"}),
        ("csv", "a,b\n,2\n", {"checks": EQUAL}, {"absent"}),
        ("csv", "a,b\n60,60\n", {"checks": SUM}, {"unmet"}),
        ("csv", "a,b\n2,2\n1,2\n", {"checks": AT_MOST}, set()),
        ("csv", "a,b\n3,2\n", {"checks": AT_MOST}, {"unmet"}),
        ("csv", "a,b\n3,x\n", {"checks": AT_MOST}, {"absent"}),
        ("csv", "a\ncuda:0\n", {"checks": MATCHES}, set()),
        ("csv", "a\ncuda:0\ncpu\n", {"checks": MATCHES}, {"unmet"}),
        ("csv", "a,b\n,1\n", {"checks": MATCHES}, {"absent"}),
        ("csv", "a\n1024\n512.0\n512\n", {"checks": SWEEP}, set()),
        ("csv", "a\n512\n", {"checks": SWEEP}, {"unmet"}),
        ("csv", "a\n512\n1024\n2048\n", {"checks": SWEEP}, {"unmet"}),
        ("csv", "a\nTrue\nfalse\n", {"checks": [{"values": {"a": [True, False]}}]}, set()),
        ("jsonl", '{"a": true}\n', {"checks": [{"values": {"a": [1]}}]}, {"unmet"}),
        # Words where numbers are owed.
        ("csv", "a,b\n1,1.5\n2,OOM\n", {"columns": ["b"]}, {"absent"}),
        ("csv", "a,b\n1,1.5\n2,OOM\n", {"columns": ["b"], "allow": OOM}, set()),
        ("csv", "a,b\n1,1.5\n2,skipped\n", {"columns": ["b"], "allow": OOM}, {"absent"}),
        ("csv", "a,b\n1,1.5\n2,OOM (40 GB)\n", {"columns": ["b"]}, {"absent"}),
        ("csv", "a,b\n1,1.5\n2,2.5\n3,n/a\n", {}, {"absent"}),
        ("csv", "a,b\n1,1.5\n2,2.5\n3,nan\n", {}, {"absent"}),
        ("csv", "a,b\n1,1.5\n2,2.5\n3,-\n", {}, {"absent"}),
        ("csv", "a,b\n1,1.5\n2,\n3,\n", {}, set()),
        ("csv", "a,b\n1,alpha\n2,beta\n3,3\n", {}, set()),
        ("csv", "a,b\n1,2.8\n2,2.8.1\n3,main\n", {"columns": ["b"]}, set()),
        ("csv", "a,b\n1,2026-11-22\n2,20261122\n", {"columns": ["b"]}, set()),
        ("csv", "a,b\n1,1.2ms\n2,1.3ms\n", {"columns": ["b"]}, set()),
        ("csv", "a,b\n1,4106f1b\n2,1234567\n", {"columns": ["b"]}, set()),
        ("csv", "a,b\n1,True\n2,False\n", {"columns": ["b"]}, set()),
        ("jsonl", '{"a": 1}\n{"a": "OOM"}\n', {"columns": ["a"]}, {"absent"}),
        ("csv", "a,b\n1,OOM\n2,N/A\n", {"columns": ["b"]}, {"absent"}),
        ("csv", "a,b\n1,OOM\n2,N/A\n", {"columns": ["a"]}, set()),
        ("csv", "a,b\n1,cuda\n2,-\n", {"columns": ["b"]}, set()),
        ("csv", "a,b\n1,none\n2,none\n", {"columns": ["b"], "allow": {"b": ["none"]}}, set()),
        ("json", '{"a": "skipped"}', {"keys": ["a"]}, {"absent"}),
        ("json", '{"a": "skipped"}', {"keys": []}, set()),
        ("jsonl", '{"a": true, "b": 1}\n{"a": false, "b": 2}\n', {"columns": ["a"]}, set()),
        # What is allowed is not checked; something must be.
        ("csv", "a,b\n1,2\n9,OOM\n", {"checks": [*AT_MOST, *ALL], "allow": OOM}, set()),
        ("csv", "a,b\n1,OOM\n", {"checks": AT_MOST, "allow": OOM}, {"absent"}),
        ("csv", "a,b\n1,OOM\nnan,OOM\n", {"checks": [{"finite": ["b", "a"]}], "allow": OOM}, {"unmet", "absent"}),
        ("csv", "a,b\n1,\n2,3\n", {"columns": ["b"], "allow": {"b": [""]}}, set()),
        ("csv", "a,b\n1,OOM\n2,OOM\n3,4\n", {"checks": [{"distinct": ["b"]}], "allow": OOM}, set()),
        ("csv", "a,b\n1,OOM\n2,OOM\n", {"checks": [{"distinct": ["b"]}], "allow": OOM}, {"absent"}),
        ("csv", "a,b\n1,OOM\n1,OOM\n", {"checks": DISTINCT, "allow": OOM}, {"unmet"}),
        ("csv", "a,b\n1,2\n3,OOM\n", {"checks": [{"values": {"b": [2]}}], "allow": OOM}, set()),
        ("jsonl", '{"a": 1}\n{"b": "x"}\n', {"checks": ALL}, {"absent"}),
        ("jsonl", '{"b": "x"}\n{"a": 1, "b": "y"}\n', {"checks": ALL}, {"absent"}),
        ("jsonl", '{"a": 1}\n{"a": 2, "b": "x"}\n', {"checks": ALL}, set()),
        ("jsonl", '{"a": [1, null]}\n', {"checks": ALL}, {"absent"}),
        ("jsonl", '{"a": ["B", 16], "b": ["x", null]}\n', {"checks": ALL}, set()),
        ("jsonl", '{"b": 1}\n{"a": "x"}\n', {"checks": ALL, "allow": {"b": [""]}}, set()),
        ("jsonl", '{"a": 1}\n{"a": false}\n{"a": "OOM"}\n', {"columns": ["a"]}, {"absent"}),
        ("jsonl", '{"a": 512}\n{"a": false}\n', {"columns": ["a"], "allow": {"a": ["false"]}}, set()),
        ("jsonl", '{"a": -1}\n{"a": 2}\n', {"checks": AT_LEAST_0, "allow": {"a": ["-1"]}}, set()),
        ("jsonl", '{"a": -1}\n{"a": 2}\n', {"checks": AT_LEAST_0, "allow": {"a": ["OOM"]}}, {"unmet"}),
        ("json", '"skipped"', {}, {"absent"}),
        ("json", '["skipped", "not run"]', {}, {"absent"}),
        ("json", '["skipped", 1.5]', {}, set()),
        ("json", '{"mask": "none"}', {}, set()),
        ("json", '{"ms": "OOM"}', {"columns": ["ms"], "allow": {"ms": ["OOM"]}}, set()),
        # Units, and words behind a digit.
        ("csv", "a,b\n1,2\n2,OOM\n3,2.5ms\n", {"columns": ["b"]}, {"absent"}),
        ("csv", "a,b\n1,1.5 GB/s\n2,n/a\n", {"columns": ["b"]}, {"absent"}),
        ("csv", "a,b\n1,2.8.1\n2,-\n", {"columns": ["b"]}, set()),
        ("csv", "a,b\n1,3.x\n2,main\n", {"columns": ["b"]}, set()),
        ("csv", "a,b\n1,fp16\n2,8bit\n", {"columns": ["b"]}, set()),
        ("csv", "a,b\n1,2.5\n2,0 (not measured)\n", {"columns": ["b"]}, {"absent"}),
        ("csv", "a,b\n1,2.5\n2,12.5 failed\n", {"columns": ["b"]}, {"absent"}),
        ("csv", "a,b\n1,9 passed\n2,0 failed\n", {"columns": ["b"]}, set()),
        ("csv", "a,b\n1,abcdef0\n2,1234567\n", {"columns": ["b"]}, set()),
        ("csv", "a,b\n1,not measured\n2,skipped: no GPU\n", {"columns": ["b"]}, {"absent"}),
        ("csv", "a,b\n1,failed: 0\n2,failed: 0\n", {"columns": ["b"]}, set()),
        # Nothing in it.
        ("json", '{"selected": []}', {"keys": ["selected"]}, {"absent"}),
        ("json", '{"selected": {"ms": [null, "", {}]}}', {"keys": ["selected"]}, {"absent"}),
        ("json", '{"selected": "nan"}', {"keys": ["selected"]}, {"absent"}),
        ("json", '{"selected": {"ms": ["nan", null]}}', {"keys": ["selected"]}, {"absent"}),
        ("json", '{"selected": ["OOM", "OOM"]}', {"keys": ["selected"]}, {"absent"}),
        ("json", '{"selected": [1.5, "OOM"]}', {"keys": ["selected"]}, {"absent"}),
        ("json", '{"selected": ["none", "none"]}', {"keys": ["selected"]}, set()),
        ("json", '{"selected": ["-", "none"]}', {"keys": ["selected"]}, set()),
        ("json", '{"selected": [1, "inf", "none"]}', {"keys": ["selected"]}, set()),
        ("json", '{"selected": "none"}', {"keys": ["selected"], "allow": {"selected": ["none"]}}, set()),
        ("json", '{"selected": 0}', {"keys": ["selected"]}, set()),
        ("json", '{"selected": false}', {"keys": ["selected"]}, set()),
        ("json", '{"selected": [[0]], "notes": []}', {"keys": ["selected"]}, set()),
        ("json", '[[], {"a": null}]', {}, {"absent"}),
        ("json", '{"a": ' + "[" * 500 + "]" * 500 + "}", {"keys": ["a"]}, {"absent"}),
        ("jsonl", '{"a": 1, "b": [1]}\n{"a": 2, "b": []}\n', {"keys": ["b"]}, {"absent"}),
        ("jsonl", '{"a": 1, "b": [1]}\n{"a": 2, "b": []}\n', {"keys": ["a"]}, set()),
        # What it says of itself.
        ("json", '{"status": "FAIL"}', {}, {"absent"}),
        ("json", '{"result": "failed", "ms": 1}', {}, {"absent"}),
        ("json", '{"success": false, "ms": 1}', {}, {"absent"}),
        ("json", '{"allclose": false, "ms": 1}', {}, {"absent"}),
        ("json", '{"a": {"correct": "no", "ms": 1}, "b": {"correct": "yes", "ms": 1}}', {}, set()),
        ("json", '{"rows": [{"correct": "\u274c", "ms": 1}]}', {}, {"absent"}),
        ("json", '{"rows": {"fwd": {"error": "no kernel image"}, "bwd": {"error": "OutOfResources"}}}', {}, {"absent"}),
        ("json", '{"rows": {"fwd": {"error": "no kernel image"}, "bwd": {"error": null, "ms": 1}}}', {}, set()),
        ("json", '{"error": "l2", "case": "no mask"}', {}, set()),
        ("json", '{"error": "OK", "case": "no mask"}', {}, set()),
        ("json", '{"error": "No error", "case": "no mask"}', {}, set()),
        ("json", '{"error": "relative", "case": "no mask"}', {}, set()),
        ("json", '{"error": "max abs", "value": 1e-6}', {}, set()),
        ("json", '{"returncode": 1, "ms": 1}', {}, {"absent"}),
        ("json", '{"error": "torch.OutOfMemoryError: 40 GB"}', {}, {"absent"}),
        ("json", '{"success": false}', {"checks": [{"values": {"success": [False]}}]}, set()),
        ("json", '{"status": "FAIL"}', {"keys": ["status"]}, {"absent"}),
        ("json", '{"status": "FAIL"}', {"keys": ["status"], "checks": [{"values": {"status": ["FAIL"]}}]}, set()),
        ("json", '{"status": "FAIL"}', {"keys": ["status"], "checks": [{"values": {"status": ["ok"]}}]}, {"unmet"}),
        ("json", '{"status": "FAIL"}', {"keys": ["status"], "checks": [{"distinct": ["status"]}]}, {"absent"}),
        ("json", '{"a": "FAIL"}', {"keys": ["a"], "checks": [{"column": "a", "matches": "."}]}, {"absent"}),
        ("json", '{"a": ""}', {"keys": ["a"], "checks": [{"values": {"a": ["FAIL"]}}]}, {"absent", "unmet"}),
        ("json", '{"status": "failed: 0", "error": 0.1, "ok": true, "exit_code": 0}', {}, set()),
        ("json", '{"error": "max_abs", "exception": null, "traceback": "", "result": "no error"}', {}, set()),
        ("json", '[{"S": 512, "status": "FAIL"}, {"S": 1024, "status": "ok"}]', {}, set()),
        ("json", '[{"S": 512, "status": "FAIL"}, {"S": 1024, "status": "FAIL"}]', {}, {"absent"}),
        ("json", '{"status": "skipped", "ms": 1}', {}, {"absent"}),
        ("json", '{"skipped": true, "ms": 1}', {}, {"absent"}),
        ("json", '{"skipped": 1, "ms": 1}', {}, set()),
        ("jsonl", '{"ms": 1, "error": "ValueError: x"}\n', {}, {"absent"}),
        ("jsonl", '{"ms": 1, "error": "ValueError: x"}\n{"ms": 1}\n', {}, set()),
        ("csv", "S,ms,passed\n1,2,False\n2,3,False\n", {}, {"absent"}),
        ("csv", "S,ms,passed\n1,2,False\n2,3,True\n", {}, set()),
        ("csv", "S,ms,exit_code\n1,2,1\n2,3,-9\n", {}, {"absent"}),
        ("csv", "S,ms,exit_code\n1,2,0\n2,3,0\n", {}, set()),
        ("csv", "S,ms,status\n1,2,ERROR\n", {"allow": {"status": ["ERROR"]}}, set()),
        ("csv", "S,ms,status\n1,2,ERROR\n", {"checks": [{"values": {"status": ["ERROR"]}}]}, set()),
        ("text", "Not measured\n", {}, {"absent"}),
        ("text", "skipped: no GPU\n", {"contains": ["GPU"]}, {"absent"}),
        ("text", "err\n", {"contains": ["err"]}, set()),  # it is meant
        ("text", "TODO: fill this in\n", {}, {"absent"}),
        ("text", "errors: none\n", {}, set()),
        ("text", "failed: 0\n", {}, set()),
        ("text", "skipped: none\n", {}, set()),
        ("text", "none\n", {}, set()),
        ("text", "Skipped: no GPU\n4 passed\n", {}, set()),
        ("text", b"\x1f\x8b\x08\0", {}, set()),
        ("text", gzip.compress(b"", mtime=0), {}, {"absent"}),
        ("text", bz2.compress(b" \n"), {}, {"absent"}),
        ("text", lzma.compress(b"1 of 1"), {}, set()),
        ("text", gzip.compress(b"S,ms\n512,1.5\n", mtime=0), {}, set()),
        ("text", b"\x1f\x8b\x08\0", {"lacks": ["Skipping"]}, {"absent"}),
        # A device that only some pods have.
        ("csv", "a,device\n1,cuda:0\n", {"columns": ["device"]}, {"elsewhere"}),
        ("csv", "a,device\n1,cuda:0\n", {"columns": ["a"]}, set()),
        ("json", '{"device": "cuda"}', {"keys": ["device"]}, {"elsewhere"}),
        ("csv", "a,device\n1,NVIDIA H100\n2,cpu\n", {"columns": ["device"]}, set()),
        # Of which card a table speaks is its own affair: it may predict.
        ("csv", "gpu,tflops\nNVIDIA H100,800\nNVIDIA A100,312\n", {"columns": ["gpu", "tflops"]}, set()),
        # A pointer is not the file, whatever kind was owed.
        ("text", POINTER, {}, {"borrowed"}),
        ("csv", POINTER, {}, {"borrowed"}),
        ("text", "see " + POINTER, {}, set()),
        ("text", POINTER + "x" * 1024, {}, set()),
    ],
)  # fmt: skip
def test_what_a_finding_weighs(
    tmp_path: Path, kind: str, content: bytes | str, expected: dict[str, Any], weights: set[str]
) -> None:
    found = findings(tmp_path, content, kind=kind, **expected)
    assert {finding.weight for finding in found} == weights, found


@pytest.mark.parametrize(
    ("content", "check", "sentence"),
    [
        ("a,b\n1,2\n3,2\n", AT_MOST, "fails in row 2: a is 3, expected at most b, which is 2"),
        ("a,b\ncpu,2\n", MATCHES, "fails in row 1: a is 'cpu', expected a match of '^cuda'"),
        ("a,b\n512,2\n", SWEEP, "holds no row in which a is 1024"),
        ("a,b\n512,2\n1024,2\n64,2\n", SWEEP, "fails in row 3: a is 64, expected one of 512, 1024"),
    ],
)
def test_row_and_value_are_named(tmp_path: Path, content: str, check: list[Any], sentence: str) -> None:
    assert [f.sentence for f in findings(tmp_path, content, kind="csv", checks=check)] == [sentence]


def test_what_format_1_did_not_know(tmp_path: Path) -> None:
    """Its words passed where no check named their column, and so did what is nothing now."""
    for kind, content, expected in (
        ("csv", "a,b\n1,1.5\n2,OOM\n", {"columns": ["b"]}),
        ("json", '{"a": []}', {"keys": ["a"]}),
        ("json", '{"a": "nan"}', {"keys": ["a"]}),
        ("text", POINTER, {}),
    ):
        assert {found.since for found in findings(tmp_path, content, kind=kind, **expected)} == {2}


def test_sentences_are_short_and_printable(tmp_path: Path) -> None:
    nasty = "\x1b[31m" + "x" * 10_000
    found = problem(tmp_path, f"a\n{nasty}\n", kind="csv", checks=[{"finite": ["a"]}])
    assert found is not None and found.isprintable() and len(found) < 200


def test_large_tables_are_read_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "artifact"
    path.write_text("a,b\n" + "".join(f"{i},{i * 0.5}\n" for i in range(15_000)))
    expected = artifact("artifact", kind="csv", columns=["a"], checks=ALL)
    tracemalloc.start()
    with path.open("rb") as f:
        assert asking.findings(expected, f) == []
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 18


@pytest.mark.parametrize("kind", ["text", "csv", "json", "jsonl"])
@settings(deadline=None)  # a busy machine is no error
@given(content=st.binary(max_size=200) | st.text(alphabet='ab,\n"{}[]:0123nul.eE-', max_size=200).map(str.encode))
def test_nothing_raises(tmp_path_factory: pytest.TempPathFactory, kind: str, content: bytes) -> None:
    expected = {"columns": ["a"], "checks": [*ALL, {"column": "a", "min": 0}, {"equal": ["a", "b"]}], "keys": []}
    found = problem(tmp_path_factory.mktemp("fuzz"), content, kind=kind, **(expected if kind != "text" else {}))
    assert found is None or found.isprintable()
