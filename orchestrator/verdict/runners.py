"""The closing lines of runners of tests other than pytest: unittest and nose, doctest, ctest, go, cargo, make."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Callable, Iterator, List, Optional, Tuple

from orchestrator.shared.files import Refused
from orchestrator.shared.text import count, plain
from orchestrator.verdict.tests import asked

if TYPE_CHECKING:
    from orchestrator.verdict.case import Case

_MOST_BYTES = 1 << 20  # from the end of a stream

_UNITTEST = re.compile(
    r"^-{70}\nRan (?P<ran>\d+) tests? in [\d.]+m?s\n\n?"
    r"(?P<end>(?:OK|FAILED|NO TESTS RAN)(?: \((?P<counts>[^()\n]*)\))?)$",
    re.MULTILINE,
)
_DOCTEST = re.compile(r"^\*\*\*Test Failed\*\*\* (?P<failed>\d+) failures?\b.*$", re.MULTILINE)
_CTEST = re.compile(
    r"^\d+% tests passed, (?P<failed>\d+) tests? failed out of (?P<total>\d+)$|^No tests were found!!!$", re.MULTILINE
)
_CTEST_AFTER = re.compile(r"Label Time|Total Test time|The following tests|Errors while|\s")
_CTEST_SKIPS = re.compile(r"^\s+\d+ - (?P<name>.+) \((?P<why>Skipped|Disabled|Not Run)\)$", re.MULTILINE)
_GO = re.compile(
    r"^(?:(?P<ok>ok)  \t(?P<name>\S+)\t(?:\(cached\)|[\d.]+s)(?P<none>.*\[no tests to run\])?.*|"
    r"(?P<fail>FAIL)(?:\t(?P<failed>\S+).*)?|\?   \t(?P<empty>\S+)\t\[no test files\])$",
    re.MULTILINE,
)
_GO_SKIPS = re.compile(r"^\s*--- SKIP: (?P<name>\S+) \([\d.]+s\)$", re.MULTILINE)
_CARGO = re.compile(
    r"^test result: (?P<end>ok|FAILED)\. (?P<passed>\d+) passed; (?P<failed>\d+) failed; (?P<ignored>\d+) ignored;.*$",
    re.MULTILINE,
)
_CARGO_SKIPS = re.compile(r"^test (?P<name>.+) \.\.\. ignored(?:, (?P<why>.+))?$", re.MULTILINE)
_MAKE = re.compile(r"^g?make: (?:Nothing to be done for [`'](\w+)'|[`'](\w+)' is up to date)\.$", re.MULTILINE)
_MAKE_TESTS = ("test", "tests", "check")
_UNITTEST_SKIPS = re.compile(r"^(?P<name>.+) \.\.\. skipped '(?P<why>.*)'$", re.MULTILINE)


@dataclass(frozen=True)
class Closing:
    """What a runner says at its end: how many tests it ran, what failed, as a clause, and what was skipped."""

    runner: str
    ran: int
    failed: Optional[str] = None
    skipped: Tuple[str, ...] = ()


def failures(case: Case) -> Optional[str]:
    """The first closing line that tells of a failure, although the stage's exit code does not."""
    return next((f"{c.runner} says: {plain(c.failed)}" for c in _closings(case) if c.failed), None)


def none_ran(case: Case) -> Iterator[str]:
    """Runners, and programs that hold tests, that ran no test."""
    for path in case.evidence["idle_programs"]:
        if not any(test.startswith(f"{path}::") for test in case.session.tests):
            yield f"no test of {path} ran"
    for closing in _closings(case):
        if not closing.ran:
            yield f"{closing.runner} ran no test"


def skips(case: Case) -> Optional[str]:
    """Tests that were skipped, and that `allow_skips` does not allow by their reason or their line."""
    allow = asked(case).get("allow_skips") or []
    for closing in _closings(case):
        refused = [text for text in closing.skipped if not any(re.search(pattern, text) for pattern in allow)]
        if refused:
            return f"{closing.runner} skipped {count(len(refused), 'test')}: {plain(refused[0])}"
    return None


def read(text: str, everywhere: Callable[[str], bool]) -> List[Closing]:
    """The closings in what a stage printed: all of a runner that it names (`everywhere`), else the last lines'."""
    found: List[Closing] = []
    for runner, parse in _PARSERS:
        found += parse(text, everywhere(runner))
    return found


def _closings(case: Case) -> List[Closing]:
    """Of a stage that is no pytest; pytest shows what its tests print, and says itself how they ended. Of a runner
    whose tests were seen to run it matters only that it ran none another time.
    """
    if case.stage["pytest"]:
        return []
    seen = {session.runner for session in case.sessions.own}
    command = " ".join(case.stage["argv"])

    def is_named(runner: str) -> bool:
        return re.search(_NAMES[runner], command) is not None

    found: List[Closing] = []
    for stream in ("stderr", "stdout"):
        with contextlib.suppress(Refused, OSError), case.open(f"stages/{case.stage['name']}/{stream}") as f:
            f.seek(max(0, f.seek(0, 2) - _MOST_BYTES))
            found += read(f.read().decode("utf-8", "replace").replace("\r\n", "\n"), is_named)
    return [closing for closing in found if closing.runner not in seen or not closing.ran]


def _unittest(text: str, everywhere: bool) -> Iterator[Closing]:
    skipped = [m["why"] for m in _UNITTEST_SKIPS.finditer(text)]
    for match in _that_close(_UNITTEST, text, everywhere):
        counts = dict(re.findall(r"([a-z ]+)=(\d+)", match["counts"] or ""))
        number = int(counts.get("skipped", 0))
        reasons = skipped[:number] if len(skipped) >= number else [match["end"]] * number
        reasons += [f"xfail: {match['end']}"] * int(counts.get("expected failures", 0))
        yield Closing("unittest", int(match["ran"]), match["end"] if match["end"].startswith("FAILED") else None,
                      tuple(reasons))  # fmt: skip


def _doctest(text: str, everywhere: bool) -> Iterator[Closing]:
    """It says nothing of tests that pass."""
    for match in _DOCTEST.finditer(text):
        yield Closing("doctest", int(match["failed"]), match[0])


def _ctest(text: str, everywhere: bool) -> Iterator[Closing]:
    skipped = tuple(f"{m['why']}: {m['name']}" for m in _CTEST_SKIPS.finditer(text))
    for match in _that_close(_CTEST, text, everywhere, after=_CTEST_AFTER):
        failed = int(match["failed"] or 0)
        yield Closing("ctest", int(match["total"] or 0), match[0] if failed else None, skipped)


def _go(text: str, everywhere: bool) -> Iterator[Closing]:
    if not everywhere:
        return
    lines = list(_GO.finditer(text))
    if lines:
        failed = next((m[0] for m in lines if m["fail"]), None)
        ran = sum(bool(m["ok"] and not m["none"]) or bool(m["fail"]) for m in lines)
        skipped = tuple(m[0].strip() for m in _GO_SKIPS.finditer(text))
        yield Closing("go", ran, failed, skipped)


def _cargo(text: str, everywhere: bool) -> Iterator[Closing]:
    lines = list(_that_close(_CARGO, text, everywhere))
    if lines:
        failed = next((m[0] for m in lines if m["end"] == "FAILED" or int(m["failed"])), None)
        ignored = sum(int(m["ignored"]) for m in lines)
        reasons = [m["why"] or m[0] for m in _CARGO_SKIPS.finditer(text)]
        reasons = reasons if len(reasons) == ignored else [lines[-1][0]] * ignored
        yield Closing("cargo", sum(int(m["passed"]) + int(m["failed"]) for m in lines), failed, tuple(reasons))


def _make(text: str, everywhere: bool) -> Iterator[Closing]:
    """It found its tests made, by a file that says so."""
    if any((match[1] or match[2]) in _MAKE_TESTS for match in _MAKE.finditer(text)):
        yield Closing("make", 0)


def _that_close(
    pattern: "re.Pattern[str]", text: str, everywhere: bool, after: "Optional[re.Pattern[str]]" = None
) -> List["re.Match[str]"]:
    """All matches, or only one that nothing follows but blank lines, and such as begin like `after`."""
    found = list(pattern.finditer(text))
    if everywhere or not found:
        return found
    rest = text[found[-1].end() :].split("\n")
    return found[-1:] if all(not line.strip() or (after and after.match(line)) for line in rest) else []


_PARSERS: List[Tuple[str, Callable[[str, bool], Iterator[Closing]]]] = [
    ("unittest", _unittest),
    ("doctest", _doctest),
    ("ctest", _ctest),
    ("go", _go),
    ("cargo", _cargo),
    ("make", _make),
]
_NAMES = {
    "unittest": r"\bunittest\b|\bnose2?\b|\bnosetests",
    "doctest": r"\bdoctest\b",
    "ctest": r"\bctest\b",
    "go": r"\bgo\s+test\b|\bgo\s.*\btest\b",
    "make": r"\bmake\b",
    "cargo": r"\bcargo\b.*\btest\b",
}
