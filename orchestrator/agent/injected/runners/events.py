"""The events of a session of tests, one JSON object a line, as the agent's `outcomes.py` reads them."""

from __future__ import annotations

import os
import time
from os import getpid, write  # bound here: a test may have replaced them when it is reported

from ..stage import encoded, moved_up

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Events:
    """Writes to `fd`, for the process that it was made in."""

    def __init__(self, fd: int) -> None:
        self._fd = moved_up(fd)
        self._pid = getpid()
        self._held: list[str] = []

    @property
    def is_own(self) -> bool:
        """Not in a child that a test has forked: its session is not this one."""
        return getpid() == self._pid

    def hold(self, event: str, **fields: Any) -> None:
        """Send this together with the next event."""
        fields["event"] = event
        self.hold_text("".join(encoded(fields, 0)))

    def hold_text(self, line: str) -> None:
        """The same of a line that is JSON already."""
        self._held.append(line + "\n")

    def send(self, event: str, **fields: Any) -> None:
        self.hold(event, **fields)
        self.flush()

    def flush(self) -> None:
        """Send what is held."""
        text, self._held = "".join(self._held), []
        rest = memoryview(text.encode("ascii") if self.is_own else b"")
        while rest:
            rest = rest[write(self._fd, rest) :]


def file_of_its_own(folder: str, runner: str = "") -> int:
    """Where a session reports that another program, or a test, has started; named by its `runner`, but for pytest's."""
    os.makedirs(folder, exist_ok=True)
    name = f"{runner}{time.time_ns()}-{os.urandom(4).hex()}.jsonl"
    return os.open(os.path.join(folder, name), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
