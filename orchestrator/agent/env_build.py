"""Build an environment: resolve to a lock, install aside, verify in a fresh process, rename into place."""

from __future__ import annotations

import json
import os
import pkgutil
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .env_fetch import NotThere, sha256
from .env_lock import Lock, Wheel, cuda_packages, expand, make_lock, parse_lock
from .env_progress import Progress, complaint, run
from .env_record import differences, installed, site_packages
from .env_settings import Settings
from .env_store import Store, identity, locked, look_at, platform
from .env_tools import Installer, find_installer, find_uv
from .failure import Failure
from .files import write_atomically
from .fingerprint import fingerprint
from .text import listing

_ASK_LIMIT_S = 60
_VERIFY_LIMIT_S = 900
_COMPILE_LIMIT_S = 1800
_VERIFIERS = ("env_verify.py", "env_kernel.py")
_GIB = 2**30
# Packages carry templates and sources for other Pythons, which do not compile; and tests, which nobody imports.
_COMPILE = """
import compileall, pathlib, re, sys
many = sum(1 for _ in pathlib.Path(sys.argv[1]).rglob("*.py")) > 500
compileall.compile_dir(sys.argv[1], quiet=2, workers=0 if many else 1, rx=re.compile("/tests?/"))
"""


class Builder:
    """One build, for one request. The caller holds the request's lock."""

    def __init__(self, store: Store, request: Mapping[str, Any], progress: Progress) -> None:
        self._store, self._request, self._progress = store, request, progress
        self._id = identity(request)
        self._notes: list[str] = []

    def build(self) -> None:
        """Leave a whole, verified environment for the request, or raise Failure and leave none."""
        os.environ.update(self._request.get("variables", {}))
        self._sweep()
        self._require_space()
        python = self._find_python()
        settings = self._settings(python)
        places = (self._store.tools, self._store.cache)
        installer = find_installer(self._request.get("installer", "auto"), python, *places, settings, self._progress)
        lock, local = self._lock(installer, python, settings)
        with locked(self._store.key_lock(lock.key)):
            if look_at(self._store, lock.key)["state"] == "ready":
                self._progress.say(f"environment {lock.key} is here already")
            else:
                self._make(installer, python, settings, lock, local)
            self._store.remember(self._id, lock.key, lock.text())

    def _sweep(self) -> None:
        """Remove what builders that died have left."""
        for left in self._store.root.glob(".building-*"):
            with locked(self._store.key_lock(left.name.split("-")[1]), wait=False) as held:
                if held is not None:
                    self._store.discard(left)

    def _require_space(self) -> None:
        needed = int(self._request["disk_bytes"])
        free = shutil.disk_usage(str(self._store.root)).free
        if free < needed:
            raise Failure(
                f"the environment needs {needed / _GIB:.0f} GiB of disk below {self._store.root}, "
                f"{free / _GIB:.1f} GiB are free: remove environments (nsa-pod prune) or other files"
            )

    def _find_python(self) -> str:
        """The base Python: the one that the request names, else a managed one."""
        wanted, path = self._request["python"]["version"], self._request["python"]["path"]
        if path is not None:
            executable, version = _ask_python(path)
            if not version.startswith(wanted + "."):
                raise Failure(f"{path} is Python {version}, expected {wanted}")
            return executable
        self._progress.enter("python", f"fetching Python {wanted}")
        settings = self._settings("python3")
        uv = find_uv(self._store.tools, self._store.cache, settings, self._progress)
        return uv.managed_python(wanted, self._store.workdir / "python", self._progress)

    def _settings(self, python: str) -> Settings:
        wheelhouse = self._request.get("wheelhouse")
        return Settings.of_wheelhouse(wheelhouse) if wheelhouse else Settings.of_pod(python)

    def _lock(self, installer: Installer, python: str, settings: Settings) -> tuple[Lock, dict[str, str]]:
        """The lock, and where wheels of it lie that were downloaded already (address -> file address)."""
        version = _ask_python(python)[1]
        kept = "" if self._request.get("fresh") else self._store.remembered(self._id).get("lock", "")
        if kept:
            self._progress.enter("resolve", "the lock of the last time is kept")
            return parse_lock(kept, version, platform()), {}
        self._progress.enter("resolve", f"resolving with {installer.name} {installer.version}")
        wheels = self._resolve(installer, python, settings)
        self._refuse_cuda(wheels)
        local: dict[str, str] = {}
        whole = [self._with_hash(wheel, settings, local) for wheel in wheels]
        return make_lock([*whole, *self._extra_wheels(settings, local)], version, platform()), local

    def _resolve(self, installer: Installer, python: str, settings: Settings) -> list[Wheel]:
        """By the pod's own indexes; the request's are added where those have not got the build."""
        requirements, indexes = self._request["requirements"], self._request["indexes"]
        if not requirements:
            return []
        try:
            return installer.resolve(python, requirements, settings, self._progress)
        except Failure as own:
            if not indexes or self._request.get("wheelhouse"):
                raise
            self._progress.say(f"the pod's own package index does not have it all: adding {listing(indexes)}")
            try:
                return installer.resolve(python, requirements, settings.adding(indexes), self._progress)
            except Failure as added:
                raise Failure(f"{added}; and by the pod's own package index alone: {own}") from added

    def _refuse_cuda(self, wheels: Sequence[Wheel]) -> None:
        found = cuda_packages(wheels)
        if self._request["cuda"] is None and found and "torch" in self._request["pins"]:
            raise Failure(
                f"the package index serves a CUDA build of torch for an environment without CUDA: it would bring "
                f"{listing(found)}; nothing of it was installed"
            )

    def _with_hash(self, wheel: Wheel, settings: Settings, local: dict[str, str]) -> Wheel:
        """Some indexes tell no hash: that of the file is taken, and kept in the lock."""
        if wheel.sha256 is not None:
            return wheel
        path, digest = settings.web().fetch(wheel.url, self._store.cache / "wheels", self._progress)
        local[wheel.url] = path.as_uri()
        return Wheel(wheel.name, wheel.url, digest)

    def _extra_wheels(self, settings: Settings, local: dict[str, str]) -> list[Wheel]:
        """Wheels outside the index; an optional one that cannot be had is left out, and that is noted."""
        found = []
        for extra in self._request["wheels"]:
            try:
                found.append(self._extra_wheel(extra, settings, local))
            except Failure as e:
                if extra["required"]:
                    why = "its project has no such wheel" if isinstance(e, NotThere) else "it cannot be had"
                    raise Failure(f"{extra['name']} {extra['version']}: {why}: {e}") from e
                self._notes.append(f"{extra['name']} is left out: {e}")
                self._progress.say(self._notes[-1])
        return found

    def _extra_wheel(self, extra: Mapping[str, Any], settings: Settings, local: dict[str, str]) -> Wheel:
        wheel = Wheel(extra["name"], extra["url"], None)
        carried = settings.in_wheelhouse(wheel.filename)
        if carried:
            local[wheel.url] = carried.as_uri()
            return Wheel(wheel.name, wheel.url, sha256(carried))
        if settings.wheelhouse:
            raise NotThere(f"the wheelhouse has no {wheel.filename}")
        return self._with_hash(wheel, settings, local)

    def _make(
        self, installer: Installer, python: str, settings: Settings, lock: Lock, local: Mapping[str, str]
    ) -> None:
        """Install, verify and rename; the caller holds the key's lock."""
        root = self._store.environment(lock.key)
        aside = self._store.root / f".building-{lock.key}-{os.getpid()}"
        try:
            self._install(installer, python, settings, lock, local, aside)
            damaged = self._damaged(aside)
            if damaged:
                # A file that was edited in place in an environment was edited in the cache too: it is one file.
                self._progress.say(f"the cache holds other content for {_files(damaged)}: installing again")
                installer.forget(sorted({package for package, _ in damaged}), self._progress)
                self._install(installer, python, settings, lock, local, aside)
                damaged = self._damaged(aside)
            if damaged:
                raise Failure(
                    f"what was installed is not what its wheels hold: {_files(damaged)}: "
                    f"remove {self._store.cache} and try again"
                )
            self._progress.enter("compile", "compiling to bytecode")
            _compile(aside, self._progress)
            self._progress.enter("verify", "trying what was installed")
            verified = self._verify(aside, lock)
            _move_scripts(aside, root)
            self._record(aside, installer, lock, verified)
            self._store.discard(root)
            aside.rename(root)
        finally:
            self._store.discard(aside)
        self._progress.enter("done", f"environment {lock.key} is built and verified")

    def _install(
        self,
        installer: Installer,
        python: str,
        settings: Settings,
        lock: Lock,
        local: Mapping[str, str],
        root: Path,
    ) -> None:
        self._progress.enter("install", f"installing {len(lock.wheels)} packages with {installer.name}")
        self._store.discard(root)
        installer.make_environment(python, root, self._progress)
        wheels = root / "wheels.txt"
        wheels.write_text("\n".join(expand(lock, local)) + "\n", encoding="utf-8")
        if lock.wheels:
            installer.install(root, wheels, settings.adding(self._request["indexes"]), self._progress)
        wheels.unlink()
        (root / "lock.txt").write_text(lock.text(), encoding="utf-8")

    def _damaged(self, root: Path) -> list[tuple[str, str]]:
        self._progress.enter("check", "checking every file against its wheel's record")
        return differences(root)

    def _verify(self, root: Path, lock: Lock) -> dict[str, Any]:
        asked = {"packages": lock.packages, "pins": self._request["pins"], "cuda": self._request["cuda"]}
        extra = sorted(set(installed(root)) - set(lock.packages))
        if extra:
            raise Failure(f"{listing(extra)} was installed, and the lock does not have it")
        with tempfile.TemporaryDirectory(dir=str(self._store.job(self._id))) as folder:
            for name in _VERIFIERS:
                (Path(folder) / name).write_bytes(pkgutil.get_data(__package__, name) or b"")
            variables = {**os.environ, "TRITON_CACHE_DIR": str(Path(folder) / "triton"), "HOME": folder}
            command = [str(root / "bin" / "python"), "-I", "-B", str(Path(folder) / _VERIFIERS[0])]
            said = run(command, variables, self._progress, _VERIFY_LIMIT_S, json.dumps(asked))
        answer: dict[str, Any] = json.loads(said.splitlines()[-1])
        if "error" in answer:
            raise Failure(f"the environment does not work: {answer['error']}")
        return dict(answer["ok"])

    def _record(self, root: Path, installer: Installer, lock: Lock, verified: Mapping[str, Any]) -> None:
        """env.json, the last file: with it the environment is whole."""
        record = {
            "format": 1,
            "key": lock.key,
            "profile": self._request["profile"],
            "python_version": lock.python,
            "platform": lock.platform,
            "packages": lock.packages,
            "lock_sha256": lock.sha256,
            "torch_cuda": verified.get("torch_cuda"),
            "verified": dict(verified),
            "notes": self._notes,
            "installer": f"{installer.name} {installer.version}",
            "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "seconds": self._progress.seconds,
            "fingerprint": fingerprint(root),
        }
        write_atomically(root / "env.json", json.dumps(record, indent=1, sort_keys=True))


def _ask_python(path: str) -> tuple[str, str]:
    """(the executable that `path` comes to, full version). Failure if it does not run."""
    command = [path, "-I", "-S", "-c", "import sys; print(sys.executable); print(sys.version.split()[0])"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_ASK_LIMIT_S, check=False)
    except (OSError, subprocess.SubprocessError) as e:
        raise Failure(f"Python {path} cannot be run: {e}") from e
    if done.returncode != 0:
        raise Failure(complaint(command, done.returncode, done.stderr.decode("utf-8", "replace").splitlines()[-3:]))
    executable, version = done.stdout.decode().split("\n")[:2]
    return executable, version


def _files(entries: Sequence[tuple[str, str]]) -> str:
    return listing(file for _, file in entries)


def _compile(root: Path, progress: Progress) -> None:
    """Stages run with PYTHONDONTWRITEBYTECODE: without this, each would compile all that it imports."""
    command = [str(root / "bin" / "python"), "-I", "-c", _COMPILE, str(site_packages(root))]
    run(command, os.environ, progress, _COMPILE_LIMIT_S, answers=False)


def _move_scripts(root: Path, target: Path) -> None:
    """Scripts name the directory that they were installed in: make it `target`, beside it."""
    before, after = root.name.encode(), target.name.encode()
    for path in sorted((root / "bin").iterdir()):
        if path.is_file() and not path.is_symlink():
            content = path.read_bytes()
            if before in content:
                mode = path.stat().st_mode
                path.unlink()
                path.write_bytes(content.replace(before, after))
                path.chmod(mode)
