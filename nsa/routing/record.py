"""What really ran: recorders see every operation executed inside their block, in this thread or task."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from nsa.routing.request import Route

_active: ContextVar[tuple[Recording, ...]] = ContextVar("nsa_recordings", default=())


class Recording(list[Route]):
    """The routes taken, in order of execution."""

    def of(self, operation: str) -> list[Route]:
        """The routes of one operation."""
        return [route for route in self if route.operation == operation]

    def backends(self, operation: str) -> set[str]:
        """The distinct routes of one operation as text: `triton@cuda:sm_90`."""
        return {str(route) for route in self.of(operation)}


@contextmanager
def record() -> Iterator[Recording]:
    """Collect the routes of the operations executed in the block. Recorders nest; each sees everything."""
    recording = Recording()
    token = _active.set((*_active.get(), recording))
    try:
        yield recording
    finally:
        _active.reset(token)


def recording() -> bool:
    """Whether any recorder is active."""
    return bool(_active.get())


def add(route: Route) -> None:
    """Tell every active recorder."""
    for recording in _active.get():
        recording.append(route)


@contextmanager
def paused() -> Iterator[None]:
    """No recorder sees what runs in the block (a judge's own work)."""
    token = _active.set(())
    try:
        yield
    finally:
        _active.reset(token)
