"""Build an environment: resolve to a lockfile, install aside, verify in a fresh process, rename into place."""

from __future__ import annotations

import contextlib
import json
import os
import pkgutil
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.agent.env import lease, source
from orchestrator.agent.env.fetch import hashed
from orchestrator.agent.env.fingerprint import fingerprint
from orchestrator.agent.env.installed import differences, installed, site_packages
from orchestrator.agent.env.progress import Progress, complaint, run
from orchestrator.agent.env.store import Store, identity, look_at, platform
from orchestrator.agent.env.uv import Means, Uv, find_uv
from orchestrator.agent.holds import Hold
from orchestrator.agent.host.inherited import inherited
from orchestrator.shared.environment_request import AskedWheel, EnvironmentRequest
from orchestrator.shared.failure import Failure
from orchestrator.shared.files import sha256, write_atomically
from orchestrator.shared.locks import A_MOMENT_S, locked
from orchestrator.shared.text import listing
from orchestrator.shared.wheels.lockfile import (
    Lockfile,
    Wheel,
    canonical,
    cuda_packages,
    make_lockfile,
    of_torchs_build,
    parse_lockfile,
)
from orchestrator.shared.wheels.settings import Settings
from orchestrator.shared.wheels.web import NotThere

_ASK_LIMIT_S = 60
_VERIFY_LIMIT_S = 900
_COMPILE_LIMIT_S = 1800
_VERIFIERS = ("verify.py", "triton_kernel.py")
_GIB = 2**30
_NO_WHEEL = re.compile(r"Wheels are required for `([^`]+)`")
# Packages carry templates and sources for other Pythons, which do not compile; and tests, which nobody imports.
_COMPILE = """
import compileall, pathlib, re, sys
many = sum(1 for _ in pathlib.Path(sys.argv[1]).rglob("*.py")) > 500
compileall.compile_dir(sys.argv[1], quiet=2, workers=0 if many else 1, rx=re.compile("/tests?/"))
"""


class Unusable(Failure):
    """One package does not work; the rest may do without it."""

    def __init__(self, sentence: str, package: str) -> None:
        super().__init__(sentence)
        self.package = package


class Builder:
    """One build, for one request, whose environment `hold` gets. The caller holds the request's lock."""

    def __init__(self, store: Store, request: EnvironmentRequest, progress: Progress, hold: Hold) -> None:
        self._store, self._request, self._progress, self._hold = store, request, progress, hold
        self._id = identity(request)
        self._notes: list[str] = []

    def build(self) -> None:
        """Leave a whole, verified environment for the request, or raise Failure and leave none."""
        os.environ.update(self._request.get("variables", {}))
        self._sweep()
        self._require_space()
        means = self._means()
        lockfile = self._lockfile(means)
        try:
            self._provide(means, lockfile)
        except Unusable as e:
            if e.package not in self._optional() or self._request.get("allow_source_build"):
                raise
            self._leave_out(e.package, e)
            self._provide(means, lockfile.without(e.package))

    def _means(self) -> Means:
        python = self._find_python()
        settings = self._settings(python)
        return Means(python, find_uv(self._store, lambda: settings, self._progress), settings)

    def _provide(self, means: Means, lockfile: Lockfile) -> None:
        """The environment of `lockfile`, as it is or made; the request is remembered to come to it."""
        self._hold.take(f"envs/{lockfile.key}")
        with locked(self._store.key_lock(lockfile.key)):
            if look_at(self._store, lockfile.key)["state"] == "ready":
                self._progress.say(f"environment {lockfile.key} is here already")
            else:
                self._make(means, lockfile)
            self._store.remember(self._id, lockfile.key, lockfile.text())

    def _optional(self) -> list[str]:
        return [canonical(wheel["name"]) for wheel in self._request["wheels"] if not wheel["required"]]

    def _leave_out(self, package: str, why: Failure) -> None:
        self._notes.append(self._progress.without_secrets(f"{package} is left out: {why}"))
        self._progress.say(self._notes[-1])

    def _sweep(self) -> None:
        """Remove what builders that died have left."""
        for left in self._store.root.glob(".building-*"):
            key = left.name[len(".building-") :].rpartition("-")[0]
            with locked(self._store.key_lock(key), A_MOMENT_S) as held:
                if held:
                    self._store.discard(left)

    def _require_space(self) -> None:
        needed = int(self._request["disk_bytes"])
        free = shutil.disk_usage(str(self._store.root)).free
        if free < needed:
            raise Failure(
                f"the environment needs {needed / _GIB:.2f} GiB of disk below {self._store.root}, "
                f"{free / _GIB:.2f} GiB are free: remove something (nsa-pod prune says what can go)"
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
        uv = find_uv(self._store, lambda: self._settings("python3"), self._progress)
        return uv.managed_python(wanted, self._store.workdir / "python", self._progress)

    def _settings(self, python: str) -> Settings:
        wheelhouse = self._request.get("wheelhouse")
        if wheelhouse:
            return Settings.of_folders([wheelhouse])
        if self._request.get("offline"):
            return Settings.of_folders([str(place) for place in self._store.places_of_wheels if place.is_dir()])
        return Settings.of(python)

    def _lockfile(self, means: Means) -> Lockfile:
        version = _ask_python(means.python)[1]
        kept = "" if self._request.get("fresh") else self._store.remembered(self._id).get("lock", "")
        if kept:
            lockfile = parse_lockfile(kept, version, platform())
            if not lockfile.lost:
                self._progress.enter("resolve", "the lockfile of the last time is kept")
                return lockfile
        self._progress.enter("resolve", f"resolving with {means.uv.name}")
        wheels = self._resolve(means, self._request["requirements"])
        self._refuse_cuda(means, wheels)
        self._note_older(means, wheels)
        base = make_lockfile([self._with_hash(wheel, means.settings) for wheel in wheels], version, platform())
        return make_lockfile([*base.wheels, *self._extra_wheels(means, base)], version, platform())

    def _resolve(self, means: Means, requirements: Sequence[str]) -> list[Wheel]:
        """By the pod's own indexes; the request's are added where those have not got the build."""
        indexes = self._request["indexes"]
        if not requirements:
            return []
        try:
            wheels = self._resolved(means, requirements)
        except Failure as own:
            if not indexes or means.settings.cut_off or not any(name in str(own) for name in self._request["pins"]):
                raise
            self._progress.say(f"the pod's own package index does not have it all: adding {listing(indexes)}")
            try:
                wheels = self._resolved(means, requirements, indexes)
            except Failure as added:
                raise Failure(f"{added}; and by the pod's own package index alone: {own}") from added
        wanted = of_torchs_build(wheels, self._request["pins"].get("torch", ""))
        return self._resolved_beside_torch(means, wanted) or wheels if wanted else wheels

    def _resolved(self, means: Means, requirements: Sequence[str], indexes: Sequence[str] = ()) -> list[Wheel]:
        settings = means.settings.adding(indexes) if indexes else means.settings
        narrowed = self._request.get("sdists", ()), self._hashes(means.settings)
        return means.uv.resolve(means.python, requirements, settings, self._progress, *narrowed)

    def _resolved_beside_torch(self, means: Means, wanted: Sequence[str]) -> list[Wheel]:
        """With what was built for this build of torch; nothing, and a note, where that cannot be had."""
        indexes = () if means.settings.cut_off else self._request["indexes"]
        try:
            return self._resolved(means, [*self._request["requirements"], *wanted], indexes)
        except Failure:
            self._notes.append(
                f"{listing(wanted)} cannot be had, and another build of it is installed, which may not go with torch "
                f"{self._request['pins']['torch']}"
            )
            return []

    def _note_older(self, means: Means, wheels: Sequence[Wheel]) -> None:
        """Say what came out older than the newest that was asked for, where that is for want of a wheel."""
        uv, python, settings = means.uv, means.python, means.settings
        free = [
            text for text in self._request["requirements"] if canonical(_name_of(text)) not in self._request["pins"]
        ]
        if settings.cut_off or not free:
            return
        have = {canonical(wheel.name): wheel.version for wheel in wheels}
        with contextlib.suppress(Failure):  # nothing of the environment depends on it
            for name, newest in uv.newest(python, free, settings, self._progress).items():
                lacking = self._without_wheel(means, f"{name}=={newest}") if have.get(name, newest) != newest else ()
                if lacking:
                    self._notes.append(
                        f"{name} {have[name]} is installed, and not {newest}, the newest that is asked for: "
                        f"{listing(lacking)} has no wheel; `sdists: [{', '.join(lacking)}]` has it built from source"
                    )
                    self._progress.say(self._notes[-1])

    def _without_wheel(self, means: Means, requirement: str) -> list[str]:
        """The packages that it cannot be had for: none, if it is something else that kept it from being taken."""
        try:
            means.uv.resolve(
                means.python, [requirement], means.settings, self._progress, self._request.get("sdists", ())
            )
        except Failure as e:
            return list(dict.fromkeys(_NO_WHEEL.findall(str(e))))
        return []

    def _refuse_cuda(self, means: Means, wheels: Sequence[Wheel]) -> None:
        """A build of torch that brings CUDA's packages where there is none; others may need them for themselves."""
        pins = self._request["pins"]
        if self._request["cuda"] is not None or "torch" not in pins or not cuda_packages(wheels):
            return
        paired = [text for text in self._request["requirements"] if canonical(_name_of(text)) in pins]
        brought = cuda_packages(self._resolve(means, paired))
        if brought:
            raise Failure(
                f"the package index serves a CUDA build of torch for an environment without CUDA: it would bring "
                f"{listing(brought)}; nothing of it was installed"
            )

    def _with_hash(self, wheel: Wheel, settings: Settings) -> Wheel:
        found = hashed(wheel, settings.web(), self._store.downloads, self._progress)
        known = self._hashes(settings).get(canonical(wheel.name))
        if known is not None and found.sha256 not in known:
            raise Failure(f"{wheel.filename} has a hash that the lock does not know")
        return found

    def _hashes(self, settings: Settings) -> Mapping[str, Sequence[str]]:
        """Those that the lock knows; what a wheelhouse holds instead of a source distribution was built from that."""
        built = set(map(canonical, self._request.get("sdists", ()))) if settings.cut_off else set()
        return {name: known for name, known in self._request.get("hashes", {}).items() if name not in built}

    def _extra_wheels(self, means: Means, base: Lockfile) -> list[Wheel]:
        """Wheels outside the index; an optional one that cannot be had is left out, and that is noted.

        Whoever allows a source build wants what is built: then nothing is left out.
        """
        found = []
        for extra in self._request["wheels"]:
            try:
                found.append(self._extra_wheel(extra, means, base))
            except Failure as e:
                if extra["required"] or self._request.get("allow_source_build"):
                    why = "its project has no such wheel" if isinstance(e, NotThere) else "it cannot be had"
                    raise Failure(f"{extra['name']} {extra['version']}: {why}: {e}") from e
                self._leave_out(extra["name"], e)
        return found

    def _extra_wheel(self, extra: AskedWheel, means: Means, base: Lockfile) -> Wheel:
        """Its project's wheel, else one that is compiled here from its source."""
        compiled = extra["source"]
        if extra["url"]:
            try:
                return self._project_wheel(Wheel(extra["name"], extra["url"], None), means.settings)
            except NotThere as e:
                if compiled is None:
                    raise
                self._progress.say(f"{extra['name']}: {e}")
        if compiled is None:
            raise NotThere("the request names neither its address nor its source")
        built = source.SourceBuild(self._store, means, self._request, self._progress)
        return built.wheel(extra["name"], compiled, base)

    def _project_wheel(self, wheel: Wheel, settings: Settings) -> Wheel:
        carried = settings.in_folders(wheel.filename)
        if carried:
            return replace(wheel, sha256=sha256(carried))
        if settings.cut_off:
            raise NotThere(f"the wheelhouse has no {wheel.filename}")
        return self._with_hash(wheel, settings)

    def _make(self, means: Means, lockfile: Lockfile) -> None:
        """Install, verify and rename; the caller holds the key's lock."""
        root = self._store.environment(lockfile.key)
        with self._unused(root):  # said before the work is done
            pass
        aside = self._store.root / f".building-{lockfile.key}-{os.getpid()}"
        try:
            self._install_undamaged(means, lockfile, aside)
            self._progress.enter("compile", "compiling to bytecode")
            compile_bytecode(aside, self._progress)
            self._progress.enter("verify", "trying what was installed")
            verified = self._verify(aside, lockfile)
            move_scripts(aside, root)
            self._write_manifest(aside, means.uv, lockfile, verified)
            with self._unused(root):
                self._store.discard(root)
                aside.rename(root)
        finally:
            self._store.discard(aside)
        self._progress.enter("done", f"environment {lockfile.key} is built and verified")

    @contextlib.contextmanager
    def _unused(self, root: Path) -> Iterator[None]:
        """No run uses the environment at `root`; Failure if one does: it would be moved from under it."""
        with lease.alone(root) as free:
            if not free:
                raise Failure(
                    f"environment {root.name} was changed since it was verified, and a run that goes on uses it: it is "
                    f"rebuilt when that has ended (nsa-pod cancel ends it)"
                )
            yield

    def _install_undamaged(self, means: Means, lockfile: Lockfile, root: Path) -> None:
        """A file that was edited in place in an environment was edited in the cache too: it is one file."""
        self._install(means, lockfile, root)
        damaged = self._damaged(root)
        if damaged:
            self._progress.say(f"the cache holds other content for {_files(damaged)}: installing again")
            means.uv.forget(sorted({package for package, _ in damaged}), self._progress)
            self._install(means, lockfile, root)
            damaged = self._damaged(root)
        if damaged:
            cache = self._store.cache
            raise Failure(f"what was installed is not what its wheels hold: {_files(damaged)}: remove {cache}")

    def _install(self, means: Means, lockfile: Lockfile, root: Path) -> None:
        self._progress.enter("install", f"installing {len(lockfile.wheels)} packages with uv")
        self._store.discard(root)
        means.install(root, lockfile, self._store, self._request["indexes"], self._progress)
        (root / "lock.txt").write_text(lockfile.text(), encoding="utf-8")

    def _damaged(self, root: Path) -> list[tuple[str, str]]:
        self._progress.enter("check", "checking every file against its wheel's RECORD")
        return differences(root)

    def _verify(self, root: Path, lockfile: Lockfile) -> dict[str, Any]:
        asked = {"packages": lockfile.packages, "pins": self._request["pins"], "cuda": self._request["cuda"]}
        extra = sorted(set(installed(root)) - set(lockfile.packages))
        if extra:
            raise Failure(f"{listing(extra)} was installed, and the lockfile does not have it")
        with tempfile.TemporaryDirectory(dir=str(self._store.job(self._id))) as folder:
            for name in _VERIFIERS:
                (Path(folder) / name).write_bytes(pkgutil.get_data(__package__, name) or b"")
            # Of the pod's own variables just those that a stage gets: with another compiler, or in the interpreter,
            # nothing would be proved for the stages.
            own = {**inherited(), **self._request.get("variables", {}), "PATH": os.environ.get("PATH", os.defpath)}
            variables = {**own, "TRITON_CACHE_DIR": str(Path(folder) / "triton"), "HOME": folder, "TMPDIR": folder}
            command = [str(root / "bin" / "python"), "-I", "-B", str(Path(folder) / _VERIFIERS[0])]
            said = run(command, variables, self._progress, _VERIFY_LIMIT_S, json.dumps(asked))
        answer: dict[str, Any] = json.loads(said.splitlines()[-1])
        if "error" in answer:
            sentence = f"the environment does not work: {answer['error']}"
            raise Unusable(answer["error"], answer["package"]) if answer["package"] else Failure(sentence)
        return dict(answer["ok"])

    def _write_manifest(self, root: Path, uv: Uv, lockfile: Lockfile, verified: Mapping[str, Any]) -> None:
        """env.json, the last file: with it the environment is whole."""
        manifest = {
            "format": 1,
            "key": lockfile.key,
            "profile": self._request["profile"],
            "python_version": lockfile.python,
            "platform": lockfile.platform,
            "packages": lockfile.packages,
            "lock_sha256": lockfile.sha256,
            "torch_cuda": verified.get("torch_cuda"),
            "verified": dict(verified),
            "built": {w.name: source.made_from(w) for w in lockfile.wheels if w.from_source},
            "notes": self._notes,
            "installer": uv.name,
            "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "seconds": self._progress.seconds,
            "fingerprint": fingerprint(root),
        }
        write_atomically(root / "env.json", json.dumps(manifest, indent=1, sort_keys=True))


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


def _name_of(requirement: str) -> str:
    return re.split(r"[^\w.-]", requirement.strip(), maxsplit=1)[0]


def _files(entries: Sequence[tuple[str, str]]) -> str:
    return listing(file for _, file in entries)


def compile_bytecode(root: Path, progress: Progress) -> None:
    """Stages run with PYTHONDONTWRITEBYTECODE: without this, each would compile all that it imports."""
    command = [str(root / "bin" / "python"), "-I", "-c", _COMPILE, str(site_packages(root))]
    run(command, os.environ, progress, _COMPILE_LIMIT_S, answers=False)


def move_scripts(root: Path, target: Path) -> None:
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
