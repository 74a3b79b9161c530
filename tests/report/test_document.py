"""Each kind of block and span, in every form."""

from __future__ import annotations

import html
import re

from orchestrator.report import html as pages
from orchestrator.report import markdown
from orchestrator.report.document import (
    Badge,
    Bullets,
    Chart,
    Code,
    Document,
    Facts,
    Lines,
    Link,
    Paragraph,
    Section,
    Series,
    Strong,
    Subheading,
    Table,
    joined,
    with_text,
    without_empty,
)

CHART = Chart("ms against S", "S", "ms", (Series("a", ((512, 1.5), (4096, 3.0)), ((1.25, 1.75), (3.0, 3.0))),))
WHOLE = Document(
    "FAILED: r on pod p",
    "failed",
    (Paragraph(Strong("1 of 2 stages passed")), Bullets(("tests failed: why",))),
    (
        Section("Stages", (Table(("stage", "status"), (("a|b", Badge("timed_out")), ("c", Badge("passed")))),)),
        Section(
            "More",
            (
                Subheading("b"),
                Facts((("Commit", (Code("abc"), " of ", Link("x y", "a b.txt"))),)),
            ),
        ),
        Section("Code", (Lines(("if x:", "    y")),)),
        Section("Charts", (CHART,)),
        Section("Charts of a file", (Paragraph("From b.csv:"), CHART)),
    ),
)


def test_markdown_shows_every_kind_of_block_but_charts() -> None:
    assert markdown.render(WHOLE) == (
        "# FAILED: r on pod p\n\n**1 of 2 stages passed**\n\n- tests failed: why\n\n"
        "## Stages\n\n| stage | status |\n| --- | --- |\n| a\\|b | **timed_out** |\n| c | passed |\n\n"
        "## More\n\n### b\n\n- Commit: `abc` of [x y](a%20b.txt)\n\n"
        "## Code\n\n    if x:\n        y\n"
    )


def test_html_shows_every_kind_of_block() -> None:
    page = pages.render(WHOLE, "runs/r")
    text = html.unescape(re.sub(r"<[^>]+>", "\n", page.partition("</head>")[2]))
    for told in ("FAILED: r on pod p", "1 of 2 stages passed", "a|b", "timed out", "x y", "if x:\n    y", "512"):
        assert told in text
    assert 'href="runs/r/a%20b.txt"' in page and '<header class="red">' in page
    assert page.index("tests failed: why") < page.index("<section"), "why comes before all else"
    assert "a at 4096: 3" in text and "Bars: where" in text


def test_a_chart_of_what_no_picture_can_show_breaks_no_page() -> None:
    odd = (
        Chart("none", "x", "y", ()),
        Chart("empty", "x", "y", (Series("a", ()),)),
        Chart("one", "x", "y", (Series("a", ((0.0, 0.0),)),)),
        Chart("gap", "x", "y", (Series("a", ((1.0, 1.0), (2.0, None), (3.0, 2.0))),)),
        Chart("wide", "x", "y", (Series("a", ((1.0, 1e-300), (2.0, 1e300)), ((0.0, 1.0), (1.0, 1e300))),)),
        Chart("stack", "x", "%", (Series("a", ((1.0, 40.0),)), Series("b", ((2.0, 60.0),))), kind="stack"),
        Chart("marks", "x", "y", (Series("a", ((1.0, 1.0), (2.0, 2.0))),), marks=((1.5, "here"),)),
    )
    page = pages.render(Document("t", None, (), (Section("s", odd),)))
    assert page.count("<figure>") == len(odd) and page.count("<svg") == len(odd) and "here" in page


def test_the_same_document_is_the_same_page() -> None:
    assert pages.render(WHOLE) == pages.render(WHOLE)


def test_every_text_of_a_document_can_be_changed() -> None:
    changed = markdown.render(with_text(WHOLE, str.upper))
    assert "- COMMIT: `ABC` OF [X Y](A%20B.TXT)" in changed and "**timed_out**" in changed


def test_a_line_keeps_the_blanks_between_its_pieces() -> None:
    assert markdown.inline(joined(["a", Code("b"), "c"])) == "a, `b`, c"
    assert markdown.inline(("a", " ", "b")) == "a b"


def test_columns_that_say_nothing_are_left_out() -> None:
    table = without_empty(("a", "b", "c"), [("1", "-", ""), ("2", "-", "x")], keep=1)
    assert table == Table(("a", "c"), (("1", ""), ("2", "x")))
