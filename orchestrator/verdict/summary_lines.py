"""Lines that count tests: `3 tests, 1 failed`, `Passed: 2, Skipped: 1`, as most runners in any language close with."""

from __future__ import annotations

import re
from typing import Dict, Iterator, List, NamedTuple, Optional

_FAILED = ("failed", "failing", "failure", "failures", "error", "errors", "errored", "broken")
_PASSED = ("passed", "passing", "ok", "succeeded", "successful")
_SKIPPED = ("skipped", "skips", "skip", "pending", "todo", "ignored", "disabled")
_TESTS = (
    "test", "tests", "case", "cases", "testcase", "testcases", "suite", "suites", "scenario", "scenarios", "feature",
    "features", "example", "examples", "spec", "specs", "check", "checks",
)  # fmt: skip
_AMOUNTS = ("step", "steps", "run", "runs", "total")  # of tests, or of anything
_BESIDE = ("assertion", "assertions", "undefined", "untested", "expected", "unexpected", "flaky", "warnings")
_KINDS = {
    **dict.fromkeys(_FAILED, "failed"),
    **dict.fromkeys(_PASSED, "passed"),
    **dict.fromkeys(_SKIPPED, "skipped"),
    **dict.fromkeys(_TESTS, "tests"),
    **dict.fromkeys(_AMOUNTS, "amount"),
    **dict.fromkeys(_BESIDE, ""),
}
_NOUN, _WORD = "|".join((*_TESTS, *_AMOUNTS)), "|".join(_KINDS)
_COUNT = re.compile(
    rf"(?<![\w.])(?:(?P<before>\d+)\s+(?:(?:{_NOUN})\s+)?(?P<word>{_WORD})"
    rf"|(?:(?:{_NOUN})\s+)?(?P<label>{_WORD})\s*[:=]\s*(?P<after>\d+)(?!\s+[a-z]+(?:[^\w:=]|$)))(?!\w)",
    re.IGNORECASE,
)
# What may stand in it besides: `Tests:`, `[doctest]`, `Ran`.
_BESIDES = re.compile(r"[\W_]*(?:[a-z]+(?: [a-z]+)?\s*[:\]]|ran\b|all\b)?[\W_]*(?:and[\W_]*)*", re.IGNORECASE)
_OF = re.compile(
    r"\W*(?P<passed>\d+)\s*(?:/|of|out of)\s*(?P<all>\d+)\s+(?:\w+ )?(?:passed|succeeded|ok)\W*", re.IGNORECASE
)
_NONE_OF = re.compile(
    rf"\W*(?P<ran>ran |executed )?0\s*(?:/|of|out of)\s*\d+\s+(?:{'|'.join(_TESTS)})"
    r"(?(ran)|\s+(?:ran|run|executed))\W*",
    re.IGNORECASE,
)
# What runners write below such a line.
_BELOW = re.compile(
    r"[\W\d]*(?:m?s\W*)?|assertions?: .*|"
    r"(?:Took|Time|Duration|Finished in|Ran all|Snapshots|Output|Log|Report|Seed|Randomized)\b.*",
    re.IGNORECASE,
)
# One of these says that it is about tests: files and downloads are ok, failed and skipped too.
_ABOUT_TESTS = re.compile(rf"\b(?:{'|'.join(_TESTS)}|passed|passing|assertions?)\b", re.IGNORECASE)
_LONGEST = 200


class Summary(NamedTuple):
    """One such line: how many ran, failed and were skipped."""

    text: str
    ran: int
    failed: int
    skipped: int


def closing_summaries(text: str) -> List[Summary]:
    """Those at the end of a text, with nothing below them but what runners write there; the first one first."""
    return list(_from_the_end(text))[::-1]


def _from_the_end(text: str) -> Iterator[Summary]:
    for line in reversed(text.splitlines()):
        found = _summary(line)
        if found is not None:
            yield found
        elif not _BELOW.fullmatch(line.strip()):
            return


def _summary(line: str) -> Optional[Summary]:
    if not _ABOUT_TESTS.search(line):
        return None
    part = _OF.fullmatch(line)
    if part:
        passed, total = int(part["passed"]), int(part["all"])
        return Summary(line.strip(), total, total - passed, 0) if passed <= total else None
    if _NONE_OF.fullmatch(line):
        return Summary(line.strip(), 0, 0, 0)
    counts = list(_COUNT.finditer(line)) if len(line) <= _LONGEST else []
    if not counts or not _BESIDES.fullmatch(_COUNT.sub("", line)):
        return None
    most: Dict[str, int] = {}
    for match in counts:
        kind = _KINDS[(match["word"] or match["label"]).lower()]
        most[kind] = max(most.get(kind, 0), int(match["before"] or match["after"]))
    if most == {"passed": 0}:  # all of them
        return Summary(line.strip(), 0, 0, 0)
    if len(most.keys() & {"passed", "failed", "skipped", "tests"}) < 2:  # it may be about anything
        return None
    failed, skipped = most.get("failed", 0), most.get("skipped", 0)
    ran = most["passed"] + failed if "passed" in most else most.get("tests", most.get("amount", 0)) - skipped
    return Summary(line.strip(), max(ran, failed), failed, skipped)
