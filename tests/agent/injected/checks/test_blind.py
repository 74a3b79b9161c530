"""Comparisons that are blind, whatever in them was changed."""

from __future__ import annotations

import numpy as np
import pytest

from orchestrator.agent.injected.checks.blind import blind_comparisons

pytestmark = pytest.mark.unit


def test_one_that_tells_nothing_apart_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    used = ["numpy.testing.assert_allclose"]
    assert [*blind_comparisons(used)] == []
    monkeypatch.setattr(np.testing, "assert_allclose", lambda left, right: None)
    assert [*blind_comparisons(used)] == used
    assert [*blind_comparisons([])] == []
