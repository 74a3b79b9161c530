"""Artifacts whose content is from elsewhere."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent.evidence.borrowed import Sources

OWN, OTHER = "4106f1b2" * 5, "deadbeef" * 5
TABLE = "S,ms,by\n512,1.50,a\n1024,2.57,b\n2048,5.13,é\n"


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "old.csv").write_text(TABLE)
    (tree / "old.json").write_text('{"ms": [1.5, 2.57], "by": "cuda", "rows": 3, "of": "a bench"}')
    (tree / "small.txt").write_text("3 of 3\n")
    (tree / "code.py").write_text("a, b, c, d, e, f, g = range(7)\n")
    run = tmp_path / "runs" / "own"
    run.mkdir(parents=True)
    return Sources(run, {tree: ["old.csv", "old.json", "small.txt", "code.py", "gone.csv"]}, [OWN])


def found(sources: Sources, tmp_path: Path, content: bytes, **asked: Any) -> str | None:
    artifact = tmp_path / "made"
    artifact.write_bytes(content)
    return sources.of({"path": "made", **asked}, artifact)


@pytest.mark.parametrize(
    "content",
    [
        TABLE.replace("\n", "\r\n").encode(),
        TABLE.replace(",", " ; ").encode("utf-8-sig"),
        TABLE.encode("utf-16"),
        gzip.compress(TABLE.encode(), mtime=0),
        "\n".join(reversed(TABLE.splitlines())).encode(),
        TABLE.replace("1.50", "1.5000").replace("512", "512.0").encode(),
        json.dumps([line.split(",") for line in TABLE.splitlines()], ensure_ascii=False, indent=4).encode(),
        b'{"of": "a bench",\n "rows": 3.0, "by": "cuda",\n "ms": [1.50, 2.57]}',
    ],
)
def test_a_file_of_the_commit_that_is_written_otherwise(sources: Sources, tmp_path: Path, content: bytes) -> None:
    assert "of the commit holds, written otherwise" in str(found(sources, tmp_path, content))


@pytest.mark.parametrize(
    "content",
    [
        TABLE.replace("5.13", "5.14").encode(),
        (TABLE + "4096,9.9,d\n").encode(),
        b"3  of  3",
        b"a b c d e f g range(7) = , \n",
        b"\x1f\x8bno archive",
        b"",
    ],
)
def test_other_values_few_words_and_code_are_no_copies(sources: Sources, tmp_path: Path, content: bytes) -> None:
    assert found(sources, tmp_path, content) is None


OLD = "S,ms,tflops\n512,0.11342,41.22\n1024,0.22713,44.10\n2048,0.48131,46.93\n4096,1.01277,47.52\n"
OLD_STATISTICS = {
    "benchmarks": [{"stats": {"mean": 0.00021377, "min": 0.00012313, "max": 0.00090711, "iqr": 3.1713e-5}}]
}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (OLD + "8192,2.0443,49.1\n", True),
        ("S,us\n512,113.42\n1024,227.13\n2048,481.31\n4096,1012.77\n", True),
        ("| S | time (ms) |\n|---|---|\n| 1 | 0.11342 |\n| 2 | 0.22713 |\n| 3 | 0.48131 |\n| 4 | 1.01277 |\n", True),
        ("ms=0.11342\nms=0.22713\ntook 0.48131 ms\n1.01277ms\n", True),
        (json.dumps({"rows": [{"latency_ms": ms} for ms in (0.11342, 0.22713, 0.48131, 1.01277, 3.14159)]}), True),
        (json.dumps({"ms": {"512": 0.11342, "1024": 0.22713, "2048": 0.48131, "4096": 1.01277}}), True),
        (json.dumps({"ms": {"a": {"fwd": [0.11342, 0.22713, 0.48131, 1.01277]}}}), True),
        (json.dumps({"err": {"512": 0.11342, "1024": 0.22713, "2048": 0.48131, "4096": 1.01277}}), False),
        (json.dumps({"ms": {"512": 0.11401}, "old_ms": [0.11342, 0.22713, 0.48131, 1.01277]}), False),
        ("S,ms\n512,0.11342\n1024,0.22713\n2048,0.48131\n", False),
        ("S,ms\n512,0.1134\n1024,0.2271\n2048,0.4813\n4096,1.013\n", False),
        ("S,ms,old_ms\n1,0.11401,0.11342\n2,0.22802,0.22713\n3,0.48204,0.48131\n4,1.01306,1.01277\n", False),
        ("S,ms\n16384,1.1\n32768,1.2\n65536,1.3\n131072,1.4\n", False),
        ("S,err\n512,0.11342\n1024,0.22713\n2048,0.48131\n4096,1.01277\n", False),
        ("S,ms,roofline_ms\n1,0.2,0.11342\n2,0.4,0.22713\n3,0.8,0.48131\n4,1.6,1.01277\n", False),
    ],
)
def test_what_was_measured_before(sources: Sources, tmp_path: Path, text: str, says: bool) -> None:
    (tmp_path / "tree" / "old.csv").write_text(OLD + "16384,9.98765,48.81\n32768,1,2\n65536,1,2\n131072,1,2\n" * 3)
    found_there = found(sources, tmp_path, text.encode())
    assert ("of the commit: " in str(found_there)) == says, found_there


def test_a_benchmarks_file_with_another_date(sources: Sources, tmp_path: Path) -> None:
    (tmp_path / "tree" / "old.json").write_text(json.dumps({**OLD_STATISTICS, "datetime": "2025-01-02"}))
    new = json.dumps({**OLD_STATISTICS, "datetime": "2026-03-04", "version": "5.0.0"}).encode()
    assert "4 of 4 that it measured" in str(found(sources, tmp_path, new, kind="pytest-benchmark"))
    assert found(sources, tmp_path, new) is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (f"commit: {OTHER}\n", True),
        ("git_sha = deadbee\nall passed\n", True),
        (json.dumps({"ms": 1, "commit": OTHER}), True),
        (f"S,ms,commit\n1,2,{OTHER}\n", True),
        (f"commit: {OWN}\n", False),
        (f"commit {OWN[:7]}\nparent {OTHER}\n", False),
        (json.dumps({"commit": OWN, "baseline": {"commit": OTHER}}), False),
        (f"lib @ git+https://example.org@{OTHER}\n", False),
        (json.dumps({"model": {"commit": OTHER}}), False),
        ("S,ms,commit\n1,2,deadbee\n", False),  # a table may be about commits
    ],
)
def test_another_commit_that_a_file_says_it_is_of(sources: Sources, tmp_path: Path, text: str, says: bool) -> None:
    assert ("is not the run's" in str(found(sources, tmp_path, text.encode()))) is says


def test_a_commit_of_another_run_on_this_pod(sources: Sources, tmp_path: Path) -> None:
    text = f"of {OTHER}, all passed".encode()
    assert found(sources, tmp_path, text) is None
    other = tmp_path / "runs" / "other"
    other.mkdir()
    (other / "plan.json").write_text(json.dumps({"commit": OTHER}))
    assert "is not the run's" in str(found(sources, tmp_path, text))


def test_figures_that_an_earlier_run_has_measured(sources: Sources, tmp_path: Path) -> None:
    kept = tmp_path / "runs" / "earlier" / "artifacts"
    kept.mkdir(parents=True)
    (kept / "bench.csv").write_text("S,ms\n1,2.345\n")
    content = b"S,ms\n1,2.345\n"
    assert found(sources, tmp_path, content) is None  # what measures nothing may come out the same
    assert "equals bench.csv of the run earlier" in str(found(sources, tmp_path, content, figures={"keys": ["S"]}))


@pytest.mark.parametrize("text", ["o", " ", "1", "1.", "a ", "1 ", "-", ",", "|", "a=", "0x", "_1", "ms", "é"])
def test_a_large_artifact_of_one_kind_of_text_is_read_once(sources: Sources, tmp_path: Path, text: str) -> None:
    """Not once from each of its characters on, which would take hours."""
    size = (1 << 18) // len(text)
    assert found(sources, tmp_path, (text * size).encode()) is None
    assert found(sources, tmp_path, f"a{text * size}b\n".encode()) is None


@pytest.mark.parametrize(
    ("content", "is_told"),
    [
        (b'{"ms": 1.5734, "speedup": 2.2517}', True),
        (b"fwd 1.5734 ms, speedup 2.2517x\n", True),
        (b'{"ms": 1573.4, "speedup": 2.2517}', True),  # in another unit
        (b'{"ms": 1.5734, "speedup": 2.2518}', False),
        (b'{"ms": 1.5734}', False),  # it may be the same by chance
        (b'{"err": 1.5734, "max_err": 2.2517}', False),  # of seeded data
        (b"fwd 1.57 ms, speedup 2.25x\n", False),
    ],
)
def test_few_figures_that_all_stand_in_a_file_of_the_commit(
    sources: Sources, tmp_path: Path, content: bytes, is_told: bool
) -> None:
    (tmp_path / "tree" / "small.txt").write_text('{"ms": 1.5734, "speedup": 2.2517}')
    artifact = tmp_path / "made"
    artifact.write_bytes(content)
    assert sources.perhaps({"path": "made"}, artifact) == (
        "holds 2 figures, all of which stand in small.txt of the commit" if is_told else None
    )
