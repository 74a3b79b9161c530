"""Exit codes that a stage's shells dropped: which say that something failed, and what is owed where nobody saw."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Dict, FrozenSet, Iterator, List, Mapping, NewType, Optional

from orchestrator.shared.files import Refused
from orchestrator.shared.schema import RULES
from orchestrator.shared.stage_record import LostExitCode
from orchestrator.verdict.artifacts import evidence as artifacts

if TYPE_CHECKING:
    from orchestrator.verdict.case import Case

Code = NewType("Code", int)
RULES[Code] = lambda code: None if 0 < code < 256 else "expected an exit code from 1 to 255"
Asked = Dict[str, List[Code]]
"""By program, the exit codes that are meant."""

_ANY: FrozenSet[int] = frozenset()
# Programs whose status answers a question, or is of no account: with these codes (any, if none) they have not failed.
_ANSWERS: Mapping[str, FrozenSet[int]] = {
    **dict.fromkeys(("[", "[[", "test", "((", "let", "expr", "read", "which", "type"), frozenset({1})),
    **dict.fromkeys(("kill", "pkill", "killall", "tput", "stty", "clear", "reset", "tty", "disown"), _ANY),
}
_HOW = {
    "untested": "and its script did not test it",
    "unanswered": "which its script asked for and did not look at",
    "member": "in a pipeline, and its script did not test it",
    "ignored": "and its script dropped it",
    "negated": "behind a !, and its script did not test it",
    "said": "and its script made no more of it than words",
    "kept": "and nothing depends on the variable that its script has kept it in",
    "worded": "and its script only prints what that means",
    "substituted": "in a substitution that forgets it",
    "background": "in the background, and its script did not ask",
    "cleanup": "in the script's EXIT trap",
    "untold": "and nobody was told",
    "call": "and nobody asked for its result",
    "child": "and the Python that started it did not look",
}
# How only a Python, or a program of the environment or the tree, loses its exit code.
_OF_OURS = ("ignored", "said", "kept", "substituted", "untold", "cleanup", "child")
# How Python ends when what reads its output has ended before: it does not get SIGPIPE.
_BROKEN_PIPE = (1, 120)
_BROKEN_PIPE_SAID = b"BrokenPipeError: [Errno 32] Broken pipe"


def lost(case: Case) -> Optional[str]:
    """The first that was not meant, as a sentence."""
    allowed: Asked = case.expect.get("allow_exit_codes") or {}
    for entry in case.evidence["lost_exit_codes"]:
        meant = entry["code"] in allowed.get(entry["program"], ()) or _means_nothing(entry)
        may_break = entry["how"] in ("member", "child", "substituted") and entry["code"] in _BROKEN_PIPE
        if not meant and not (may_break and _broke_a_pipe(case)):
            ended = "failed" if entry["how"] == "call" else f"returned {entry['code']}"
            return f"{entry['command']} {ended}, {_HOW.get(entry['how'], entry['how'])}{place_of(entry)}"
    return None


def place_of(entry: LostExitCode) -> str:
    """Where it was lost, to be appended to a sentence; blank where nobody can tell."""
    return f" ({entry['file']} line {entry['line']})" if entry["file"] else ""


def _broke_a_pipe(case: Case) -> bool:
    for stream in ("stderr", "stdout"):
        with contextlib.suppress(Refused, OSError), case.open(f"stages/{case.stage['name']}/{stream}") as f:
            if any(line.startswith(_BROKEN_PIPE_SAID) for line in f):
                return True
    return False


def _means_nothing(entry: LostExitCode) -> bool:
    if entry["how"] in ("unanswered", "worded"):
        return False
    if entry["how"] in _OF_OURS:
        return not entry["ours"]
    program = "((" if entry["program"].startswith("((") else entry["program"]
    if program not in _ANSWERS:
        return False
    return not _ANSWERS[program] or entry["code"] in _ANSWERS[program]


def unseen(case: Case) -> Iterator[str]:
    """Where exit codes could not be recorded, tests or an artifact whose content is checked are owed."""
    why = case.evidence["unseen_exit_codes"]
    if why and not case.expect.get("tests") and not any(map(_is_checked, artifacts.asked(case))):
        yield f"{why}: expected tests, or an artifact whose content is checked"


def _is_checked(artifact: Mapping[str, object]) -> bool:
    return (artifact.get("kind") or "text") != "text" or bool(artifact.get("contains"))
