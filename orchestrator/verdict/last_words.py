"""The last line of a program that ended with 0, where it says that something failed, or was not done.

Words alone prove nothing: what they say is a doubt. No count is one, and no figure: `0 failed`, `Error: 1e-3`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Iterator, List, Mapping, Optional

from orchestrator.shared.text import plain, without_escapes
from orchestrator.verdict.artifacts import evidence as artifacts
from orchestrator.verdict.artifacts.asked import STREAMS

if TYPE_CHECKING:
    from orchestrator.verdict.case import Case

_LONGEST = 300
_NONE = r"(?<!\bno )(?<!\b0 )(?<!\bnot )(?<!\bwithout )(?<!\bexpected )(?<!\bexpected to )"
_FAILS = re.compile(
    rf".*{_NONE}\b(?:ERROR|NOT OK)\b\W*"  # as the last word
    rf"|(?!.*\bPASS).*{_NONE}\b(?:FAIL|FAILED|FAILURE|MISMATCH|INCORRECT)\b(?!\W*(?:0(?!\.\d*[1-9])|(?i:none|false|null))\b).*"
    r"|\W*(?:ERROR|[Ee]rror)\s*[:!(-](?!\W*(?:\d|none\b|no errors?\b)).*\w.*"  # as a label
    r"|\W*(?i:failed to)\b.*"
    r"|.*(?:[=:]|\b(?i:err\w*|loss|diff\w*))\s*(?i:nan)\b.*"
    r"|(?:\w+\.)*[A-Z]\w*(?:Error|Exception): .*\w.*"
    rf"|.*\b{_NONE}(?i:tests?|checks?|validation|verification|parity|comparison|build|benchmark|training)"
    r" (?:has |have )?(?i:failed)\W*"
    rf"|.*{_NONE}\b(?i:do(?:es)? not match|don't match|doesn't match|mismatch)\b(?!\W*(?:\d|(?i:none|false|null)\b)).*"
)
_COUNTS = re.compile(r"\b(?:no|0) \w+ (?:has |have )?failed\b|\b0 (?:fail|err|mismatch)", re.IGNORECASE)
_NOT_DONE = re.compile(
    r"\bskip(?:ped|ping|s)?\b(?!\W*0\b)"
    r"|\b(?:not|isn't|aren't) (?:available|found|installed|supported|present|enabled)\b"
    r"|\bunavailable\b|\bunable to\b|\bcannot\b|\bcould not\b|\bexiting\b|\bnothing to (?:run|test|measure|bench\w*)"
    r"|^(?!.*(?:fail|err|mis|diff|wrong|bad|leak|warn|remain|left)).*(?<![\d.])0"
    r" ?(?:(?:of|out of|/) ?[1-9]\d* [a-z]|(?:steps?|iterations?|samples?|batch(?:es)?|configurations?|cases?)\b)"
    r"|\bno tests? (?:specified|found|ran|to run|match\w*)\b"
    r"|\b(?:no|requires?|needs?)\b.*\b(?:gpus?|cuda|device|triton)\b",
    re.IGNORECASE,
)
# What was done is told in numbers other than 0 with a point or a unit, such as have a name, or in words.
_DONE = re.compile(
    r"(?<![\d.])(?!0+\.0*(?!\d))\d*\.\d|[1-9]\d* ?(?:[mun]?s|x|%|[kmgt]i?b|[mgt]flops|it/s|tok/s)\b|[=:]\s*-?\d"
    r"|\b(?:pass(?:ed)?|ok|success\w*|done|saved|wrote|written|completed?|finished)\b",
    re.IGNORECASE,
)


def doubts(case: Case) -> Iterator[str]:
    """Of a stage whose tests do not speak for it."""
    if case.stage["pytest"] or case.session.started:
        return
    text = without_escapes(case.ends["stdout"])
    last = last_line(text)
    asked: List[Mapping[str, Any]] = [dict(artifact) for artifact in artifacts.asked(case)]
    if any(phrase in last for artifact in asked for phrase in artifact.get("contains") or ()):
        return  # which is what it is to say
    if says_failed(last):
        yield f"it ended with 0, and its last words are {plain(last, 120)!r}"
    elif is_only_words(text) and all(artifact.get("from") in STREAMS for artifact in asked):
        yield f"it ended with 0, and says no more than {plain(last, 120)!r}"


def last_line(text: str) -> str:
    """The last one that has a letter or a digit, as a terminal leaves it."""
    shown: Iterator[str] = (line.rstrip("\r").rpartition("\r")[2].strip() for line in reversed(text.split("\n")))
    found: Optional[str] = next((line for line in shown if any(map(str.isalnum, line))), None)
    return found or ""


def says_failed(line: str) -> bool:
    """Whether it says that something failed."""
    return len(line) <= _LONGEST and bool(_FAILS.fullmatch(line)) and not _COUNTS.search(line)


def is_only_words(text: str) -> bool:
    """Whether a text ends with words of what was not done, and tells of nothing that was."""
    return bool(_NOT_DONE.search(last_line(text)[:_LONGEST])) and not _DONE.search(text)
