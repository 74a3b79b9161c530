"""What a runbook needs on a pod, with what the commit's own files say: packages, and the repository's own projects."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from dataclasses import dataclass

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from orchestrator.config.install import Install
from orchestrator.config.locks import read_lock
from orchestrator.config.markers import applies
from orchestrator.config.projects import Project, Read, as_requirement, find_project, read_pyproject, read_requirements
from orchestrator.config.runbook import EnvironmentSpec, LockedSpec, Runbook
from orchestrator.errors import InputError
from orchestrator.pairing.choose import SYSTEM
from orchestrator.pairing.wanted import PAIRED, is_python
from orchestrator.shared.wheels.lockfile import is_cuda_package

_LOCAL = re.compile(r"\+[\w.]+")
_MOST_MINORS = 30  # of Python 3


@dataclass(frozen=True)
class Installation:
    """A project of the repository, and how the runbook wants it installed."""

    asked: Install
    project: Project

    @property
    def paired(self) -> list[str]:
        """Build requirements that only the environment can have."""
        return [text for text in self.project.requires if _is_paired(as_requirement(text, self.asked.path))]

    def isolated(self, system: bool) -> bool:
        """Whether its build sees nothing but its requirements: not where torch, say, is one of them."""
        return not system and not self.paired if self.asked.isolated is None else self.asked.isolated


@dataclass(frozen=True)
class Needs:
    """`spec` names every package by itself, and its Python may be a range; `installations` are built over that
    environment; of the packages `asked_about` conditions ask (`has:PACKAGE`) whether they are there.
    """

    spec: EnvironmentSpec
    installations: tuple[Installation, ...] = ()
    asked_about: tuple[str, ...] = ()

    def adding(self, requirements: Iterable[Requirement]) -> Needs:
        """With further packages in the environment."""
        extra = [*self.spec.extra, *_plain(requirements)]
        return dataclasses.replace(self, spec=self.spec.model_copy(update={"extra": list(dict.fromkeys(extra))}))


def find_needs(runbook: Runbook, read: Read, commit: str = "") -> Needs:
    """What `runbook` needs for the commit whose files `read` gives. InputError for what these do not say."""
    conditions = [*runbook.requires, *(condition for stage in runbook.stages for condition in stage.when)]
    asked = tuple(condition[4:] for condition in conditions if condition.startswith("has:"))
    return dataclasses.replace(_of_packages(runbook, read, commit), asked_about=asked)


def _of_packages(runbook: Runbook, read: Read, commit: str) -> Needs:
    spec = runbook.environment
    named = [text for path in spec.requirements for text in read_requirements(path, read)]
    if spec.pyproject:
        project = read_pyproject(".", read)
        if project is None:
            raise InputError("environment: pyproject: pyproject.toml is not in the commit")
        named += [text for name in spec.pyproject for text in project.named(name)]
    installations = tuple(Installation(entry, find_project(entry, read, commit)) for entry in runbook.install)
    if spec.lock:
        return _locked(spec, read, installations)
    own = {canonicalize_name(each.project.name) for each in installations if each.project.name}
    for each in installations:
        named += each.project.with_extras(each.asked.extras if each.project.name else ())
        if spec.python != SYSTEM:
            named += each.paired
    found = [as_requirement(text, "environment") for text in named]
    flat = spec.model_copy(update={"requirements": [], "pyproject": [], "python": _python(spec, installations)})
    return Needs(flat, installations).adding(r for r in found if canonicalize_name(r.name) not in own)


def _python(spec: EnvironmentSpec, installations: tuple[Installation, ...]) -> str | None:
    """The runbook's, else the range that what is installed is for."""
    ranges = [(each.asked.path, each.project.python) for each in installations if each.project.python]
    for path, wanted in ranges:
        if spec.python not in (None, SYSTEM) and not is_python(spec.python, wanted):
            raise InputError(f"install: {path} is for Python {wanted}, not for {spec.python}")
    if not any(all(is_python(f"3.{minor}", wanted) for _, wanted in ranges) for minor in range(_MOST_MINORS)):
        told = ", ".join(f"{path} is for {wanted}" for path, wanted in ranges)
        raise InputError(f"install: expected projects that share a Python, but {told}")
    return spec.python or ",".join(dict.fromkeys(wanted for _, wanted in ranges)) or None


def _locked(spec: EnvironmentSpec, read: Read, installations: tuple[Installation, ...]) -> Needs:
    """The packages of the lock; of what is paired just the versions, since its builds depend on the pod."""
    lock = read_lock(str(spec.lock), read, [extra for each in installations for extra in each.asked.extras])
    if lock.python and spec.python and not is_python(spec.python, lock.python):
        raise InputError(f"environment: lock: {spec.lock} is for Python {lock.python}, not for {spec.python}")
    python = spec.python or lock.python
    found = [as_requirement(text, str(spec.lock)) for text in lock.requirements]
    found = [requirement for requirement in found if not is_cuda_package(requirement.name)]
    free = {canonicalize_name(requirement.name) for requirement in found if not _is_paired(requirement)}
    hashes = {name: known for name, known in lock.hashes.items() if name in free}
    # Not validated: of a runbook, a range of Pythons would not be one.
    locked = LockedSpec.model_construct(**{**spec.model_dump(), "python": python, "hashes": hashes})
    return Needs(locked, installations).adding(found)


def _plain(requirements: Iterable[Requirement]) -> list[str]:
    """As a runbook names them: of what is paired, a version range and nothing else."""
    found = []
    for requirement in requirements:
        if not _is_paired(requirement) or requirement.url:
            found.append(str(requirement))
        elif applies(requirement):
            found.append(f"{requirement.name}{_LOCAL.sub('', str(requirement.specifier))}")
    return found


def _is_paired(requirement: Requirement) -> bool:
    return canonicalize_name(requirement.name) in PAIRED
