"""What a pod tells as JSON is read within limits."""

from __future__ import annotations

import pytest

from orchestrator.told import MOST_BYTES, MOST_VALUES, TooMuch, told


def test_what_is_within_the_limits_is_read() -> None:
    assert told(b'{"a": [1, "x", null]}') == {"a": [1, "x", None]}
    assert len(told(b"[" + b"1," * (MOST_VALUES - 2) + b"1]")) == MOST_VALUES - 1


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"[" + b"[]," * MOST_VALUES + b"[]]", "200002 values"),
        (b'"' + b"x" * MOST_BYTES + b'"', "at most 4.0 MiB are read"),
        (b"[" * 50_000 + b"]" * 50_000, "it is too deep"),
    ],
)
def test_what_is_more_is_refused_unread(data: bytes, why: str) -> None:
    with pytest.raises(TooMuch, match=why):
        told(data)


@pytest.mark.parametrize("data", [b"", b"{", b"[1,]", b"9" * 5000, b"\xff"])
def test_what_is_none_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError):
        told(data)
