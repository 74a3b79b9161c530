"""Runners of tests other than pytest, and programs that hold tests: what failed, was skipped, or did not run."""

from __future__ import annotations

import contextlib
import os
import re
from typing import TYPE_CHECKING, Iterator, List, Optional

from orchestrator.shared.files import Refused
from orchestrator.shared.text import count, plain
from orchestrator.verdict import outcomes
from orchestrator.verdict.closing_lines import Closing, is_named, read
from orchestrator.verdict.counted_tests import without_assertions
from orchestrator.verdict.tests import asked

if TYPE_CHECKING:
    from orchestrator.verdict.case import Case

_USAGE = re.compile(r"\s*usage: ([^\n]+)", re.IGNORECASE)
_ASIDE = re.compile(r"\([^)]*\)|\[[^]]*\]")  # as `(default: 0.5)`
_FIGURE = re.compile(r"(?<!\w)\d")
_HELP = frozenset(("--help", "-h", "-help", "help"))
_MOST_BYTES = 1 << 20  # from the end of a stream


def failures(case: Case) -> Optional[str]:
    """The first closing line that tells of a failure, although the stage's exit code does not."""
    return next((f"{c.runner} says: {plain(c.failed)}" for c in _closings(case) if c.failed), None)


def none_ran(case: Case) -> Iterator[str]:
    """Runners, and programs that hold tests, that ran no test."""
    for path in case.evidence["idle_programs"]:
        if not any(test.startswith(f"{path}::") for test in case.session.tests):
            yield f"no test of {path} ran"
    for path in case.evidence["inert_programs"]:
        yield f"{path} only defines what it would do: nothing of it ran"
    for closing in _closings(case):
        if not closing.ran:
            yield f"{closing.runner} ran no test"
    yield from _only_usage(case)


def doubts(case: Case) -> Iterator[str]:
    """Runners whose tests made no assertion, and sessions of pytest that named tests of which none ran."""
    listed = outcomes.merged(case.sessions.listing).collected
    if listed and not set(listed).intersection(case.session.selected):
        first = plain(listed[0], 120)
        tests = count(len(listed), "test")
        yield f"pytest was only asked to collect {tests}, and none of them ran in this stage ({first})"
    for text in _printed(case):
        said = without_assertions(text)
        if said:
            yield f"its tests made no assertion: {plain(said, 120)}"


def _only_usage(case: Case) -> Iterator[str]:
    """A program that showed how it is called, and that nobody has asked for that."""
    words = [] if case.stage["pytest"] else case.stage["argv"]
    names = {os.path.basename(word) for word in words} - {""}
    shown = _USAGE.match(case.ends["stdout"]) if words and not _HELP.intersection(" ".join(words).split()) else None
    if not shown or _FIGURE.search(_ASIDE.sub("", case.ends["stdout"][shown.end() :])):
        return
    if names.intersection(os.path.basename(word) for word in shown[1].split()):
        yield f"it only showed how it is called: {plain(shown[0].strip(), 120)}"


def skips(case: Case) -> Optional[str]:
    """Tests that were skipped, and that `allow_skips` does not allow by their reason or their line."""
    allow = asked(case).get("allow_skips") or []
    for closing in _closings(case):
        refused = [text for text in closing.skipped if not any(re.search(pattern, text) for pattern in allow)]
        if refused:
            return f"{closing.runner} skipped {count(len(refused), 'test')}: {plain(refused[0])}"
    return None


def _closings(case: Case) -> List[Closing]:
    """Of a runner whose tests were seen to run it matters only that it ran none another time."""
    seen = {session.runner for session in case.sessions.own}
    command = " ".join(case.stage["argv"])
    found: List[Closing] = []
    for text in _printed(case):
        found += read(text, lambda runner: is_named(runner, command))
        if not seen:  # its words may stand before a script's own
            amid = read(text, lambda runner: runner == "unittest")
            found += (closing for closing in amid if closing.runner == "unittest" and not closing.ran)
    return [closing for closing in found if closing.runner not in seen or not closing.ran]


def _printed(case: Case) -> Iterator[str]:
    """What a stage printed that is no pytest, which shows what its tests print, and says itself how they ended."""
    for stream in () if case.stage["pytest"] else ("stderr", "stdout"):
        with contextlib.suppress(Refused, OSError), case.open(f"stages/{case.stage['name']}/{stream}") as f:
            f.seek(max(0, f.seek(0, 2) - _MOST_BYTES))
            yield f.read().decode("utf-8", "replace").replace("\r\n", "\n")
