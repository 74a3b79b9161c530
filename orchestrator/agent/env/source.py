"""Compile a package that has no fitting wheel, once for each recipe; the wheel is kept for later environments.

<workdir>/built/<recipe>/          the wheel, and build.json: what it was made from, with what, how long it took
<workdir>/built/.work-<recipe>-*   being compiled, by whoever holds the lock of the recipe
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.agent.env.fetch import find_source, hashed
from orchestrator.agent.env.progress import Progress, run
from orchestrator.agent.env.store import Store, platform
from orchestrator.agent.env.uv import Means
from orchestrator.agent.host import machine
from orchestrator.agent.host.reaper import Reaper, end_marked
from orchestrator.agent.injected.stage import MARK
from orchestrator.shared.environment_request import AskedSource, EnvironmentRequest
from orchestrator.shared.failure import Failure
from orchestrator.shared.files import read_json, sha256, write_atomically
from orchestrator.shared.locks import locked
from orchestrator.shared.query import ask
from orchestrator.shared.wheels.lockfile import Lockfile, Wheel, canonical, make_lockfile
from orchestrator.shared.wheels.web import NotThere

_NEWS_S = 15.0
_ASK_LIMIT_S = 60
_KEY_DIGITS = 16
_COMPILERS = ("c++", "g++", "clang++")
# ninja counts what it compiles: [12/72].
_STEP = re.compile(r"^\[(\d+)/(\d+)\]")
# As compilers and the kernel's out-of-memory killer say it.
_ERROR = re.compile(
    r"(: |^)(fatal )?error(\[\w+\])?: |^CMake Error|\bld(\.\w+)?: |undefined reference|\b(Killed|out of memory)\b"
)
_RAISED = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Exit)(: .*)?")
_ERRORS = 3
_HEADER = "import os, sysconfig; print(os.path.exists(os.path.join(sysconfig.get_path('include'), 'Python.h')))"


@dataclass(frozen=True)
class Recipe:
    """What decides which wheel comes out; `torch` is the hash of the one that it links with."""

    name: str
    version: str
    variables: Mapping[str, str]
    python: str
    torch: str | None

    @property
    def key(self) -> str:
        parts = [self.name, self.version, sorted(self.variables.items()), self.python, platform(), self.torch]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:_KEY_DIGITS]


class NotCompiled(Failure):
    """A compilation failed; `causes` are the compiler's own words, else the exception that ended it, if it had any."""

    def __init__(self, sentence: str, errors: Sequence[str], raised: str | None) -> None:
        super().__init__(": ".join([sentence, *errors]))
        self.causes = [*errors] if errors or raised is None else [raised]


class SourceBuild:
    """Wheels compiled on this pod. `request` is the bootstrap's: what it allows, its CUDA, its time limit."""

    def __init__(self, store: Store, means: Means, request: EnvironmentRequest, progress: Progress) -> None:
        self._store, self._means, self._request, self._progress = store, means, request, progress

    def wheel(self, name: str, source: AskedSource, base: Lockfile) -> Wheel:
        """The wheel of `source` for the environment `base`: the kept one, else compiled now if that is allowed.

        NotThere if it is neither kept nor allowed; Failure if it does not compile in time.
        """
        torch = next((wheel.sha256 for wheel in base.wheels if wheel.name == "torch"), None)
        minor = ".".join(base.python.split(".")[:2])
        recipe = Recipe(canonical(name), source["version"], source["variables"], minor, torch)
        folder = self._store.built / recipe.key
        with locked(self._store.built / f".{recipe.key}.lock"):
            path = kept(folder) or self._compiled(recipe, source, base, folder)
            os.utime(folder)
        self._progress.say(f"{name} {recipe.version} was compiled on this pod: {path}")
        return Wheel(recipe.name, path.as_uri(), read_json(folder / "build.json")["sha256"])

    def _compiled(self, recipe: Recipe, source: AskedSource, base: Lockfile, folder: Path) -> Path:
        """The wheel, made aside and renamed into `folder` when it is whole; the caller holds the recipe's lock."""
        if not self._request.get("allow_source_build"):
            raise NotThere(
                f"{recipe.name} {_plain(recipe.version)} has no wheel for these versions, and was not compiled for "
                f"them on this pod: --allow-source-build compiles it"
            )
        for left in self._store.built.glob(f".work-{recipe.key}-*"):
            end_marked(_mark(recipe, left.name.rpartition("-")[2]))
            shutil.rmtree(left, ignore_errors=True)
        work = self._store.built / f".work-{recipe.key}-{os.getpid()}"
        result = work / "result"
        result.mkdir(parents=True)
        try:
            self._progress.enter("prepare", f"preparing to compile {recipe.name} {recipe.version}")
            variables = self._variables(recipe, source, work)
            archive, digest = find_source(
                recipe.name, _plain(recipe.version), self._means.settings, work, self._progress
            )
            tools = self._tools(source["tools"], base)
            lockfile = make_lockfile([*base.wheels, *tools], base.python, platform())
            self._means.install(work / "env", lockfile, self._store, self._request["indexes"], self._progress)
            began = time.monotonic()
            self._run(recipe, work / "env" / "bin" / "python", archive, variables, result)
            wheel = _only_wheel(result, recipe)
            made = {
                "source": archive.name,
                "source_sha256": digest,
                "sha256": sha256(wheel),
                "variables": {name: variables[name] for name in ("MAX_JOBS", *recipe.variables)},
                "with": {w.name: w.version for w in tools},
                "seconds": round(time.monotonic() - began, 1),
            }
            write_atomically(result / "build.json", json.dumps(made, indent=1, sort_keys=True))
            shutil.rmtree(folder, ignore_errors=True)  # a removal may have been cut off
            result.rename(folder)
            return folder / wheel.name
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def _variables(self, recipe: Recipe, source: AskedSource, work: Path) -> dict[str, str]:
        """What the compiler is run with; Failure if the pod cannot compile."""
        if not any(map(shutil.which, (os.environ.get("CXX", ""), *_COMPILERS))):
            raise Failure(f"{recipe.name} cannot be compiled: the pod has no C++ compiler: install g++")
        if (ask([self._means.python, "-I", "-c", _HEADER], _ASK_LIMIT_S) or "").strip() != "True":
            raise Failure(f"{recipe.name} cannot be compiled: {self._means.python} has no C headers (python3-dev)")
        cuda = self._request["cuda"]
        home = {"CUDA_HOME": toolkit(recipe.name, cuda)} if cuda else {}
        jobs = machine.jobs(int(source["job_bytes"]))
        (work / "tmp").mkdir()
        return {
            **os.environ,
            **home,
            **recipe.variables,
            "MAX_JOBS": str(jobs),
            "PATH": f"{work}/env/bin:{home.get('CUDA_HOME', work)}/bin:{os.environ.get('PATH', os.defpath)}",
            "TMPDIR": str(work / "tmp"),
        }

    def _tools(self, names: Sequence[str], base: Lockfile) -> list[Wheel]:
        """What compiles, beside what the environment has anyway."""
        means = self._means
        found = means.uv.resolve(means.python, names, means.settings, self._progress)
        have = {wheel.name for wheel in base.wheels}
        web, folder = means.settings.web(), self._store.downloads
        return [hashed(wheel, web, folder, self._progress) for wheel in found if canonical(wheel.name) not in have]

    def _run(self, recipe: Recipe, python: Path, archive: Path, variables: Mapping[str, str], result: Path) -> None:
        """pip drives whatever build system the source names. Nothing that it starts outlives this, or this process."""
        limit_s = float(self._request["source_build_s"])
        mark = _mark(recipe, os.getpid())
        command = [str(python), "-m", "pip", "wheel", "--verbose", "--no-deps", "--no-build-isolation", "--no-index"]
        command += ["--no-cache-dir", "--disable-pip-version-check", "--wheel-dir", str(result), str(archive)]
        jobs = variables["MAX_JOBS"]
        self._progress.enter("compile-source", f"compiling {recipe.name} {recipe.version}, {jobs} at a time")
        compile_(command, {**variables, MARK: mark}, self._progress, recipe.name, limit_s)


def compile_(
    command: Sequence[str], variables: Mapping[str, str], progress: Progress, name: str, limit_s: float
) -> None:
    """Run what compiles `name`, in processes that carry the mark in `variables`; none of them outlives this process.

    NotCompiled says what the compiler complained of.
    """
    mark = variables[MARK]
    reaper = Reaper(mark)
    try:
        with _News(progress, name, limit_s) as news:
            run(command, variables, news, limit_s, answers=False)
    except Failure as e:
        raise NotCompiled(str(e), news.errors, news.raised) from e
    finally:
        end_marked(mark)  # ninja's compilers are in process groups of their own
        reaper.dismiss()


class _News:
    """Passes the compiler's lines on; when none come, says every now and then how far it is."""

    def __init__(self, progress: Progress, name: str, limit_s: float) -> None:
        self._progress, self._name, self._limit_s = progress, name, limit_s
        self._began = self._said = time.monotonic()
        self._step = ""
        self.errors: list[str] = []
        self.raised: str | None = None
        self._over = threading.Event()
        self._beat = threading.Thread(target=self._tell, daemon=True)

    def say(self, text: str) -> None:
        step = _STEP.match(text)
        self._step = f"{step[1]} of {step[2]} files, " if step else self._step
        self._said = time.monotonic()
        if self.errors and self.errors[-1].endswith(":"):  # CMake says on the next line what is wrong
            self.errors[-1] += f" {text}"
        elif len(self.errors) < _ERRORS and _ERROR.search(text):
            self.errors.append(text)
        if _RAISED.fullmatch(text):
            self.raised = text
        self._progress.say(text)

    def __enter__(self) -> _News:
        self._beat.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._beat.join()

    def _tell(self) -> None:
        while not self._over.wait(_NEWS_S):
            if time.monotonic() - self._said >= _NEWS_S:
                elapsed = time.monotonic() - self._began
                self._progress.say(
                    f"compiling {self._name}: {self._step}{elapsed:.0f} s of at most {self._limit_s:.0f} s"
                )


def kept(folder: Path) -> Path | None:
    """The wheel in a recipe's directory, if it was built whole."""
    wheels = sorted(folder.glob("*.whl")) if (folder / "build.json").is_file() else []
    return wheels[0] if wheels else None


def made_from(wheel: Wheel) -> dict[str, Any]:
    """What a compiled wheel was made from; empty if that is gone."""
    return read_json(wheel.path.parent / "build.json") if wheel.path else {}


def names(workdir: Path) -> list[str]:
    """The packages that were compiled on this pod, for whatever recipe."""
    found = (kept(path.parent) for path in (workdir / "built").glob("*/build.json"))
    return sorted({canonical(wheel.name.split("-")[0]) for wheel in found if wheel})


def _only_wheel(folder: Path, recipe: Recipe) -> Path:
    wheels = sorted(folder.glob("*.whl"))
    made = [(canonical(wheel.name.split("-")[0]), wheel.name.split("-")[1]) for wheel in wheels]
    if made != [(recipe.name, recipe.version)]:
        shown = ", ".join(wheel.name for wheel in wheels) or "no wheel"
        raise Failure(f"compiling {recipe.name} gave {shown}, expected version {recipe.version}")
    return wheels[0]


def toolkit(name: str, cuda: str) -> str:
    """The CUDA toolkit of torch's own major version; Failure if the pod has none."""
    nvcc = shutil.which("nvcc")
    usual = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), nvcc and str(Path(nvcc).resolve().parents[1])]
    beside = [str(path) for path in sorted(Path("/usr/local").glob("cuda-*"), reverse=True)]
    found: dict[str, str] = {}
    for home in dict.fromkeys([*filter(None, usual), "/usr/local/cuda", *beside]):
        release = re.search(r"release (\d+)\.(\d+)", ask([f"{home}/bin/nvcc", "--version"], _ASK_LIMIT_S) or "")
        if release and release[1] == cuda.split(".")[0]:
            return home
        if release:
            found[home] = f"{release[1]}.{release[2]}"
    has = ", ".join(f"{version} in {home}" for home, version in found.items()) or "none"
    raise Failure(f"{name} cannot be compiled: it needs a CUDA {cuda.split('.')[0]} toolkit (nvcc), the pod has {has}")


def _mark(recipe: Recipe, pid: object) -> str:
    """What all processes carry that compile this recipe for the builder `pid`."""
    return f"compile-{recipe.key}-{pid}"


def _plain(version: str) -> str:
    """Without the local part."""
    return version.partition("+")[0]
