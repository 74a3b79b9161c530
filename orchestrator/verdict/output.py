"""What a stage printed that its exit code does not say."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Iterator, Optional

from orchestrator.shared.files import Refused
from orchestrator.shared.pythons import is_python
from orchestrator.shared.text import plain, python_error
from orchestrator.verdict.artifacts import evidence as artifacts

if TYPE_CHECKING:
    from orchestrator.verdict.case import Case

# What a shell whose exit codes are not recorded says of a program that it could not run, or that a signal ended; of a
# bash they are recorded. What `sh:` says is of a shell behind another program, which has its exit code.
_SHELL_ERRORS = re.compile(
    rb"(?!sh: )\S+: \d+: \S+: not found$|zsh:(?:\d+:)? command not found: \S+$|"
    rb"fish: Unknown command.*|Segmentation fault(?: \(core dumped\))?$|Bus error(?: \(core dumped\))?$"
)
_UNAWAITED = re.compile(rb"\S+:\d+: RuntimeWarning: coroutine '(.+)' was never awaited$")
_IGNORED = re.compile(rb"g?make(?:\[\d+\])?: \[.*\] Error (\d+) \(ignored\)$")
# What prepares and tidies up may find nothing to do; in a shell its exit code means nothing either.
_TIDIES = re.compile(rb"(?:\S+: (?:line )?\d+: )?(?:\S*/)?(?:rm|rmdir|mkdir|ln|mv|cp|kill|pkill|killall): ")
_LONGEST_LINE = 1 << 16


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


def unawaited(case: Case) -> Iterator[str]:
    """What Python says of a coroutine of which nothing ran. Of those in tests pytest tells."""
    if case.stage["pytest"] or case.session.started:
        return
    with contextlib.suppress(Refused, OSError), case.open(f"stages/{case.stage['name']}/stderr") as f:
        for line in iter(lambda: f.readline(_LONGEST_LINE), b""):
            found = _UNAWAITED.match(line.rstrip())
            if found:
                name = plain(found[1].decode("utf-8", "replace"), 80)
                yield f"the coroutine {name}() was never awaited: nothing of it ran"


def shell_error(case: Case) -> Optional[str]:
    """What a shell or make says of a command that failed, where no exit code does; not of a Python, which has them."""
    if case.stage["pytest"] or is_python("".join(case.stage["argv"][:1])):
        return None
    meant = (case.expect.get("allow_exit_codes") or {}).get("make", [])
    for stream in ("stderr", "stdout"):
        path = f"stages/{case.stage['name']}/{stream}"
        with contextlib.suppress(Refused, OSError), case.open(path) as f:
            before = b""
            for line in iter(lambda: f.readline(_LONGEST_LINE), b""):
                ignored = None if _TIDIES.match(before) else _IGNORED.match(line.rstrip())
                before = line
                if _SHELL_ERRORS.match(line.rstrip()) or (ignored and int(ignored[1]) not in meant):
                    return f"{path} holds {plain(line.decode('utf-8', 'replace'), 120)!r}, although the exit code is 0"
    return None
