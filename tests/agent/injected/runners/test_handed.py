"""Which fixtures hand a test nothing of what they do."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.agent.injected.runners.handed import hands_nothing

pytestmark = pytest.mark.unit

OUT: Any = None
KEPT: dict[str, int] = {}
SIZE = 3


def launch(x: int) -> int:
    return abs(x)


def _keep() -> None:
    global OUT
    OUT = launch(-2)


def warms() -> None:
    launch(-SIZE)


def warms_for(device: str) -> None:
    launch(len(device))


def in_global() -> None:
    global OUT
    OUT = launch(-2)


def in_container() -> None:
    KEPT.update(out=launch(-2))


def by_another() -> None:
    _keep()


def checks() -> None:
    assert launch(-2) == 2


def in_what_it_is_given(request: Any) -> None:
    request.setattr("out", launch(-2))


class Tests:
    def of_class(self) -> None:
        launch(-2)


@pytest.mark.parametrize(("fixture", "given"), [(warms, []), (warms_for, ["cuda"])])
def test_a_warm_up_hands_nothing(fixture: Any, given: list[object]) -> None:
    assert hands_nothing(fixture, None, given)
    assert not hands_nothing(fixture, 0.1, given)


@pytest.mark.parametrize(
    ("fixture", "given"),
    [
        (in_global, []),
        (in_container, []),
        (by_another, []),
        (checks, []),
        (in_what_it_is_given, [object()]),
        (Tests.of_class, []),
        (Tests().of_class, []),
        (print, []),
    ],
)
def test_what_may_keep_something_for_a_test(fixture: Any, given: list[object]) -> None:
    assert not hands_nothing(fixture, None, given)
