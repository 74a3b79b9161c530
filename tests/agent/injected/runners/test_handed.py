"""Which fixtures hand a test nothing of what they do."""

from __future__ import annotations

import functools
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from orchestrator.agent.injected.runners.handed import hands_nothing, is_taken

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


def passes_over(request: Any) -> None:
    launch(-2)


def in_global() -> None:
    global OUT
    OUT = launch(-2)


def in_container() -> None:
    KEPT.update(out=launch(-2))


@functools.cache
def _made() -> int:
    return launch(-2)


def in_cache() -> None:
    _made()


class Kept:
    def __call__(self, x: int) -> None:
        self.out = launch(x)


OBJECT = Kept()
LIBRARY = ModuleType("library")
exec("OUT = []\ndef keep(): OUT.append(1)\ndef work(): return abs(-2)", vars(LIBRARY))


def in_object() -> None:
    OBJECT(-2)


def in_module() -> None:
    LIBRARY.keep()


def of_module() -> None:
    LIBRARY.work()


def by_another() -> None:
    _keep()


def checks() -> None:
    assert launch(-2) == 2


def in_what_it_is_given(request: Any) -> None:
    request.setattr("out", launch(-2))


class Tests:
    def of_class(self) -> None:
        self.out = launch(-2)

    def warms(self) -> None:
        launch(-2)


@pytest.mark.parametrize(
    ("fixture", "given"),
    [
        (warms, {}),
        (of_module, {}),
        (warms_for, {"device": "cuda"}),
        (Tests().warms, {}),
        (passes_over, {"request": object()}),
    ],
)
def test_a_warm_up_hands_nothing(fixture: Any, given: dict[str, object]) -> None:
    assert hands_nothing(fixture, given)


@pytest.mark.parametrize(
    ("fixture", "given"),
    [
        (in_global, {}),
        (in_container, {}),
        (in_cache, {}),
        (in_object, {}),
        (in_module, {}),
        (by_another, {}),
        (checks, {}),
        (in_what_it_is_given, {"request": object()}),
        (warms_for, {"device": object()}),
        (Tests.of_class, {}),
        (Tests().of_class, {}),
        (print, {}),
    ],
)
def test_what_may_keep_something_for_a_test(fixture: Any, given: dict[str, object]) -> None:
    assert not hands_nothing(fixture, given)


def _item(test: Any, **fixtures: Any) -> Any:
    found = {name: [SimpleNamespace(func=function)] for name, function in fixtures.items()}
    return SimpleNamespace(obj=test, _fixtureinfo=SimpleNamespace(name2fixturedefs=found))


def _makes() -> int:
    return 3


def test_a_value_that_nobody_reads_is_not_taken() -> None:
    def names_it(made: int) -> None:
        assert len("a") == 1

    def passes_over_it() -> None:
        assert len("a") == 1

    for test in (names_it, passes_over_it):
        assert not is_taken("made", [_item(test, made=_makes)])


def test_a_value_may_be_taken_by_a_test_its_inner_function_or_another_fixture() -> None:
    def reads_it(made: int) -> None:
        assert made == 3

    def hands_it_in(made: int) -> None:
        assert (lambda n: n + made)(1) == 4

    def asks_for(request: Any) -> None:
        assert request.getfixturevalue("made") == 3

    def is_given(**given: Any) -> None:
        assert given["made"] == 3

    def reads_all(made: int) -> None:
        assert locals() != {}

    for test in (reads_it, is_given, reads_all):
        assert is_taken("made", [_item(test, made=_makes)])
    assert is_taken("made", [_item(hands_it_in, made=_makes)])
    assert is_taken("made", [_item(asks_for)]) and is_taken("made", [_item(asks_for, made=_makes)])
    assert is_taken("made", [_item(asks_for, made=_makes, other=lambda made: made + 1)])
