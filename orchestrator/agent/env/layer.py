"""The repository's own installation over an environment: built from the commit's tree, once for each tree.

<workdir>/layers/<key>/          a layer; only whole ones have this name; its manifest is layer.json
<workdir>/layers/.building-*     being built, by whoever holds the lock of its key
<workdir>/layers/.<key>.lease    taken by the runs that use the layer
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pkgutil
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from orchestrator.agent.env import interpreter, lease
from orchestrator.agent.env.build import compile_bytecode, move_scripts
from orchestrator.agent.env.fingerprint import fingerprint, system_fingerprint
from orchestrator.agent.env.installed import differences, installed, requirements
from orchestrator.agent.env.interpreter import Interpreter
from orchestrator.agent.env.progress import Progress
from orchestrator.agent.env.source import NotCompiled, compile_, toolkit
from orchestrator.agent.env.store import Store, platform
from orchestrator.agent.env.thin_venv import ThinVenv
from orchestrator.agent.env.uv import find_uv
from orchestrator.agent.git.directory import GitDirectory
from orchestrator.agent.holds import Hold
from orchestrator.agent.host import gpu, machine
from orchestrator.agent.host.inherited import inherited
from orchestrator.agent.injected.stage import MARK
from orchestrator.shared import tree
from orchestrator.shared.failure import Failure
from orchestrator.shared.files import read_json, write_atomically
from orchestrator.shared.layer_request import AskedProject, LayerRequest
from orchestrator.shared.locks import locked
from orchestrator.shared.query import ask
from orchestrator.shared.text import listing
from orchestrator.shared.vendor import tomli
from orchestrator.shared.wheels.lockfile import canonical
from orchestrator.shared.wheels.settings import Settings

MANIFEST = "layer.json"
_FORMAT = 1
_KEY_DIGITS = 16
_ASK_LIMIT_S = 60
_HOOK = "wheel_hook.py"
_LEGACY_BACKEND = "setuptools.build_meta:__legacy__"  # PEP 517: of a project that names none
# What a C++ compiler may need at its worst; those of CUDA extensions need more, and say so by MAX_JOBS of their own.
_JOB_BYTES = 2 << 30
_TOOLKITS = "/usr/local/cuda/bin"


class Lacks(Failure):
    """A project's build asks for more than was brought for it."""

    def __init__(self, project: str, requirements: list[str]) -> None:
        super().__init__(f"{project}: its build needs {listing(requirements)} too")
        self.project, self.requirements = project, requirements


def find(store: Store, request: LayerRequest, hold: Hold) -> dict[str, Any]:
    """{"state": "ready", "layer": ...} with the layer for `request`; "absent", or "changed" with the reason.

    Quick: files are listed, none is read and nothing is imported. The layer counts as used now, and is held.
    """
    key = key_of(request)
    hold.take(f"layers/{key}")
    return _look_at(store.layers / key)


def key_of(request: LayerRequest) -> str:
    """The layer's name: by environment, tree, what is installed of it and how, GPU architecture and compilers."""
    environment, variables = request["environment"], _variables(request)
    projects = [[project["path"], project["isolated"], project["env"]] for project in request["projects"]]
    parts = [
        _FORMAT,
        _identity(environment),
        [request["tree"], request["submodules"]],
        projects,
        [platform(), _architectures(), _compilers(variables)],
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:_KEY_DIGITS]


class LayerBuilder:
    """One build, for one request. The caller holds the lock of its job."""

    def __init__(self, store: Store, request: LayerRequest, progress: Progress) -> None:
        self._store, self._request, self._progress = store, request, progress
        self._key = key_of(request)
        self._root = store.layers / self._key

    def build(self) -> None:
        """Leave a whole layer for the request; raise Failure, or Lacks, and leave none."""
        environment = self._request["environment"]
        roots = [environment.get("root"), *(project["tools"] for project in self._request["projects"])]
        with contextlib.ExitStack() as stack:
            for root in filter(None, roots):
                stack.enter_context(lease.taken(Path(root)))
            stack.enter_context(locked(self._store.layers / f".{self._key}.lock"))
            if _look_at(self._root)["state"] == "ready":
                return
            self._sweep()
            aside = self._store.layers / f".building-{self._key}-{os.getpid()}"
            work = aside.with_name(f"{aside.name}.work")
            try:
                self._make(aside, work)
                with self._unused():
                    self._store.discard(self._root)
                    aside.rename(self._root)
            finally:
                self._store.discard(aside)
                self._store.discard(work)
        self._progress.enter("done", f"layer {self._key} is built")

    def _sweep(self) -> None:
        """Remove what builders of this layer that died have left; the caller holds its lock."""
        for left in self._store.layers.glob(f".building-{self._key}-*"):
            self._store.discard(left)

    @contextlib.contextmanager
    def _unused(self) -> Iterator[None]:
        with lease.alone(self._root) as free:
            if not free:
                raise Failure(
                    f"layer {self._key} was changed since it was built, and a run that goes on uses it: it is rebuilt "
                    f"when that has ended (nsa-pod cancel ends it)"
                )
            yield

    def _make(self, root: Path, work: Path) -> None:
        """The layer at `root`, made in `work`."""
        began = time.monotonic()
        below = interpreter.inspect(_without_layer(self._request["environment"]), ())
        source = self._checkout(work / "tree")
        wheels = {
            project["path"]: self._wheel(project, source, work / str(number), below)
            for number, project in enumerate(self._request["projects"])
        }
        self._progress.enter("install", f"installing {listing(wheel.name for wheel in wheels.values())}")
        ThinVenv(root, below).make([])
        uv = find_uv(self._store, lambda: Settings.of(below.python), self._progress)
        uv.install_files(root, list(wheels.values()), self._progress)
        damaged = [file for _, file in differences(root)]
        if damaged:
            raise Failure(f"what was installed is not what its wheels hold: {listing(damaged)}")
        compile_bytecode(root, self._progress)
        move_scripts(root, self._root)
        requires = requirements(root)
        manifest = {
            "format": _FORMAT,
            "key": self._key,
            "tree": self._request["tree"],
            "packages": installed(root),
            "requires": {path: requires[_distribution(wheel)] for path, wheel in wheels.items()},
            "environment": self._request["environment"].get("key"),
            "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "seconds": round(time.monotonic() - began, 1),
            "fingerprint": fingerprint(root),
        }
        write_atomically(root / MANIFEST, json.dumps(manifest, indent=1, sort_keys=True))

    def _checkout(self, target: Path) -> Path:
        """A copy of the commit's tree, with the .git that version numbers are made by."""
        self._progress.enter("tree", "copying the commit's tree")
        pristine = self._store.workdir / "trees" / self._request["tree"]
        if not pristine.is_dir():
            raise Failure(f"the tree {self._request['tree']} is not on the pod: expected it in {pristine}")
        target.parent.mkdir(parents=True)
        tree.copy(pristine, target)
        manifest = tree.scan(target)
        wrong = tree.wrong_hash(manifest, self._request["tree"], self._request["submodules"])
        if wrong:
            raise Failure(f"{pristine} is not the commit's tree: {wrong}")
        GitDirectory(target, self._request, manifest, self._store.workdir / "objects").renew()
        return target

    def _wheel(self, project: AskedProject, source: Path, work: Path, below: Interpreter) -> Path:
        """The project's wheel, built in a thin environment of its own."""
        for folder in ("result", "tmp"):
            (work / folder).mkdir(parents=True)
        python = self._build_python(project, work / "venv", below)
        variables = self._build_variables(project, python, work)
        folder = os.path.normpath(source / project["path"])
        asked = {
            **_backend(Path(folder)),
            "source": folder,
            "known": project["requires"],
            "result": str(work / "result"),
            "answer": str(work / "answer.json"),
        }
        (work / "asked.json").write_text(json.dumps(asked), encoding="utf-8")
        (work / _HOOK).write_bytes(pkgutil.get_data(__package__, _HOOK) or b"")
        name = _named(project)
        self._progress.enter("build", f"building {name}, {variables['MAX_JOBS']} jobs at a time")
        command = [python.python, "-I", str(work / _HOOK), str(work / "asked.json")]
        try:
            compile_(command, variables, self._progress, name, self._request["limit_s"])
        except NotCompiled as e:
            why = " / ".join(e.causes) or str(e)
            raise Failure(f"{name} cannot be built: {why}{_hint(project, why)}") from e
        said = read_json(work / "answer.json")
        if said.get("lacks"):
            raise Lacks(project["path"], list(said["lacks"]))
        wheel = work / "result" / os.path.basename(str(said.get("wheel")))
        if not wheel.is_file():
            raise Failure(f"{name} cannot be built: its build system {asked['backend']} left no wheel")
        return wheel

    @staticmethod
    def _build_python(project: AskedProject, root: Path, below: Interpreter) -> ThinVenv:
        """What sees the build requirements; unless it is isolated, behind them what the environment has."""
        tools = interpreter.inspect(_tools(project), ()) if project["tools"] else None
        venv = ThinVenv(root, tools if tools and project["isolated"] else below)
        sites = tools.sites if tools and not project["isolated"] else ()
        venv.make([f"import site; site.addsitedir({site!r})" for site in sites])
        return venv

    def _build_variables(self, project: AskedProject, venv: ThinVenv, work: Path) -> dict[str, str]:
        given = _variables(self._request)
        bins = [str(venv.bin)]
        bins += [f"{project['tools']}/bin"] if project["tools"] else []
        bins += [] if project["isolated"] else [os.path.dirname(self._request["environment"]["python"])]
        jobs = str(machine.jobs(_JOB_BYTES))
        architectures = ";".join(_architectures())
        return {
            **({"TORCH_CUDA_ARCH_LIST": architectures} if architectures else {}),
            **_cuda_home(self._request["environment"]),
            "MAX_JOBS": jobs,
            "CMAKE_BUILD_PARALLEL_LEVEL": jobs,
            **given,
            **project["env"],
            "PATH": os.pathsep.join([*bins, given["PATH"]]),
            "TMPDIR": str(work / "tmp"),
            "PYTHONNOUSERSITE": "1",
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
            MARK: f"layer-{self._key}-{os.getpid()}",
        }


def _look_at(root: Path) -> dict[str, Any]:
    manifest = read_json(root / MANIFEST)
    if not manifest:
        return {"state": "absent", "reason": "it was not built here yet"}
    if fingerprint(root) != manifest["fingerprint"]:
        edited = [file for _, file in differences(root)]
        what = f"other content in {listing(edited)}" if edited else "files were touched, put there or removed"
        return {"state": "changed", "reason": f"layer {root.name} was changed since it was built: {what}"}
    os.utime(root)
    said = {name: manifest[name] for name in ("key", "tree", "packages", "requires")}
    return {"state": "ready", "layer": {**said, "root": str(root), "python": str(root / "bin" / "python")}}


def _identity(environment: Mapping[str, Any]) -> Any:
    """Of a managed environment its key; the pod's own Python is what is installed for it now."""
    if environment["kind"] == "managed":
        return environment["key"]
    found = interpreter.inspect(_without_layer(environment), ())
    return [found.python, found.version, system_fingerprint(found.sites)]


def _without_layer(environment: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in environment.items() if name != "layer"}


def _variables(request: LayerRequest) -> dict[str, str]:
    """Of the pod's own just those that a stage gets, and those that the inventory gives."""
    path = {"PATH": os.environ.get("PATH", os.defpath) + os.pathsep + _TOOLKITS}
    return {**inherited(), **path, **request["variables"]}


def _architectures() -> list[str]:
    """Of the pod's GPUs, as "8.9"."""
    return sorted({str(found["compute_cap"]) for found in gpu.list_gpus() if found["compute_cap"]})


def _compilers(variables: Mapping[str, str]) -> list[str]:
    """What they say of themselves first; of CUDA's, the release is in the last lines."""
    names = [variables.get("CC") or "cc", variables.get("CXX") or "c++", "nvcc"]
    paths = filter(None, (shutil.which(name.split()[0], path=variables["PATH"]) for name in names))
    return [" ".join((ask([path, "--version"], _ASK_LIMIT_S) or "").split()) for path in paths]


def _cuda_home(environment: Mapping[str, Any]) -> dict[str, str]:
    """The toolkit of the torch in the environment, where there is one; extensions without CUDA need none."""
    try:
        return {"CUDA_HOME": toolkit("torch", environment["torch_cuda"])} if environment.get("torch_cuda") else {}
    except Failure:
        return {}


def _backend(folder: Path) -> dict[str, Any]:
    """The build system that the project at `folder` names, by PEP 517."""
    try:
        text = (folder / "pyproject.toml").read_text(encoding="utf-8")
    except FileNotFoundError:
        text = ""
    try:
        said = tomli.loads(text).get("build-system", {})
        return {
            "backend": str(said.get("build-backend", _LEGACY_BACKEND)),
            "backend_path": list(said.get("backend-path", ())),
        }
    except (ValueError, TypeError, AttributeError) as e:
        raise Failure(f"{folder.name}/pyproject.toml cannot be read: {e}") from e


def _distribution(wheel: Path) -> str:
    return canonical(wheel.name.split("-")[0])


def _tools(project: AskedProject) -> dict[str, Any]:
    """The environment that holds its build requirements."""
    return {"kind": "managed", "root": project["tools"], "python": f"{project['tools']}/bin/python"}


def _named(project: AskedProject) -> str:
    return "the repository's project" if project["path"] == "." else f"the project in {project['path']}"


def _hint(project: AskedProject, error: str) -> str:
    if project["isolated"] and "No module named" in error:
        return (
            f": an isolated build sees only its build requirements; `install: [{{path: {project['path']}, "
            "isolated: false}]` lets it see the environment's packages"
        )
    if "flat-layout" in error and "'runbooks'" in error:
        return (
            ": setuptools looks for packages by itself and takes the folder of runbooks for one; `[tool.setuptools] "
            "packages = [...]` in pyproject.toml names them"
        )
    return ""
