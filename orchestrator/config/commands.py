"""What can be told of a stage's command by reading it: whether it is pytest, and which files it is told to run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Literal

from orchestrator.config import shell_lines
from orchestrator.shared.pythons import is_python

# What a bare argument after an option of pytest's, or of a plugin's, may be: a value. Only after these it is a path.
_PYTEST_FLAGS = frozenset(
    "--quiet --verbose --exitfirst --no-header --no-summary --showlocals --no-showlocals --lf --last-failed --ff "
    "--failed-first --nf --new-first --cache-clear --sw --stepwise --sw-skip --stepwise-skip --co --collect-only "
    "--strict --strict-config --strict-markers --pyargs --noconftest --keep-duplicates --runxfail --pdb --trace "
    "--doctest-modules --doctest-continue-on-failure --disable-warnings --disable-pytest-warnings --full-trace "
    "--continue-on-collection-errors --collect-in-virtualenv --setup-show --setup-only --setup-plan --xfail-tb".split()
)
_PYTEST_SHORT_WITH_VALUE = frozenset("kmpcoWrn")
_PYTHON_VALUES = frozenset({"-W", "-X"})
_MAKE_NO_FILES = frozenset(
    "pytest py.test set export echo printf true : ulimit date ls cat tee grep head tail wc".split()
)
_SHELLS = frozenset({"bash", "sh", "dash", "zsh"})
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")  # what `--pyargs` may take for one, where it is no file
_MENTIONS_PYTEST = re.compile(r"\b(pytest|py\.test)\b")


def pytest_arguments(run: Sequence[str]) -> list[str] | None:
    """The arguments after pytest if `run` starts pytest, else None."""
    if PurePosixPath(run[0]).name in ("pytest", "py.test"):
        return list(run[1:])
    module = python_module(run)
    return list(run[run.index("-m") + 2 :]) if module == "pytest" else None


def python_module(run: Sequence[str]) -> str | None:
    """M of `python [options] -m M ...`, else None."""
    kind, name = _python_target(run)
    return name if kind == "module" else None


def mentions_pytest(run: Sequence[str]) -> bool:
    """Whether a command that is not pytest may start one."""
    return any(_MENTIONS_PYTEST.search(word) for word in run)


def is_shell(program: str) -> bool:
    return PurePosixPath(program).name in _SHELLS


def programs_of_run(run: Sequence[str]) -> list[str]:
    """The files that a command is told to run: pytest's positionals (without `::`), FILE of `python FILE` and of
    `bash FILE`, and the command itself, where they are relative.
    """
    own = [word for word in (run[0], *_script(run)) if "/" in word or word is not run[0]]
    return [*(word for word in own if not word.startswith("/")), *_programs(run)]


def programs_of_lines(text: str) -> list[str]:
    """Those that Python and pytest are told to run in lines that run in any case."""
    return [name for name, _ in _named_in_lines(text)]


def needed_by_lines(text: str) -> list[str]:
    """Those of them that no earlier command may have made."""
    return [name for name, may_be_made in _named_in_lines(text) if not may_be_made]


def _named_in_lines(text: str) -> Iterator[tuple[str, bool]]:
    """Each with whether an earlier command may have made it: by naming it, or as other programs make what they like."""
    named: set[str] = set()
    makes_anything = False
    for command in shell_lines.commands(text):
        yield from ((name, makes_anything or name in named) for name in _programs(command.words))
        named.update(command.words, command.rest)
        program = PurePosixPath(command.words[0]).name
        makes_anything = makes_anything or not (is_python(program) or program in _MAKE_NO_FILES)


def _programs(command: Sequence[str]) -> list[str]:
    arguments = pytest_arguments(command)
    if arguments is not None:
        return _pytest_positionals(arguments)
    kind, name = _python_target(command)
    return [name] if kind == "file" else []


def _script(run: Sequence[str]) -> Iterator[str]:
    """FILE of `bash [options] FILE`."""
    if is_shell(run[0]) and len(run) > 1 and not run[1].startswith(("-", "+")):
        yield run[1]


def _python_target(run: Sequence[str]) -> tuple[Literal["module", "file", "other"], str]:
    if not is_python(run[0]):
        return "other", ""
    rest = iter(run[1:])
    for argument in rest:
        if argument == "-m":
            return "module", next(rest, "")
        if argument in ("-c", "-"):
            return "other", ""
        if argument in _PYTHON_VALUES:
            next(rest, None)
        elif not argument.startswith("-"):
            return "file", argument
    return "other", ""


def _pytest_positionals(arguments: Sequence[str]) -> list[str]:
    """The files that pytest is told to run. One that is missed here is missed by pytest itself."""
    found: list[str] = []
    value_may_follow = False
    rest = iter(arguments)
    for argument in rest:
        if argument == "--":
            found += rest
        if argument.startswith("-"):
            value_may_follow = _value_may_follow(argument)
        elif value_may_follow:
            value_may_follow = False
        else:
            found.append(argument.removeprefix("@"))  # a file of arguments, one a line
    paths = (argument.split("::", 1)[0] for argument in found)
    return [path for path in paths if not ("--pyargs" in arguments and _names_module(path))]


def _names_module(argument: str) -> bool:
    return _MODULE.fullmatch(argument) is not None and not argument.endswith(".py")


def _value_may_follow(option: str) -> bool:
    if option.startswith("--"):
        return "=" not in option and option not in _PYTEST_FLAGS
    return option[-1] in _PYTEST_SHORT_WITH_VALUE and not any(c in _PYTEST_SHORT_WITH_VALUE for c in option[1:-1])
