"""Exit codes that a stage's shells would lose: what makes every shell write them down, and what was written.

A bash reads the recorder through BASH_ENV. `sh` is made a bash as well: by argv, by a `sh` at the front of PATH, and by
the default SHELL of make.
"""

from __future__ import annotations

import contextlib
import os
import pkgutil
import re
import shutil
from pathlib import Path
from typing import Collection, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from orchestrator.agent.evidence.idle_make import ran_nothing
from orchestrator.agent.evidence.processes import Ends, Processes, Untold
from orchestrator.agent.evidence.shell.commands import SAYING, UNTIMED
from orchestrator.agent.evidence.shell.record import Failure, ShellRecord
from orchestrator.agent.evidence.shell.tree import Pipeline, Simple
from orchestrator.agent.layout import Layout
from orchestrator.shared.files import Refused, open_inside
from orchestrator.shared.stage_record import LostExitCode
from orchestrator.shared.text import plain

REPORT = "shell.tsv"
_FOLDER = "shell"
_RECORDER = "shell_recorder.bash"
_MAX_BYTES = 4 << 20
_LONGEST_FIRST_LINE = 4096
_MOST = 1000
# The kernel starts a script's interpreter with one argument; bash called `sh` would not read BASH_ENV.
_SH = '#!{bash} -p\nNSA_POD_SH=1 exec {bash} "$@"\n'
# Read before each Makefile, which may set a SHELL of its own and shall not see this file among its own.
_MAKEFILE = "SHELL := {sh}\nMAKEFILE_LIST :=\n"
_SHELL = re.compile(r"(?:r?ba|da|k|mk|pdk|z|c|tc|fi|xon|nu|elvi|)sh")
_INTERPRETERS = re.compile(rf"{_SHELL.pattern}|\.|source|perl|ruby|node|lua|tclsh|expect|Rscript|julia|php|awk|script")
_KEEPS_GOING = re.compile(r"-[a-zA-Z]*[ki][a-zA-Z]*|--keep-going|--ignore-errors")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(?:\[[^]]*\])?\+?=")
_SUBSTITUTION = re.compile(r"(?:\$\(|`|<\()\s*(?P<inner>.*)", re.DOTALL)
_WORD = re.compile(r"""(?:[^\s'"`$]|\$\((?:[^()]|\([^()]*\))*\)|\$|'[^']*'|"(?:[^"\\]|\\.)*"|`[^`]*`)+""", re.DOTALL)
# Programs that run another, with the options of theirs that take a value.
_CARRIERS: Mapping[str, str] = {
    "command": "", "builtin": "", "exec": "a", "env": "uC", "nohup": "", "time": "fo", "timeout": "ks", "nice": "n",
    "ionice": "cn", "stdbuf": "ioe", "setsid": "", "sudo": "ug", "taskset": "", "numactl": "NmC", "xvfb-run": "s",
}  # fmt: skip
_XARGS = "adEILnPs"  # its options that take a value; its own status is 123 where what it ran has failed
_RUNNERS = re.compile(r"ctest|nosetests\d?|nose2|unittest|tox|nox|coverage|accelerate|torchrun|deepspeed|py\.?test.*")
_RUN_TESTS = re.compile(r"(?:cargo|go|npm|yarn|pnpm|make|gmake|ninja|meson|bazel)\s+(?:\S+\s+)*\S*(?:test|check)")
_RUNS_PYTHON = re.compile(r"(?:python|pypy)[\d.]*|py\.?test[\d.]*|torchrun|accelerate|deepspeed|coverage|tox|nox")
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*")
_CLOCK = re.compile(r"\bdate\b[^|;\n]*\+\S*%[sN]|\btime\b|\bSECONDS\b|\bEPOCH(?:REALTIME|SECONDS)\b")
_ASKS = re.compile(r"(?<!\S)(--version|--help)(?!\S)")
_ANSWERED = ("as 0", "said", "ignored", "kept", "substituted")  # which is enough where a command only asks
_MAKES = ("make", "gmake", "ninja")
_GOES_ON = "make was told to go on after errors, and what failed is not recorded"
_NOT_RECORDED = "the exit codes that a script lost are not recorded of this {}"


class Shells(NamedTuple):
    """How a stage is to be started, so that its shells write their lost exit codes down."""

    argv: List[str]
    env: Dict[str, str]


class Command(NamedTuple):
    """What a stage ran, and the exit code that came of it."""

    argv: Sequence[str]
    status: Optional[int]


class Child(NamedTuple):
    """A process that returned `code`, and that the Python that started it, in a line of `file`, did not look at; or a
    `call` that it gave to a pool.
    """

    command: str
    code: int
    file: str
    line: int
    pid: int
    call: bool = False


class Seen(NamedTuple):
    """`lost` are the exit codes that were lost; `unseen` says why those of some shell could not be recorded; of the
    scripts in `inert` nothing ran that they are there for; `doubts` are what somebody was told of, as sentences.
    `scripts` are their texts, `others` the programs that may read clocks and are no Pythons, which tell themselves.
    """

    lost: List[LostExitCode]
    unseen: Optional[str]
    inert: List[str]
    doubts: List[str]
    scripts: List[str]
    others: List[str]


def install(root: Path) -> None:
    """Put what the shells of a run need below `root`; nothing where there is no bash."""
    bash = shutil.which("bash")
    if bash is None:
        return
    folder = root / _FOLDER
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    (folder / _RECORDER).write_bytes(pkgutil.get_data("orchestrator.agent.injected", _RECORDER) or b"")
    sh = folder / "bin" / "sh"
    sh.write_text(_SH.format(bash=bash))
    sh.chmod(0o700)
    (folder / "sh.mk").write_text(_MAKEFILE.format(sh=sh))


def recorded(argv: Sequence[str], env: Mapping[str, str], places: Layout, cwd: Path, report: Path) -> Shells:
    """`argv` and `env` of a stage that runs no pytest itself, with the recorder in each of its shells."""
    folder = places.injected / _FOLDER
    if not (folder / _RECORDER).is_file():
        return Shells(list(argv), dict(env))
    sh = folder / "bin" / "sh"
    environment, *rest = env["PATH"].split(os.pathsep)
    more = {
        "PATH": os.pathsep.join([environment, str(sh.parent), *rest]),
        "BASH_ENV": str(folder / _RECORDER),
        "NSA_POD_SHELL_RECORD": str(report),
        "NSA_POD_AGENT": str(os.getpid()),
        "NSA_POD_SHELL_ROOTS": ":".join([str(places.tree), env["TMPDIR"], str(places.artifacts)]),
        "MAKEFILES": " ".join(filter(None, [str(folder / "sh.mk"), env.get("MAKEFILES", "")])),
    }
    if env.get("BASH_ENV"):
        more["NSA_POD_BASH_ENV"] = env["BASH_ENV"]
    return Shells(_with_bash(argv, sh, cwd), {**env, **more})


class Where(NamedTuple):
    """The tree, the folder in it where the stage began, and where the environment's programs are."""

    tree: Path
    cwd: Path
    programs: Sequence[str]


def read(folder: Path, command: Command, where: Where, children: Iterable[Child], processes: Processes) -> Seen:
    """What the shells of a stage wrote, if its folder has it, and its Pythons told of their `children` and ends."""
    try:
        with open_inside(folder, REPORT) as f:
            text = f.read(_MAX_BYTES).decode("utf-8", "replace")
    except (OSError, Refused):
        text = ""
    record = ShellRecord(text, where.cwd)
    ends = Ends(processes, record, os.getpid(), command.status)
    entries = list(_entries(record, ends, where))
    lost = [entry for entry in entries if entry["how"] not in ("running", "begins", "eval", "as 0")]
    lost += [_of_child(child, where) for child in children if not ends.only_asked(child.pid)]
    lost += [
        _of_end(untold, where) for untold in ends.untold() if not ends.inherits(untold.end) or _is_own(untold, where)
    ]
    ours = {entry["how"]: entry for entry in reversed(entries) if entry["ours"]}
    running, in_eval = ours.get("running"), ours.get("eval")
    begun = (_forgotten(_WORD.findall(e["command"]), where) for e in entries if e["how"] == "begins")
    unseen = _unseen(command.argv, where.cwd, bool(text)) or next(filter(None, begun), None)
    if not unseen:
        strange = (name for pid, name in processes.under.items() if pid not in record.shells)
        unseen = next(map(_NOT_RECORDED.format, strange), None)
    if running and not unseen:
        unseen = (
            f"{running['command']!r} still ran in the background when its shell ended, and what it returned is lost"
        )
    if in_eval and not unseen:
        unseen = f"what {in_eval['command']!r} returned in a pipe at the end of an eval is lost"
    inert = _inert(list(_worked(record)), where) if text and not processes.pythons else []
    others = _others(record) if text else [program for program in command.argv[:1] if not _is_python(program)]
    taken = {f"{_as_typed(u.end.command, where)} returned {u.end.code}, and {u.by} went on": u for u in ends.taken()}
    doubts = [plain(said) for said, end in taken.items() if _is_own(end, where)]
    as_0 = (entry for entry in entries if entry["how"] == "as 0" and entry["ours"] and command.status == 0)
    doubts += map(_taken_as_0, as_0)
    if not processes.pythons:
        ran = {program for _, program in _worked(record, with_files=True)}
        doubts += ran_nothing(os.path.basename(command.argv[0]), ran, where.tree)
    return Seen(lost[:_MOST], unseen, inert, doubts[:_MOST], record.texts, others)


def _others(record: ShellRecord) -> List[str]:
    programs = [program_of(command.text) for _, command in record.work()]
    found = [program for program in programs if program not in UNTIMED and not _is_python(program)]
    return found + [match[0] for match in map(_CLOCK.search, record.texts) if match]


def _is_python(program: str) -> bool:
    return _RUNS_PYTHON.fullmatch(os.path.basename(program)) is not None


def _worked(record: ShellRecord, *, with_files: bool = False) -> Iterator[Tuple[str, str]]:
    """The programs that do the work of the scripts, with the files of these."""
    work = list(record.work(with_files=with_files))
    scripts = {os.path.basename(file) for file, _ in work if file}
    return ((file, program) for file, command in work for program in _worked_by(command, scripts))


def _inert(programs: Sequence[Tuple[str, str]], where: Where) -> List[str]:
    """The script of a stage in which no Python ran, where it is for Python alone: `[ -z "$CUDA" ] || python x.py`. What
    the scripts are for that it runs stands in these.
    """
    if not programs or not all(_is_python(program) for _, program in programs):
        return []
    return [plain(_inside(programs[0][0], where.tree)) if programs[0][0] else "its script"]


def _worked_by(command: Simple, scripts: Collection[str]) -> Iterator[str]:
    """The program that does a command's work, if it has any: what `find` and `xargs` run for each name, and not who
    gives xargs the names; not one of the `scripts` that are read beside it, nor `exec true`.
    """
    program, words = program_of(command.text), _words_of(command.text)
    named = {os.path.basename(word.strip("'\"")) for word in words}
    program = program_of(_run_for_each(program, words)) or program
    pipeline = command.parent
    last = pipeline.members[-1] if isinstance(pipeline, Pipeline) else command
    gives_names = last is not command and isinstance(last, Simple) and program_of(last.text) == "xargs"
    is_script = program in scripts or (_SHELL.fullmatch(program) and not named.isdisjoint(scripts))
    if program not in SAYING and not (gives_names or is_script):
        yield program


def _run_for_each(program: str, words: Sequence[str]) -> str:
    """What `xargs`, or `find`, runs."""
    return _carried(words, _XARGS) if program == "xargs" else _run_by_find(program, words)


def _of_child(child: Child, where: Where) -> LostExitCode:
    program = program_of(child.command)
    return LostExitCode(
        command=plain(_as_typed(child.command, where)),
        program=plain(program),
        code=child.code,
        line=child.line,
        file=plain(_inside(child.file, where.tree)),
        how="call" if child.call else "child",
        ours=child.call or (not _ASKS.search(child.command) and _is_ours(child.command, program, where)),
    )


def program_of(command: str) -> str:
    """The program that a command runs, without its folder."""
    words = _words_of(command)
    return os.path.basename(words[0].strip("'\"")) if words else ""


def _words_of(command: str) -> List[str]:
    """The words of a command from its program on: behind assignments, and behind `env`, `timeout` and such."""
    words: List[str] = _WORD.findall(command)
    while words and _ASSIGNMENT.match(words[0]):
        inner = _SUBSTITUTION.search(words[0])
        if inner and len(words) == 1:
            return _words_of(inner["inner"])
        words = words[1:]
    name = os.path.basename(words[0].strip("'\"")) if words else ""
    if name in ("local", "export", "declare", "readonly", "typeset"):
        inner = _SUBSTITUTION.search(command)
        return _words_of(inner["inner"]) if inner else words
    return _words_of(_carried(words, _CARRIERS[name])) if name in _CARRIERS and len(words) > 1 else words


def _carried(words: Sequence[str], with_value: str) -> str:
    """What `env -u X timeout 5 program` runs: the words after the options, and after a duration or a number."""
    rest = list(words[1:])
    while rest and (rest[0].startswith("-") or re.fullmatch(r"[\d.]+[smhd]?", rest[0])):
        option = rest.pop(0)
        if len(option) == 2 and option[1] in with_value and rest:
            rest.pop(0)
    return " ".join(rest)


def _with_bash(argv: Sequence[str], sh: Path, cwd: Path) -> List[str]:
    """`argv` with `sh` as a bash, also where it is what a script's first line names."""
    if argv[0] in ("sh", "/bin/sh", "/usr/bin/sh"):
        return [str(sh), *argv[1:]]
    interpreter = _interpreter(argv[0], cwd)
    if interpreter and os.path.basename(interpreter[0]) == "sh":
        return [str(sh), *interpreter[1:], *argv]
    return list(argv)


def _interpreter(program: str, cwd: Path) -> List[str]:
    """What the first line of a script of the tree starts it with."""
    if "/" not in program:
        return []
    try:
        with open(cwd / program, "rb") as f:
            line = os.fsdecode(f.readline(_LONGEST_FIRST_LINE))
    except OSError:
        return []
    words = line[2:].split() if line.startswith("#!") else []
    if words and os.path.basename(words[0]) == "env":
        return [word for word in words[1:] if not word.startswith("-")]
    return words


def _unseen(argv: Sequence[str], cwd: Path, loaded: bool) -> Optional[str]:
    """Why its exit code, or those behind it that were not all recorded, say nothing, as a clause; None if they do."""
    name = os.path.basename(argv[0])
    if _is_made_to_go_on(argv):
        return _GOES_ON
    interpreter = _interpreter(argv[0], cwd)
    shell = os.path.basename(interpreter[0]) if interpreter else name
    if _SHELL.fullmatch(shell) and not loaded:
        return _NOT_RECORDED.format(shell)
    return None


def _forgotten(words: Sequence[str], where: Where) -> Optional[str]:
    """Why a command of a script does not say what those returned that it ran, as a clause; None if it does."""
    name = program_of(" ".join(words))
    if _is_made_to_go_on([name, *words[1:]]):
        return _GOES_ON
    if _SHELL.fullmatch(name) and name not in ("sh", "bash"):
        return _NOT_RECORDED.format(name)
    inner = _run_by_find(name, words)
    if inner and words[-1] != "+" and _is_ours(inner, program_of(inner), where):
        return f"find does not say what {program_of(inner)} returned"
    return None


def _is_made_to_go_on(words: Sequence[str]) -> bool:
    return os.path.basename(words[0]) in _MAKES and any(map(_KEEPS_GOING.fullmatch, words[1:]))


def _run_by_find(name: str, words: Sequence[str]) -> str:
    """The command that `find` runs for what it has found; blank if it is another program, or runs none."""
    begin = next((i for i, word in enumerate(words) if re.fullmatch(r"-(exec|ok)(dir)?", word)), None)
    return " ".join(words[begin + 1 : -1]) if name == "find" and begin is not None else ""


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
        ours = python is not None or ends.behind(failure) or _is_ours(failure.command, program, where)
        if inner:
            ours = ours or _is_ours(inner.command, inner.first or program_of(inner.command), where)
        entry = LostExitCode(
            command=_run_by(plain(_as_typed(failure.command, where)) or "a subshell", by),
            program=plain(os.path.basename(program)),
            code=failure.code,
            line=failure.line,
            file=plain(_inside(failure.file, where.tree)),
            how=failure.how,
            ours=ours,
        )
        if tuple(entry.values()) not in seen:
            seen.add(tuple(entry.values()))
            yield entry


def _taken_as_0(entry: LostExitCode) -> str:
    place = f" ({entry['file']} line {entry['line']})" if entry["file"] else ""
    return f"{entry['command']} returned {entry['code']}, which its script takes for 0{place}"


def _run_by(command: str, by: str) -> str:
    return f"{command}, run by {plain(by)}," if by else command


def _is_own(untold: Untold, where: Where) -> bool:
    """Whether a Python runs a program of the tree, and not a service that a library has left behind."""
    return any(_is_file_of(where, word.strip("'\"")) for word in _words_of(untold.end.command)[1:])


def _of_end(untold: Untold, where: Where) -> LostExitCode:
    return LostExitCode(
        command=_run_by(plain(_as_typed(untold.end.command, where)), untold.by),
        program=plain(program_of(untold.end.command)),
        code=untold.end.code,
        line=0,
        file="",
        how="untold",
        ours=True,
    )


def _is_ours(command: str, first: str, where: Where) -> bool:
    """Whether it is a Python, a program of the environment or the tree, what a Makefile makes, or a runner of tests."""
    name = os.path.basename(first)
    words = _WORD.findall(command)
    inner = _run_for_each(name, words)
    if inner:
        return _is_ours(inner, program_of(inner), where)
    if name in _MAKES and "clean" not in command:
        return True
    if _PYTHON.fullmatch(name) or _RUNNERS.fullmatch(name) or _RUN_TESTS.search(command):
        return True
    if name and any(_is_program_of(folder, name) for folder in where.programs):
        return not _SHELL.fullmatch(name)
    program, *arguments = _words_of(command) or [""]
    if not _INTERPRETERS.fullmatch(os.path.basename(program)):
        return any(_is_file_of(where, word.strip("'\"")) for word in {program, first})
    return any(_is_file_of(where, word.strip("'\"")) for word in arguments[:4])


def _is_program_of(folder: str, name: str) -> bool:
    """Whether a program is the environment's; where that is the system's, what is written in Python is."""
    path = os.path.join(folder, name)
    if os.path.isfile(os.path.join(os.path.dirname(folder), "pyvenv.cfg")):
        return os.path.isfile(path)
    with contextlib.suppress(OSError), open(path, "rb") as f:
        first = f.readline(_LONGEST_FIRST_LINE)
        return first.startswith(b"#!") and b"python" in first
    return False


def _is_file_of(where: Where, word: str) -> bool:
    """Whether a word of a command names a program or a script of the tree."""
    path = os.path.normpath(where.cwd / word) if word and "\0" not in word else ""
    inside = path.startswith(f"{where.tree}/") and os.path.isfile(path)
    return inside and (os.access(path, os.X_OK) or path.endswith((".sh", ".bash", ".py")))


def _inside(file: str, tree: Path) -> str:
    return os.path.relpath(file, tree) if file.startswith(f"{tree}/") else file


def _as_typed(command: str, where: Where) -> str:
    """As people write it: the environment's programs by their names, the tree's files from its top."""
    for folder in (*where.programs, str(where.tree)):
        command = command.replace(f"{folder}/", "")
    return command
