"""Regular expressions of people."""

from __future__ import annotations

import re
import warnings

import pytest

from orchestrator.shared.text import wrong_expression

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("text", ["[[x]", "[a&&b]", "[~~]"])
def test_what_python_warns_of_is_taken_in_silence(text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert wrong_expression(text) is None
        assert re.search(text, text)  # which is compiled by now


def test_what_is_no_expression_is_said() -> None:
    assert str(wrong_expression("[[x")).startswith("expected a regular expression: unterminated character set")
