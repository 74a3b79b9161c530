"""Context variables that hold a value for as long as a block runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

Value = TypeVar("Value")


@contextmanager
def held(variable: ContextVar[Value], value: Value) -> Iterator[Value]:
    """Inside the block the variable has this value, which it yields."""
    token = variable.set(value)
    try:
        yield value
    finally:
        variable.reset(token)
