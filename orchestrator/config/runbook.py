"""runbook -> Runbook, Stage: what is run on a pod, in which order, and what counts as evidence."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from orchestrator.config import shell_lines
from orchestrator.config.variables import EnvMap
from orchestrator.config.yamlfile import loads, nearest, read
from orchestrator.errors import InputError
from orchestrator.shared.globs import wrong_pattern
from orchestrator.shared.schema import MISSING, RULES, Error
from orchestrator.verdict.artifacts.asked import normal
from orchestrator.verdict.expect import wrong as wrong_expectations
from orchestrator.verdict.integrity import Glob

Source = Literal["repository", "packaged", "file"]

_CONDITION = re.compile(r"^(cuda|sm>=\d{2,3}|has:[A-Za-z0-9._-]+)$")
# What a bare argument after an option of pytest's, or of a plugin's, may be: a value. Only after these it is a path.
_PYTEST_FLAGS = frozenset(
    "--quiet --verbose --exitfirst --no-header --no-summary --showlocals --no-showlocals --lf --last-failed --ff "
    "--failed-first --nf --new-first --cache-clear --sw --stepwise --sw-skip --stepwise-skip --co --collect-only "
    "--strict --strict-config --strict-markers --pyargs --noconftest --keep-duplicates --runxfail --pdb --trace "
    "--doctest-modules --doctest-continue-on-failure --disable-warnings --disable-pytest-warnings --full-trace "
    "--continue-on-collection-errors --collect-in-virtualenv --setup-show --setup-only --setup-plan --xfail-tb".split()
)
_PYTEST_SHORT_WITH_VALUE = frozenset("kmpcoWrn")
_PYTHON = re.compile(r"^(\{python\}|python(\d(\.\d+)?)?)$")
_PYTHON_VALUES = frozenset({"-W", "-X"})


def _condition(text: str) -> str:
    if not _CONDITION.match(text):
        raise ValueError("expected cuda, sm>=NN or has:PACKAGE")
    return text


def _pattern(text: str) -> str:
    wrong = wrong_pattern(text)
    if wrong:
        raise ValueError(wrong)
    return text


def _absolute(pattern: str) -> str:
    wrong = RULES[Glob](pattern)
    if wrong:
        raise ValueError(wrong)
    return pattern


AbsoluteGlob = Annotated[str, AfterValidator(_absolute)]
Condition = Annotated[str, AfterValidator(_condition)]
Pattern = Annotated[str, AfterValidator(_pattern)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
Seconds = Annotated[float, Field(gt=0, strict=False)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, populate_by_name=True, allow_inf_nan=False)


class Limits(_Model):
    """Seconds of wall time, of silence (no output), and from SIGTERM to SIGKILL; bytes kept of each output stream."""

    wall: Seconds = 3600.0
    silence: Seconds = 600.0
    grace: Seconds = 10.0
    log_bytes: Annotated[int, Field(gt=0)] = 64 * 2**20


def _expectations(value: dict[str, Any]) -> dict[str, Any]:
    """As each kind of evidence says itself: what pydantic is told are the places and sentences."""
    found = [
        InitErrorDetails(type=_as_pydantic(error), loc=error.at, input=value)
        for error in wrong_expectations(value, closed=True)
    ]
    if found:
        raise ValidationError.from_exception_data("expect", found)
    plain = {key: given for key, given in value.items() if given is not None}
    return {**plain, "artifacts": [*map(normal, plain["artifacts"])]} if "artifacts" in plain else plain


def _as_pydantic(error: Error) -> PydanticCustomError:
    """With pydantic's own names for what its errors also say: keys that are missing, or not known."""
    if error.known:
        said = f"{error.sentence}{nearest(str(error.at[-1]), error.known)}"
        return PydanticCustomError("unknown_key", "{said}", {"said": said})
    kind = "missing" if error.sentence == MISSING else "expectation"
    return PydanticCustomError(kind, "{said}", {"said": error.sentence})


Expectations = Annotated[dict[str, Any], AfterValidator(_expectations)]


class Stage(_Model):
    """One process (group) on the pod and the evidence it owes."""

    name: Name
    run: Annotated[list[str], Field(min_length=1)] | None = None
    shell: Annotated[str, Field(pattern=r"\S")] | None = None
    env: EnvMap = {}
    paths: list[str] = []
    needs: list[str] = []
    when: list[Condition] = []
    required: bool = True
    builds: list[Pattern] = []
    exclusive: Literal["gpu"] | None = None
    limits: Limits | None = None
    outside: list[AbsoluteGlob] = []
    expect: Expectations = {}

    @property
    def argv(self) -> list[str]:
        """What is run: `run`, or bash with the lines of `shell`."""
        return shell_lines.argv(self.shell) if self.shell is not None else list(self.run or ())

    @property
    def is_pytest(self) -> bool:
        return pytest_arguments(self.argv) is not None

    @model_validator(mode="after")
    def _one_command(self) -> Stage:
        if (self.run is None) == (self.shell is None):
            raise ValueError("expected either 'run' (a command and its arguments) or 'shell' (lines for bash)")
        return self

    @model_validator(mode="after")
    def _evidence_fits(self) -> Stage:
        if not self.is_pytest and self.expect.get("routes"):
            raise ValueError("expected 'routes' only of a stage that runs pytest")
        if not self.is_pytest and self.shell is None and "tests" in self.expect:
            raise ValueError("expected 'tests' only of a stage that runs pytest, or lines of 'shell'")
        for key in ("kills", "mutants"):
            if not self.is_pytest and self.expect.get(key):
                raise ValueError(f"expected {key!r} only of a stage that runs pytest: its tests are run again")
        named = [*self.expect.get("kills", ()), *(mutant["patch"] for mutant in self.expect.get("mutants", ()))]
        twice = next((name for name in named if named.count(name) > 1), None)
        if twice:
            raise ValueError(f"expected each of 'kills' and 'mutants' once, got {twice!r} twice")
        return self


class EnvironmentSpec(_Model):
    """Packages that the runbook needs, or `python: system` for the pod's own Python, where nothing is installed."""

    python: Literal["system"] | None = None
    requires: list[str] = []
    optional: list[str] = []
    extra: list[str] = []


class Runbook(_Model):
    """A list of stages with what they share."""

    name: Name
    requires: list[Condition] = []
    environment: EnvironmentSpec = EnvironmentSpec()
    env: EnvMap = {}
    limits: Limits = Limits()
    outside: list[AbsoluteGlob] = []
    stages: Annotated[list[Stage], Field(min_length=1)]

    @model_validator(mode="after")
    def _consistent(self) -> Runbook:
        seen: set[str] = set()
        owners: dict[str, str] = {}
        for stage in self.stages:
            if stage.name in seen:
                raise ValueError(f"expected one stage of each name, got two called {stage.name!r}")
            for need in stage.needs:
                if need not in seen:
                    raise ValueError(
                        f"stage {stage.name!r} needs {need!r}: expected an earlier stage{nearest(need, seen)}"
                    )
            for artifact in stage.expect.get("artifacts", ()):
                owner = owners.setdefault(artifact["path"], stage.name)
                if owner != stage.name:
                    raise ValueError(
                        f"artifact {artifact['path']!r}: expected one owner, got stages {owner!r} and {stage.name!r}"
                    )
            seen.add(stage.name)
        return self

    def limits_of(self, stage: Stage) -> Limits:
        """The stage's limits over the runbook's over the defaults."""
        own = stage.limits.model_dump(exclude_unset=True) if stage.limits else {}
        return Limits.model_validate({**self.limits.model_dump(exclude_unset=True), **own})


@dataclass(frozen=True)
class RunbookFile:
    """A runbook and where it came from; `text` is what it was made from."""

    runbook: Runbook
    source: Source
    path: Path
    text: str

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


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


def named_paths(stage: Stage) -> list[str]:
    """Files that the stage names: its `paths`, and what it runs."""
    return list(dict.fromkeys([*stage.paths, *named_programs(stage)]))


def named_programs(stage: Stage) -> list[str]:
    """What the stage names to run: pytest's positionals (without `::`), FILE of `python FILE`."""
    commands = [stage.argv] if stage.shell is None else shell_lines.commands(stage.shell)
    return [name for command in commands for name in _programs(command)]


def _programs(command: Sequence[str]) -> list[str]:
    arguments = pytest_arguments(command)
    if arguments is not None:
        return _pytest_positionals(arguments)
    kind, name = _python_target(command)
    return [name] if kind == "file" else []


def _python_target(run: Sequence[str]) -> tuple[Literal["module", "file", "other"], str]:
    if not _PYTHON.match(PurePosixPath(run[0]).name):
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
            return found + [path.split("::", 1)[0] for path in rest]
        if argument.startswith("-"):
            value_may_follow = _value_may_follow(argument)
        elif value_may_follow:
            value_may_follow = False
        else:
            found.append(argument.split("::", 1)[0])
    return found


def _value_may_follow(option: str) -> bool:
    if option.startswith("--"):
        return "=" not in option and option not in _PYTEST_FLAGS
    return option[-1] in _PYTEST_SHORT_WITH_VALUE and not any(c in _PYTEST_SHORT_WITH_VALUE for c in option[1:-1])


def examples() -> Path:
    """Where the packaged pods.yaml and runbooks are: package data, or the repository in a development install."""
    package = Path(__file__).parents[1]
    packaged = package / "examples"
    return packaged if packaged.is_dir() else package.parent


def find_runbook(name: str, repo: Path) -> RunbookFile:
    """`name` under the repository's runbooks/, then the packaged ones; or a file, from the working tree."""
    if "/" in name or name.endswith((".yaml", ".yml")):
        return _read(Path(os.path.expanduser(name)), "file")
    folders: list[tuple[Source, Path]] = [
        ("repository", repo / "runbooks"),
        ("packaged", examples() / "runbooks"),
    ]
    for source, folder in folders:
        if os.path.isfile(folder / f"{name}.yaml"):  # False also for what cannot be a path
            return _read(folder / f"{name}.yaml", source)
    known = {p.stem for _, folder in folders for p in folder.glob("*.yaml")}
    raise InputError(f"unknown runbook {name!r}{nearest(name, known)}")


def _read(path: Path, source: Source) -> RunbookFile:
    if not os.path.isfile(path):
        raise InputError(f"runbook {path} does not exist: expected a name under runbooks/ or a YAML file")
    text = read(path)  # once: what is hashed is what was read
    return RunbookFile(loads(text, str(path), Runbook), source, path.resolve(), text)
