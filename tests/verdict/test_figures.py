"""What files say that was measured: tables by what the runbook says, benchmark files by their own format."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import pytest

from orchestrator.shared.schema import Error
from orchestrator.verdict.artifacts import asked as asking
from orchestrator.verdict.artifacts.kind import Bad, Finding
from orchestrator.verdict.artifacts.reading import Reading
from tests.support.agent_pod import artifact

DATA = Path(__file__).parents[1] / "data/benchmarks"
FIGURES = {
    "keys": ["S"],
    "measures": {"ms": {"unit": "ms", "better": "lower"}, "frac": {"unit": "1", "better": "neither"}},
    "flags": "flags",
}


def beside(path: str) -> bytes | None:
    found = DATA / path
    return found.read_bytes() if found.is_file() else None


def read(path: Path, **asked: Any) -> list[Reading]:
    with path.open("rb") as f:
        return list(asking.kind_of(asked).figures(asked, f, beside))


def wrong(content: str, tmp_path: Path, **asked: Any) -> list[Finding]:
    (tmp_path / "a").write_text(content)
    with (tmp_path / "a").open("rb") as f:
        return asking.findings(artifact("a", **asked), f)


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("csv", "S,ms,frac,flags\n512,1.5,0.4,\n1024.0,2,0.5,throttled noisy\n512.0,1.25,0.4,\n"),
        (
            "jsonl",
            '{"S": 512, "ms": [1.5, 1.25], "frac": [0.4, 0.4], "flags": []}\n'
            '{"S": "1024", "ms": 2, "frac": 0.5, "flags": ["throttled", "noisy"]}\n',
        ),
        (
            "json",
            '[{"S": 512, "ms": 1.5, "frac": 0.4, "flags": ""}, {"S": 1024, "ms": 2, "frac": 0.5, '
            '"flags": "throttled,noisy"}, {"S": 512, "ms": 1.25, "frac": 0.4, "flags": null}]',
        ),
    ],
)
def test_rows_of_the_same_keys_are_the_samples_of_one_figure(kind: str, content: str, tmp_path: Path) -> None:
    assert not wrong(content, tmp_path, kind=kind, figures=FIGURES)
    ms = [reading for reading in read(tmp_path / "a", kind=kind, figures=FIGURES) if reading.column == "ms"]
    flags = ("throttled", "noisy")
    assert ms == [
        Reading((("S", "512"),), "ms", "ms", "lower", (1.5, 1.25)),
        Reading((("S", "1024"),), "ms", "ms", "lower", (2.0,), flags),
    ]


@pytest.mark.parametrize(
    ("row", "sentence", "weight"),
    [
        ('{"S": 1, "frac": 1, "flags": ""}', "lacks the column 'ms' in row 1", "absent"),
        ('{"S": 1, "ms": "fast", "frac": 1, "flags": ""}', "holds 'fast' in row 1, column ms, expected a", "absent"),
        ('{"S": 1, "ms": [], "frac": 1, "flags": ""}', "holds [] in row 1, column ms, expected a finite", "absent"),
        ('{"S": 1, "ms": ["nan"], "frac": 1, "flags": ""}', "expected a finite number, or a list of them", "absent"),
        ('{"S": null, "ms": 1, "frac": 1, "flags": ""}', "is empty in row 1, column S", "absent"),
        ('{"S": 1, "ms": 1, "frac": 1, "flags": "slow"}', "holds the flag 'slow' in row 1, column flags", "absent"),
        ('{"S": 1, "ms": 1, "frac": 1.4, "flags": ["impossible"]}', "says that row 1 is impossible", "impossible"),
    ],
)
def test_what_is_no_figure_is_owed(row: str, sentence: str, weight: str, tmp_path: Path) -> None:
    found = wrong(row, tmp_path, kind="jsonl", figures=FIGURES)
    assert [finding for finding in found if sentence in finding.sentence and finding.weight == weight], found


def test_an_allowed_word_is_no_sample(tmp_path: Path) -> None:
    asked = {"kind": "csv", "figures": {**FIGURES, "flags": None}, "allow": {"ms": ["OOM"]}}
    asked["figures"] = {key: value for key, value in asked["figures"].items() if value}
    assert not wrong("S,ms,frac\n512,1.5,1\n4096,OOM,1\n", tmp_path, **asked)
    assert [reading.row for reading in read(tmp_path / "a", **asked) if reading.column == "ms"] == [(("S", "512"),)]


def test_pytest_benchmarks_own_file() -> None:
    found = read(DATA / "pytest_benchmark.json", kind="pytest-benchmark")
    assert [(reading.row[0][1], len(reading.samples), reading.unit) for reading in found] == [
        ("test_b.py::test_sum[100]", 12, "s"),
        ("test_b.py::test_sum[1000]", 12, "s"),
        ("test_b.py::test_plain", 5, "s"),
    ]
    assert 1e-7 < min(found[0].samples) < 1e-5


def test_asvs_own_file() -> None:
    track = {"bench.track_ratio": {"unit": "1", "better": "neither"}}
    found = read(DATA / "asv.json", kind="asv", measures=track)
    told = {tuple(value for _, value in reading.row): (reading.unit, reading.better) for reading in found}
    assert told == {
        ("bench.Suite.time_sum", "100, 'list'"): ("s", "lower"),
        ("bench.Suite.time_sum", "100, 'range'"): ("s", "lower"),
        ("bench.Suite.time_sum", "1000, 'list'"): ("s", "lower"),  # the fourth was skipped: asv wrote NaN
        ("bench.mem_list",): ("bytes", "lower"),
        ("bench.peakmem_list",): ("bytes", "lower"),
        ("bench.time_plain",): ("s", "lower"),
        ("bench.track_ratio",): ("1", "neither"),
    }
    assert len(found[0].samples) == 6
    without = read(DATA / "asv.json", kind="asv")
    assert len(without) == len(found) - 1, "the unit of a track_ benchmark is not guessed"


def test_nvbenchs_own_file() -> None:
    short, long = read(DATA / "nvbench.json", kind="nvbench")
    assert dict(short.row) == {"benchmark": "copy", "T": "F32", "Elements": "1048576", "device": "NVIDIA H200"}
    assert short.samples == (6.182523718842866e-06,)  # its mean, where no samples lie beside it
    assert dict(long.row)["Elements"] == "4194304"
    assert len(long.samples) == 23570 and statistics.median(long.samples) == pytest.approx(1.2608e-05)


def test_samples_that_are_cut_are_no_samples() -> None:
    asked = {"kind": "nvbench"}
    with (DATA / "nvbench.json").open("rb") as f, pytest.raises(Bad, match="says that 26488 samples lie beside it"):
        list(asking.kind_of(asked).figures(asked, f, lambda path: b"\0" * 15))


@pytest.mark.parametrize("kind", ["pytest-benchmark", "asv", "nvbench"])
@pytest.mark.parametrize(
    ("content", "sentence"),
    [("x", "is not JSON"), ("{}", "is no file of"), ("[]", "is no file of"), ('{"benchmarks": 1}', "is no file of")],
)
def test_another_file_is_none_of_a_benchmark(kind: str, content: str, sentence: str, tmp_path: Path) -> None:
    assert sentence in wrong(content, tmp_path, kind=kind)[0].sentence


def test_a_file_that_measured_nothing_is_not_enough(tmp_path: Path) -> None:
    assert wrong('{"benchmarks": []}', tmp_path, kind="pytest-benchmark")[0].sentence.startswith("holds 0 figures")


@pytest.mark.parametrize(
    ("figures", "at", "sentence"),
    [
        ({"keys": ["S"]}, ("figures", "measures"), "is missing"),
        ({"measures": {}}, ("figures", "measures"), "expected at least one column"),
        ({"measures": {"ms": {"unit": "ms"}}}, ("figures", "measures", "ms", "better"), "is missing"),
        ({"measures": {"ms": {"unit": "", "better": "lower"}}}, ("figures", "measures", "ms", "unit"), "a unit such"),
        ({"measures": {"ms": {"unit": "ms", "better": "less"}}}, ("figures", "measures", "ms", "better"), "lower, hi"),
        ({"measures": FIGURES["measures"], "keys": ["ms"]}, ("figures", "keys", 0), "not both"),
        ({"measures": FIGURES["measures"], "key": ["S"]}, ("figures", "key"), "unknown key"),
    ],
)
def test_unit_and_direction_are_said(figures: dict[str, Any], at: tuple[object, ...], sentence: str) -> None:
    found: list[Error] = list(asking.wrong({"path": "a", "kind": "csv", "figures": figures}, (), closed=True))
    assert [error for error in found if error.at == at and sentence in error.sentence], found


@pytest.mark.parametrize(
    ("stats", "sentence"),
    [
        ('{"data": [1.5e-9]}', None),
        ('{"data": [0, 1.5]}', "holds a time of 0 s, expected one above 0"),
        ('{"data": [], "median": -1}', "holds a time of -1 s, expected one above 0"),
        (
            '{"data": "1234"}',
            "is no file of pytest-benchmark: TypeError('expected a list of measured values, got 1234')",
        ),
        ('{"data": [1], "data": [2]}', "is not JSON: an object has the same key twice"),
    ],
)
def test_times_of_a_benchmark_are_times(stats: str, sentence: str | None, tmp_path: Path) -> None:
    content = f'{{"benchmarks": [{{"fullname": "a", "stats": {stats}}}]}}'
    found = wrong(content, tmp_path, kind="pytest-benchmark")
    assert [finding.sentence for finding in found] == ([sentence] if sentence else [])


def test_a_table_of_nothing_but_allowed_words_has_no_figures(tmp_path: Path) -> None:
    both = {"ms": ["OOM"], "frac": ["OOM"]}
    lines = "S,ms,frac,flags\n512,OOM,OOM,\n1024,OOM,{},\n"
    assert not wrong(lines.format("0.5"), tmp_path, kind="csv", figures=FIGURES, allow=both)
    (found,) = wrong(lines.format("OOM"), tmp_path, kind="csv", figures=FIGURES, allow=both)
    assert found.sentence == "holds nothing but allowed words in ms, frac, expected one figure at least"
