"""What a repository's own files say that it needs: pyproject.toml (PEP 621, 518 and 735), requirements files.

`Read` gives the content of a file of the commit, None for one that it has not got.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from orchestrator.config.install import Install
from orchestrator.errors import InputError
from orchestrator.shared.vendor import tomli
from orchestrator.text import nearest

Read = Callable[[str], bytes | None]

DEPENDENCIES = "dependencies"
"""In `pyproject: [...]`, beside names of extras and groups."""
_BUILD_REQUIRES = ("setuptools>=40.8.0",)  # PEP 518: of a project that says nothing
_CONTINUED = re.compile(r"\\\r?\n")
_COMMENT = re.compile(r"(^|\s)#.*$")
_INCLUDE = re.compile(r"(?:-r|--requirement)(?:\s+|=)?(?P<path>\S+)")
_HASH = re.compile(r"\s--hash(?:=|\s+)(?P<hash>\S+)")


@dataclass(frozen=True)
class Project:
    """A project in the folder `path`; `name` is None, and `dependencies` are none, where only a build tells them.

    `requires` is what its build needs, `python` the range of Pythons that it is for.
    """

    path: str
    name: str | None
    requires: tuple[str, ...]
    dependencies: tuple[str, ...]
    extras: Mapping[str, Sequence[str]] = field(default_factory=dict)
    groups: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    python: str | None = None

    def with_extras(self, names: Sequence[str]) -> list[str]:
        """The dependencies, and those of these extras."""
        return [*self.dependencies, *(text for name in names for text in self.extra(name))]

    def extra(self, name: str, within: tuple[str, ...] = ()) -> list[str]:
        """What an extra brings; one that names others of the same project brings theirs."""
        known = {canonicalize_name(extra): texts for extra, texts in self.extras.items()}
        if canonicalize_name(name) not in known:
            raise InputError(f"{_file(self.path)} has no extra {name!r}{nearest(name, self.extras)}")
        found: list[str] = []
        for text in known[canonicalize_name(name)]:
            requirement = as_requirement(text, _file(self.path))
            if self.name and canonicalize_name(requirement.name) == canonicalize_name(self.name):
                inner = sorted(set(requirement.extras) - set(within))
                found += [more for extra in inner for more in self.extra(extra, (*within, name))]
            else:
                found.append(text)
        return found

    def group(self, name: str, within: tuple[str, ...] = ()) -> list[str]:
        """What a dependency group brings, those that it includes too."""
        known = {canonicalize_name(group): entries for group, entries in self.groups.items()}
        if canonicalize_name(name) not in known or name in within:
            raise InputError(f"{_file(self.path)} has no dependency group {name!r}{nearest(name, self.groups)}")
        found: list[str] = []
        for entry in known[canonicalize_name(name)]:
            inner = entry.get("include-group") if isinstance(entry, dict) else None
            found += self.group(str(inner), (*within, name)) if inner else [str(entry)]
        return found

    def named(self, name: str) -> list[str]:
        """What `pyproject: [name]` stands for."""
        if name == DEPENDENCIES:
            return list(self.dependencies)
        kinds = ((self.extras, self.extra), (self.groups, self.group))
        having = [take for names, take in kinds if canonicalize_name(name) in set(map(canonicalize_name, names))]
        if not having:
            known = ", ".join(dict.fromkeys((DEPENDENCIES, *self.extras, *self.groups)))
            raise InputError(f"environment: pyproject: {name!r}: expected one of {known}")
        return [text for take in having for text in take(name)]


def find_project(entry: Install, read: Read, commit: str) -> Project:
    """The project that a runbook's `install` names; InputError for a folder without one."""
    project = read_pyproject(entry.path, read)
    if project is None and not any(read(_in(entry.path, name)) is not None for name in ("setup.py", "setup.cfg")):
        raise InputError(
            f"install: {entry.path}: there is no project in commit {commit[:7]}: expected {_file(entry.path)} or "
            f"{_in(entry.path, 'setup.py')}"
        )
    project = project or Project(entry.path, None, _BUILD_REQUIRES, ())
    for text in (*project.requires, *project.dependencies):
        as_requirement(text, _file(entry.path))
    for extra in entry.extras if project.name else ():
        project.extra(extra)
    return project


def read_pyproject(path: str, read: Read) -> Project | None:
    """What pyproject.toml in the folder `path` says; None if there is none. InputError for one that cannot be read."""
    text = read(_file(path))
    if text is None:
        return None
    try:
        data = tomli.loads(text.decode())
        own, build = data.get("project", {}), data.get("build-system", {})
        is_static = "name" in own and not {"dependencies", "optional-dependencies"} & set(own.get("dynamic", ()))
        return Project(
            path,
            str(own["name"]) if is_static else None,
            tuple(build.get("requires", _BUILD_REQUIRES)),
            tuple(own.get("dependencies", ())),
            dict(own.get("optional-dependencies", {})),
            dict(data.get("dependency-groups", {})),
            str(SpecifierSet(own["requires-python"])) if own.get("requires-python") else None,
        )
    except (ValueError, TypeError, AttributeError) as e:
        raise InputError(f"{_file(path)} cannot be read: {e}") from e


def read_requirements(path: str, read: Read, within: tuple[str, ...] = ()) -> list[str]:
    """The requirements in a file, and in those that it includes. InputError for what a runbook cannot take over."""
    found = []
    for line in _lines(path, read):
        include = _INCLUDE.fullmatch(line)
        if include:
            inner = posixpath.normpath(posixpath.join(posixpath.dirname(path), include["path"]))
            found += read_requirements(inner, read, (*within, path)) if inner not in within else []
        elif line.startswith("-"):
            raise InputError(f"{path}: {line!r}: expected packages: {_instead(line)}")
        elif _HASH.search(line):
            raise InputError(f"{path} holds hashes: name it as `lock:`, not under `requirements:`")
        else:
            found.append(str(as_requirement(line, path)))
    return found


def hashed_requirements(path: str, read: Read) -> list[tuple[str, frozenset[str]]]:
    """(requirement, its hashes as "sha256:...") of each line of a locked requirements file."""
    lines = [line for line in _lines(path, read) if not line.startswith("-")]
    return [(_HASH.sub("", line).strip(), frozenset(m["hash"] for m in _HASH.finditer(line))) for line in lines]


def as_requirement(text: str, place: str) -> Requirement:
    """InputError, with the place that names it, for what is none."""
    try:
        return Requirement(text)
    except (InvalidRequirement, TypeError) as e:
        raise InputError(f"{place}: {text!r}: expected a package with or without a version range") from e


def _lines(path: str, read: Read) -> Iterator[str]:
    text = read(path)
    if text is None:
        raise InputError(f"environment: {path} is not in the commit")
    for line in _CONTINUED.sub(" ", text.decode("utf-8-sig", "replace")).splitlines():
        line = _COMMENT.sub("", line).strip()
        if line:
            yield line


def _instead(line: str) -> str:
    if line.startswith(("-e", "--editable")):
        return "a project of the repository is named under `install:`"
    if line.startswith(("-c", "--constraint")):
        return "their ranges stand where the packages are named"
    return "which package index is asked is the pod's own matter (its pip settings)"


def _file(path: str) -> str:
    return _in(path, "pyproject.toml")


def _in(path: str, name: str) -> str:
    return posixpath.normpath(posixpath.join(path, name))
