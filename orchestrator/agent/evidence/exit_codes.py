"""Exit codes that a stage's shells would lose: what makes every shell write them down, and what was written.

A bash reads the recorder through BASH_ENV. `sh` is made a bash as well: by argv, by a `sh` at the front of PATH, and by
the default SHELL of make.
"""

from __future__ import annotations

import os
import pkgutil
import re
import shutil
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence

from orchestrator.agent.evidence.makefiles import ignored_by_make
from orchestrator.agent.layout import Layout
from orchestrator.shared.files import Refused, open_inside
from orchestrator.shared.stage_record import LostExitCode
from orchestrator.shared.text import plain

REPORT = "shell.tsv"
_FOLDER = "shell"
_RECORDER = "shell_recorder.bash"
_MAX_BYTES = 4 << 20
_MOST = 1000
# The kernel starts a script's interpreter with one argument; bash called `sh` would not read BASH_ENV.
_SH = '#!{bash} -p\nNSA_POD_SH=1 exec {bash} "$@"\n'
# Read before each Makefile, which may set a SHELL of its own and shall not see this file among its own.
_MAKEFILE = "SHELL := {sh}\nMAKEFILE_LIST :=\n"
_SHELL = re.compile(r"(?:r?ba|da|k|mk|pdk|z|c|tc|fi|xon|nu|elvi|)sh")
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
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*")
_MAKES = ("make", "gmake", "ninja")
_GOES_ON = "make was told to go on after errors, and what failed is not recorded"
_NOT_RECORDED = "the exit codes that a script lost are not recorded of this {}"


class Shells(NamedTuple):
    """How a stage is to be started, so that its shells write their lost exit codes down."""

    argv: List[str]
    env: Dict[str, str]


class Child(NamedTuple):
    """A process that returned `code`, and that the Python that started it, in a line of `file`, did not look at."""

    command: str
    code: int
    file: str
    line: int


class Seen(NamedTuple):
    """`lost` are the exit codes that were lost; `unseen` says why those of some shell could not be recorded."""

    lost: List[LostExitCode]
    unseen: Optional[str]


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


def read(folder: Path, argv: Sequence[str], where: Where, children: Iterable[Child]) -> Seen:
    """What the shells of a stage wrote, if its folder has it, and its Pythons told of their `children`."""
    try:
        with open_inside(folder, REPORT) as f:
            text = f.read(_MAX_BYTES).decode("utf-8", "replace")
    except (OSError, Refused):
        text = ""
    entries = list(_entries(text, where))
    lost = [entry for entry in entries if entry["how"] not in ("running", "begins", "eval", "recipe")]
    lost += ignored_by_make([entry for entry in entries if entry["how"] == "recipe"], where.tree)
    lost += [_of_child(child, where) for child in children]
    ours = {entry["how"]: entry for entry in reversed(entries) if entry["ours"]}
    running, in_eval = ours.get("running"), ours.get("eval")
    begun = (_forgotten(_WORD.findall(e["command"]), where) for e in entries if e["how"] == "begins")
    unseen = _unseen(argv, where.cwd, bool(text)) or next(filter(None, begun), None)
    if running and not unseen:
        unseen = (
            f"{running['command']!r} still ran in the background when its shell ended, and what it returned is lost"
        )
    if in_eval and not unseen:
        unseen = f"what {in_eval['command']!r} returned in a pipe at the end of an eval is lost"
    return Seen(lost[:_MOST], unseen)


def _of_child(child: Child, where: Where) -> LostExitCode:
    program = program_of(child.command)
    return LostExitCode(
        command=plain(_as_typed(child.command, where)),
        program=plain(program),
        code=child.code,
        line=child.line,
        file=plain(_inside(child.file, where.tree)),
        how="child",
        ours=_is_ours(child.command, program, where),
    )


def program_of(command: str) -> str:
    """The program that a command runs, without its folder: behind assignments, and behind `env`, `timeout` and such."""
    words = _WORD.findall(command)
    while words and _ASSIGNMENT.match(words[0]):
        inner = _SUBSTITUTION.search(words[0])
        if inner and len(words) == 1:
            return program_of(inner["inner"])
        words = words[1:]
    if not words:
        return ""
    name = os.path.basename(words[0].strip("'\""))
    if name in ("local", "export", "declare", "readonly", "typeset"):
        inner = _SUBSTITUTION.search(command)
        return program_of(inner["inner"]) if inner else name
    return program_of(_carried(words, _CARRIERS[name])) if name in _CARRIERS and len(words) > 1 else name


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
            line = os.fsdecode(f.readline(4096))
    except OSError:
        return []
    words = line[2:].split() if line.startswith("#!") else []
    if words and os.path.basename(words[0]) == "env":
        return [word for word in words[1:] if not word.startswith("-")]
    return words


def _unseen(argv: Sequence[str], cwd: Path, loaded: bool) -> Optional[str]:
    """Why the exit codes behind this command were not all recorded, as a clause; None if they were."""
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


class _Failure(NamedTuple):
    """A line of the report."""

    how: str
    shell: str
    parent: str
    code: int
    line: int
    file: str
    command: str
    first: str


def _failures(text: str) -> Iterator[_Failure]:
    """The lines of a report, each named by the subshell that told of it where its own shell could not name it."""
    passed: Dict[str, _Failure] = {}
    for line in text.splitlines():
        fields = [_unescaped(field) for field in line.split("\t")]
        if len(fields) != 8 or not fields[3].isdigit() or not fields[4].isdigit():
            continue  # the first, or one that was cut
        how, shell, parent, code, number, file, command, first = fields
        failure = _Failure(how, shell, parent, int(code), int(number), file, command, first)
        inner = passed.get(shell)
        if inner and inner.code == failure.code and (not command or _ASSIGNMENT.match(command)):
            failure = failure._replace(command=inner.command or command, first=inner.first or first)
        if how == "passed":
            passed[parent] = failure
        else:
            yield failure


def _entries(text: str, where: Where) -> Iterator[LostExitCode]:
    """Each failure once; not what still ran when its shell began to leave, and what the script's EXIT trap ended."""
    failures = list(_failures(text))
    tree = where.tree
    ended = {f._replace(how="running") for f in failures if f.how == "ended"}
    kept = (f for f in failures if f.how != "ended" and f not in ended)
    for failure in dict.fromkeys(f._replace(shell="", parent="") for f in kept):
        program = failure.first or program_of(failure.command)
        yield LostExitCode(
            command=plain(_as_typed(failure.command, where)) or "a subshell",
            program=plain(os.path.basename(program)),
            code=failure.code,
            line=failure.line,
            file=plain(_inside(failure.file, tree)),
            how=failure.how,
            ours=_is_ours(failure.command, program, where),
        )


def _is_ours(command: str, program: str, where: Where) -> bool:
    """Whether it is a Python, a program of the environment or the tree, what a Makefile makes, or a runner of tests."""
    name = os.path.basename(program)
    words = _WORD.findall(command)
    inner = _carried(words, _XARGS) if name == "xargs" else _run_by_find(name, words)
    if inner:
        return _is_ours(inner, program_of(inner), where)
    if name in _MAKES and "clean" not in command:
        return True
    if _PYTHON.fullmatch(name) or _RUNNERS.fullmatch(name) or _RUN_TESTS.search(command):
        return True
    if name and "/" not in name and any(os.path.isfile(os.path.join(folder, name)) for folder in where.programs):
        return not _SHELL.fullmatch(name)
    return any(_is_file_of(where, word.strip("'\"")) for word in _WORD.findall(command)[:4])


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


def _unescaped(field: str) -> str:
    return re.sub(r"\\(.)", lambda m: {"t": "\t", "n": "\n"}.get(m[1], m[1]), field)
