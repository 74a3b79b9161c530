"""How a stage's process ended, in words: its exception, its exit code, its signal, the last lines that it printed."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING, Dict, Iterator, List, Optional

from orchestrator.shared.text import indented, plain
from orchestrator.verdict.failures import unfinished
from orchestrator.verdict.raised import Raised, placed, printed, sentence

if TYPE_CHECKING:
    from orchestrator.verdict.case import Case

_TAIL_LINES = 20
_LONGEST = 2000  # of a line; expressions below look at no more
_NOT_FOUND = re.compile(
    r"(?P<name>[^\s:]+): (?:command )?not found$|command not found: (?P<zsh>\S+)$|"
    r"(?P<path>[^\s:]+): No such file or directory$"
)
_NOT_EXECUTABLE = re.compile(r"(?P<name>[^\s:]+): (?:Permission denied|cannot execute.*|Is a directory)$")
_PYTEST_CODES = {
    2: "pytest was interrupted",
    3: "an internal error of pytest",
    4: "pytest could not begin",
    5: "pytest collected no test",
}
_USAGE_ERROR = 4
_USAGE = re.compile(r"^ERROR: (?P<said>(?!usage: ).+)$|^\S.*: error: (?P<parser>.+)$")
_INTERNAL = "INTERNALERROR> "
_SIGNALS = {"SIGKILL": " (by a person, or by the kernel where memory has run out)", "SIGSEGV": " (segmentation fault)"}
_DUMP = re.compile(r"^(?:Fatal Python error: |(?:Current thread|Thread) 0x.*most recent call first)")
# Frames that tell nothing of the stage: of the agent's own modules, of Python's import system, of pytest.
_FRAME = re.compile(r'^\s+File "|^\S+:\d+: in ')
_NOT_ITS_OWN = re.compile(
    r'^\s+File "(?:<frozen (?:importlib|runpy)|[^"]*/(?:nsa_pod_injected|_?pytest|pluggy)/)|'
    r"^\S*/nsa_pod_injected/\S+: in "
)
_SHELLS_BASE = 128


def by_exit_code(case: Case) -> Optional[str]:
    """An exit code other than 0, with what is known of it."""
    code = case.evidence["exit_code"]
    if code == 0:
        return None
    said = "" if code is None else _in_words(case, code)
    return f"exit code {code}" + (f": {said}" if said else "")


def by_signal(case: Case) -> Optional[str]:
    """The signal that ended the stage, and which tests it ended."""
    name = case.evidence["signal"]
    if not name:
        return None
    found = printed(case.ends["stderr"], case.run.directory.name)
    at = f" at {placed(found['place'])}" if found and found["place"] else ""
    return f"ended by {name}{during(case)}{at}"


def during(case: Case) -> str:
    """' in ID': the tests that had begun when it ended."""
    running = unfinished(case.session)
    return f" in {running}" if running else ""


def raised(case: Case) -> Optional[Raised]:
    """The exception that a stage without a pytest session has printed last, or the one that ended the session."""
    told = (text for text in case.ends.values() if not case.session.started or _INTERNAL in text)
    found = (printed(text, case.run.directory.name) for text in told)
    return next((exception for exception in found if exception), None)


def tails(case: Case) -> Dict[str, List[str]]:
    """The last lines of each stream that holds any."""
    found = {stream: _tail(text, case.run.directory.name) for stream, text in case.ends.items()}
    return {stream: lines for stream, lines in found.items() if lines}


def _tail(text: str, run_id: str) -> List[str]:
    """The last lines that show something; of a dump of stacks, which begin with what ran last, the first."""
    tree = re.compile(rf"[^\s\"'(]{{0,300}}/{re.escape(run_id)}/tree/")
    whole = [tree.sub("", line[:_LONGEST]) for line in text.splitlines()]
    lines = [line for line in map(indented, _without_foreign_frames(whole)) if line]
    dump = next((n for n, line in enumerate(lines) if _DUMP.match(line)), len(lines))
    first = min(dump, max(0, len(lines) - _TAIL_LINES))
    return lines[first : first + _TAIL_LINES]


def _without_foreign_frames(lines: List[str]) -> Iterator[str]:
    """Without those frames and the source that is shown below them."""
    foreign = False
    for line in lines:
        if _FRAME.match(line) or line[:1].strip():
            foreign = _NOT_ITS_OWN.match(line) is not None
        if not foreign:
            yield line


def _in_words(case: Case, code: int) -> str:
    found = raised(case)
    if found:
        return sentence(found)
    end = case.ends["stderr"].splitlines()
    if case.stage["pytest"]:
        why = _last(_USAGE, end) if code == _USAGE_ERROR else ""
        return _PYTEST_CODES.get(code, "") + (f": {why}" if why else "")
    if code == 127:
        return f"command not found: {_last(_NOT_FOUND, end)}".rstrip(": ")
    if code == 126:
        return f"not executable: {_last(_NOT_EXECUTABLE, end)}".rstrip(": ")
    return _behind_a_shell(code - _SHELLS_BASE)


def _behind_a_shell(number: int) -> str:
    """Of a program that a signal has ended; its shell adds 128."""
    try:
        name = signal.Signals(number).name
    except ValueError:
        return ""
    return f"a program of it was ended by {name}{_SIGNALS.get(name, '')}"


def _last(pattern: "re.Pattern[str]", lines: List[str]) -> str:
    """What the last line names that matches."""
    matches = (pattern.search(line.rstrip()[-_LONGEST:]) for line in reversed(lines))
    found = next((match for match in matches if match), None)
    return plain(next(filter(None, found.groups())), 120) if found else ""
