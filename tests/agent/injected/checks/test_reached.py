"""The code that a function leads to."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from orchestrator.agent.injected.checks.reached import reached


def test_(x: int = 1) -> None:
    assert x


class Keeps:
    def __init__(self, function: Callable[..., None]) -> None:
        self.function = function

    def __call__(self) -> None:
        self.function()


def _closes_over(function: Callable[..., None]) -> Callable[[], None]:
    return lambda: function(2)


def _wraps(function: Callable[..., None]) -> Callable[[], None]:
    @functools.wraps(function)
    def run() -> None:
        function()

    return run


def _in_a_default() -> Callable[..., Any]:
    return lambda function=test_: function()


def _kept_beside() -> Any:
    def run() -> None: ...

    run.case = {"of": [test_]}  # type: ignore[attr-defined]
    return run


def test_what_wrappers_copies_and_registries_lead_to() -> None:
    leads = [test_, _closes_over(test_), _wraps(test_), functools.partial(test_, 3), _in_a_default(), _kept_beside()]
    for function in (*leads, Keeps(test_), _closes_over(_wraps(test_))):
        assert test_.__code__ in reached(function).codes, function


def test_whether_all_is_known() -> None:
    assert reached(lambda: None).all_known and reached(_closes_over(lambda _: None)).all_known
    assert not reached(_closes_over(Keeps(test_))).all_known  # an object may call anything
    assert not reached(lambda: Keeps).all_known  # and so may a name that is looked up
    assert not reached(3).all_known


class _Counts(list[Any]):
    """As e3nn's Irreps: it holds what its length is not of."""

    def __len__(self) -> int:
        raise NotImplementedError

    def __iter__(self) -> Any:
        raise NotImplementedError


class _Absent:
    """A proxy without anything behind it yet."""

    @property
    def __class__(self) -> Any:
        raise LookupError("no application")

    @__class__.setter
    def __class__(self, kind: Any) -> None: ...


class _Closed:
    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        raise LookupError("no application")


def test_what_does_not_let_itself_be_looked_at() -> None:
    for odd in (_Counts([test_]), _Absent(), _Closed()):
        found = reached(_closes_over_both(odd, test_))
        assert test_.__code__ in found.codes, type(odd)
        assert found.others is (type(odd) is not _Counts), type(odd)


def _closes_over_both(first: object, second: Callable[..., None]) -> Callable[[], object]:
    return lambda: (first, second)
