"""An exception: what was raised, and where; as the agent's pytest plugin tells it, or as Python has printed it."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional, Sequence, Tuple, TypedDict

from orchestrator.shared.text import NOT_BEGUN, plain

_MOST_LINES = 6
_LONGEST = 200
_LONGEST_READ = 2000
_BEGINS = re.compile(
    r"^(?P<before>.{0,40}?)(?:Traceback \(most recent call last\):|Fatal Python error: (?P<fatal>.+)|"
    r"ImportError while loading conftest '(?P<conftest>.+)'\.|(?P<plugin>Error while loading plugin \".+\"\.))\s*$"
)
_FRAME = re.compile(r'^\s*File "(?P<file>[^"\n]+)", line (?P<line>\d+)')
_SHORT_FRAME = re.compile(r"^(?P<file>\S+):(?P<line>\d+): in ")
_SYNTAX = re.compile(r"^(?:Syntax|Indentation|Tab)Error: ")
_NO_START = re.compile(rf"(?={NOT_BEGUN})\S+: (?P<said>.+)")
_NAMED = re.compile(r"^(?P<type>[A-Za-z_][\w.]*)(?::(?: .*)?)?$")
_LIBRARY = re.compile(r"^.*/(?:site|dist)-packages/|^.*/lib/python[\d.]+/")


class Raised(TypedDict):
    """The `error`'s first lines; its `place` as FILE:LINE, relative to the tree, and the source that stands there."""

    error: List[str]
    place: Optional[str]
    line: str


class Told(Raised):
    """As the plugin tells it; `called_from` is the line of the test itself, if that is another."""

    called_from: Optional[str]


def as_told(found: Dict[str, Any]) -> Told:
    """What the plugin tells, made harmless."""
    place, called_from = (None if found.get(at) is None else plain(found[at]) for at in ("place", "called_from"))
    error = [plain(line, _LONGEST) for line in list(found["error"])[:_MOST_LINES]]
    return Told(error=error, place=place, line=plain(found["line"], _LONGEST), called_from=called_from)


def printed(text: str, run_id: str) -> Optional[Raised]:
    """The last exception that `text` shows, which a Python of the run has printed: of those that came up through code
    of the tree, where there is one. What starts others, as torchrun does, adds an exception of its own to theirs.
    """
    lines = [line[:_LONGEST_READ] for line in text.splitlines()]
    begun = [n for n in range(len(lines) - 1, -1, -1) if _BEGINS.match(lines[n])]
    found = (_of_traceback(lines[n:], run_id) for n in begun)
    last = next(found, None)
    if last is None or last[1]:
        return last[0] if last else _of_no_traceback(lines, run_id) or _of_no_start(lines)
    own = next((raised for raised, is_own in found if is_own), None)
    return own or _of_no_traceback(lines[: begun[0]], run_id) or _of_no_start(lines) or last[0]


def _of_traceback(lines: Sequence[str], run_id: str) -> Tuple[Raised, bool]:
    """What the traceback tells that begins these lines, and whether it came up through code of the tree."""
    begins = _BEGINS.match(lines[0])
    assert begins is not None
    before = begins["before"]
    rest = [line[len(before) :] if before and line.startswith(before) else line for line in lines[1:]]
    if begins["conftest"] or begins["plugin"]:
        return _of_conftest(rest, [(begins["conftest"], "1")] if begins["conftest"] else [], run_id), True
    end = next((n for n, line in enumerate(rest) if line.strip() and not line[0].isspace()), len(rest))
    frames = _frames(rest[:end])
    error = _error(rest[end:])
    if begins["fatal"]:
        frames, error = _frames(rest)[::-1], [f"Fatal Python error: {begins['fatal']}"]
    return _raised(error, frames, rest, run_id), any(_is_own(file, run_id) for file, _ in frames)


def sentence(raised: Raised) -> str:
    """'ValueError: bad shape (bench.py line 5)'."""
    error = raised["error"][0] if raised["error"] else "it was not said why"
    if raised["place"] is None:
        return error
    return f"{error} ({placed(raised['place'])})"


def placed(place: str) -> str:
    """'FILE line LINE'."""
    file, _, line = place.rpartition(":")
    return f"{file} line {line}"


def _of_no_traceback(lines: Sequence[str], run_id: str) -> Optional[Raised]:
    """What Python says of a file that it could not compile."""
    last = next((n for n in range(len(lines) - 1, -1, -1) if _SYNTAX.match(lines[n])), None)
    if last is None:
        return None
    frames = _frames(lines[max(0, last - 4) : last])
    return _raised([lines[last]], frames, lines, run_id) if frames else None


def _of_no_start(lines: Sequence[str]) -> Optional[Raised]:
    """What Python says of a program that it could not begin."""
    said = next((m["said"] for m in map(_NO_START.match, reversed(lines)) if m), None)
    return None if said is None else Raised(error=[plain(said, _LONGEST)], place=None, line="")


def _of_conftest(rest: Sequence[str], known: Sequence[Tuple[str, str]], run_id: str) -> Raised:
    """As pytest tells it, of a plugin too: short frames, else what is `known`, and the error behind an E; one of its
    own stands there alone.
    """
    error = [line[1:].strip() for line in rest if line.startswith("E ")] or [*filter(_NAMED.match, rest[:1])]
    located = [m for m in map(_FRAME.match, error) if m]
    short = [(m["file"], m["line"]) for m in map(_SHORT_FRAME.match, rest) if m]
    frames = [(m["file"], m["line"]) for m in located] or short or known
    named = [n for n, line in enumerate(error) if _NAMED.match(line)]
    return _raised(_error(error[named[-1] if named else -1 :])[:1], frames, rest, run_id)


def _frames(lines: Sequence[str]) -> List[Tuple[str, str]]:
    return [(found["file"], found["line"]) for found in map(_FRAME.match, lines) if found]


def _error(lines: Sequence[str]) -> List[str]:
    """Its lines up to a blank one; where the first holds no more than its name, the first that says something."""
    if lines and lines[0].rstrip().endswith(":"):
        said = next((line.strip() for line in lines[1:_MOST_LINES] if re.search(r"\w", line)), "")
        return [f"{lines[0].rstrip()} {said}".rstrip()]
    blank = next((n for n, line in enumerate(lines) if not line.strip()), len(lines))
    return list(lines[: min(blank, _MOST_LINES)])


def _raised(error: Sequence[str], frames: Sequence[Tuple[str, str]], lines: Sequence[str], run_id: str) -> Raised:
    """By the innermost of the `frames` that is in the run's tree, else the innermost."""
    tree = f"/{run_id}/tree/"
    own = [frame for frame in frames if _is_own(frame[0], run_id)]
    file, number = (own or list(frames) or [("", "")])[-1]
    said = [plain(line, _LONGEST) for line in error] or ["it was not said why"]
    place = f"{_short(file, tree)}:{number}" if file else None
    return Raised(error=said, place=place and plain(place), line=_source(file, number, lines))


def _is_own(file: str, run_id: str) -> bool:
    return f"/{run_id}/tree/" in file or not file.startswith(("/", "<"))


def _short(file: str, tree: str) -> str:
    return file.rpartition(tree)[2] if tree in file else _LIBRARY.sub("", file)


def _source(file: str, number: str, lines: Sequence[str]) -> str:
    """What is shown below the frame."""
    for n, line in enumerate(lines[:-1]):
        found = _FRAME.match(line)
        if found and (found["file"], found["line"]) == (file, number):
            below = lines[n + 1]
            return plain(below, _LONGEST) if below[:1].isspace() and not _FRAME.match(below) else ""
    return ""
