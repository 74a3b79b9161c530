"""Honest repositories that do unusual things: all of them pass."""

from __future__ import annotations

from dataclasses import replace

from tests.honesty import oddity_scripts, oddity_tests

CASES = [
    *(replace(case, run="odd-a") for case in oddity_tests.CASES),
    *(replace(case, run="odd-b") for case in oddity_scripts.CASES),
]
