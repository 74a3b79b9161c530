"""A pod that says what it likes, whatever it is asked."""

from __future__ import annotations

from orchestrator.transports.base import Channel


class Saying(Channel):
    """Says these portions, and then no more."""

    def __init__(self, *portions: bytes) -> None:
        self.portions = list(portions)

    def send(self, data: bytes) -> int:
        return len(data)

    def receive(self, limit: float) -> bytes | None:
        return self.portions.pop(0) if self.portions else None

    def complaint(self) -> str:
        return "gone\x1b"

    def close(self) -> None:
        self.portions.clear()
