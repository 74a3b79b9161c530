"""The failures of pytest sessions: which tests, why, where; and whether they have one cause."""

from __future__ import annotations

import re
from typing import Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

from orchestrator.shared.text import plain
from orchestrator.verdict.outcomes import Session
from orchestrator.verdict.raised import Raised, Told, sentence

_MOST_UNFINISHED = 3
_MOST_NAMED = 20
_NOT_COLLECTED = "not collected"
_OF_ITS_OWN = ("assert ", "AssertionError", "Failed: ")
_IMPORT_ERRORS = ("ImportError: ", "ModuleNotFoundError: ")
# As torch and Triton say that there is none.
_NO_GPU = re.compile(
    r"(?:Torch not compiled with CUDA enabled|Found no NVIDIA driver|No CUDA GPUs are available|0 active drivers)"
)


class Failure(Raised):
    """A test that failed or had an error, or a file that was not collected: `outcome` says which; `called_from` is the
    line of the test that led there, if it is another.
    """

    id: str
    outcome: str
    called_from: Optional[str]


class Cause(Raised):
    """What `count` failures have in common, and the first of them; `place` is None where each has its own."""

    count: int
    of: List[str]


def failures(session: Session) -> Iterator[Failure]:
    """All of a session; those that an earlier version's plugin told of have no place."""
    for test in session.with_outcome("failed", "error"):
        yield _failure(session, test.id, test.outcome, test.reason)
    for id_, reason in session.collect_errors.items():
        yield _failure(session, id_, _NOT_COLLECTED, reason)


def grouped(found: Iterable[Failure]) -> List[Cause]:
    """The causes of failures, in their order."""
    causes: Dict[Tuple[str, Optional[str]], Cause] = {}
    for failure in found:
        error, place = key(failure) or _key_of_import(failure) or (failure["id"], failure["place"])
        line = failure["line"] if place else ""
        cause = causes.setdefault((error, place), Cause(error=failure["error"], place=place, line=line, count=0, of=[]))
        cause["count"] += 1
        if cause["count"] <= _MOST_NAMED:
            cause["of"].append(failure["id"])
    return list(causes.values())


def _key_of_import(failure: Failure) -> Optional[Tuple[str, Optional[str]]]:
    """Files that were not collected for an assertion beside the tests, which no test has made."""
    beside = failure["outcome"] == _NOT_COLLECTED and failure["called_from"] and failure["error"]
    return (failure["error"][0], failure["place"]) if beside else None


def key(raised: Raised) -> Optional[Tuple[str, Optional[str]]]:
    """What is equal of failures that have one cause; a module is missing wherever it is imported, a GPU wherever it is
    used. None of those that share nothing by failing alike: assertions of a helper, say.
    """
    error = raised["error"][0] if raised["error"] else ""
    if error.startswith(_IMPORT_ERRORS) or wants_gpu(raised):
        return error, None
    return None if error.startswith(_OF_ITS_OWN) or raised["place"] is None else (error, raised["place"])


def wants_gpu(raised: Raised) -> bool:
    """Whether it failed because there is no GPU."""
    return any(map(_NO_GPU.search, raised["error"][:1]))


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
    return ", for the same cause" if len(grouped(found)) == 1 else ""


def _failure(session: Session, id_: str, outcome: str, reason: str) -> Failure:
    why = session.causes.get(id_) or Told(error=[plain(reason)], place=None, line="", called_from=None)
    return Failure(id=plain(id_), outcome=outcome, **why)
