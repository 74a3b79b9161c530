"""What the shells of a stage wrote down (`shell_recorder.bash`), and which of the statuses in it their scripts lost."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from orchestrator.agent.evidence.shell.commands import QUESTIONS, ends_its_loop, only_says, reads_status, set_by
from orchestrator.agent.evidence.shell.reactions import Fate, fate, tested_by_trap
from orchestrator.agent.evidence.shell.scripts import Call, Scripts
from orchestrator.agent.evidence.shell.tree import Node, Simple, Substitution, condensed
from orchestrator.agent.evidence.shell.worded import only_worded

_MAX_SCRIPT_BYTES = 1 << 20
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(?:\[[^]]*\])?\+?=")
_DROPS = re.compile(r"=?(true|/bin/true|:( .*)?|(exit|return) 0)")
_EXPANDS = re.compile(r"[$`]")
_JOBS = ("background", "running", "ended")
_TOLD = ("untested", "member", "cleanup", "begins", "eval", *_JOBS)
_FIELDS = 12


class Above(NamedTuple):
    """A process above another; the agent's own, at their end, has no name."""

    pid: int
    name: str


class Line(NamedTuple):
    """A line of the record: `shell` and `parent` are processes, `code` what the `command` returned in a `line` of a
    `file`. The recorder says what the others are.
    """

    how: str
    shell: int
    parent: int
    code: int
    line: int
    file: str
    command: str
    first: str
    place: str
    way: str
    number: str
    more: str

    @property
    def calls(self) -> List[Call]:
        """The calls of the functions that ended with the status."""
        return [Call(name, file, int(line)) for name, file, line in _records(self.way)]

    @property
    def job(self) -> int:
        """Of a job in the background: its process; 0 of anything else."""
        return int(self.more) if self.how in _JOBS else 0

    @property
    def above(self) -> List[Above]:
        """Of the end of a shell: the processes above it."""
        return [Above(int(pid), name) for pid, name in _records(self.more if self.how == "passed" else "")]

    def at(self, inner: "Line") -> "Line":
        """The same failure, as that of the command that an inner shell has told of."""
        return self._replace(command=inner.command, first=inner.first, line=inner.line, file=inner.file)


class Failure(NamedTuple):
    """A status that was lost, and what had it first: the command of a shell that was started."""

    line: Line
    inner: Optional[Line] = None


class ShellRecord:
    """`text`, of a stage that began in the folder `cwd`.

    `failures` are the statuses that were lost, each as `Fate` names it or as bash saw it; `ends` the shells that ended
    badly, and of which no shell above them was told; `seen` all statuses other than 0 that a shell was told of;
    `by_system` are shells of a Python's `os.system`; `files` are the scripts that shells ran, wherever
    they lie; `foreign` are others that lie outside of the stage's folders, with what was done with them.
    """

    def __init__(self, text: str, cwd: Path) -> None:
        told = list(_lines(text))
        lines = [line for line in told if line.how not in ("outside", "foreign")]
        self.foreign = list(dict.fromkeys((line.first, line.file) for line in told if line.how == "foreign"))
        self.files = list(dict.fromkeys(line.file for line in told if line.how in ("loaded", "outside") and line.file))
        self.shells: Set[int] = {line.shell for line in lines}
        self.failures: List[Failure] = []
        self.seen = [line for line in lines if line.code and line.how != "passed"]
        self._lines, self._cwd = lines, cwd
        self._loaded = {line.shell: line for line in lines if line.how == "loaded"}
        self.by_system = {line.shell for line in self._loaded.values() if line.first}
        self._bad = {line.shell for line in lines if line.how == "passed"}
        self._ended = {(line.shell, line.more) for line in lines if line.how == "ended"}
        self._begins = {line.shell: line for line in lines if line.how == "enters"}
        self._entered: Dict[int, Line] = {}
        self._passed: Dict[int, List[Line]] = {}
        self._scripts: Optional[Scripts] = None
        self._fates: Dict[object, Optional[Fate]] = {}
        for line in lines:
            self._fold(line)
        self.ends: List[Line] = []
        for line in (line for passed in self._passed.values() for line in passed):
            if line.shell in self._loaded:
                self.ends.append(line)
            else:
                self._judge(line, line, line.calls, tested=False)

    def knows(self, shell: int, code: int) -> bool:
        """Whether a shell, or one below it, wrote anything down of a command that returned `code`."""
        return any(line.code == code and shell in (line.shell, line.parent) for line in self._lines)

    def file_of(self, shell: int) -> str:
        """The script that a shell runs; blank if it was given its lines."""
        main = self._loaded.get(self._main(shell))
        return main.file if main else ""

    def _fold(self, line: Line) -> None:
        if line.how == "enters":
            self._entered[line.parent] = line
        elif line.how == "again" and self._is_retried(line):
            same = (line.command, line.file, line.line)
            self.failures = [f for f in self.failures if (f.line.command, f.line.file, f.line.line) != same]
        elif line.how == "passed":
            inner = self._claim(line)
            if inner and _is_of_another(line):
                line = line.at(inner)._replace(place=inner.place, way=inner.way + line.way)
            self._passed.setdefault(line.parent, []).append(line)
        elif line.how in ("tested", "negated"):
            self._fold_tested(line)
        elif line.how == "trapped":
            self._fold_trapped(line)
        elif line.how == "says":
            self._fold_said(line)
        elif line.how in _TOLD and not (self._is_printed_and_tested(line) or self._is_no_job(line)):
            if self._is_asked_alone(line):
                line = line._replace(how="unanswered")
            inner = self._claim(line) or self._begins.get(line.job)
            self.failures.append(Failure(line.at(inner) if inner and _is_of_another(line) else line, inner))

    def _claim(self, line: Line) -> Optional[Line]:
        """The inner shell whose status this one was told of: the last one that ended with it."""
        passed = self._passed.get(line.shell, [])
        for index in reversed(range(len(passed))):
            if passed[index].code == line.code:
                return passed.pop(index)
        return None

    def _is_printed_and_tested(self, line: Line) -> bool:
        """Whether the next command only prints the status, into a `$(...)` on which something depends."""
        if line.how != "untested" or not (only_says(line.more) and reads_status(line.more)):
            return False
        nodes = self._find(line, line.place)
        scripts, calls = self._scripts_read(), self._named(line.calls, line.shell)
        return bool(nodes) and all(fate(scripts, n, calls, tested=True, left=False) == "tested" for n in nodes)

    def _is_asked_alone(self, line: Line) -> bool:
        """Whether it is a question that is a statement of its own, as if that ended the script.

        One that ends a function, behind an `&&` say, gives that its status by accident.
        """
        if line.how != "untested" or line.code != 1:
            return False
        nodes, scripts = self._find(line, line.command), self._scripts_read()
        if not nodes or any(node.name not in QUESTIONS or any(set_by(node)) for node in nodes):
            return False
        calls = self._named(line.calls, line.shell)
        return all(fate(scripts, node, calls, tested=False, left=False) == "left" for node in nodes)

    def _is_no_job(self, line: Line) -> bool:
        """Whether it is of a process of `<(...)` or `>(...)`, or of one that the script has ended."""
        if line.how not in _JOBS:
            return False
        begin = self._begins.get(line.job)
        nodes = self._find(begin, begin.command) if begin else []
        return line.how == "ended" or (line.shell, line.more) in self._ended or any(map(_in_a_process, nodes))

    def _fold_tested(self, line: Line) -> None:
        inner, entered = self._claim(line), self._entered.get(line.shell)
        if inner and inner.shell not in self._loaded:
            self._judge(line.at(inner)._replace(place=inner.place), inner, [*inner.calls, *line.calls], tested=True)
        elif entered and entered.number == line.number and condensed(entered.command) not in condensed(line.place):
            # A subshell of one command, which bash does not name; it ran after what it does.
            self._judge(line.at(entered)._replace(place=entered.command), entered, line.calls, tested=True)
        else:
            self._judge(line, line, line.calls, tested=True, inner=inner)

    def _fold_said(self, line: Line) -> None:
        """Words of a failure, if they are all that a script makes of a comparison."""
        for node in self._find(line, line.command):
            question = only_worded(self._scripts_read(), node)
            if question:
                self.failures.append(Failure(line._replace(how="worded", command=question, first="", code=1)))

    def _fold_trapped(self, line: Line) -> None:
        inner = self._claim(line)
        if not tested_by_trap(self._scripts_read(), line.more, "ERR"):
            named = line.at(inner) if inner and _is_of_another(line) else line
            self.failures.append(Failure(named._replace(how="untested"), inner))

    def _judge(
        self, line: Line, runner: Line, calls: Sequence[Call], *, tested: bool, inner: Optional[Line] = None
    ) -> None:
        """Add a failure, if nothing depends on it, as the script of the shell `runner` has it."""
        left = self._main(line.shell) in self._bad
        nodes = self._find(runner, line.place)
        fails = line.how != "negated"
        place = (runner.file or self._main(runner.shell), runner.line, line.place)
        key = (*place, tuple(calls), tested, left, fails, line.code)
        if key not in self._fates:
            named, scripts = self._named(calls, line.shell), self._scripts_read()
            how = {"tested": tested, "left": left, "fails": fails}
            fates = (fate(scripts, node, named, **how, code=line.code) for node in nodes)
            self._fates[key] = next((found for found in fates if found not in ("tested", "left")), None)
        lost = self._fates[key]
        if (
            not nodes and tested and fails
        ):  # no more is known than the command after it, with a = if that is in the same line
            said = line.more[:1] == "=" and only_says(line.more[1:])
            lost = "ignored" if _DROPS.fullmatch(line.more) else "said" if said else None
        if lost:
            self.failures.append(Failure(line._replace(how=lost, shell=runner.shell), inner))

    def _is_retried(self, line: Line) -> bool:
        """Whether a command that has failed before, and has not now, is the same, and not that of another turn."""
        if not _EXPANDS.search(line.command):
            return True
        nodes = self._find(line, line.command)
        return bool(nodes) and all(map(ends_its_loop, nodes))

    def _find(self, line: Line, command: str) -> List[Simple]:
        return self._scripts_read().find(line.file or str(self._main(line.shell)), line.line, command)

    def _named(self, calls: Sequence[Call], shell: int) -> List[Call]:
        """The calls with the files as they are known here."""
        given, found = str(self._main(shell)), []
        for call in calls:
            end = "/" + call.file.lstrip("./")
            known = (name for name in self._scripts_read().names if name.endswith(end))
            found.append(call._replace(file=next(known, given)))
        return found

    def _main(self, shell: int) -> int:
        """The shell that was started, of which this one was forked."""
        for _ in self._begins:
            if shell in self._loaded or shell not in self._begins:
                break
            shell = self._begins[shell].parent
        return shell

    def _texts(self, files: Iterable[str]) -> Dict[str, str]:
        found = {file: _text(self._cwd / file) for file in files if not file.startswith(("/dev/", "/proc/"))}
        return {file: text for file, text in found.items() if text}

    def _sourced(self, texts: Dict[str, str]) -> Dict[str, str]:
        """The files that they source, from where the stage began, or beside one of them."""
        folders = {self._cwd, *((self._cwd / name).parent for name in texts if "/" in name)}
        names = Scripts(texts).sourced()
        return self._texts({os.path.normpath(folder / name) for folder in folders for name in names} - set(texts))

    def given(self, shell: int) -> List[Simple]:
        """The commands of the lines that a shell was started with."""
        return self._scripts_read().commands(str(shell)) if shell in self._loaded else []

    def work(self, *, with_files: bool = False) -> Iterator[Tuple[str, Simple]]:
        """What the scripts are there for, by their files; blank for lines that were given."""
        work = self._scripts_read().work(with_files=with_files)
        return ((name if name in self._files else "", command) for name, command in work)

    @property
    def texts(self) -> List[str]:
        """All that the shells were given, and what they sourced."""
        return self._scripts_read().texts if self._loaded else []

    @property
    def _files(self) -> Set[str]:
        return {line.file for line in self._lines if line.file}

    def _scripts_read(self) -> Scripts:
        if self._scripts is None:
            texts: Dict[str, str] = {str(line.shell): line.more for line in self._loaded.values() if line.more}
            texts.update(self._texts(self._files))
            texts.update(self._sourced(texts))
            strict = {line.file or str(line.shell) for line in self._loaded.values() if "e" in line.command}
            self._scripts = Scripts(texts, strict)
        return self._scripts


def _text(path: Path) -> str:
    """The content of a regular file; nothing else is waited for."""
    with contextlib.suppress(OSError, ValueError):
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as f:
            if stat.S_ISREG(os.fstat(fd).st_mode):
                return f.read(_MAX_SCRIPT_BYTES).decode("utf-8", "replace")
    return ""


def _is_of_another(line: Line) -> bool:
    """Whether the status is that of an inner shell, which bash does not name."""
    return not line.command or _ASSIGNMENT.match(line.command) is not None


def _in_a_process(node: Node) -> bool:
    return any(isinstance(above, Substitution) and above.kind != "$(" for above in node.above())


def _records(text: str) -> Iterator[List[str]]:
    return (record.split("\x1f") for record in text.split("\x1e") if record)


def _lines(text: str) -> Iterator[Line]:
    for line in text.split("\n"):
        fields = [_unescaped(field) for field in line.split("\t")]
        with contextlib.suppress(ValueError):  # one that was cut
            if len(fields) == _FIELDS:
                how, *numbers = fields[:5]
                shell, parent, code, number = map(int, numbers)
                found = Line(how, shell, parent, code, number, *fields[5:])
                if found.calls is not None and found.above is not None and found.job >= 0:  # which may be cut
                    yield found


def _unescaped(field: str) -> str:
    return re.sub(r"\\(.)", lambda m: {"t": "\t", "n": "\n"}.get(m[1], m[1]), field)
