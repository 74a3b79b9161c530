"""A report for GitHub: a comment that a later one can find and replace, the summary of a job, and annotations."""

import re
from collections.abc import Iterator
from typing import Any

from orchestrator.report import markdown, trouble
from orchestrator.report.document import Block, Bullets, Code, Document, Link, Section, Table, replaced
from orchestrator.results import Result, StageResult
from orchestrator.text import count, listing, plain
from orchestrator.verdict.status import MEANINGS

LIMIT = 65_000
"""Characters of a comment: GitHub takes 65,536."""
_SECTION = 30_000
_LEAD_ITEMS = 30
_ANNOTATIONS = 10  # of each level; GitHub shows no more of a step
_OPEN = ("Stages", "What changed")
# What would call a person: a word behind an @ that no word stands before.
_MENTION = re.compile(r"(?<![\w`@/.-])@(?=[A-Za-z0-9])")


def marker(kind: str, *names: str) -> str:
    """The first line of a comment, the same for every report of this kind: a comment is found again by it."""
    words = re.sub("-{2,}", "-", re.sub(r"[^\w. -]", "-", " ".join((kind, *names))))
    return f"<!-- nsa-pod {words} -->"


def comment(document: Document, mark: str) -> str:
    """The document as a comment: verdict first, the rest folded, and what does not fit left out by name."""
    document = replaced(document, _without_links)
    parts = [mark, f"## {markdown.inline(document.title)}", *map(_short, document.lead)]
    left_out: list[str] = []
    for section in document.sections:
        text = _section(section)
        fits = len(text) <= _SECTION and sum(map(len, parts)) + len(text) < LIMIT - 1000
        if text and fits:
            parts.append(text)
        elif text:
            left_out.append(section.title)
    if left_out:
        parts.append(f"Too long for a comment: {markdown.inline(listing(left_out, 10))}.")
    return _MENTION.sub("@<!-- -->", "\n\n".join(filter(None, parts)))[:LIMIT] + "\n"


def annotations(result: Result, headline: str) -> str:
    """Commands to GitHub's runner: the headline, in the verdict's colour, and each failure at its place in the code."""
    found = [("error" if _is_error(stage) else "warning", line) for stage in _not_passed(result) for line in _at(stage)]
    is_fine = result.verdict == "passed" or (result.verdict is None and not found and not result.error)
    verdict = "notice" if is_fine else "error"
    lines = [_command(verdict, headline, title=f"nsa-pod: {result.verdict}" if result.verdict else "nsa-pod")]
    for level in ("error", "warning"):
        of_level = [line for of, line in found if of == level]
        lines += [f"::{level} {line}" for line in of_level[: _ANNOTATIONS - (level == verdict)]]
    return "\n".join(lines) + "\n"


def _section(section: Section) -> str:
    body = markdown.blocks(section.blocks)
    title = markdown.inline(section.title)
    if not body:
        return ""
    if section.title in _OPEN:
        return f"### {title}\n\n{body}"
    return f"<details><summary>{title}</summary>\n\n{body}\n\n</details>"


def _short(block: Block) -> str:
    """A block of the lead; of a long list its beginning."""
    if isinstance(block, Bullets) and len(block.items) > _LEAD_ITEMS:
        more = count(len(block.items) - _LEAD_ITEMS, "more sentence")
        block = Bullets((*block.items[:_LEAD_ITEMS], f"{more} in the report"))
    return markdown.blocks([block])


def _without_links(part: Any) -> Any:
    """Files of a run are not where a comment is read."""
    if isinstance(part, Link):
        return Code(part.text)
    if isinstance(part, Table) and part.header[-1:] == ("logs",):
        return Table(part.header[:-1], tuple(row[:-1] for row in part.rows))
    return part


def _not_passed(result: Result) -> list[StageResult]:
    return [stage for stage in result.stages if stage.status != "passed"]


def _is_error(stage: StageResult) -> bool:
    return stage.required and MEANINGS[stage.status].makes == "failed"


def _at(stage: StageResult) -> Iterator[str]:
    """The stage's failures, as what follows a command's name."""
    title = f"{stage.name} {stage.status.replace('_', ' ')}"
    for failure in stage.failures:
        path, _, line = (failure["place"] or "").rpartition(":")
        where = {"file": path, "line": line} if path and line.isdecimal() else {}
        message = "; ".join([failure["id"], *failure["error"][:3]])
        yield _parameters(message, **where, title=title)
    if not stage.failures:
        yield _parameters(stage.reason or trouble.counts(stage), title=title)


def _command(level: str, message: str, **properties: str) -> str:
    return f"::{level} {_parameters(message, **properties)}"


def _parameters(message: str, **properties: str) -> str:
    """Escaped as the runner wants it: nothing of a stage can end a command, or begin one."""
    given = ",".join(f"{name}={_escaped(plain(text), ':,')}" for name, text in properties.items())
    return f"{given}::{_escaped(plain(message, 1000), '')}"


def _escaped(text: str, more: str) -> str:
    return "".join(f"%{ord(c):02X}" if c in f"%\r\n{more}" else c for c in text)
