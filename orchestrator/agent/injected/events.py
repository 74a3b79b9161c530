"""The events of a session of tests, one JSON object a line, as the agent's `outcomes.py` reads them."""

from __future__ import annotations

import os
import time
from json import dumps  # bound here, as the next: a test may have replaced them when it is reported
from os import getpid, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Events:
    """Writes to `fd`, for the process that it was made in."""

    def __init__(self, fd: int) -> None:
        os.set_inheritable(fd, False)
        self._fd = fd
        self._pid = getpid()
        self._held = b""

    @property
    def is_own(self) -> bool:
        """Not in a child that a test has forked: its session is not this one."""
        return getpid() == self._pid

    def hold(self, event: str, **fields: Any) -> None:
        """Send this together with the next event."""
        self._held += dumps({"event": event, **fields}).encode("ascii") + b"\n"

    def send(self, event: str, **fields: Any) -> None:
        if not self.is_own:
            return
        self.hold(event, **fields)
        rest, self._held = memoryview(self._held), b""
        while rest:
            rest = rest[write(self._fd, rest) :]


def file_of_its_own(folder: str, runner: str = "") -> int:
    """Where a session reports that another program, or a test, has started; named by its `runner`, but for pytest's."""
    os.makedirs(folder, exist_ok=True)
    name = f"{runner}{time.time_ns()}-{os.urandom(4).hex()}.jsonl"
    return os.open(os.path.join(folder, name), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
