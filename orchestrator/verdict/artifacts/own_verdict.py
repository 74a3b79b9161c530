"""What a JSON file says of the program that wrote it: {"status": "FAIL"}, {"success": false}, {"exit_code": 1}."""

from __future__ import annotations

import re
from typing import Any, Collection, Mapping, Optional

from orchestrator.verdict.artifacts.cells import named, shown

_STATES = frozenset(("status", "state", "result", "outcome", "verdict", "conclusion"))
_FAILED = re.compile(r"fail(?:ed|ure)?|error|crash(?:ed)?|time(?:out|d[_ ]?out)|aborted", re.IGNORECASE)
_TRUTHS = frozenset(("success", "succeeded", "ok", "passed"))
_CODES = frozenset(("returncode", "return_code", "exitcode", "exit_code", "exit_status"))
_ERRORS = frozenset(("error", "exception", "traceback"))
_RAISED = re.compile(r"[\w.]*[A-Z]\w*(?:Error|Exception)\b|Traceback|.*\bout of memory\b")


def failure(content: Mapping[str, Any], judged: Collection[str]) -> Optional[str]:
    """That it failed, as a clause, if it says so; the keys in `judged` are known to the runbook."""
    for key, value in content.items():
        if key not in judged and _is_failure(key.lower(), value):
            name = named(key)
            return f"says that it failed: {name} is {shown(value)}; if that is meant, a check must name {name}"
    return None


def _is_failure(key: str, value: Any) -> bool:
    if isinstance(value, str):
        is_state = key in _STATES and _FAILED.fullmatch(value.strip())
        return bool(is_state or (key in _ERRORS and _RAISED.match(value.strip())))
    if isinstance(value, bool):
        return key in _TRUTHS and not value
    return key in _CODES and isinstance(value, int) and value != 0
