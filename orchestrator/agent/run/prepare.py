"""From a planned stage to the command that is run, or to the reason why it cannot be."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any, Iterable, Iterator, Mapping, Sequence

from orchestrator.agent.host.interpreter import Interpreter
from orchestrator.agent.run.layout import Layout

PYTEST_PLUGIN = "nsa_pod_pytest_plugin"
_PYTHON = re.compile(r"\{python\}|python(?P<version>\d+(?:\.\d+)?)?")
_PYTEST = re.compile(r"pytest|py\.test")
_PYTHON_OPTIONS_WITH_VALUE = ("-W", "-X")


def fill(text: str, commit: str, python: str, places: Layout) -> str:
    """`text` with {artifacts}, {commit} and {python} replaced; ${commit} is a shell's."""
    values = {"artifacts": str(places.artifacts), "commit": commit, "python": python}
    return re.sub(r"(?<!\$)\{(artifacts|commit|python)\}", lambda match: values[match[1]], text)


def with_python(argv: Sequence[str], python: str) -> list[str]:
    """`argv` with a leading python, python3 ... replaced by the environment's."""
    return [python if _PYTHON.fullmatch(argv[0]) else argv[0], *argv[1:]]


def with_plugin(argv: Sequence[str], tree: Path, junit: Path) -> list[str]:
    """A pytest command with the agent's options: the plugin's first, those that must win over the runbook's last."""
    start = argv.index("-m") + 2 if module_of(argv) == "pytest" else 1
    end = argv.index("--") if "--" in argv[start:] else len(argv)
    first = ["-p", PYTEST_PLUGIN, "-p", "no:cacheprovider"]
    last = ["--rootdir", str(tree), "--confcutdir", str(tree)]
    last += ["--junitxml", str(junit), "--junitprefix", "", "-o", "junit_family=xunit1"]
    return [*argv[:start], *first, *argv[start:end], *last, *argv[end:]]


def with_plugin_variable(planned: Mapping[str, str]) -> dict[str, str]:
    """The variable that brings the plugin into each pytest that another program runs, beside the plan's plugins."""
    return {"PYTEST_PLUGINS": ",".join(filter(None, [PYTEST_PLUGIN, planned.get("PYTEST_PLUGINS", "")]))}


def module_of(argv: Sequence[str]) -> str | None:
    """M of `python [options] -m M ...`, else None."""
    if not runs_python(argv):
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


def runs_python(argv: Sequence[str]) -> bool:
    """Whether the command is a Python."""
    return _PYTHON.fullmatch(os.path.basename(argv[0])) is not None


def wanted_modules(stages: Sequence[Mapping[str, Any]]) -> set[str]:
    """Top-level modules that the stages run with `python -m` (pytest's too)."""
    modules = (module_of(stage["argv"]) for stage in stages)
    return {module.partition(".")[0] for module in modules if module}


def why_blocked(
    stage: Mapping[str, Any], argv: Sequence[str], env: Mapping[str, str], interpreter: Interpreter, places: Layout
) -> str | None:
    """The first path, program or module that the stage names and that is absent, as a sentence; None if all are there.

    `argv` and `env` are the stage's, already filled.
    """
    return next((reason for reason in _obstacles(stage, argv, env, interpreter, places) if reason), None)


def import_roots(tree: Path, env: Mapping[str, str]) -> list[str]:
    """Directories of the tree from which a stage imports: the top, src, and entries of the stage's PYTHONPATH."""
    entries = [os.path.normpath(tree / entry) for entry in env.get("PYTHONPATH", "").split(os.pathsep) if entry]
    inside = [entry for entry in entries if entry.startswith(f"{tree}/")]
    return list(dict.fromkeys([str(tree), str(tree / "src"), *inside]))


def importable_names(tree: Path, roots: Iterable[str], files: Iterable[str]) -> set[str]:
    """Top-level module names below the import roots: `files` (of the tree) that are Python, and their directories."""
    python = [f"{tree}/{path}" for path in files if path.endswith(".py")]
    below = (path[len(root) + 1 :] for root in roots for path in python if path.startswith(f"{root}/"))
    tops = (re.sub(r"\.py$", "", path.partition("/")[0]) for path in below)
    return {name for name in tops if name.isidentifier()}


def _obstacles(
    stage: Mapping[str, Any], argv: Sequence[str], env: Mapping[str, str], interpreter: Interpreter, places: Layout
) -> Iterator[str | None]:
    for path in stage["paths"]:
        filled = path.replace("{artifacts}", str(places.artifacts))
        if not os.path.lexists(places.tree / filled):
            yield f"{path} is not in the commit" if filled == path else f"{path} is not there"
    yield _wrong_python(stage["argv"][0], interpreter)
    yield _missing_program(argv[0], env, places.tree)
    yield _other_python(argv[0], env, interpreter, places.tree)
    module = module_of(argv)
    if module:
        yield _missing_module(module, env, interpreter, places.tree)


def _wrong_python(program: str, interpreter: Interpreter) -> str | None:
    match = _PYTHON.fullmatch(program)
    if match and match["version"] and not interpreter.version.startswith(match["version"] + "."):
        return f"{program} is not the environment's Python, which is {interpreter.version}"
    return None


def _other_python(program: str, env: Mapping[str, str], interpreter: Interpreter, tree: Path) -> str | None:
    """What is wrong with a Python, or a pytest, that is there and is not the environment's."""
    name = os.path.basename(program)
    if not _PYTHON.fullmatch(name) and not _PYTEST.fullmatch(name):
        return None
    path = os.path.normpath(tree / program if "/" in program else shutil.which(program, path=env["PATH"]) or "")
    found = (os.path.dirname(path), os.path.dirname(_starts_with(path)))
    if os.path.realpath(interpreter.bin) in map(os.path.realpath, found):  # the python in it may be a link out
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


def _missing_program(program: str, env: Mapping[str, str], tree: Path) -> str | None:
    if "/" in program:
        path = tree / program
        return None if os.access(path, os.X_OK) and not path.is_dir() else f"{program} is no program on this pod"
    return None if shutil.which(program, path=env["PATH"]) else f"the program {program} is not on this pod"


def _missing_module(module: str, env: Mapping[str, str], interpreter: Interpreter, tree: Path) -> str | None:
    top = module.partition(".")[0]
    roots = [tree, *(tree / entry for entry in env.get("PYTHONPATH", "").split(os.pathsep) if entry)]
    holders = [root for root in roots if (root / top).is_dir() or (root / f"{top}.py").is_file()]
    inner = module.replace(".", "/")
    if top in interpreter.modules or any((h / f"{inner}.py").is_file() or (h / inner).is_dir() for h in holders):
        return None
    return f"the module {module} is " + ("not in the commit" if holders else "neither in the commit nor installed")
