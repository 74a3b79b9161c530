"""What a row, or a JSON file, says of what wrote it: {"status": "FAIL"}, {"success": false}, {"exit_code": 1}."""

from __future__ import annotations

import re
from typing import Any, Collection, Mapping, Optional

from orchestrator.verdict.artifacts.cells import named, shown

_STATES = frozenset(("status", "state", "result", "outcome", "verdict", "conclusion"))
_FAILED = re.compile(r"fail(?:ed|ure)?|error|crash(?:ed)?|time(?:out|d[_ ]?out)|aborted", re.IGNORECASE)
_SKIPPED = re.compile(r"skip(?:ped)?|not[_ ]?run", re.IGNORECASE)
_TRUTHS = frozenset(("success", "succeeded", "ok", "passed"))
_CODES = frozenset(("returncode", "return_code", "exitcode", "exit_code", "exit_status"))
_ERRORS = frozenset(("error", "exception", "traceback"))
_RAISED = re.compile(r"[\w.]*[A-Z]\w*(?:Error|Exception)\b|Traceback|.*\bout of memory\b")


def failure(content: Mapping[str, Any], judged: Collection[str]) -> Optional[str]:
    """That it failed, or did nothing, as a clause, if it says so; the keys in `judged` are known to the runbook."""
    for key, value in content.items():
        said = None if key in judged else _said(key.lower(), value)
        if said:
            name = named(key)
            return f"says that it {said}: {name} is {shown(value)}; if that is meant, a check must name {name}"
    return None


def _said(key: str, value: Any) -> Optional[str]:
    """Also by the words that a table has for truth values and numbers."""
    text = str(value).strip()
    if key == "skipped":
        return "was skipped" if text.lower() == "true" else None
    if key in _TRUTHS:
        return "failed" if text.lower() == "false" else None
    if key in _CODES:
        return "failed" if not isinstance(value, bool) and re.fullmatch(r"-?0*[1-9]\d*", text) else None
    if not isinstance(value, str):
        return None
    if key in _STATES and _SKIPPED.fullmatch(text):
        return "was skipped"
    return "failed" if (_FAILED.fullmatch(text) if key in _STATES else key in _ERRORS and _RAISED.match(text)) else None
