"""What a bisection found, as JSON, and as people read it."""

from __future__ import annotations

from typing import Literal, TypedDict

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from orchestrator.text import count, plain

Answer = Literal["good", "bad", "cannot tell"]


class Probe(TypedDict):
    """What was found of a commit, and by which runs, kept at `paths`."""

    commit: str
    answer: Answer
    why: str
    paths: list[str]


class Document(TypedDict):
    """What `bisect` found: the `first_bad` commit, or those among which it is (`left`); `log2` is how many probes the
    number of commits takes at least, `runs` how many runs it took, the proof of both ends included.
    """

    kind: Literal["bisect"]
    stage: str
    slower: float | None
    good: str
    bad: str
    commits: int
    first_bad: str | None
    title: str
    why: str
    left: list[str]
    probes: list[Probe]
    runs: int
    log2: int


def summary(found: Document) -> str:
    """One line: the commit, or why there is none, and what it cost."""
    cost = f"{count(found['runs'], 'run')}, log2 of {count(found['commits'], 'commit')} is {found['log2']}"
    if found["first_bad"]:
        return f"{found['first_bad'][:7]} is the first bad commit: {found['title']} ({cost})"
    return f"cannot tell: {found['why']} ({cost})"


def page(found: Document) -> RenderableType:
    """The evidence of each commit that was tried, and the summary."""
    table = Table(box=None, pad_edge=False)
    for name in ("commit", "answer", "why", "run"):
        table.add_column(name, overflow="fold")
    colours = {"good": "green", "bad": "red", "cannot tell": "yellow"}
    for probe in found["probes"]:
        answer = f"[{colours[probe['answer']]}]{probe['answer']}[/]"
        table.add_row(probe["commit"][:7], answer, escape(probe["why"]), escape(plain(probe["paths"][-1])))
    left = [f"one of {', '.join(commit[:7] for commit in found['left'])}"] if len(found["left"]) > 1 else []
    return Group(table, *map(escape, [*left, summary(found)]))
