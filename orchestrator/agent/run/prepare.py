"""From a planned stage to the command that is run, or to the reason why it cannot be."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any, Iterator, Mapping, Sequence

from orchestrator.agent.env.interpreter import Interpreter
from orchestrator.agent.layout import Layout
from orchestrator.agent.run.supervise import Command
from orchestrator.shared import lfs
from orchestrator.shared.pythons import is_python, version_meant

PYTEST_CACHE = "pytest_cache"
"""In a stage's folder: no evidence."""
_PYTEST = re.compile(r"pytest|py\.test")
_PYTHON_OPTIONS_WITH_VALUE = ("-W", "-X")


def fill(text: str, commit: str, python: str, places: Layout) -> str:
    """`text` with {artifacts}, {commit}, {commit7}, {python} and {tree} replaced; ${commit} is a shell's."""
    values = {
        "artifacts": str(places.artifacts),
        "commit": commit,
        "commit7": commit[:7],
        "python": python,
        "tree": str(places.tree),
    }
    return re.sub(rf"(?<!\$)\{{({'|'.join(values)})\}}", lambda match: values[match[1]], text)


def with_python(argv: Sequence[str], python: str) -> list[str]:
    """`argv` with a leading python, python3 ... replaced by the environment's."""
    return [argv[0] if version_meant(argv[0]) is None else python, *argv[1:]]


def with_pytest_options(argv: Sequence[str], tree: Path, junit: Path) -> list[str]:
    """A pytest command with the agent's options: those that must win over the runbook's come last."""
    start = argv.index("-m") + 2 if module_of(argv) == "pytest" else 1
    end = argv.index("--") if "--" in argv[start:] else len(argv)
    last = ["--rootdir", str(tree)]
    if "no:junitxml" in argv:
        last += ["-p", "junitxml"]
    last += ["--junitxml", str(junit), "--junitprefix", "", "-o", "junit_family=xunit1"]
    if "no:cacheprovider" not in argv:  # its own, empty: neither in the tree nor another stage's
        last += ["-o", f"cache_dir={junit.parent / PYTEST_CACHE}"]
    return [*argv[:end], *last, *argv[end:]]


def module_of(argv: Sequence[str]) -> str | None:
    """M of `python [options] -m M ...`, else None."""
    if not is_python(argv[0]):
        return None
    rest = iter(argv[1:])
    for argument in rest:
        if argument == "-m":
            return next(rest, None)
        if argument in _PYTHON_OPTIONS_WITH_VALUE:
            next(rest, None)
        elif not argument.startswith("-") or argument in ("-", "-c"):
            return None
    return None


def wanted_modules(stages: Sequence[Mapping[str, Any]]) -> set[str]:
    """Top-level modules that the stages run with `python -m` (pytest's too)."""
    modules = (module_of(stage["argv"]) for stage in stages)
    return {module.partition(".")[0] for module in modules if module}


def why_blocked(stage: Mapping[str, Any], command: Command, interpreter: Interpreter, places: Layout) -> str | None:
    """The first path, program or module that the stage names and that is absent, as a sentence; None if all are there.

    `command` is the stage's, already filled.
    """
    return next((reason for reason in _obstacles(stage, command, interpreter, places) if reason), None)


def _obstacles(
    stage: Mapping[str, Any], command: Command, interpreter: Interpreter, places: Layout
) -> Iterator[str | None]:
    argv, env = command.argv, command.env
    for path in stage["paths"]:
        filled = path.replace("{artifacts}", str(places.artifacts))
        if not os.path.lexists(places.tree / filled):
            yield f"{path} is not in the commit" if filled == path else f"{path} is not there"
        elif lfs.lies_at(places.tree / filled):
            yield f"{path} is a Git LFS pointer: the commit does not hold the file that it stands for"
    yield _wrong_python(stage["argv"][0], interpreter)
    yield _missing_program(argv[0], env, command.cwd)
    yield _other_python(argv[0], command, interpreter, places)
    module = module_of(argv)
    if module:
        yield _missing_module(module, env, interpreter, command.cwd)


def _wrong_python(program: str, interpreter: Interpreter) -> str | None:
    version = version_meant(program)
    if version and not interpreter.version.startswith(version + "."):
        return f"{program} is not the environment's Python, which is {interpreter.version}"
    return None


def _other_python(program: str, command: Command, interpreter: Interpreter, places: Layout) -> str | None:
    """What is wrong with a Python, or a pytest, that is there and is not the environment's."""
    name = os.path.basename(program)
    if not is_python(name) and not _PYTEST.fullmatch(name):
        return None
    on_path = shutil.which(program, path=command.env["PATH"]) or ""
    path = os.path.normpath(command.cwd / program if "/" in program else on_path)
    found = (os.path.dirname(path), os.path.dirname(_starts_with(path)))
    ours = {os.path.realpath(folder) for folder in (*interpreter.bins, str(places.venv / "bin"))}
    if not ours.isdisjoint(map(os.path.realpath, found)):  # the python in it may be a link out
        return None
    return f"{program} is not the environment's: expected one in {interpreter.bin}"


def _starts_with(script: str) -> str:
    """The program that a script's first line names."""
    try:
        with open(script, "rb") as f:
            line = os.fsdecode(f.readline(4096))
    except OSError:
        return ""
    return (line[2:].split() or [""])[0] if line.startswith("#!") else ""


def _missing_program(program: str, env: Mapping[str, str], cwd: Path) -> str | None:
    if "/" in program:
        path = cwd / program
        return None if os.access(path, os.X_OK) and not path.is_dir() else f"{program} is no program on this pod"
    return None if shutil.which(program, path=env["PATH"]) else f"the program {program} is not on this pod"


def _missing_module(module: str, env: Mapping[str, str], interpreter: Interpreter, cwd: Path) -> str | None:
    top = module.partition(".")[0]
    roots = [cwd, *(cwd / entry for entry in env.get("PYTHONPATH", "").split(os.pathsep) if entry)]
    holders = [root for root in roots if (root / top).is_dir() or (root / f"{top}.py").is_file()]
    inner = module.replace(".", "/")
    if top in interpreter.modules or any((h / f"{inner}.py").is_file() or (h / inner).is_dir() for h in holders):
        return None
    return f"the module {module} is " + ("not in the commit" if holders else "neither in the commit nor installed")
