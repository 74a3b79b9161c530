"""What the tool's tests and the library's share."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Nothing that is collected becomes garbage, and each look for it goes through all of it: a tenth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()  # nor is it looked at again while tests run
        gc.enable()
