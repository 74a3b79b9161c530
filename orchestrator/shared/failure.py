"""What a user is told instead of a traceback."""

from __future__ import annotations


class Failure(Exception):
    """A stated failure: one sentence that says what, where and what was expected."""
