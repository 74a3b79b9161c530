"""Runners that close with numbers of their own form: a pattern for each, whose groups are what it counts.

`ran` are all, or else those that `passed` ran; what is `left` was not run again. One without groups had nothing to run.
"""

from __future__ import annotations

import re
from typing import Iterator, List, NamedTuple, Optional, Tuple

_PATTERNS: List[Tuple[str, "re.Pattern[str]"]] = [
    (name, re.compile(pattern, re.MULTILINE))
    for name, pattern in (
        ("jest", r'^\{(?=.*"numPassedTests":(?P<passed>\d+))(?=.*"numFailedTests":(?P<failed>\d+))'
                 r'(?:(?=.*"numPendingTests":(?P<skipped>\d+)))?.*\}$'),
        ("mocha", r"^  (?P<passed>\d+) passing \([\d.]+m?s\)$(?:\n  (?P<skipped>\d+) pending$)?"
                  r"(?:\n  (?P<failed>\d+) failing$)?"),
        ("node", r"^ℹ tests (?P<ran>\d+)\n(?:ℹ suites \d+\n)?ℹ pass \d+\nℹ fail (?P<failed>\d+)\n"
                 r"ℹ cancelled \d+\nℹ skipped (?P<skipped>\d+)\nℹ todo (?P<expected>\d+)$"),
        ("maven", r"^(?:\[\w+\] +)?Tests run: (?P<ran>\d+), Failures: (?P<failed>\d+), Errors: (?P<errors>\d+), "
                  r"Skipped: (?P<skipped>\d+)$|^(?:\[\w+\] +)?No tests to run\.$"),
        ("gradle", r"^> Task :\S*[tT]est(?: NO-SOURCE| (?P<left>UP-TO-DATE|FROM-CACHE|SKIPPED)|(?P<done>))$"),
        ("dotnet", r"^No test is available in .*$|^\w+!\s+- Failed:\s+(?P<failed>\d+), Passed:\s+(?P<passed>\d+), "
                   r"Skipped:\s+(?P<skipped>\d+)"),
        ("phpunit", r"^No tests executed!$|^OK \((?P<passed>\d+) tests?, \d+ assertions?\)$"),
        ("xctest", r"^\s*Executed (?P<ran>\d+) tests?, with (?:(?P<skipped>\d+) tests? skipped and )?"
                   r"(?P<failed>\d+) failures? .*seconds$"),
        ("bazel", r"^INFO: Found \d+ targets? and 0 test targets\.\.\.$"),
        ("testthat", r"^\[ FAIL (?P<failed>\d+) \| WARN \d+ \| SKIP (?P<skipped>\d+) \| PASS (?P<passed>\d+) \]$"),
        ("lit", r"^Total Discovered Tests: \d+\n(?:  Unsupported *: (?P<skipped>\d+).*\n?)?"
                r"(?:  Passed *: (?P<passed>\d+).*\n?)?(?:  Failed *: (?P<failed>\d+).*)?"),
    )
]  # fmt: skip
_UNCHECKED = re.compile(
    r"^(?:.*\bassertions: (?:- none -|0\b).*|.*\b\d+ (?:runs|tests), 0 assertions\b.*|.*\bTests: \d+, Assertions: 0\b.*"
    r"|Test case \S+ did not check any assertions)$",
    re.MULTILINE,
)


class Counted(NamedTuple):
    """What a runner says: the most that ran, failed, and were skipped or left, and the line that tells of the worst."""

    runner: str
    ran: int
    failed: int
    skipped: int
    text: str


def counted(text: str) -> Iterator[Counted]:
    """Of each runner; suites inside one another are counted several times."""
    for runner, pattern in _PATTERNS:
        found = [_of(runner, match) for match in pattern.finditer(text)]
        if found:
            worst = max(found, key=lambda one: (one.failed, one.skipped))
            yield worst._replace(ran=max(one.ran for one in found))


def without_assertions(text: str) -> Optional[str]:
    """The line in which a runner says that its tests made no assertion."""
    match = _UNCHECKED.search(text)
    return match[0].strip() if match else None


def _of(runner: str, match: "re.Match[str]") -> Counted:
    told = {name: value for name, value in match.groupdict().items() if value is not None}
    numbers = {name: int(value) for name, value in told.items() if value.isdigit()}
    failed, skipped = numbers.get("failed", 0) + numbers.get("errors", 0), numbers.get("skipped", 0)
    ran = numbers["ran"] - skipped if "ran" in numbers else numbers.get("passed", 0) + failed + ("done" in told)
    left = numbers.get("expected", 0) + ("left" in told)
    return Counted(runner, ran, failed, skipped + left, " ".join(match[0].split()))
