"""The installers of a pod: uv where it is or can be had, else pip; both with the settings that the pod's pip has."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.agent.env.fetch import fetch_uv
from orchestrator.agent.env.progress import Progress, run
from orchestrator.shared.failure import Failure
from orchestrator.shared.query import ask
from orchestrator.shared.wheels.lock import Wheel, from_pylock, from_report
from orchestrator.shared.wheels.settings import Settings

_UV_LEAST = (0, 7)  # writes pylock.toml
_PIP_LEAST = (22, 3)  # has `--report` and `--python`
_RESOLVE_LIMIT_S = 1800
_INSTALL_LIMIT_S = 7200
_ASK_LIMIT_S = 120
_WHEELS_ONLY = ("--only-binary", ":all:")


class Installer(ABC):
    """What resolves and installs: uv or pip, with the pod's settings."""

    name: str
    version: str

    @abstractmethod
    def make_environment(self, python: str, root: Path, progress: Progress) -> None:
        """A virtual environment of `python` at `root`, with nothing in it."""

    @abstractmethod
    def resolve(self, python: str, wanted: Sequence[str], settings: Settings, progress: Progress) -> list[Wheel]:
        """The wheels that the requirements `wanted` come to for `python`. Nothing is installed."""

    @abstractmethod
    def install(self, root: Path, lock: Path, settings: Settings, progress: Progress) -> None:
        """Install exactly the wheels of the lock file, by their hashes."""

    @abstractmethod
    def forget(self, packages: Sequence[str], progress: Progress) -> None:
        """Drop what a cache of unpacked wheels keeps of these packages."""


class Uv(Installer):
    """uv, with its cache below the workdir: environments share files with it by hard links."""

    name = "uv"

    def __init__(self, path: str, version: str, cache: Path) -> None:
        self.path, self.version, self._cache = path, version, cache

    def make_environment(self, python: str, root: Path, progress: Progress) -> None:
        command = ["venv", "--quiet", "--no-project", "--python", python, str(root)]
        self._run(command, Settings(), progress, _ASK_LIMIT_S)

    def resolve(self, python: str, wanted: Sequence[str], settings: Settings, progress: Progress) -> list[Wheel]:
        command = ["pip", "compile", "-", "--format", "pylock.toml", "--no-header", "--no-annotate", *_WHEELS_ONLY]
        command += ["--python", python, *_offline(settings)]
        return from_pylock(self._run(command, settings, progress, _RESOLVE_LIMIT_S, "\n".join(wanted)))

    def install(self, root: Path, lock: Path, settings: Settings, progress: Progress) -> None:
        command = ["pip", "install", "--no-deps", "--require-hashes", "--python", _python(root), "-r", str(lock)]
        command += _offline(settings)
        self._run(command, settings, progress, _INSTALL_LIMIT_S)

    def forget(self, packages: Sequence[str], progress: Progress) -> None:
        self._run(["cache", "clean", *packages], Settings(), progress, _ASK_LIMIT_S)

    def managed_python(self, minor: str, folder: Path, progress: Progress) -> str:
        """A Python that uv fetches into `folder` (or already did)."""
        # Without the link that uv would put into the user's own ~/.local/bin.
        variables = {"UV_PYTHON_INSTALL_DIR": str(folder), "UV_PYTHON_INSTALL_BIN": "0"}
        for command in (["python", "install", minor], ["python", "find", "--managed-python", minor]):
            output = self._run(command, Settings(), progress, _INSTALL_LIMIT_S, more=variables)
        return output.strip()

    def _run(
        self,
        command: Sequence[str],
        settings: Settings,
        progress: Progress,
        limit_s: float,
        input: str = "",
        more: Mapping[str, str] | None = None,
    ) -> str:
        variables = {"UV_CACHE_DIR": str(self._cache), "UV_NO_PROGRESS": "1", "UV_PYTHON_DOWNLOADS": "manual"}
        variables.update(settings.for_uv(), **(more or {}))
        return run([self.path, *command], {**os.environ, **variables}, progress, limit_s, input)


class Pip(Installer):
    """The pip of `python`, used on an environment that has none of its own."""

    name = "pip"

    def __init__(self, python: str, version: str, cache: Path) -> None:
        self._python, self.version, self._cache = python, version, cache

    def make_environment(self, python: str, root: Path, progress: Progress) -> None:
        # Without pip: Debian leaves out what would put one in, and this one can work from outside.
        run([python, "-I", "-m", "venv", "--without-pip", str(root)], os.environ, progress, _ASK_LIMIT_S)

    def resolve(self, python: str, wanted: Sequence[str], settings: Settings, progress: Progress) -> list[Wheel]:
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.json"
            command = ["--python", python, "install", "--dry-run", "--ignore-installed", "--report", str(report)]
            self._run([*command, *_WHEELS_ONLY, *wanted], settings, progress, _RESOLVE_LIMIT_S)
            return from_report(json.loads(report.read_bytes()))

    def install(self, root: Path, lock: Path, settings: Settings, progress: Progress) -> None:
        command = ["--python", _python(root), "install", "--no-deps", "--require-hashes", "--no-compile"]
        self._run([*command, "-r", str(lock)], settings, progress, _INSTALL_LIMIT_S)

    def forget(self, packages: Sequence[str], progress: Progress) -> None:
        """Nothing: pip keeps wheels whole."""

    def _run(self, command: Sequence[str], settings: Settings, progress: Progress, limit_s: float) -> None:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
        own = {"PIP_CACHE_DIR": str(self._cache), "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}
        own.update(PIP_PROGRESS_BAR="off", PIP_ROOT_USER_ACTION="ignore")
        variables = {**inherited, **settings.for_pip(), **own}
        run([self._python, "-m", "pip", *command], variables, progress, limit_s, answers=False)


@dataclass(frozen=True)
class Means:
    """What an environment is made with: a base Python, an installer, and where its packages come from."""

    python: str
    installer: Installer
    settings: Settings


def find_installer(
    which: str, python: str, tools: Path, cache: Path, settings: Settings, progress: Progress
) -> Installer:
    """`which` is "uv", "pip" or "auto": uv if the pod has it or it can be fetched, else pip. Failure without either."""
    why_not = "it was not asked for"
    if which != "pip":
        try:
            return find_uv(tools, cache, settings, progress)
        except Failure as e:
            why_not = str(e)
            progress.say(f"no uv ({why_not}): using pip")
    version = _version(ask([python, "-m", "pip", "--version"], _ASK_LIMIT_S))
    if which == "uv" or version is None or version < _PIP_LEAST:
        has = "no pip" if version is None else f"pip {_dotted(version)}"
        raise Failure(f"{python} has {has}, expected {_dotted(_PIP_LEAST)} or newer; and there is no uv ({why_not})")
    return Pip(python, _dotted(version), cache / "pip")


def find_uv(tools: Path, cache: Path, settings: Settings, progress: Progress) -> Uv:
    """The pod's uv, or one that is fetched below `tools`. Failure if there is none to be had."""
    usual = [shutil.which("uv"), *map(os.path.expanduser, ("~/.local/bin/uv", "~/.cargo/bin/uv"))]
    for place in filter(None, [*usual, str(tools / "uv")]):
        version = _version(ask([place, "--version"], _ASK_LIMIT_S))
        if version and version >= _UV_LEAST:
            return Uv(place, _dotted(version), cache / "uv")
    fetched = str(fetch_uv(settings, tools, progress))
    version = _version(ask([fetched, "--version"], _ASK_LIMIT_S))
    if version is None:
        raise Failure("the fetched one does not run on this pod")
    return Uv(fetched, _dotted(version), cache / "uv")


def _offline(settings: Settings) -> list[str]:
    """Cut off, uv may still have the file of an address in its cache."""
    return [*(["--no-index"] if settings.offline else []), *(["--offline"] if settings.cut_off else [])]


def _python(root: Path) -> str:
    return str(root / "bin" / "python")


def _dotted(version: Sequence[int]) -> str:
    return ".".join(map(str, version))


def _version(text: str | None) -> tuple[int, ...] | None:
    match = re.search(r"\d+(?:\.\d+)+", text or "")
    return tuple(map(int, match[0].split("."))) if match else None
