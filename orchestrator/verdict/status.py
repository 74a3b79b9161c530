"""The vocabulary: what a stage may be called, what that makes of its run, and what a run may be called."""

from __future__ import annotations

from typing import Collection, Dict, List, Literal, Mapping, NamedTuple, Optional, Tuple

Status = Literal[
    "passed", "failed", "timed_out", "stalled", "crashed", "invalid", "skipped", "blocked", "cancelled", "not_run"
]
Verdict = Literal["passed", "failed", "incomplete", "error"]
Colour = Literal["green", "yellow", "red"]


class Meaning(NamedTuple):
    """What a stage of this status, if it is required, makes of its run; and the colour of both."""

    makes: Verdict
    colour: Colour


MEANINGS: Mapping[Status, Meaning] = {
    "passed": Meaning("passed", "green"),
    "failed": Meaning("failed", "red"),
    "timed_out": Meaning("failed", "red"),
    "stalled": Meaning("failed", "red"),
    "crashed": Meaning("failed", "red"),
    "invalid": Meaning("failed", "red"),
    "skipped": Meaning("incomplete", "yellow"),
    "blocked": Meaning("incomplete", "yellow"),
    "cancelled": Meaning("incomplete", "yellow"),
    "not_run": Meaning("incomplete", "yellow"),
}


class Outcome(NamedTuple):
    """A verdict: the command's exit code, its colour, and when a run gets it."""

    exit_code: int
    colour: Colour
    when: str


# The first that matches, from the top.
OUTCOMES: Dict[Verdict, Outcome] = {
    "error": Outcome(4, "red", "the infrastructure failed: contact lost, the agent died"),
    "failed": Outcome(1, "red", "a required stage is {failed}"),
    "incomplete": Outcome(3, "yellow", "else, a required stage is {incomplete}; or no required stage applied"),
    "passed": Outcome(0, "green", "all required stages passed, and there was one"),
}


def verdict_of(required: Collection[Status], error: Optional[str], ended: bool) -> Verdict:
    """The verdict of a run by the statuses of its `required` stages, what broke it, and whether it came to its end."""
    made = {MEANINGS[status].makes for status in required}
    if error:
        return "error"
    if "failed" in made:
        return "failed"
    return "passed" if made == {"passed"} and ended else "incomplete"


def making(verdict: Verdict) -> List[Status]:
    """The statuses that make this verdict of a run."""
    return [status for status, meaning in MEANINGS.items() if meaning.makes == verdict]


def known(text: object) -> Optional[Status]:
    """`text` as a status; None for anything else that a pod may have written."""
    return next((status for status in MEANINGS if status == text), None)


STATUSES: Tuple[Status, ...] = tuple(MEANINGS)
