"""uv, which resolves and installs, with the settings that the pod's pip has; and how a pod comes by it."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.agent.env.fetch import at_hand
from orchestrator.agent.env.progress import Progress, run
from orchestrator.agent.env.store import Store
from orchestrator.shared.failure import Failure
from orchestrator.shared.query import ask
from orchestrator.shared.wheels import uv_wheel
from orchestrator.shared.wheels.lockfile import ANY, RESOLVE, Lockfile, Wheel, canonical, from_pylock, from_sdists
from orchestrator.shared.wheels.settings import Settings

_RESOLVE_LIMIT_S = 1800
_INSTALL_LIMIT_S = 7200
_ASK_LIMIT_S = 120


class NoUv(Failure):
    """The pod has no uv and cannot get one; the laptop may carry one there."""


class Uv:
    """uv, with its cache below the workdir: environments share files with it by hard links."""

    def __init__(self, path: str, version: tuple[int, ...], cache: Path) -> None:
        self.path, self.name = path, f"uv {_dotted(version)}"
        self._cache = cache / "uv"

    def make_environment(self, python: str, root: Path, progress: Progress) -> None:
        """A virtual environment of `python` at `root`, with nothing in it."""
        command = ["venv", "--quiet", "--no-project", "--python", python, str(root)]
        self._run(command, Settings(), progress, _ASK_LIMIT_S)

    def resolve(
        self,
        python: str,
        wanted: Sequence[str],
        settings: Settings,
        progress: Progress,
        sdists: Sequence[str] = (),
        hashes: Mapping[str, Sequence[str]] = ANY,
    ) -> list[Wheel]:
        """The wheels that the requirements `wanted` come to for `python`, and the source distributions of `sdists`.

        Of a package that `hashes` names, only those files count. Nothing is installed.
        """
        command = [*RESOLVE, "--no-header", "--no-annotate", "--python", python, *_offline(settings)]
        command += [] if settings.cut_off else from_sdists(sdists)
        return from_pylock(self._run(command, settings, progress, _RESOLVE_LIMIT_S, "\n".join(wanted)), hashes)

    def newest(self, python: str, wanted: Sequence[str], settings: Settings, progress: Progress) -> dict[str, str]:
        """Name -> version of what `wanted` names, by itself: with a wheel or without, whatever that may need."""
        command = ["pip", "compile", "-", "--no-deps", "--no-header", "--no-annotate", "--python", python]
        said = self._run([*command, *_offline(settings)], settings, progress, _RESOLVE_LIMIT_S, "\n".join(wanted))
        return {canonical(name): version for name, version in re.findall(r"(?m)^([\w.-]+)==(\S+)", said)}

    def install(self, root: Path, lockfile: Path, settings: Settings, progress: Progress) -> None:
        """Install exactly the wheels of the lockfile, by their hashes."""
        python = str(root / "bin" / "python")
        command = ["pip", "install", "--no-deps", "--require-hashes", "--python", python, "-r", str(lockfile)]
        command += _offline(settings)
        self._run(command, settings, progress, _INSTALL_LIMIT_S)

    def install_files(self, root: Path, wheels: Sequence[Path], progress: Progress) -> None:
        """Install these wheels and nothing else; their files are shared with nobody."""
        python = str(root / "bin" / "python")
        command = ["pip", "install", "--no-deps", "--no-index", "--offline", "--no-cache", "--link-mode", "copy"]
        self._run([*command, "--python", python, *map(str, wheels)], Settings(), progress, _INSTALL_LIMIT_S)

    def forget(self, packages: Sequence[str], progress: Progress) -> None:
        """Drop what the cache of unpacked wheels keeps of these packages."""
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


@dataclass(frozen=True)
class Means:
    """What an environment is made with: a base Python, uv, and where its packages come from."""

    python: str
    uv: Uv
    settings: Settings

    def install(self, root: Path, lockfile: Lockfile, store: Store, indexes: Sequence[str], progress: Progress) -> None:
        """A new environment at `root` with the wheels of `lockfile`; of what lies on the pod, nothing is downloaded.

        `indexes` are asked beside those of the settings.
        """
        self.uv.make_environment(self.python, root, progress)
        if lockfile.wheels:
            folders = [*map(Path, self.settings.folders), *store.places_of_wheels]
            lines = [at_hand(wheel, folders).line() for wheel in lockfile.wheels]
            wheels = root / "wheels.txt"
            wheels.write_text("\n".join([*lines, ""]), encoding="utf-8")
            self.uv.install(root, wheels, self.settings.adding(indexes), progress)
            wheels.unlink()


def find_uv(store: Store, settings: Callable[[], Settings], progress: Progress) -> Uv:
    """The pod's uv: its own, one that was put below the workdir, or one that is fetched now. NoUv if there is none.

    What `settings` there are is asked only to fetch it.
    """
    usual = [shutil.which("uv"), *map(os.path.expanduser, ("~/.local/bin/uv", "~/.cargo/bin/uv"))]
    ours = store.tools / "uv"
    for place in filter(None, [*usual, str(ours)]):
        version = _version(place)
        if version >= uv_wheel.LEAST:
            return Uv(place, version, store.cache)
    try:
        _put(ours, store, settings(), progress)
    except Failure as e:
        raise NoUv(f"the pod has no uv {_dotted(uv_wheel.LEAST)} or newer, and cannot get it: {e}") from e
    version = _version(str(ours))
    if not version:
        noexec = "" if os.access(ours, os.X_OK) else ", as its disk is mounted noexec: set another workdir"
        raise NoUv(f"the pod has no uv, and the fetched one does not run there{noexec}")
    return Uv(str(ours), version, store.cache)


def _put(target: Path, store: Store, settings: Settings, progress: Progress) -> None:
    """Unpack a wheel of uv: what the laptop carried here, else what an index has."""
    near = [*store.tools.glob("carried/*"), *store.places_of_wheels]
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:  # another builder may do it just then
        wheel = uv_wheel.fetch(settings, uv_wheel.Machine.here(), near, Path(folder), progress)
        uv_wheel.unpack(wheel, Path(folder, "uv"))
        Path(folder, "uv").replace(target)


def _offline(settings: Settings) -> list[str]:
    """Cut off, uv may still have the file of an address in its cache."""
    return [*(["--no-index"] if settings.offline else []), *(["--offline"] if settings.cut_off else [])]


def _dotted(version: Sequence[int]) -> str:
    return ".".join(map(str, version))


def _version(uv: str) -> tuple[int, ...]:
    """What the program says of itself; empty if it does not run."""
    match = re.search(r"\d+(?:\.\d+)+", ask([uv, "--version"], _ASK_LIMIT_S) or "")
    return tuple(map(int, match[0].split("."))) if match else ()
