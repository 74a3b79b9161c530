"""Frames arrive whole, in whatever portions the line makes of them."""

from __future__ import annotations

import pytest

from orchestrator.shared import frames

SENT = [
    frames.Frame(frames.ASK, 1, frames.question({"argv": ["a", "é"], "limit": 1.5}, b"\0input")),
    frames.Frame(frames.OUT, 1, b""),
    frames.Frame(frames.END, 2**32 - 1, b"0"),
]


@pytest.mark.parametrize("portion", [1, 2, 7, 1000])
def test_they_come_as_they_were_sent(portion: int) -> None:
    line = b"".join(frames.frame(*sent) for sent in SENT)
    reader = frames.Frames(1000)
    came = [found for at in range(0, len(line), portion) for found in reader.feed(line[at : at + portion])]
    assert came == SENT
    assert frames.read_question(came[0].payload) == ({"argv": ["a", "é"], "limit": 1.5}, b"\0input")


def test_one_that_is_too_large_is_not_waited_for() -> None:
    with pytest.raises(ValueError, match="a frame of 1001 bytes"):
        list(frames.Frames(1000).feed(frames.frame(frames.OUT, 1, bytes(1001))[:20]))
