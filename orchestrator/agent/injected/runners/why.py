"""Why a test failed, or a file could not be collected: the error's first lines, the place in the tree, its source."""

from __future__ import annotations

import linecache
import os
from traceback import format_exception_only, walk_tb

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MOST_LINES = 6
_LONGEST = 200
_TRACEBACK = "Traceback (most recent call last):\n"
_PLAIN_NAMES = ("_pytest.outcomes.", "builtins.")


def why(error: BaseException, report: Any, tree: str) -> dict[str, object]:
    """Of a failed `report` of pytest; where no code of the tree has raised `error`, as the report tells it."""
    cause = error.__cause__ if type(error).__name__ == "CollectError" else None
    error = cause or error
    found = of_error(error, tree, own=os.path.join(tree, report.nodeid.partition("::")[0]))
    if found is None:
        place = getattr(report, "location", None)
        return {"error": _told(report), "place": f"{place[0]}:{(place[1] or 0) + 1}" if place else None, "line": ""}
    return found


def of_error(error: BaseException, tree: str, own: str = "") -> dict[str, object] | None:
    """Of an error itself, with the line of the file `own` that led there; None where no code of the tree raised it."""
    found = (error.filename, error.lineno) if isinstance(error, SyntaxError) else _last_in(tree, error)
    if found is None:
        return None
    file, number = os.path.abspath(str(found[0])), int(found[1] or 0)
    caller = _last_in(own, error) if own else None
    return {
        "error": _lines(error),
        "place": f"{_inside(tree, file)}:{number}",
        "line": linecache.getline(file, number).strip()[:_LONGEST],
        "called_from": f"{_inside(tree, caller[0])}:{caller[1]}" if caller and caller != (file, number) else None,
    }


def _last_in(place: str, error: BaseException) -> tuple[str, int] | None:
    """The innermost frame of code of a file, or of a folder."""
    frames = [(os.path.abspath(frame.f_code.co_filename), number) for frame, number in walk_tb(error.__traceback__)]
    return next((f for f in reversed(frames) if f[0] == place or f[0].startswith(place + os.sep)), None)


def _inside(tree: str, file: str) -> str:
    return file[len(tree) + 1 :] if file.startswith(tree + os.sep) else file


def _lines(error: BaseException) -> list[str]:
    if isinstance(error, SyntaxError):
        return [f"{type(error).__name__}: {error.msg}"[:_LONGEST]]
    text = _with_what_it_tells("".join(format_exception_only(type(error), error)))[: _MOST_LINES * _LONGEST]
    for prefix in _PLAIN_NAMES:
        text = text[len(prefix) :] if text.startswith(prefix) else text
    bare = text[len("AssertionError: ") :] if text.startswith("AssertionError: ") else ""
    return _first(bare if bare.startswith("assert ") else _on_one_line(text))


def _with_what_it_tells(text: str) -> str:
    """Of a message that holds another process's traceback (torch.multiprocessing), that one's exception instead."""
    before, _, inner = text.partition(_TRACEBACK)
    said = [line for line in inner.splitlines() if line[:1].strip()]
    return f"{' '.join(before.split())} {said[-1]}" if said else text


def _on_one_line(text: str) -> str:
    """With what it says behind the error's name, where it begins on a line of its own."""
    name, colon, rest = text.partition(":")
    return f"{name}: {rest.lstrip()}" if colon and rest[:2].strip(" ") == "\n" else text


def _first(text: str) -> list[str]:
    return [line.rstrip()[:_LONGEST] for line in text.splitlines() if line.strip()][:_MOST_LINES]


def _told(report: Any) -> list[str]:
    """The lines that pytest marks, else the last ones."""
    lines = [line for line in str(report.longreprtext).splitlines() if line.strip()]
    marked = [line[1:] for line in lines if line.startswith("E ")]
    return [line.strip()[:_LONGEST] for line in marked[:_MOST_LINES] or lines[-_MOST_LINES:]]
