"""The page of a run: true to its artifacts, needing nothing, readable by everybody, and no text of a pod is more."""

from __future__ import annotations

import csv
import re
import statistics
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

import pytest

from orchestrator.plan.plan import read_plan
from orchestrator.report import html
from orchestrator.report.hosts import Hosts
from orchestrator.report.run import document
from orchestrator.results import ArtifactResult
from orchestrator.store.run_directory import RunDirectory
from orchestrator.tasks.report import Told, written
from tests.support import ROOT
from tests.support.page import Element, read
from tests.support.run_files import make_run
from tests.support.seed_run import seed_run

EVIL = "\x1b]0;owned\x07</style></title><script>alert(1)</script><img src=x onerror=alert(1)>\"' onload='x\u202e&lt;"
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
NO_HOSTS = Hosts(active=False)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return seed_run(tmp_path_factory.mktemp("seed"))


@pytest.fixture(scope="module")
def page(run: RunDirectory) -> Element:
    return read(page_of(run))


def page_of(run: RunDirectory, output: Path | None = None) -> str:
    return written(Told(run.rejudge(), run.plan(), run.path, NO_HOSTS, output), "html")


def section(page: Element, title: str) -> Element:
    return next(found for found in page.all("section") if found.all("h2")[0].text == title)


# --- what it says ---


def test_what_the_seeds_left_is_judged_as_it_deserves(run: RunDirectory) -> None:
    found = {stage.name: (stage.status, stage.reason) for stage in run.rejudge().stages}
    assert found["decode_bench"] == (
        "failed",
        "artifact decode_gpu_final.csv fails in row 1: cmp_pct is 106.3, expected at most 100",
    )
    assert found["decode_reads"][0] == "failed" and "1091 and reads_expected is 1571" in found["decode_reads"][1]
    assert found["triton_bwd"] == ("invalid", "artifact triton_bwd.txt is empty")
    assert found["fa2_bench"][0] == "invalid" and "only a header" in found["fa2_bench"][1]
    assert found["summary"][0] == "blocked" and found["prefill"][0] == "passed"


def test_verdict_and_why_come_first(run: RunDirectory, page: Element) -> None:
    header = page.all("main")[0].all()[0]
    assert header.tag == "header" and header.attributes["class"] == "red"
    result = run.rejudge()
    for told in ("FAILED", result.summary, *(s.reason for s in result.stages if s.status in ("failed", "invalid"))):
        assert told in header.text


def test_each_stage_shows_its_evidence_and_where_its_logs_are(page: Element) -> None:
    rows = {row.all("td")[0].text: row for row in section(page, "Stages").all("tr")[1:]}
    assert "4948 launched" in rows["prefill"].text and rows["summary"].all("span")[0].text == "blocked"
    assert [link.text for link in rows["triton_bwd"].all("a")] == ["stdout", "stderr"]


def test_every_link_leads_to_a_file_of_the_run(run: RunDirectory, tmp_path: Path) -> None:
    (tmp_path / "somewhere").mkdir()
    target = tmp_path / "somewhere" / "page.html"
    links = [link.attributes["href"] for link in read(page_of(run, target)).all("a")]
    files = [link for link in links if not link.startswith("#")]
    assert len(files) > 10 and all((target.parent / unquote(link)).is_file() for link in files)


def numbers_in(element: Element) -> Iterator[float]:
    for cell in element.all("td"):
        yield from (float(found) for found in NUMBER.findall(cell.text))


def test_each_figure_of_a_table_is_in_an_artifact(run: RunDirectory, page: Element) -> None:
    files = sorted((run.path / "artifacts").glob("*.csv"))
    written_there = {float(found) for file in files for found in NUMBER.findall(file.read_text())}
    rows = {float(n) for n in range(1, 13)}  # of the first lines of a file
    shown = list(numbers_in(section(page, "Figures")))
    assert len(shown) > 60 and not [number for number in shown if number not in written_there | rows]


def test_each_figure_that_was_measured_is_the_median_of_samples_in_an_artifact(
    run: RunDirectory, page: Element
) -> None:
    samples: dict[tuple[str, str], list[float]] = {}
    with (run.path / "artifacts" / "prefill.csv").open() as f:
        for line in csv.DictReader(f):
            for column, text in line.items():
                if column not in ("S", "backend"):
                    samples.setdefault((line["S"], column), []).append(float(text))
    head, *rows = section(page, "Measured").all("tr")
    names = [cell.text.partition(" ")[0] for cell in head.all("th")]
    assert len(rows) == 6
    for row in rows:
        cells = dict(zip(names, (cell.text for cell in row.all("td")), strict=True))
        for column in samples.keys() & {(cells["S"], name) for name in cells}:
            of_row = samples[column]
            expected = {f"{number:.6g}" for number in (statistics.median(of_row), min(of_row), max(of_row))}
            assert set(NUMBER.findall(cells[column[1]])) <= {*expected, "3"}, column
    medians = {f"{column} at {s}: {statistics.median(of):.6g}" for (s, column), of in samples.items()}
    dots = {title.text for svg in page.all("svg") for title in svg.all("title")}
    assert medians <= dots, "every point of every chart says what it stands for"


def test_there_are_charts_of_shares_times_roofline_speedup_and_telemetry(page: Element) -> None:
    titles = [caption.text for caption in page.all("figcaption")]
    assert titles == [
        "cmp_pct, sel_pct, win_pct against S",
        "ms_dense, ms_total against S",
        "roofline_frac against S",
        "speedup_over_dense against S",
        *("SM clock", "Power", "Temperature", "Utilization"),
    ]
    assert len(page.all("figure")[0].all("rect")) >= 3 * 6, "shares that add up are stacked"
    whiskers = [group for group in page.all("figure")[3].all("g") if "spread" in group.attributes.get("class", "")]
    assert len(whiskers[0].all("path")) == 6


# --- what it needs, and whom it lets read ---


def test_it_needs_no_network_and_no_script(page: Element) -> None:
    for element in page.all():
        assert element.tag not in ("script", "iframe", "object", "embed", "base", "form"), element.tag
        assert not [name for name in element.attributes if name.startswith("on")]
        for name in ("src", "href", "action", "xlink:href"):
            assert not re.match(r"(?i)\s*(https?:)?//|javascript:", element.attributes.get(name, ""))
    (policy,) = [m.attributes["content"] for m in page.all("meta") if "http-equiv" in m.attributes]
    assert policy.startswith("default-src 'none'")
    assert not re.search(r"url\(|@import", page.all("style")[0].text)


def test_its_structure_is_one_that_a_screen_reader_can_follow(page: Element) -> None:
    assert page.all("html")[0].attributes["lang"] == "en" and len(page.all("h1")) == len(page.all("main")) == 1
    ids = [element.attributes["id"] for element in page.all() if "id" in element.attributes]
    assert len(ids) == len(set(ids))
    named = [element.attributes["aria-labelledby"] for element in page.all() if "aria-labelledby" in element.attributes]
    targets = [link.attributes["href"][1:] for link in page.all("a") if link.attributes["href"].startswith("#")]
    assert set(named) | set(targets) <= set(ids) and len(targets) > 5
    levels = [int(heading.tag[1]) for heading in page.all("h1", "h2", "h3")]
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert all(svg.attributes["aria-label"] and svg.attributes["role"] == "img" for svg in page.all("svg"))
    assert all(cell.attributes["scope"] == "col" for cell in page.all("th"))
    assert all(e.attributes["tabindex"] == "0" for e in page.all("pre")), "what scrolls can be reached by keyboard"


def themes() -> dict[str, dict[str, str]]:
    style = (ROOT / "orchestrator/report/html/style.css").read_text()
    light, dark, printed = (
        dict(re.findall(r"--(\S+): (#\w{6})", block)) for block in re.findall(r":root \{(.*?)\}", style, re.S)
    )
    return {"light": light, "dark": dark, "print": printed}


def contrast(one: str, other: str) -> float:
    """WCAG 2.2's contrast ratio."""

    def luminance(colour: str) -> float:
        parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark", "print"])
def test_every_text_has_the_contrast_that_wcag_aa_asks_for(theme: str) -> None:
    colours = themes()[theme]
    texts = [(text, on) for text in ("ink", "soft", "link") for on in ("paper", "tint")]
    texts += [(text, f"{on}-tint") for on in ("green", "yellow", "red") for text in ("ink", "link", on)]
    poor = {pair: contrast(colours[pair[0]], colours[pair[1]]) for pair in texts}
    assert not {pair: ratio for pair, ratio in poor.items() if ratio < 4.5}
    lines = {f"c{n}": contrast(colours[f"c{n}"], colours["paper"]) for n in range(8)}
    assert len(set(map(colours.get, lines))) == 8 and not {name: ratio for name, ratio in lines.items() if ratio < 3}


# --- what a pod says is text ---


def test_no_text_of_a_pod_becomes_more_than_text(tmp_path: Path) -> None:
    run, plan = make_run(tmp_path, {"one": True})
    header = EVIL.replace("\x1b]0;owned\x07", "").replace('"', '""')
    (run.path / "artifacts").mkdir()
    (run.path / "artifacts" / "a.csv").write_text(f'"{header}",ms\n"{header}",1\n"{header}",2\n')
    telling = {"hostname": EVIL, "gpus": [{"name": EVIL, "uuid": EVIL}], "cpu_model": EVIL}
    keys = {"keys": [header.replace('""', '"')], "measures": {"ms": {"unit": EVIL, "better": "lower"}}}
    stage = {
        **plan["stages"][0],
        "name": EVIL,
        "expect": {"artifacts": [{"path": "a.csv", "kind": "csv", "figures": keys}]},
    }
    hostile = {**plan, "facts": telling, "stages": [stage], "environment": {"packages": {"torch": EVIL}}}
    result = run.rejudge()
    failure = {"error": [EVIL], "place": EVIL, "line": EVIL, "id": EVIL, "outcome": EVIL, "called_from": EVIL}
    told = {
        "name": EVIL, "reason": EVIL, "status": "failed", "command": [EVIL], "env": {EVIL: EVIL}, "notes": [EVIL],
        "routes": {EVIL: EVIL}, "executed": {EVIL: {"launches": 1, "kernels": [EVIL]}}, "failures": [failure],
        "causes": [{"error": [EVIL], "place": EVIL, "line": EVIL, "count": 1, "of": [EVIL]}],
        "artifacts": [ArtifactResult(path="a.csv", bytes=1, sha256=EVIL)],
    }  # fmt: skip
    over = {"summary": EVIL, "error": EVIL, "pod": EVIL, "stages": [result.stages[0].model_copy(update=told)]}
    text = html.render(document(result.model_copy(update=over), hostile, run.path))  # type: ignore[arg-type]
    page = read(text)
    assert "onload='x &lt;" in section(page, "Measured").text
    assert {element.tag for element in page.all()} <= {
        *(
            "html",
            "head",
            "meta",
            "link",
            "title",
            "style",
            "body",
            "a",
            "nav",
            "ul",
            "li",
            "main",
            "header",
            "section",
        ),
        *("h1", "h2", "h3", "p", "dl", "dt", "dd", "div", "table", "thead", "tbody", "tr", "th", "td", "pre", "code"),
        *("span", "strong", "figure", "figcaption", "svg", "g", "path", "rect", "circle", "text"),
    }
    assert not [e for e in page.all() for name in e.attributes if name.startswith("on")]
    assert page.all("h1")[0].text.count("<script>alert(1)</script>") == 1, "it is shown as it is"
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", text)


@pytest.mark.parametrize(
    ("cell", "rows"),
    [
        *((cell, 9) for cell in ("inf", "nan", "1e999", "-1e308", "9" * 400, "0", "1e-320", "x")),
        ("x", 1),
        ("inf", 5000),
    ],
)
def test_odd_numbers_and_very_many_make_a_page(cell: str, rows: int, tmp_path: Path) -> None:
    run, plan = make_run(tmp_path, {"one": True})
    (run.path / "artifacts").mkdir()
    lines = "".join(f"{n},{cell if n % 3 == 0 else n}\n" for n in range(rows))
    (run.path / "artifacts" / "a.csv").write_text(f"S,ms\n{lines}")
    keys = {"keys": ["S"], "measures": {"ms": {"unit": "%", "better": "lower"}}}
    stage = {**plan["stages"][0], "expect": {"artifacts": [{"path": "a.csv", "kind": "csv", "figures": keys}]}}
    result = run.rejudge()
    told = {"status": "passed", "artifacts": [ArtifactResult(path="a.csv", bytes=1, sha256="0")]}
    over = {"stages": [result.stages[0].model_copy(update=told)]}
    text = html.render(document(result.model_copy(update=over), {**plan, "stages": [stage]}, run.path))  # type: ignore[arg-type, list-item]
    assert len(text) < 300_000 and read(text).all("h2")


def test_a_run_of_an_older_format_has_a_page(tmp_path: Path) -> None:
    folder = ROOT / "tests/data/format-1"
    plan = read_plan((folder / "plan.json").read_text(), "plan.json")
    page = read(page_of(RunDirectory(folder, "format-1")))
    assert all(stage["name"] in page.text for stage in plan["stages"])
