"""The environment that the stages run in: what its Python says of itself, and whether its files are still the same."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import subprocess
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import AbstractSet, Any, Iterable, Iterator, Mapping, Optional

from orchestrator.agent.env import editable
from orchestrator.agent.env.fingerprint import fingerprint, folders, is_same, system_fingerprint, system_folders
from orchestrator.agent.host.file_watch import ANY_CHANGE, FileWatch
from orchestrator.shared.failure import Failure

_TIMEOUT_S = 120
_QUESTIONS = """
import importlib.util, json, os, sys, sysconfig
def known(name):
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False
sites = [p for p in sys.path if os.path.basename(p) in ("site-packages", "dist-packages") and os.path.isdir(p)]
library = sysconfig.get_path("purelib", "posix_prefix", vars={"base": "", "platbase": ""})
print(json.dumps({
    "prefix": sys.prefix, "version": sys.version.split()[0], "base": getattr(sys, "_base_executable", sys.executable),
    "virtual": sys.prefix != sys.base_prefix, "library": library.lstrip("/"), "sites": sites,
    "bytecode": f"{sys.implementation.cache_tag} {importlib.util.MAGIC_NUMBER.hex()}",
    "modules": list(filter(known, sys.argv[1:])),
}))
"""


@dataclass(frozen=True)
class Interpreter:
    """A Python with what is installed for it; `modules` are those that were asked for and are there.

    `prefix` is where it is installed; `base` is the interpreter that a virtual environment links to, or the Python
    itself; `virtual` says which;
    `library` is where a prefix has its packages, relative to it; `sites` are the directories of what is installed, and
    `editables` the folders outside of them to which editable installations lead. `bytecode` names the form in which it
    keeps modules that it has compiled. Of the repository's own layer, `below` is the environment that it lies over,
    whose `kind` and `root` it has.
    """

    python: str
    kind: str
    root: str | None
    version: str
    prefix: str
    base: str
    virtual: bool
    library: str
    sites: tuple[str, ...]
    modules: frozenset[str]
    bytecode: str = ""
    editables: tuple[str, ...] = ()
    below: Optional[Interpreter] = None

    @property
    def bin(self) -> str:
        return os.path.dirname(self.python)

    @property
    def layers(self) -> tuple[Interpreter, ...]:
        """Itself, and what it lies over."""
        return (self, self.below) if self.below else (self,)

    @property
    def bins(self) -> tuple[str, ...]:
        """Where its programs are, and those of what it lies over."""
        return tuple(each.bin for each in self.layers)

    @property
    def linked_sites(self) -> tuple[str, ...]:
        """The `sites` that another Python has to add to see what this one sees."""
        reached = self.below.sites if self.below and self.below.virtual else ()
        return tuple(site for site in self.sites if site not in reached)

    def fingerprint(self) -> str:
        """Of the files that are installed for it now."""
        if self.below is None:
            return fingerprint(Path(self.root)) if self.root else system_fingerprint(self.sites, self.editables)
        below = replace(self.below, editables=self.editables)
        return _together(below.fingerprint(), fingerprint(Path(self.prefix)))

    def still(self, recorded: str) -> str | None:
        """Its fingerprint now, if what is installed is what had the fingerprint `recorded`; None if it is not."""
        found = self.fingerprint()
        return found if is_same(recorded, found, map(Path, self.sites)) else None

    def folders(self) -> Iterator[str]:
        """Those that hold what the fingerprint is of."""
        if self.below is None:
            return folders(Path(self.root)) if self.root else system_folders(self.sites, self.editables)
        return itertools.chain(replace(self.below, editables=self.editables).folders(), folders(Path(self.prefix)))

    def name_of(self, file: str) -> str:
        """Its path among what is installed, or the whole one."""
        site = next((site for site in self.sites if file.startswith(site + os.sep)), None)
        return os.path.relpath(file, site) if site else file

    def without_editables_of(self, names: AbstractSet[str]) -> Interpreter:
        """Without the editable installations of packages called so: a stage that takes those from there is `invalid`,
        and people go on editing their own checkout while its commit is validated.
        """
        others = (target for target in self.editables if names.isdisjoint(editable.packages(target)))
        return replace(self, editables=tuple(others))


class Installed:
    """What is installed for an interpreter, over the stages of a run that began with the fingerprint `recorded`.

    A stage's end is too often to look at each file: after the first time, only where the kernel has told of a change.
    """

    def __init__(self, interpreter: Interpreter, recorded: str) -> None:
        self._interpreter = interpreter
        self._recorded = recorded
        self._began = time.time_ns()
        self._watch: Optional[FileWatch] = None
        self._is_same = True

    def is_same(self) -> bool:
        """Whether it is still what was recorded, as far as the kernel tells of changes."""
        if self._watch is None or self._watch.take() != set():
            if self._watch:
                self._watch.close()
            self._watch = FileWatch(Path("/"), self._interpreter.folders(), ANY_CHANGE)
            self._is_same = self.is_same_in_all()
        return self._is_same

    def is_same_in_all(self) -> bool:
        """Whether it is still what was recorded, each file looked at."""
        try:
            found = self._interpreter.still(self._recorded)
        except OSError:  # files that go away while they are listed are a change too
            return False
        self._recorded = found or self._recorded  # what took long to tell is told once
        return found is not None

    def changed(self) -> list[str]:
        """For people: the files that were written, put there or given another name since the run began, below
        site-packages; where there are none, the folders from which something was removed.
        """
        folders, files = [], []
        for folder in self._interpreter.folders():
            with contextlib.suppress(OSError):
                folders += [folder] if os.lstat(folder).st_ctime_ns > self._began else []
                entries = [e for e in os.scandir(folder) if not e.is_dir(follow_symlinks=False)]
                files += [e.path for e in entries if e.stat(follow_symlinks=False).st_ctime_ns > self._began]
        return sorted(map(self._interpreter.name_of, files or folders))


def inspect(environment: Mapping[str, Any], modules: Iterable[str]) -> Interpreter:
    """Ask the environment's Python, or its layer's; `modules` are top-level names. Failure if it cannot be run."""
    found = _inspect(environment, str(environment["python"]), modules)
    if "layer" not in environment:
        return found
    return replace(_inspect(environment, str(environment["layer"]["python"]), modules), below=found)


def _inspect(environment: Mapping[str, Any], python: str, modules: Iterable[str]) -> Interpreter:
    try:
        done = subprocess.run(
            [python, "-I", "-c", _QUESTIONS, *sorted(set(modules))],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=_TIMEOUT_S,
            check=True,
        )
        said = json.loads(done.stdout)
    except OSError as e:
        raise Failure(f"the environment's Python {python} cannot be run: {e.strerror}") from e
    except (subprocess.SubprocessError, ValueError) as e:
        raise Failure(f"the environment's Python {python} does not answer: {e}") from e
    root = environment["root"] if environment["kind"] == "managed" else None
    return Interpreter(
        python=python,
        kind=environment["kind"],
        root=root,
        version=said["version"],
        prefix=said["prefix"],
        base=said["base"],
        virtual=said["virtual"],
        library=said["library"],
        sites=tuple(said["sites"]),
        modules=frozenset(said["modules"]),
        bytecode=said["bytecode"],
        editables=tuple(editable.targets(said["sites"])),
    )


def recorded_fingerprint(interpreter: Interpreter) -> str | None:
    """What the manifests say its fingerprint was when it was built and verified; None of what was not built here."""
    if interpreter.below:
        below = replace(interpreter.below, editables=interpreter.editables)
        layer = _recorded(Path(interpreter.prefix) / "layer.json")
        return _together(recorded_fingerprint(below) or below.fingerprint(), layer)
    return _recorded(Path(interpreter.root) / "env.json") if interpreter.root else None


def _recorded(manifest: Path) -> str:
    try:
        found = json.loads(manifest.read_bytes())["fingerprint"]
    except (OSError, ValueError, LookupError, TypeError) as e:
        raise Failure(f"the environment {manifest.parent} has no readable {manifest.name} with a fingerprint") from e
    return str(found)


def _together(environment: str, layer: str) -> str:
    return hashlib.sha256(f"{environment} {layer}".encode()).hexdigest()
