"""Which program a command runs, by its words, and whether that is the stage's own."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import List, Mapping, NamedTuple, Sequence

from orchestrator.shared.pythons import is_python

SHELL = re.compile(r"(?:r?ba|da|k|mk|pdk|z|c|tc|fi|xon|nu|elvi|)sh")
_INTERPRETERS = re.compile(rf"{SHELL.pattern}|\.|source|perl|ruby|node|lua|tclsh|expect|Rscript|julia|php|awk|script")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(?:\[[^]]*\])?\+?=")
_SUBSTITUTION = re.compile(r"(?:\$\(|`|<\()\s*(?P<inner>.*)", re.DOTALL)
WORD = re.compile(r"""(?:[^\s'"`$]|\$\((?:[^()]|\([^()]*\))*\)|\$|'[^']*'|"(?:[^"\\]|\\.)*"|`[^`]*`)+""", re.DOTALL)
# Programs that run another, with the options of theirs that take a value.
_CARRIERS: Mapping[str, str] = {
    "command": "", "builtin": "", "exec": "a", "env": "uC", "nohup": "", "time": "fo", "timeout": "ks", "nice": "n",
    "ionice": "cn", "stdbuf": "ioe", "setsid": "", "sudo": "ug", "taskset": "", "numactl": "NmC", "xvfb-run": "s",
}  # fmt: skip
_XARGS = "adEILnPs"  # its options that take a value; its own status is 123 where what it ran has failed
_RUNNERS = re.compile(r"ctest|nosetests\d?|nose2|unittest|tox|nox|coverage|accelerate|torchrun|deepspeed|py\.?test.*")
_RUN_TESTS = re.compile(r"(?:cargo|go|npm|yarn|pnpm|make|gmake|ninja|meson|bazel)\s+(?:\S+\s+)*\S*(?:test|check)")
_WRITTEN_IN_PYTHON = re.compile(r"py\.?test[\d.]*|torchrun|accelerate|deepspeed|coverage|tox|nox")
MAKES = ("make", "gmake", "ninja")
_LONGEST_FIRST_LINE = 4096
_WITHOUT_SITE = re.compile(r"\bpython[\d.]*(?:\s+-(?![cm])\w+)*\s+-(?![cm])[A-Za-z]*S[A-Za-z]*\b")


class Where(NamedTuple):
    """The tree, the folder in it where the stage began, and where the environment's programs are."""

    tree: Path
    cwd: Path
    programs: Sequence[str]


def leaves_site_out(text: str) -> bool:
    """Whether a script runs a Python by `-S`, which tells nothing of itself then."""
    return _WITHOUT_SITE.search(text) is not None


def program_of(command: str) -> str:
    """The program that a command runs, without its folder."""
    words = words_of(command)
    return os.path.basename(words[0].strip("'\"")) if words else ""


def words_of(command: str) -> List[str]:
    """The words of a command from its program on: behind assignments, and behind `env`, `timeout` and such."""
    words: List[str] = WORD.findall(command)
    while words and _ASSIGNMENT.match(words[0]):
        inner = _SUBSTITUTION.search(words[0])
        if inner and len(words) == 1:
            return words_of(inner["inner"])
        words = words[1:]
    name = os.path.basename(words[0].strip("'\"")) if words else ""
    if name in ("local", "export", "declare", "readonly", "typeset"):
        inner = _SUBSTITUTION.search(command)
        return words_of(inner["inner"]) if inner else words
    return words_of(_carried(words, _CARRIERS[name])) if name in _CARRIERS and len(words) > 1 else words


def _carried(words: Sequence[str], with_value: str) -> str:
    """What `env -u X timeout 5 program` runs: the words after the options, and after a duration or a number."""
    rest = list(words[1:])
    while rest and (rest[0].startswith("-") or re.fullmatch(r"[\d.]+[smhd]?", rest[0])):
        option = rest.pop(0)
        if len(option) == 2 and option[1] in with_value and rest:
            rest.pop(0)
    return " ".join(rest)


def run_for_each(program: str, words: Sequence[str]) -> str:
    """What `xargs`, or `find`, runs."""
    return _carried(words, _XARGS) if program == "xargs" else run_by_find(program, words)


def run_by_find(name: str, words: Sequence[str]) -> str:
    """The command that `find` runs for what it has found; blank if it is another program, or runs none."""
    begin = next((i for i, word in enumerate(words) if re.fullmatch(r"-(exec|ok)(dir)?", word)), None)
    return " ".join(words[begin + 1 : -1]) if name == "find" and begin is not None else ""


def interpreter_of(program: str, cwd: Path) -> List[str]:
    """What the first line of a script of the tree starts it with."""
    if "/" not in program:
        return []
    try:
        line = os.fsdecode(_first_line(cwd / program))
    except OSError:
        return []
    words = line[2:].split() if line.startswith("#!") else []
    if words and os.path.basename(words[0]) == "env":
        return [word for word in words[1:] if not word.startswith("-")]
    return words


def runs_python(program: str) -> bool:
    return is_python(program) or _WRITTEN_IN_PYTHON.fullmatch(os.path.basename(program)) is not None


def is_ours(command: str, first: str, where: Where) -> bool:
    """Whether it is a Python, a program of the environment or the tree, what a Makefile makes, or a runner of tests."""
    name = os.path.basename(first)
    words = WORD.findall(command)
    inner = run_for_each(name, words)
    if inner:
        return is_ours(inner, program_of(inner), where)
    if name in MAKES and "clean" not in command:
        return True
    if is_python(name) or _RUNNERS.fullmatch(name) or _RUN_TESTS.search(command):
        return True
    if name and any(_is_program_of(folder, name) for folder in where.programs):
        return not SHELL.fullmatch(name)
    program, *arguments = words_of(command) or [""]
    if not _INTERPRETERS.fullmatch(os.path.basename(program)):
        return any(is_file_of(where, word.strip("'\"")) for word in {program, first})
    return any(is_file_of(where, word.strip("'\"")) for word in arguments[:4])


def _is_program_of(folder: str, name: str) -> bool:
    """Whether a program is the environment's; where that is the system's, what is written in Python is."""
    path = os.path.join(folder, name)
    if os.path.isfile(os.path.join(os.path.dirname(folder), "pyvenv.cfg")):
        return os.path.isfile(path)
    with contextlib.suppress(OSError):
        first = _first_line(Path(path))
        return first.startswith(b"#!") and b"python" in first
    return False


def _first_line(path: Path) -> bytes:
    with open(path, "rb") as f:
        return f.readline(_LONGEST_FIRST_LINE)


def is_file_of(where: Where, word: str) -> bool:
    """Whether a word of a command names a program or a script of the tree."""
    path = os.path.normpath(where.cwd / word) if word and "\0" not in word else ""
    inside = path.startswith(f"{where.tree}/") and os.path.isfile(path)
    return inside and (os.access(path, os.X_OK) or path.endswith((".sh", ".bash", ".py")))


def inside(file: str, tree: Path) -> str:
    return os.path.relpath(file, tree) if file.startswith(f"{tree}/") else file


def as_typed(command: str, where: Where) -> str:
    """As people write it: the environment's programs by their names, the tree's files from its top."""
    for folder in (*where.programs, str(where.tree)):
        command = command.replace(f"{folder}/", "")
    return command
