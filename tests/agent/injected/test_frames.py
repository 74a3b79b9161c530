"""Locals of a frame, which the frame lets go of when its function does."""

from __future__ import annotations

import gc
import sys
import weakref
from typing import Any

import pytest

from orchestrator.agent.injected.frames import local

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
