"""Whether a stage's tests notice wrong results: functions that are spoiled, and patches of the tree, for each of which
the agent runs the tests again. One that they pass with is proof that they prove nothing of it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Iterator, List, NewType, Optional, TypedDict

from orchestrator.shared.schema import RULES
from orchestrator.shared.stage_record import Attempt
from orchestrator.shared.text import plain
from orchestrator.verdict.tests import Pattern

if TYPE_CHECKING:
    from orchestrator.verdict.case import Case

Function = NewType("Function", str)
_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


class _Mutant(TypedDict):
    patch: str


class Mutant(_Mutant, total=False):
    """A patch of the tree, and which of the stage's tests are run with it, by their ids; all if it does not say."""

    tests: Pattern


class Kills(TypedDict, total=False):
    """How many of the functions and mutants that were tried the tests noticed; the names of the others, and of each of
    these a sentence.
    """

    killed: int
    of: int
    survivors: List[str]
    why: List[str]


def _function(text: str) -> Optional[str]:
    good = _FUNCTION.fullmatch(text)
    return None if good else "expected package.module:function, or package.module:Class.method"


RULES[Function] = _function


def asked(case: Case) -> List[str]:
    """What the stage's tests have to notice; nothing where the run was asked to leave it out."""
    if not case.run.sabotage:
        return []
    mutants = (mutant["patch"] for mutant in case.expect.get("mutants") or ())
    return [*(case.expect.get("kills") or ()), *mutants]


def summary(case: Case) -> Kills:
    """Empty where nothing was tried."""
    tried = _tried(case)
    names = asked(case)
    if not tried or not names:
        return {}
    survivors = [plain(name) for name in names if name not in tried or tried[name]["outcome"] != "killed"]
    why = [plain(sentence) for sentence in _problems(case)]
    return Kills(killed=len(names) - len(survivors), of=len(names), survivors=survivors, why=why)


def unnoticed(case: Case) -> Optional[str]:
    """The first that was not noticed, in a sentence, and how many more there are."""
    found = list(_problems(case))
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return found[0] + more if found else None


def _problems(case: Case) -> Iterator[str]:
    """A sentence for each that was not noticed."""
    tried = _tried(case)
    for name in asked(case):
        problem = _problem(tried[name]) if name in tried else f"whether its tests notice {name} was not recorded"
        if problem is not None:
            yield problem


def _tried(case: Case) -> "dict[str, Attempt]":
    return {attempt["name"]: attempt for attempt in case.record["sabotage"]} if case.record else {}


def _problem(attempt: Attempt) -> Optional[str]:
    name, why = attempt["name"], attempt["reason"]
    is_mutant = attempt["kind"] == "mutant"
    if attempt["outcome"] == "killed":
        return None
    if attempt["outcome"] == "survived":
        mutant = f"its tests pass with the mutant {name}"
        function = f"its tests pass while {name} returns wrong numbers"
        return (mutant if is_mutant else function) + (f": {why}" if why else "")
    if attempt["outcome"] == "not called":
        return f"{name} was not called" + (f": {why}" if why else "")
    return f"{'the mutant ' if is_mutant else ''}{name} {why}"
