"""What a stage printed that its exit code does not say."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Iterator

from orchestrator.shared.files import Refused
from orchestrator.shared.text import python_error
from orchestrator.verdict.artifacts import evidence as artifacts

if TYPE_CHECKING:
    from orchestrator.verdict.case import Case


def tracebacks(case: Case) -> Iterator[str]:
    """Exit code 0 after a traceback: a shell or an `except` has swallowed it. Those that pytest shows are its own."""
    if case.stage["pytest"] or case.expect.get("allow_tracebacks"):
        return
    texts = [f"artifacts/{a['path']}" for a in artifacts.asked(case) if (a.get("kind") or "text") == "text"]
    folder = f"stages/{case.stage['name']}"
    for path in (f"{folder}/stderr", f"{folder}/stdout", *texts):
        with contextlib.suppress(Refused, OSError), case.open(path) as f:
            error = python_error(f)
            if error:
                yield f"{path} holds {error}, although the exit code is 0"
