"""Processes of a stage that ended badly, and of which nobody who is watched was told.

Each Python tells of its own end, and each shell: with the processes above it. The first of these that is watched, a
shell, a Python or the agent, is who has to be told: by what it has started itself, which is the process, or a program
that is not watched and may keep to itself what those returned that it ran (perl, a shell without the recorder).
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from orchestrator.agent.evidence.shell.record import Above, Line, ShellRecord

_SHELLS = ("bash", "sh")
_SIGPIPE = 128 + 13
_ENDED = (129, 130, 137, 143)
"""What a shell returns that was ended, or whose command was."""
_NAME_LENGTH = 15
"""To which the kernel cuts the names of processes."""


class End(NamedTuple):
    """A process that returned `code`; `asks`, `cut_short` and `hidden` are as `injected/processes/ends.py` says."""

    pid: int
    code: int
    above: Sequence[Above]
    command: str
    asks: bool = False
    cut_short: bool = False
    hidden: bool = False


@dataclass
class Processes:
    """What the Pythons of a stage told: which they are, those of them that `ended` badly, or `well`, the processes that
    somebody answers for, those of them that a library has started (`by` which), Pythons that answer for all that they
    start, and shells that may not be recorded, by their names.
    """

    pythons: Set[int] = field(default_factory=set)
    ended: List[End] = field(default_factory=list)
    well: Set[int] = field(default_factory=set)
    handled: Set[int] = field(default_factory=set)
    by: "dict[int, str]" = field(default_factory=dict)
    handling: Set[int] = field(default_factory=set)
    under: "dict[int, str]" = field(default_factory=dict)

    def first(self, agent: int, command: str) -> Processes:
        """Of a pytest, whose tests judge what they start: its own end, where it has hidden that."""
        hidden = (end for end in self.ended if end.hidden and any(p.pid == agent for p in end.above[:1]))
        return Processes(ended=[end._replace(command=command) for end in hidden])


class Untold(NamedTuple):
    """An end of which nobody was told, and the program that kept it to itself; blank where there is none."""

    end: End
    by: str


class Ends:
    """The ends of a stage's processes, by what its shells wrote down and its Pythons told; the `agent` started the
    first of them, which returned `status`.
    """

    def __init__(self, processes: Processes, record: ShellRecord, agent: int, status: Optional[int]) -> None:
        self._told, self._record, self._agent, self._status = processes, record, agent, status
        self._linked: List[End] = []

    def untold(self) -> Iterator[Untold]:
        """Pythons that ended badly, and nobody was told."""
        for end in self._told.ended:
            if not end.cut_short and (end.hidden or not self._is_told(end)):
                by = next((p.name for p in end.above[:1] if p.pid not in {*self._told.pythons, self._agent}), "")
                yield Untold(end, "" if by in _SHELLS and end.above[0].pid in self._record.shells else by)

    def taken(self) -> Iterator[Untold]:
        """Pythons and shells that ended badly, and of which a library was told that may make nothing of it."""
        files = {line.shell: self._record.file_of(line.shell) for line in self._record.ends}
        shells = [
            End(line.shell, line.code, line.above, f"bash {files[line.shell]}" if files[line.shell] else line.command)
            for line in self._record.ends
        ]
        for end in (*self._told.ended, *shells) if self._status == 0 else ():
            index = self._watched_above(end)
            child = end.above[index - 1].pid if index else end.pid
            if child in self._told.by and not (end.cut_short or end.asks or end.hidden):
                yield Untold(end, self._told.by[child])

    def untold_shells(self) -> Iterator[Tuple[Line, str]]:
        """Shells that ended badly, and nobody was told, each with the program that kept it to itself."""
        for line in self._record.ends:
            end = End(line.shell, line.code, line.above, line.command)
            if line.code != _SIGPIPE and line.code not in _ENDED and not self._is_told(end, of_shell=True):
                by = "" if self._is_watched(line.above[0]) else line.above[0].name
                script = self._record.file_of(line.shell)
                yield (line._replace(command=script, first="") if by and script else line), by

    def inherits(self, end: End) -> bool:
        """Whether the agent had a process from parents that are gone; of its own it knows the end."""
        return not end.hidden and any(process.pid == self._agent for process in end.above[:1])

    def only_asked(self, pid: int) -> bool:
        """Whether a Python that ended badly has asked for a package, or had nobody to write to."""
        return any(end.pid == pid and (end.asks or end.cut_short) for end in self._told.ended)

    def of(self, line: Line) -> Optional[End]:
        """The Python that ended with a status which a shell was told of."""
        for end in self._told.ended:
            is_child = end.code == line.code and any(process.pid == line.shell for process in end.above[:1])
            name = os.path.basename(end.command.partition(" ")[0])
            if is_child and end not in self._linked and (_may_be(line, name) or line.command.startswith("wait")):
                self._linked.append(end)
                return end
        return None

    def ends_well(self, line: Line) -> bool:
        """Whether a job is a Python that has ended with 0, perhaps after its shell."""
        return line.job in self._told.well

    def behind(self, line: Line) -> bool:
        """Whether a Python has ended badly below the program that a shell has told of."""
        return any(
            above[i].pid == line.shell and _may_be(line, above[i - 1].name)
            for above in (end.above for end in self._told.ended)
            for i in range(1, len(above))
        )

    def _is_told(self, end: End, *, of_shell: bool = False) -> bool:
        index = self._watched_above(end)
        if index is None:  # without names nothing is known of those above
            return bool(end.above) and not end.above[0].name
        watched, child = end.above[index], end.above[index - 1].pid if index else end.pid
        if watched.pid == self._agent:  # which is told of what it has started, and inherits what others leave
            return index == 0 and end.code in (self._status, *_ENDED)
        if watched.pid in self._record.shells:
            if index == 0:
                return not of_shell and (end.code in _ENDED or self._record.knows(watched.pid, end.code))
            by = end.above[index - 1].name
            return any(line.shell == watched.pid and _may_be(line, by) for line in self._record.seen)
        if index == 0 and end.pid in self._record.by_system:
            return True
        return child in self._told.handled or watched.pid in self._told.handling

    def _watched_above(self, end: End) -> Optional[int]:
        return next((i for i, process in enumerate(end.above) if self._is_watched(process)), None)

    def _is_watched(self, process: Above) -> bool:
        if process.pid in self._record.shells:  # not what it has become
            file = self._record.file_of(process.pid)
            return process.name in (*_SHELLS, os.path.basename(file)[:_NAME_LENGTH])
        return process.pid in self._told.pythons or process.pid == self._agent


def _may_be(line: Line, name: str) -> bool:
    """Whether what a shell has told of may be the end of a program of this name."""
    words = line.command.replace("/", " ").split()
    return line.command.lstrip('"').startswith("$") or any(word.strip("'\"()")[:_NAME_LENGTH] == name for word in words)
