"""A lock that a repository keeps: pylock.toml (PEP 751), uv.lock, or a requirements file with hashes."""

from __future__ import annotations

import posixpath
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from orchestrator.config.projects import Read, as_requirement, hashed_requirements, read_pyproject
from orchestrator.errors import InputError
from orchestrator.shared.vendor import tomli
from orchestrator.text import plain

_LIMIT_S = 120
_SHA256 = "sha256:"


@dataclass(frozen=True)
class Lock:
    """Every package as `name==version`, with its marker; the hashes that each may have, by name; the Pythons that it
    is for, as a version range (None: it does not say).
    """

    requirements: tuple[str, ...]
    hashes: dict[str, list[str]]
    python: str | None


def read_lock(path: str, read: Read, extras: Sequence[str] = ()) -> Lock:
    """The lock at `path`; of a uv.lock, what the project needs, with these extras or groups. InputError for what is
    none, and for packages that no index has.
    """
    content = read(path)
    if content is None:
        raise InputError(f"environment: lock: {path} is not in the commit")
    name = posixpath.basename(path)
    try:
        if name == "uv.lock":
            return _of_uv(path, content, read, extras)
        if name.endswith(".toml"):
            return _of_pylock(path, content)
    except (ValueError, LookupError, TypeError, AttributeError, InvalidSpecifier) as e:
        raise InputError(f"environment: lock: {path} cannot be read: {e}") from e
    return _of_requirements(path, read, None)


def _of_pylock(path: str, content: bytes) -> Lock:
    data = tomli.loads(content.decode())
    if "lock-version" not in data:
        raise InputError(f"environment: lock: {path}: expected a pylock.toml, with a lock-version")
    found: list[tuple[str, frozenset[str]]] = []
    for package in data.get("packages", ()):
        if package.get("directory", {}).get("path") in (".", "./"):
            continue  # the repository itself
        if "version" not in package or {"vcs", "directory", "archive"} & set(package):
            raise InputError(f"environment: lock: {path}: {package['name']} is of no package index")
        marker = f" ; {package['marker']}" if package.get("marker") else ""
        files = [*package.get("wheels", ()), *([package["sdist"]] if "sdist" in package else ())]
        hashes = frozenset(_SHA256 + file["hashes"]["sha256"] for file in files if "sha256" in file.get("hashes", {}))
        found.append((f"{package['name']}=={package['version']}{marker}", hashes))
    return _lock(path, found, data.get("requires-python"))


def _of_uv(path: str, content: bytes, read: Read, extras: Sequence[str]) -> Lock:
    """What uv itself makes of it."""
    uv = shutil.which("uv")
    if uv is None:
        raise InputError(f"environment: lock: {path}: uv is not on the PATH, and reads it (pip install uv)")
    folder = posixpath.dirname(path)
    project = read(posixpath.join(folder, "pyproject.toml"))
    if project is None:
        raise InputError(f"environment: lock: {path}: expected a pyproject.toml beside it")
    known = read_pyproject(folder or ".", read)
    options = ["--frozen", "--no-emit-project", "--no-header", "--no-annotate", "--no-python-downloads", "--offline"]
    for name in extras:
        options += ["--extra" if known and name in known.extras else "--group", name]
    with tempfile.TemporaryDirectory() as place:
        Path(place, "uv.lock").write_bytes(content)
        Path(place, "pyproject.toml").write_bytes(project)
        command = [uv, "export", "--quiet", *options, "--directory", place]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
        except subprocess.TimeoutExpired as e:
            raise InputError(f"environment: lock: {path}: uv did not read it within {_LIMIT_S} s") from e
    if done.returncode != 0:
        raise InputError(f"environment: lock: {path}: uv export: {plain(done.stderr)}")
    requires = tomli.loads(content.decode()).get("requires-python")
    return _of_requirements(path, lambda _: done.stdout.encode(), requires)


def _of_requirements(path: str, read: Read, python: str | None) -> Lock:
    return _lock(path, hashed_requirements(path, read), python)


def _lock(path: str, found: Iterable[tuple[str, frozenset[str]]], python: str | None) -> Lock:
    requirements: list[str] = []
    hashes: dict[str, list[str]] = {}
    for text, known in found:
        requirement = as_requirement(text, path)
        name = canonicalize_name(requirement.name)
        if requirement.url or [spec.operator for spec in requirement.specifier] != ["=="] or not known:
            raise InputError(f"environment: lock: {path}: {text!r}: expected NAME==VERSION with hashes")
        requirements.append(text)
        hashes.setdefault(name, []).extend(_sha256(known))
    if python is not None:
        SpecifierSet(python)
    return Lock(tuple(requirements), {name: sorted(set(known)) for name, known in hashes.items()}, python)


def _sha256(hashes: Iterable[str]) -> Iterator[str]:
    return (found[len(_SHA256) :] for found in hashes if found.startswith(_SHA256))
