"""The failures of pytest sessions: which tests, why, where; and whether they have one cause."""

from __future__ import annotations

from collections import Counter
from typing import Iterator, List, Optional, Sequence, Tuple

from orchestrator.shared.text import plain
from orchestrator.verdict.outcomes import Session
from orchestrator.verdict.raised import Raised, sentence

_MOST_UNFINISHED = 3
_NOT_COLLECTED = "not collected"
_IMPORT_ERRORS = ("ImportError: ", "ModuleNotFoundError: ")


class Failure(Raised):
    """A test that failed or had an error, or a file that was not collected: `outcome` says which."""

    id: str
    outcome: str


def failures(session: Session) -> Iterator[Failure]:
    """All of a session; those that an earlier version's plugin told of have no place."""
    for test in session.with_outcome("failed", "error"):
        yield _failure(session, test.id, test.outcome, test.reason)
    for id_, reason in session.collect_errors.items():
        yield _failure(session, id_, _NOT_COLLECTED, reason)


def cause(raised: Raised) -> Tuple[str, Optional[str]]:
    """What is equal of failures that one and the same thing has caused: what is missing is so wherever it is asked for."""
    error = raised["error"][0] if raised["error"] else ""
    return error, None if error.startswith(_IMPORT_ERRORS) else raised["place"]


def summary(session: Session) -> Optional[str]:
    """The first failure of a session, how many more there are, and whether they all have its cause."""
    found = list(failures(session))
    if not found:
        return None
    first = found[0]
    what = {"failed": "failed", "error": "had an error"}.get(first["outcome"], "could not be collected")
    more = f" (and {len(found) - 1} more{_for_the_same(found)})" if len(found) > 1 else ""
    return f"{first['id']} {what}: {sentence(first)}{more}"


def unfinished(session: Session) -> str:
    """The tests that had begun and not ended."""
    begun = [plain(test.id) for test in session.tests.values() if not test.finished]
    return ", ".join(begun[:_MOST_UNFINISHED]) + (" and others" if len(begun) > _MOST_UNFINISHED else "")


def _for_the_same(found: Sequence[Failure]) -> str:
    causes = Counter(map(cause, found))
    return ", for the same cause" if len(causes) == 1 and found[0]["place"] is not None else ""


def _failure(session: Session, id_: str, outcome: str, reason: str) -> Failure:
    why = session.causes.get(id_) or Raised(error=[plain(reason)], place=None, line="")
    lines: List[str] = why["error"]
    return Failure(id=plain(id_), outcome=outcome, error=lines, place=why["place"], line=why["line"])
