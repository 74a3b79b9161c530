"""The property sweep of the parity tests, longer and with fresh shapes at every run."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from nsa.tests.strategies import problems
from nsa.tests.testing import Problem, assert_parity, expect_route

pytestmark = pytest.mark.slow


@settings(max_examples=300, deadline=None)
@given(problems())
def test_attention_equals_the_oracle(problem: Problem) -> None:
    with expect_route(compressed="torch", selected="torch", window="torch", combine="torch"):
        assert_parity(problem)
