"""Comparisons and bisections as pages: what differs comes first, each ratio beside its interval and its control."""

from __future__ import annotations

from typing import Any

from orchestrator.report import bisection, comparison, html, markdown, pages
from tests.support.page import Element, read

A, B = "a" * 40, "b" * 40


def measured(ratio: float) -> comparison.Measured:
    return {"ratio": ratio, "low": ratio - 0.005, "high": ratio + 0.005, "p": 0.01}


def row(s: int, ratio: float, answer: str, why: str = "") -> comparison.ToldRow:
    return {
        "stage": "bench", "artifact": "b.csv", "row": {"S": str(s)}, "column": "ms<i>", "unit": "ms", "better": "lower",
        "a": 2.0, "b": 2.0 * ratio, "answer": answer, "why": why, "measured": measured(ratio), "control": measured(1.0),
        "flags": ["noisy"] if why else [], "runs": 10, "samples": 30,
    }  # fmt: skip


def compared(*rows: comparison.ToldRow, **over: Any) -> comparison.Document:
    found: comparison.Document = {
        "kind": "comparison", "a": A, "b": B, "harness": A, "pod": "pi", "device": "RTX 4090",
        "versions": {"driver": "550.1", "torch": "2.8.0"}, "run_id": "r", "path": "runs/r",
        "threshold": 0.01, "blocks": 10, "false_alarms": 0, "judged": len(rows), "not_timed": [], "warnings": [],
        "rows": list(rows),
    }  # fmt: skip
    return {**found, **over}  # type: ignore[typeddict-item]


def test_a_comparison_shows_what_differs_first_and_every_row_in_a_picture() -> None:
    found = compared(
        row(1, 1.0, "same"), row(2, 1.02, "slower"), row(3, 0.9, "faster"), row(4, 1.1, "cannot tell", "x")
    )
    page = read(html.render(pages.of_comparison(found)))
    (header,) = page.all("header")
    assert [item.text for item in header.all("li")] == [
        "bench: S=3 ms<i>: faster, -10 % (-10 % to -9.5 %)",
        "bench: S=2 ms<i>: slower, +2 % (+1.5 % to +2.5 %)",
    ]
    assert (
        comparison.summary(found) in header.text and "0 of 4 rows called when A was compared with itself" in header.text
    )
    facts = dict(zip([e.text for e in page.all("dt")], [e.text for e in page.all("dd")], strict=True))
    assert (facts["Machine"], facts["Threshold"]) == ("RTX 4090, driver 550.1, torch 2.8.0", "1 %")
    (figure,) = page.all("figure")
    assert "interval of 95 %" in figure.text and len(figure.all("circle")) == 8
    assert not [p for g in series(figure) for p in g.all("path")], "rows are not joined by a line"
    spread = [g for g in figure.all("g") if "spread" in g.attributes.get("class", "")]
    assert [len(group.all("path")) for group in spread if group.parts] == [4, 4]
    told = markdown.render(pages.of_comparison(found))
    assert (
        "| 4 | bench: S=4 ms\\<i\\> | ms | 2 | 2.2 | +10 % | +9.5 % to +10 % | +0 % | cannot tell | x; noisy |" in told
    )


def series(figure: Element) -> list[Element]:
    return [group for group in figure.all("g") if group.attributes.get("class", "").startswith("series color")]


def test_a_comparison_that_timed_nothing_says_why() -> None:
    page = read(html.render(pages.of_comparison(compared(not_timed=["tests.b is failed: why"]))))
    assert "not timed: tests.b is failed: why" in page.all("header")[0].text and not page.all("figure")


def test_runs_of_a_bench_that_did_not_pass_are_told_beside_what_was_measured() -> None:
    told = "bench of b is failed in 3 of 10 runs: why"
    page = read(html.render(pages.of_comparison(compared(row(1, 1.0, "same"), warnings=[told]))))
    assert told in page.all("header")[0].text and "1 same" in page.all("header")[0].text


def test_two_kept_runs_are_called_nothing() -> None:
    kept: comparison.KeptDocument = {
        "kind": "runs", "a": "r1", "b": "r2", "not_comparable": ["pod: x and y"], "differences": ["pod: x and y"],
        "rows": [{"stage": "s", "row": {}, "column": "ms", "unit": "ms", "a": 1.0, "b": None, "ratio": None}],
    }  # fmt: skip
    text = markdown.render(pages.of_runs(kept))
    assert "**not comparable: pod: x and y: no two sessions tell which commit is faster**" in text
    assert "| s: ms | ms | 1 |  |" in text


def test_a_bisection_shows_the_evidence_of_each_commit() -> None:
    found: bisection.Document = {
        "kind": "bisect", "stage": "tests", "slower": None, "good": A, "bad": B, "commits": 4, "first_bad": B,
        "title": "Break it", "why": "", "left": [B], "runs": 4, "log2": 2,
        "probes": [{"commit": B, "answer": "bad", "why": "it failed", "paths": ["runs/1"]}],
    }  # fmt: skip
    page = read(html.render(pages.of_bisection(found)))
    assert bisection.summary(found) in page.all("header")[0].text
    assert [cell.text for cell in page.all("td")] == ["b" * 12, "bad", "it failed", "runs/1"]
