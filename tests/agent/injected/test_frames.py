"""Locals of a frame, which the frame lets go of when its function does."""

from __future__ import annotations

import gc
import sys
import weakref
from typing import Any

import pytest

from orchestrator.agent.injected.frames import always_raises, local

pytestmark = pytest.mark.unit


class Thing:
    pass


def test_nothing_stays_behind() -> None:
    thing = Thing()
    left = weakref.ref(thing)
    assert local(sys._getframe(), "thing") is thing
    del thing
    gc.collect()
    assert left() is None


def test_what_somebody_has_asked_for_stays_as_it_is() -> None:
    thing = 3
    own = locals()
    assert local(sys._getframe(), "thing") == thing
    assert own["thing"] == 3


def test_the_body_of_a_class_keeps_its_names() -> None:
    class Body:
        thing: Any = 3
        seen = local(sys._getframe(), "thing")

    assert (Body.thing, Body.seen) == (3, 3)


def test_absent() -> None:
    assert local(sys._getframe(), "thing") is None
    assert local(sys._getframe(), "thing", 3) == 3


def _always() -> None:
    raise RuntimeError("meant")


def _sometimes(number: int) -> None:
    if number > 1:
        raise RuntimeError("too many")


@pytest.mark.parametrize(
    ("call", "file", "always"),
    [
        (_always, __file__, True),
        (lambda: _sometimes(2), __file__, False),
        (lambda: int("x"), __file__, False),
        (_always, "elsewhere.py", False),
    ],
)
def test_what_a_function_raises_whatever_happens(call: Any, file: str, always: bool) -> None:
    with pytest.raises((RuntimeError, ValueError)) as met:
        call()
    assert always_raises(met.value, file) is always
