"""What a row, or a JSON file, says of what wrote it: {"status": "FAIL"}, {"success": false}, {"exit_code": 1}."""

from __future__ import annotations

import re
from typing import Any, Collection, Mapping, Optional, Sequence

from orchestrator.verdict.artifacts.cells import is_word, leaves, named, number_in, says_nothing, shown

_STATES = frozenset(("status", "state", "result", "outcome", "verdict", "conclusion"))
_FAILED = re.compile(r"fail(?:ed|ure)?|error|crash(?:ed)?|time(?:out|d[_ ]?out)|aborted", re.IGNORECASE)
_SKIPPED = re.compile(r"skip(?:ped)?|not[_ ]?run", re.IGNORECASE)
_TRUTHS = frozenset(("success", "succeeded", "ok", "pass", "passed", "verified", "correct", "allclose", "matches"))
_UNTRUE = frozenset(("false", "no", "\u274c", "\u2717", "\u2718"))  # and crosses
_FAILURES = frozenset(("failed", "error_occurred"))  # google-benchmark's
_OF_FAILURES = re.compile(r"fail|err|skip|invalid|reject|oom", re.IGNORECASE)
_CODES = frozenset(("returncode", "return_code", "exitcode", "exit_code", "exit_status"))
_NOT_0 = re.compile(r"-?0*[1-9]\d*")
_ERRORS = frozenset(("error", "exception", "traceback"))
_NO_ERROR = re.compile(r"[a-z\d_]*|(?i:ok|none|no(?: errors?)?)")  # the first: the kind of one, as in a column
_RAISED = re.compile(r"[\w.]*[A-Z]\w*(?:Error|Exception)\b|Traceback|.*\bout of memory\b")


def failure(content: Mapping[str, Any], judged: Collection[str]) -> Optional[str]:
    """That it failed, or did nothing, as a clause, if it says so; the keys in `judged` are known to the runbook."""
    for key, value in content.items():
        text = "" if isinstance(value, (list, dict)) else str(value).strip()
        failed = _is_failure(key.lower(), text) or (key.lower() in _ERRORS and _is_all(content, value))
        if key not in judged and (failed or _is_skip(key.lower(), text)):
            name = named(key)
            said = "says that it failed" if failed else "says that it was skipped"
            return f"{said}: {name} is {shown(value)}; if that is meant, a check must name {name}"
    return None


def failure_of_rows(content: Mapping[str, Any], judged: Collection[str]) -> Optional[str]:
    """That all rows failed which a JSON file has under a key of its own, alone or in a list; not where others did not,
    or where the key says that it is for those that fail.
    """
    tables = [(key, _rows_under(value)) for key, value in content.items() if key not in judged]
    tables = [(key, rows) for key, rows in tables if rows]
    if len(tables) != 1 or _OF_FAILURES.search(tables[0][0]):
        return None
    said = [failure(row, judged) for row in tables[0][1]]
    return f"{said[0]} (in each of {len(said)} rows under {named(tables[0][0])})" if all(said) else None


def _rows_under(value: Any) -> Sequence[Mapping[str, Any]]:
    rows = list(value.values()) if isinstance(value, dict) else value
    return rows if isinstance(rows, list) and all(isinstance(row, dict) for row in rows) else ()


def _is_failure(key: str, text: str) -> bool:
    """By a value, or by what a table writes for it."""
    if key in _TRUTHS or (key.startswith("all_") and key[4:] in _TRUTHS):
        return text.lower() in _UNTRUE
    if key in _FAILURES:
        return text.lower() == "true"
    if key in _CODES:
        return _NOT_0.fullmatch(text) is not None
    return bool((key in _STATES and _FAILED.fullmatch(text)) or (key in _ERRORS and _RAISED.match(text)))


def _is_all(content: Mapping[str, Any], error: Any) -> bool:
    """Whether it is all that there is: {"error": "OutOfResources"}, and not a kind of error, {"error": "max_abs"}."""
    is_error = is_word(error) and not says_nothing(error) and _NO_ERROR.fullmatch(error.strip()) is None
    return is_error and all(number_in(part) is None for part in leaves(content))


def _is_skip(key: str, text: str) -> bool:
    return (key == "skipped" and text.lower() == "true") or (key in _STATES and _SKIPPED.fullmatch(text) is not None)
