"""runbook -> Runbook, Stage: what is run on a pod, in which order, and what counts as evidence."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from packaging.requirements import InvalidRequirement, Requirement
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from orchestrator.config import consistency, shapes, shell_lines
from orchestrator.config.commands import needed_by_lines, programs_of_lines, programs_of_run, pytest_arguments
from orchestrator.config.consistency import all_at_once, as_pydantic
from orchestrator.config.install import Installs
from orchestrator.config.variables import EnvMap
from orchestrator.config.words import Condition, Folder, Keeps, Lines, Name, Pattern, Seconds, Size, Some, Text
from orchestrator.config.yamlfile import Document, document, named_file, read, read_numbers
from orchestrator.errors import InputError
from orchestrator.shared.schema import RULES
from orchestrator.text import nearest
from orchestrator.verdict.artifacts.asked import normal
from orchestrator.verdict.expect import wrong as wrong_expectations
from orchestrator.verdict.integrity import Glob

Source = Literal["repository", "packaged", "file"]

FOLDER = "runbooks"
_ENDINGS = (".yaml", ".yml")

AbsoluteGlob = Annotated[str, Keeps(RULES[Glob])]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, populate_by_name=True, allow_inf_nan=False)


class Limits(_Model):
    """Seconds of wall time, of silence (no output), and from SIGTERM to SIGKILL; bytes kept of each output stream."""

    wall: Seconds = 3600.0
    silence: Seconds = 600.0
    grace: Seconds = 10.0
    log_bytes: Size = 64 * 2**20


def _kept_expectations(value: dict[str, Any]) -> dict[str, Any]:
    """As each kind of evidence says itself: what pydantic is told are the places and sentences."""
    found = [as_pydantic(error, value) for error in wrong_expectations(value, closed=True)]
    if found:
        raise ValidationError.from_exception_data("expect", found)
    return {**value, "artifacts": [*map(normal, value["artifacts"])]} if "artifacts" in value else value


Expectations = Annotated[
    dict[str, Any],
    BeforeValidator(read_numbers),
    AfterValidator(_kept_expectations),
    WithJsonSchema(shapes.of_expectations()),
]


def _wrong_program(argv: list[str]) -> str | None:
    return None if argv[0] else "expected a program as its first word, got an empty one"


class Stage(_Model):
    """One process (group) on the pod and the evidence it owes; `cwd` is relative to the tree, `paths` to `cwd`;
    `harness` are files of the tree that measure, and are not what is measured.
    """

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": ["run"]}, {"required": ["shell"]}]})

    name: Name
    run: Annotated[list[Text], Field(min_length=1), Keeps(_wrong_program)] | None = None
    shell: Lines | None = None
    env: EnvMap = {}
    cwd: Folder = "."
    paths: list[Some] = []
    needs: list[str] = []
    when: list[Condition] = []
    required: bool = True
    builds: list[Pattern] = []
    harness: list[Pattern] = []
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

    @model_validator(mode="wrap")
    @classmethod
    def _as_a_whole(cls, data: object, handler: ModelWrapValidatorHandler[Stage]) -> Stage:
        return all_at_once(data, handler, consistency.of_stage(data))


def _python_version(text: object) -> object:
    if not isinstance(text, str):
        raise ValueError(f'expected a version in quotes, such as "3.12", got {text}')
    if text != "system" and not re.fullmatch(r"3\.\d{1,2}", text):
        raise ValueError(f'{text!r}: expected system or a version such as "3.12"')
    return text


PythonVersion = Annotated[
    str, BeforeValidator(_python_version), WithJsonSchema({"type": "string", "pattern": r"^(system|3\.\d{1,2})$"})
]


def _wrong_package(text: str) -> str | None:
    try:
        Requirement(text)
    except InvalidRequirement:
        return f"expected a package with or without a version range, got {text!r}"
    return None


Package = Annotated[str, Keeps(_wrong_package)]


class EnvironmentSpec(_Model):
    """Packages that the runbook needs, or `python: system` for the pod's own Python, where nothing is installed.

    `requirements` are files of the commit, `pyproject` names lists of its pyproject.toml: dependencies, extras, groups;
    `lock` is a file of theirs that holds hashes; `sdists` are packages that may be built from source.
    """

    python: PythonVersion | None = None
    requires: list[Package] = []
    optional: list[Package] = []
    extra: list[Package] = []
    requirements: list[Some] = []
    pyproject: list[Some] = []
    lock: Some | None = None
    sdists: list[str] = []

    @model_validator(mode="after")
    def _can_be_built(self) -> EnvironmentSpec:
        given = next((key for key in ("lock", "sdists") if getattr(self, key)), None)
        if self.python == "system" and given:
            raise ValueError(f"expected {given!r} only of an environment that is built, not with `python: system`")
        if self.lock and (self.requirements or self.pyproject):
            raise ValueError("expected 'lock' or what it was made from ('requirements', 'pyproject'), not both")
        return self


class LockedSpec(EnvironmentSpec):
    """With what its lock says: the versions, and the `hashes` that each package may have."""

    hashes: dict[str, list[str]] = {}


class Threshold(_Model):
    """From which value of the key `along` on one row is better than another, for `nsa-pod history`.

    A row is told by its keys, and by `column`.
    """

    stage: Name | None = None
    along: Annotated[str, Field(min_length=1)]
    faster: Annotated[dict[str, str], Field(min_length=1)]
    than: Annotated[dict[str, str], Field(min_length=1)]


class Runbook(_Model):
    """A list of stages with what they share."""

    name: Name
    requires: list[Condition] = []
    environment: EnvironmentSpec = EnvironmentSpec()
    install: Installs = []
    env: EnvMap = {}
    limits: Limits = Limits()
    outside: list[AbsoluteGlob] = []
    thresholds: dict[Name, Threshold] = {}
    stages: Annotated[list[Stage], Field(min_length=1)]

    @model_validator(mode="wrap")
    @classmethod
    def _as_a_whole(cls, data: object, handler: ModelWrapValidatorHandler[Runbook]) -> Runbook:
        return all_at_once(data, handler, consistency.of_runbook(data))

    def limits_of(self, stage: Stage) -> Limits:
        """The stage's limits over the runbook's over the defaults."""
        own = stage.limits.model_dump(exclude_unset=True) if stage.limits else {}
        return Limits.model_validate({**self.limits.model_dump(exclude_unset=True), **own})


@dataclass(frozen=True)
class RunbookFile:
    """A runbook and where it came from; `text` is what it was made from."""

    document: Document[Runbook]
    source: Source
    path: Path
    text: str

    @property
    def runbook(self) -> Runbook:
        return self.document.value

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


def named_paths(stage: Stage) -> list[str]:
    """Files that the stage needs by name: its `paths`, and what it runs and cannot have made itself."""
    programs = programs_of_run(stage.run) if stage.run is not None else needed_by_lines(stage.shell or "")
    return list(dict.fromkeys([*stage.paths, *programs]))


def named_programs(stage: Stage) -> list[str]:
    """What the stage names to run."""
    return programs_of_run(stage.run) if stage.run is not None else programs_of_lines(stage.shell or "")


def examples() -> Path:
    """Where the packaged runbooks are: package data, or the repository in a development install."""
    package = Path(__file__).parents[1]
    packaged = package / "examples"
    return packaged if packaged.is_dir() else package.parent


def own_runbooks(repo: Path) -> list[str]:
    """The names of the repository's own runbooks."""
    return sorted(names_in(repo / FOLDER))


def names_in(folder: Path) -> set[str]:
    """The names of the runbooks in a folder; a hidden file is none."""
    return {path.stem for path in folder.glob("[!.]*") if path.suffix in _ENDINGS and path.is_file()}


def find_runbook(name: str, repo: Path) -> RunbookFile:
    """The runbook of that name or path, from the working tree."""
    path, source = locate_runbook(name, repo)
    text = read(path)  # once: what is hashed is what was read
    return RunbookFile(document(text, str(path), Runbook), source, path.resolve(), text)


def locate_runbook(name: str, repo: Path) -> tuple[Path, Source]:
    """`name` under the repository's runbooks/, then the packaged ones; or a file, seen from here, else from the
    repository's top. InputError if there is none.
    """
    if "/" in name or name.endswith(_ENDINGS):
        meant = Path(name).stem
        near = f", such as {meant}" if meant in own_runbooks(repo) else ""
        if not os.path.isfile(os.path.expanduser(name)) and os.path.isfile(repo / name):
            return repo / name, "file"  # a pod's `runbook`, say, wherever the command is given
        return named_file(name, "runbook", f"a name under {FOLDER}/{near}, or a YAML file"), "file"
    folders: list[tuple[Path, Source]] = [(repo / FOLDER, "repository"), (examples() / FOLDER, "packaged")]
    for folder, source in folders:
        for path in (folder / f"{name}{ending}" for ending in _ENDINGS):
            if os.path.isfile(path):
                return path, source
    if os.path.isfile(name):
        return Path(name), "file"
    known = own_runbooks(repo) or own_runbooks(examples())  # the packaged ones validate this project's library
    raise InputError(f"unknown runbook {name!r}{nearest(name, known)}")
