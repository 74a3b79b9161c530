"""The record of a stage in the journal: the facts that it states, and their shapes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

# What a status depends on. Types, literals, {key: shape}, [shape of each item]; a tuple lists alternatives.
_SHAPE = {
    "started": bool,
    "blocked": (str, None),  # why it did not start
    "exit_code": (int, None),
    "signal": (str, None),
    "ended_by": ("wall", "silence", "cancel", "limit", None),
    "truncated": dict,  # bytes cut from the logs, by stream
    "tree": {"ok": bool, "changed": [str], "strays": [str]},
    "stray_before": [str],
    "environment_ok": bool,
    "journal_ok": bool,
    # Of a stage that wants the GPU for itself: why nobody could look, and who else used it.
    "gpu": ({"unknown": (str, None), "disturbed": (str, None)}, None),
    "guarded": (bool, None),  # whether the guard was loaded; None for a stage that is no Python
    "used_cuda": (bool, None),  # whether a Python of it has; None if none of them knew torch
    "foreign_modules": [{"name": str, "file": str}],
    "unseen_sessions": [str],  # what was wrong with each pytest that ran behind another program
    "artifacts": [{"path": str, "existed_before": bool, "problem": (str, None)}],
    "overwritten": [str],  # what earlier stages had left in artifacts/ and this one changed
    "files": [{"path": str, "bytes": int, "sha256": str}],
}
# Facts that the journals of earlier versions do not have.
_LATER: dict[str, Any] = {"gpu": None, "used_cuda": None, "unseen_sessions": []}
_ABSENT = object()


def blank(stray_before: Sequence[str]) -> dict[str, Any]:
    """The record of a stage that did not start."""
    return {
        "started": False,
        "blocked": None,
        "exit_code": None,
        "signal": None,
        "ended_by": None,
        "seconds": 0.0,
        "truncated": {},
        "redacted": {},  # names of the secret values that were replaced, by file
        "gpu": None,
        "leftovers": [],  # processes that outlived the stage's own, and were ended
        "tree": {"ok": True, "changed": [], "strays": []},
        "stray_before": list(stray_before),
        "environment_ok": True,
        "journal_ok": True,
        "guarded": None,
        "used_cuda": None,
        "foreign_modules": [],
        "unseen_sessions": [],
        "artifacts": [],
        "overwritten": [],
        "files": [],
        "refused": [],  # what it left that is no regular file
    }


def by_stage(events: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The record of each stage that ended, with the files that went ahead of it in `stage_files` events."""
    ahead: dict[str, list[Any]] = {}
    records: dict[str, dict[str, Any]] = {}
    for event in events:
        name, files = str(event.get("stage")), event.get("files")
        if event["event"] == "stage_started":  # what an agent that died had told of the stage is not of this attempt
            ahead.pop(name, None)
        elif event["event"] == "stage_files" and isinstance(files, list):
            ahead.setdefault(name, []).extend(files)
        elif event["event"] == "stage_ended":
            records[name] = {**event, "files": [*ahead.get(name, ()), *files] if isinstance(files, list) else files}
    return records


def misfit(record: Any) -> str | None:
    """The first part of a record that lacks or has another shape than it must; None if all fits."""
    return misfit_of({**_LATER, **record} if isinstance(record, dict) else record, _SHAPE, "record")


def misfit_of(value: Any, shape: Any, where: str) -> str | None:
    """The first part of `value`, called `where`, that has another shape than `shape` says; None if all fits."""
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return where
        return _first((value.get(key, _ABSENT), inner, f"{where}.{key}") for key, inner in shape.items())
    if isinstance(shape, list):
        if not isinstance(value, list):
            return where
        return _first((item, shape[0], f"{where}[{i}]") for i, item in enumerate(value))
    if isinstance(shape, tuple):
        return where if all(misfit_of(value, alternative, where) for alternative in shape) else None
    if isinstance(shape, type):
        return None if type(value) is shape else where
    return None if type(value) is type(shape) and value == shape else where


def _first(parts: Any) -> str | None:
    return next((wrong for wrong in (misfit_of(*part) for part in parts) if wrong), None)
