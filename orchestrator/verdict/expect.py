"""What a stage is asked for, `expect` in a runbook: each kind of evidence says itself what may be asked of it."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, TypedDict

from orchestrator.shared.schema import Error, errors, without_nothing
from orchestrator.verdict import execution, exit_codes, integrity, routes, sabotage, tests
from orchestrator.verdict.artifacts import asked as artifacts


class Expect(TypedDict, total=False):
    """`allow_tracebacks` is for a stage that shows exceptions which it has handled; `outside` are patterns of paths
    outside the tree from which code and tests may come; `allow_exit_codes` is for programs behind a shell whose exit
    codes other than 0 are meant.
    """

    tests: tests.Asked
    routes: routes.Asked
    device: execution.Asked
    artifacts: List[artifacts.Asked]
    allow_tracebacks: bool
    outside: List[integrity.Glob]
    allow_exit_codes: exit_codes.Asked
    kills: List[sabotage.Function]
    mutants: List[sabotage.Mutant]


def wrong(expect: Dict[str, Any], *, closed: bool) -> Iterator[Error]:
    """What cannot be asked for, by its place; `closed` refuses keys that nobody knows, or that say nothing."""
    plain = dict(expect) if closed else without_nothing(expect)
    items = plain.pop("artifacts", [])
    yield from errors(plain, Expect, closed=closed)
    for index, item in enumerate(items) if isinstance(items, list) else ():
        yield from artifacts.wrong(item, ("artifacts", index), closed=closed)
    if not isinstance(items, list):
        yield Error(("artifacts",), "expected a list")
