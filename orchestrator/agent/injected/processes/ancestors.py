"""Processes that begin without the stage's environment variables, and so without the one that names a test: a program,
or a test, has given them others. Who started them is asked of what those above them have told.
"""

from __future__ import annotations

import os

from ..stage import MARK, Notes, test_around

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

_MOST = 64
"""Processes above this one that are looked at."""


class Origin:
    """How this process began: `test` has started it, where its variables do not say so; `is_bare` if it has none of the
    stage's, and no Python of the stage has seen to that, as tox does for its tests: so `env -i` leaves it.
    """

    def __init__(self, notes: Notes) -> None:
        self.test: str | None = None
        self.is_bare = MARK not in os.environ and os.path.exists("/proc/self/stat")
        if self.is_bare:
            pids = [pid for pid, _ in above()]
            for note in _told(notes):
                if note.get("loaded") in pids:
                    self.is_bare = False
                if note.get("starts") in pids:
                    self.test = str(note["inside"])


def _told(notes: Notes) -> Iterator[dict[str, Any]]:
    """What Pythons of the stage have said of themselves, and of those that their tests start."""
    import json

    for line in notes.since(0).splitlines():
        if line.startswith((b'{"loaded"', b'{"starts"')):
            try:
                yield json.loads(line)
            except ValueError:  # damaged, as the agent will see
                continue


def above(last: int = 0) -> list[tuple[int, str]]:
    """The processes above this one, each with its name, the nearest first: up to `last`, or as far as they can be seen
    (Linux).
    """
    found: list[tuple[int, str]] = []
    pid = os.getppid()
    while pid > 1 and len(found) < _MOST:
        try:
            with open(f"/proc/{pid}/stat", "rb") as f:  # pid (name) state parent ...; the name may hold anything
                name, _, rest = os.fsdecode(f.read()).partition("(")[2].rpartition(")")
        except OSError:
            found.append((pid, ""))
            break
        found.append((pid, name))
        if pid == last:
            break
        pid = int(rest.split()[1])
    return found


def is_judged_by_test() -> bool:
    """Whether how this process ends is for a test to judge: of pytest's, or of a bats above it."""
    return test_around() is not None or ("BATS_ROOT" in os.environ and any(_runs_bats(pid) for pid, _ in above()))


def _runs_bats(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            begin = f.read().split(b"\0")[:2]  # the shell, and its script
    except OSError:
        return False
    return any(os.path.basename(argument).startswith(b"bats") for argument in begin)
