"""Exit codes that a stage's shells and Pythons would lose, by what these wrote down."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from orchestrator.agent.evidence.processes import Ends, Processes, Untold
from orchestrator.agent.evidence.programs import (
    MAKES,
    SHELL,
    WORD,
    Where,
    as_typed,
    inside,
    interpreter_of,
    is_file_of,
    is_ours,
    program_of,
    run_by_find,
    runs_python,
    words_of,
)
from orchestrator.agent.evidence.shell import work
from orchestrator.agent.evidence.shell.record import Failure, ShellRecord
from orchestrator.agent.evidence.shell.recorder import REPORT
from orchestrator.shared.files import text_inside
from orchestrator.shared.stage_record import LostExitCode
from orchestrator.shared.text import plain
from orchestrator.verdict.exit_codes import place_of

_MAX_BYTES = 4 << 20
_MOST = 1000
_ASKS = re.compile(r"(?<!\S)(--version|--help)(?!\S)")
_ANSWERED = ("as 0", "said", "ignored", "kept", "substituted")  # which is enough where a command only asks
_KEEPS_GOING = re.compile(r"-[a-zA-Z]*[ki][a-zA-Z]*|--keep-going|--ignore-errors")
_GOES_ON = "make was told to go on after errors, and what failed is not recorded"
_NOT_RECORDED = "the exit codes that a script lost are not recorded of this {}"


class Command(NamedTuple):
    """What a stage ran, and the exit code that came of it."""

    argv: Sequence[str]
    status: Optional[int]


class Child(NamedTuple):
    """A process that returned `code`, and that the Python that started it, in a line of `file`, did not look at
    (`child`) or took for 0 (`as 0`); or a `call` that it gave to a pool.
    """

    command: str
    code: int
    file: str
    line: int
    pid: int
    how: str = "child"


class Seen(NamedTuple):
    """`lost` are the exit codes that were lost; `unseen` says why those of some shell could not be recorded; of the
    scripts in `inert` nothing ran that they are there for; `doubts` are what somebody was told of, as sentences.
    `scripts` are their texts, `others` the programs that may read clocks and are no Pythons, which tell themselves;
    `files` are the scripts that shells ran, wherever they lie, `foreign` others from outside of the stage's folders.
    """

    lost: List[LostExitCode]
    unseen: Optional[str]
    inert: List[str]
    doubts: List[str]
    scripts: List[str]
    others: List[str]
    files: List[str]
    foreign: List[Tuple[str, str]]


def read(folder: Path, command: Command, where: Where, children: Iterable[Child], processes: Processes) -> Seen:
    """What the shells of a stage wrote, if its folder has it, and its Pythons told of their `children` and ends."""
    text = text_inside(folder, REPORT, _MAX_BYTES)
    record = ShellRecord(text, where.cwd)
    ends = Ends(processes, record, os.getpid(), command.status)
    by_shells = list(_entries(record, ends, where))
    by_programs = [_of_child(child, where) for child in children if not ends.only_asked(child.pid)]
    entries = [*by_shells, *by_programs]
    lost = [entry for entry in entries if entry["how"] not in ("running", "begins", "eval", "as 0")]
    lost += [
        _of_end(untold, where) for untold in ends.untold() if not ends.inherits(untold.end) or _is_own(untold, where)
    ]
    unseen = next(_unseen(command.argv, where, record, processes, entries), None)
    inert = work.inert(record, where.tree) if text and not processes.pythons else []
    others = work.others(record) if text else [program for program in command.argv[:1] if not runs_python(program)]
    taken = {f"{as_typed(u.end.command, where)} returned {u.end.code}, and {u.by} went on": u for u in ends.taken()}
    doubts = [plain(said) for said, end in taken.items() if _is_own(end, where)]
    if command.status == 0:
        doubts += [*_taken_as_0(by_shells, "script"), *_taken_as_0(by_programs, "program")]
    if not processes.pythons:
        doubts += work.ran_nothing(os.path.basename(command.argv[0]), record, where.tree)
    return Seen(lost[:_MOST], unseen, inert, doubts[:_MOST], record.texts, others, record.files, record.foreign)


def _of_child(child: Child, where: Where) -> LostExitCode:
    program = program_of(child.command)
    return LostExitCode(
        command=plain(as_typed(child.command, where)),
        program=plain(program),
        code=child.code,
        line=child.line,
        file=plain(inside(child.file, where.tree)),
        how=child.how,
        ours=child.how == "call" or (not _ASKS.search(child.command) and is_ours(child.command, program, where)),
    )


def _unseen(
    argv: Sequence[str], where: Where, record: ShellRecord, processes: Processes, entries: Sequence[LostExitCode]
) -> Iterator[str]:
    """Why a stage's exit code, or those behind it that were not all recorded, say nothing, as clauses."""
    name = os.path.basename(argv[0])
    if _is_made_to_go_on(argv):
        yield _GOES_ON
    interpreter = interpreter_of(argv[0], where.cwd)
    shell = os.path.basename(interpreter[0]) if interpreter else name
    if SHELL.fullmatch(shell) and not record.shells:
        yield _NOT_RECORDED.format(shell)
    begun = (_forgotten(WORD.findall(e["command"]), where) for e in entries if e["how"] == "begins")
    yield from filter(None, begun)
    yield from (_NOT_RECORDED.format(shell) for pid, shell in processes.under.items() if pid not in record.shells)
    ours = {entry["how"]: repr(entry["command"]) for entry in reversed(entries) if entry["ours"]}
    if "running" in ours:
        yield f"{ours['running']} still ran in the background when its shell ended, and what it returned is lost"
    if "eval" in ours:
        yield f"what {ours['eval']} returned in a pipe at the end of an eval is lost"


def _forgotten(words: Sequence[str], where: Where) -> Optional[str]:
    """Why a command of a script does not say what those returned that it ran, as a clause; None if it does."""
    name = program_of(" ".join(words))
    if _is_made_to_go_on([name, *words[1:]]):
        return _GOES_ON
    if SHELL.fullmatch(name) and name not in ("sh", "bash"):
        return _NOT_RECORDED.format(name)
    inner = run_by_find(name, words)
    if inner and words[-1] != "+" and is_ours(inner, program_of(inner), where):
        return f"find does not say what {program_of(inner)} returned"
    return None


def _is_made_to_go_on(words: Sequence[str]) -> bool:
    return os.path.basename(words[0]) in MAKES and any(map(_KEEPS_GOING.fullmatch, words[1:]))


def _entries(record: ShellRecord, ends: Ends, where: Where) -> Iterator[LostExitCode]:
    """Each failure once: not where a Python only asked, or had nobody to write to."""
    seen = set()
    untold = [(Failure(line._replace(how="untold" if by else "untested")), by) for line, by in ends.untold_shells()]
    for (failure, inner), by in (*((failure, "") for failure in record.failures), *untold):
        program = failure.first or program_of(failure.command)
        python = ends.of(failure)
        asks = (python is not None and python.asks) or _ASKS.search(failure.command)
        if (python and python.cut_short) or (asks and failure.how in _ANSWERED):
            continue
        if failure.how == "running" and ends.ends_well(failure):
            continue
        ours = python is not None or ends.behind(failure) or is_ours(failure.command, program, where)
        if inner:
            ours = ours or is_ours(inner.command, inner.first or program_of(inner.command), where)
        if failure.how == "running":  # a shell, which has begun with lines
            ours = ours or any(is_ours(c.text, program_of(c.text), where) for c in record.given(failure.job))
        entry = LostExitCode(
            command=_run_by(plain(as_typed(failure.command, where)) or "a subshell", by),
            program=plain(os.path.basename(program)),
            code=failure.code,
            line=failure.line,
            file=plain(inside(failure.file, where.tree)),
            how=failure.how,
            ours=ours,
        )
        if tuple(entry.values()) not in seen:
            seen.add(tuple(entry.values()))
            yield entry


def _taken_as_0(entries: Iterable[LostExitCode], by: str) -> Iterator[str]:
    for entry in entries:
        if entry["how"] == "as 0" and entry["ours"]:
            yield f"{entry['command']} returned {entry['code']}, which its {by} takes for 0{place_of(entry)}"


def _run_by(command: str, by: str) -> str:
    return f"{command}, run by {plain(by)}," if by else command


def _is_own(untold: Untold, where: Where) -> bool:
    """Whether a Python runs a program of the tree, and not a service that a library has left behind."""
    return any(is_file_of(where, word.strip("'\"")) for word in words_of(untold.end.command)[1:])


def _of_end(untold: Untold, where: Where) -> LostExitCode:
    return LostExitCode(
        command=_run_by(plain(as_typed(untold.end.command, where)), untold.by),
        program=plain(program_of(untold.end.command)),
        code=untold.end.code,
        line=0,
        file="",
        how="untold",
        ours=True,
    )
