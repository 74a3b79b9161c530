"""Run ids begin with the moment of the launch, by the clock of the laptop that launched."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Optional, Tuple

STAMP = "%Y%m%d-%H%M%S"
_LENGTH = 15
_AHEAD = timedelta(days=2)


def launched_at(run_id: str) -> Optional[datetime]:
    """The moment that a run id begins with; None for what is no run id."""
    try:
        return datetime.strptime(run_id[:_LENGTH], STAMP).replace(tzinfo=timezone.utc)
    except ValueError:
        return None


def is_ahead(run_id: str) -> bool:
    """Whether the run is dated days from now: the clock that dated it was wrong, and orders nothing."""
    moment = launched_at(run_id)
    return moment is not None and moment - datetime.now(timezone.utc) > _AHEAD


def order(run_id: str) -> Tuple[bool, str]:
    """What runs are sorted by, the last launched last; those that a wrong clock has dated come before all others."""
    return not is_ahead(run_id), run_id
