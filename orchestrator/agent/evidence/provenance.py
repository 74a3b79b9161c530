"""Whose code ran: what the injected modules saw imported, mapped and collected, held against what the commit provides.

At home are the tree, what was installed from it, the environment with its editable installations, the system's library
folders and caches of compiled code. A module that the commit provides has to come from the first two, and the package
of which its metadata tells, or that stands where packages usually are, from there: another one of the same name in the
tree is a stand-in.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Container, Dict, FrozenSet, Iterable, Iterator, List, Mapping, Optional, Sequence, Set, Tuple
from urllib.parse import unquote, urlsplit

from orchestrator.agent.env.interpreter import Interpreter
from orchestrator.agent.evidence.copies import files_of, in_archive, is_version, says_the_same
from orchestrator.agent.evidence.provided import Provided
from orchestrator.agent.layout import Layout
from orchestrator.shared.files import both_ways
from orchestrator.shared.stage_record import Elsewhere, ForeignModule
from orchestrator.shared.text import listing, plain
from orchestrator.shared.tree import LINK, Manifest, entry_of

CODE_FOLDERS = (
    "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libexec", "/usr/share",
    "/usr/bin", "/usr/sbin", "/usr/local/lib", "/usr/local/lib64", "/usr/local/bin", "/usr/local/share", "/nix/store",
    "/gnu/store", "/snap",
)  # fmt: skip
"""The system's own: what a pod has there is part of the pod."""
_LIBRARY_FOLDERS = ("/usr", "/opt", "/run/opengl-driver", "/etc", "/sw", "/cvmfs")
_SITES = ("site-packages", "dist-packages")
# Below the user's cache folder: tools that keep code there which they have compiled or unpacked, by its hash.
_CACHES = (
    "torch", "torch_extensions", "huggingface/modules", "flashinfer", "tvm-ffi", "deep_gemm", "tilelang", "vllm",
    "cupy", "numba", "pytensor", "jax", "pex", "uv", "pip", "pre-commit",
)  # fmt: skip
_CACHES_AT_HOME = (".triton", ".torch", ".pex", ".shiv", ".cupy", ".nv", ".pytensor")
_CACHE_VARIABLES = ("HF_MODULES_CACHE", "PEX_ROOT", "SHIV_ROOT", "CUPY_CACHE_DIR", "NUMBA_CACHE_DIR")
_PROGRAM_FOLDERS = ("bin", "sbin", "libexec", "etc")  # profile.d, where what is installed has itself be read in
_MOST = 1000
_UNREADABLE = (".pyc", ".whl", ".zip", ".egg", ".pyz")
_COMPILED_FROM = (".c", ".cc", ".cpp", ".cxx", ".cu", ".pyx", ".rs", ".f90")
_WRITTEN_BY_BUILDS = ("_version.py", "version.py", "__version__.py", "__about__.py")  # versioneer's, above all


@dataclass
class Seen:
    """What was seen in all Pythons of a stage: modules as (name, file, the link in the tree that led there), those of
    them that some Python had from a folder in which neither its program nor a test of it lies, those that it had from
    its own, shared objects, test files, and files of the tree that an interpreter of another prefix imported, with that
    interpreter.
    """

    modules: Dict[Tuple[str, str], Optional[str]] = field(default_factory=dict)
    apart: Set[str] = field(default_factory=set)
    own: Set[str] = field(default_factory=set)
    mapped: Dict[str, None] = field(default_factory=dict)
    tests: Dict[str, None] = field(default_factory=dict)
    strangers: Dict[Tuple[str, bool], Tuple[str, Mapping[str, Any]]] = field(default_factory=dict)

    def fold(self, line: Mapping[str, Any]) -> None:
        """Take over what a line of the report says of this."""
        if "module" in line and len(self.modules) < _MOST:
            self.modules[str(line["module"]), str(line["file"])] = line.get("link")
            if not line.get("beside"):
                self.apart.add(str(line["file"]))
            if line.get("own"):
                self.own.add(str(line["file"]))
        if "mapped" in line and len(self.mapped) < _MOST:
            self.mapped[str(line["mapped"])] = None
        if "tests" in line and len(self.tests) < _MOST:
            self.tests[str(line["tests"])] = None
        if "imported" in line and len(self.strangers) < _MOST:
            python = line["python"]
            self.strangers[str(python["program"]), bool(python.get("packages"))] = str(line["imported"]), python


@dataclass(frozen=True)
class Homes:
    """Folders where code may come from in a stage, its `tree` first. `built` is what the stage may have installed or
    built itself, `layer` what was installed for it from this very tree, and nothing else, whose packages lie
    in `installed`; `prefixes` are those of the
    environment's interpreters over `base`, `others` have its packages and programs; `libraries` are folders of shared
    objects, `blobs` the hashes of the commit's files, `sources` of its Python files, by their names and then paths,
    `compiled` of its shared objects, if it has what is compiled to such; the links in `leaves` lead out of the tree.
    """

    tree: str
    built: Sequence[str] = ()
    layer: Sequence[str] = ()
    installed: Sequence[str] = ()
    caches: Sequence[str] = ()
    prefixes: Sequence[str] = ()
    base: str = ""
    others: Sequence[str] = ()
    libraries: Sequence[str] = ()
    blobs: FrozenSet[str] = frozenset()
    sources: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    compiled: FrozenSet[str] = frozenset()
    leaves: Sequence[str] = ()


class Origins:
    """Judges where code came from, in the stages of one run; of submodules that are `absent` there are no files."""

    def __init__(
        self, places: Layout, interpreter: Interpreter, manifest: Manifest, cache: Path, absent: Sequence[str] = ()
    ) -> None:
        self._places = places
        self._cache = cache
        self._provided = Provided(manifest, lambda path: (places.tree / path).read_bytes(), absent)
        layer = both_ways([interpreter.prefix] if interpreter.below else [])
        prefixes = [str(places.venv), *(each.prefix for each in interpreter.layers)]
        own = [f"{prefix}/{inner}" for prefix in prefixes for inner in ("lib", "lib64", "bin")]
        self._homes = Homes(
            tree=os.path.realpath(places.tree),
            layer=layer,
            installed=[f"{prefix}/{interpreter.library}" for prefix in layer],
            prefixes=both_ways(prefixes),
            base=os.path.realpath(interpreter.base),
            others=both_ways([*own, str(places.injected), *interpreter.sites, *interpreter.editables]),
            blobs=frozenset(digest for _, digest in manifest.values() if digest),
            sources=_sources(manifest),
            compiled=compiled_in(manifest),
        )
        self._links = [str(places.tree / path) for path, (mode, _) in manifest.items() if mode == LINK]

    def of(self, env: Mapping[str, str], cwd: Path) -> StageOrigins:
        """In a stage with these variables, which begins in `cwd`."""
        tree = str(self._places.tree)
        folders = (os.path.normpath(cwd / entry) for entry in ("", *_path(env, "PYTHONPATH")))
        inside = [os.path.relpath(folder, tree) for folder in folders if folder.startswith(tree + os.sep)]
        homes = replace(
            self._homes,
            built=both_ways([env["TMPDIR"], str(self._places.venv)]),
            caches=both_ways(_caches(env, str(self._cache))),
            libraries=both_ways(_path(env, "LD_LIBRARY_PATH")),
            leaves=[link for link in self._links if not _is_below(os.path.realpath(link), [self._homes.tree])],
        )
        return StageOrigins(self._provided.and_below(inside), homes)


class StageOrigins:
    """Judges by what the commit provides, and by the folders where its code, and that of others, is at home."""

    def __init__(self, provided: Provided, homes: Homes) -> None:
        self._provided = provided
        self._homes = homes
        self._near = (*homes.built, *homes.layer, *homes.caches, homes.tree)

    @property
    def config(self) -> Dict[str, Sequence[str]]:
        """What the injected modules have to know: they leave out what nobody would ask about."""
        homes = self._homes
        return {
            "tree": [homes.tree],
            "name": sorted(self._provided.names),
            "home": [*homes.built, *homes.layer, *homes.caches, *homes.others, *CODE_FOLDERS],
            "prefix": homes.prefixes,
            "base": [homes.base],
            "installed": homes.installed,
            "root": [os.path.join(homes.tree, root) for root in sorted(self._provided.roots)],
            "leaves": homes.leaves,
        }

    def foreign_modules(self, seen: Seen) -> List[ForeignModule]:
        """Modules that the commit provides, and that came from elsewhere; copies in the tree by their path there."""
        tree = self._homes.tree + os.sep
        return [
            ForeignModule(name=plain(name), file=plain(file[len(tree) :] if file.startswith(tree) else file))
            for (name, file), link in seen.modules.items()
            if not _is_below(file, self._homes.caches) and (link or self._is_foreign(name, file, file in seen.apart))
        ]

    def elsewhere(self, seen: Seen, scripts: Iterable[str] = ()) -> List[Elsewhere]:
        """All else that is not at home; also of the `scripts` that shells ran."""
        return [*self._interpreters(seen), *self._tests(seen), *self._code(seen), *self._scripts(scripts)]

    def _interpreters(self, seen: Seen) -> Iterator[Elsewhere]:
        """Other interpreters that imported the tree; an environment that the stage made over the same one is none, nor
        is that itself under a name that a test gave it, without packages of its own: the test judges what it does.
        """
        here = [*self._homes.built, self._homes.tree]
        for (program, has_packages), (file, python) in seen.strangers.items():
            is_of_a_test = bool(python.get("test")) and _is_below(program, here) and not has_packages
            made_here = is_of_a_test or _is_below(f"{python.get('prefix')}/", here)
            if python.get("base") != self._homes.base or not made_here:
                yield Elsewhere(what="interpreter", name=plain(program), file=plain(file))

    def _tests(self, seen: Seen) -> Iterator[Elsewhere]:
        for file in seen.tests:
            if not self._counts_as_test(file):
                yield Elsewhere(what="tests", name=plain(os.path.basename(file)), file=plain(file))

    def _code(self, seen: Seen) -> Iterator[Elsewhere]:
        for (name, file), link in seen.modules.items():
            if not (link or self._provided.holds(name) or file in seen.own or self._is_at_home(file)):
                yield Elsewhere(what="code", name=plain(name), file=plain(file))
        for file in seen.mapped:
            if not _is_below(file, (*self._near, *self._homes.others, *self._homes.libraries, *_LIBRARY_FOLDERS)):
                yield Elsewhere(what="code", name=plain(os.path.basename(file)), file=plain(file))

    def _scripts(self, scripts: Iterable[str]) -> Iterator[Elsewhere]:
        """Not what is installed for all that the pod runs."""
        for file in map(os.path.realpath, scripts):
            if self._is_foreign_file(file):
                yield Elsewhere(what="code", name=plain(os.path.basename(file)), file=plain(file))

    def foreign_files(self, used: Iterable[Tuple[str, str]], besides: Container[str]) -> Iterator[Tuple[str, str]]:
        """With a doubt on each: programs, and files that scripts read in, that are not at home; `used` says what was
        done with which. They may only prepare the pod, as what lies in hidden places does (.bashrc, .nvm).
        """
        for how, file in dict.fromkeys((how, os.path.realpath(file)) for how, file in used if os.path.isabs(file)):
            if not (file in besides or f"{os.sep}." in file) and self._is_foreign_file(file):
                yield file, f"it {how} {plain(file)}, which is neither the commit's nor the environment's"

    def altered(self, seen: Seen) -> Iterator[str]:
        """A doubt on each package that was installed from the tree with other code than is there."""
        homes = self._homes
        for name, file in seen.modules:
            found = _altered(name, file, homes) if _is_below(file, homes.layer) else ()
            others = [c.name for c, of in found if not any(says_the_same(c, Path(homes.tree, path)) for path in of)]
            if others:
                yield f"{plain(name)} was installed with other code than the commit's: {listing(sorted(others))}"

    def prebuilt(self, seen: Seen) -> Iterator[str]:
        """A doubt on each shared object that ran and that the commit holds, beside sources that it may not be of."""
        for file in (file for file in seen.mapped if _is_below(file, [self._homes.tree])):
            if entry_of(file)[1] in self._homes.compiled:
                path = plain(os.path.relpath(file, self._homes.tree))
                yield f"it ran {path} as the commit holds it compiled: whether of its sources, nobody knows"

    def _is_foreign_file(self, file: str) -> bool:
        return not (self._is_at_home(file) or _is_below(file, _LIBRARY_FOLDERS) or _is_installed_program(file))

    def _is_foreign(self, name: str, file: str, apart: bool) -> bool:
        if not self._provided.holds(name) or _is_below(file, self._homes.layer):
            return False
        if _is_below(file, [self._homes.tree]) and _site_of(file) is None:
            return self._is_another(name, os.path.relpath(file, self._homes.tree), apart)
        made_of_tree = self._may_be_built(file) and _is_from_tree(name, file, self._homes)
        return not made_of_tree or _is_altered(name, file, self._homes)

    def _is_another(self, name: str, file: str, apart: bool) -> bool:
        """Whether a module of the tree is not the one of which the metadata tells, nor says the same. Where none tells
        of the name, what lies aside of where packages usually are may be a module of its own, as beside its program,
        or a version of that.
        """
        path, places = Path(self._homes.tree, file), self._provided.places_of(name)
        if self._is_unreadable(path):
            return bool(places or self._provided.usual_places_of(name))
        if not places and apart:
            places = self._provided.usual_places_of(name)
            if file not in places:
                places = frozenset(p for p in places if is_version(path, Path(self._homes.tree, p)))
        if not places or file in places or not file.endswith(".py"):
            return False
        folders = [os.path.dirname(place) for place in places if os.path.basename(place) == path.name]
        return all(self._is_altered_copy(path, folder) for folder in folders)

    def _is_unreadable(self, module: Path) -> bool:
        """Whether it is bytecode that the commit holds, or lies in an archive that it holds."""
        file = next((path for path in (module, *module.parents) if path.is_file()), module)
        return file.suffix in _UNREADABLE and entry_of(str(file))[1] in self._homes.blobs

    def _is_altered_copy(self, path: Path, folder: str) -> bool:
        """Whether a module of the tree, or a file of the package that it is, says something else than its counterpart
        in `folder`. A file of the commit has to have one; a build may have added files, and written the version.
        """
        for copy in files_of(path):
            counterpart = _digest(self._homes, posixpath.join(folder, str(copy.relative_to(path.parent))))
            is_committed = _digest(self._homes, os.path.relpath(copy, self._homes.tree)) != ""
            may_be_built = not counterpart or copy.name in _WRITTEN_BY_BUILDS
            if (is_committed or not may_be_built) and _differs(copy, {counterpart}):
                return True
        return False

    def _is_at_home(self, file: str) -> bool:
        """Modules are noted for their names too: most of what was is an environment's, or the system's."""
        return _is_below(file, (*self._near, *self._homes.others, *CODE_FOLDERS))

    def _counts_as_test(self, file: str) -> bool:
        """Tests count from the tree: installed from it, or copied as they are."""
        if _is_below(file, self._homes.layer):
            return True
        if not self._may_be_built(file):
            return False
        return entry_of(file)[1] in self._homes.blobs or _is_installed_from_tree(file, self._homes)

    def _may_be_built(self, file: str) -> bool:
        return _is_below(file, [*self._homes.built, self._homes.tree])


def _path(env: Mapping[str, str], variable: str) -> List[str]:
    return [entry for entry in env.get(variable, "").split(os.pathsep) if entry]


def _caches(env: Mapping[str, str], own: str) -> List[str]:
    """Named caches of compiled code: the run's `own`, those that the stage's variables name, those of its user."""
    home = env.get("HOME") or "/nonexistent"
    shared = env.get("XDG_CACHE_HOME") or os.path.join(home, ".cache")
    named = [env[name] for name in _CACHE_VARIABLES if env.get(name)]
    if env.get("HF_HOME"):
        named.append(os.path.join(env["HF_HOME"], "modules"))
    below = [os.path.join(shared, name) for name in _CACHES] + [os.path.join(home, name) for name in _CACHES_AT_HOME]
    return [own, *named, *below]


def _is_from_tree(name: str, file: str, homes: Homes) -> bool:
    """Whether a module that was built or installed by the stage was made of the tree: no index has sent it."""
    site = _site_of(file) or _without_module(name, file)
    owner = _owner(site, name.partition(".")[0])
    return owner is None or _comes_from(owner, homes)


def _is_altered(name: str, file: str, homes: Homes) -> bool:
    """Whether a copy of the tree's module, or a file of the package that it is, says something else than the commit, or
    is bytecode, which nobody can read.
    """
    return file.endswith(".pyc") or next(_altered(name, file, homes), None) is not None


def _altered(name: str, file: str, homes: Homes) -> Iterator[Tuple[Path, Iterable[str]]]:
    """The files of a copy of the tree's module that say something else than the commit, each with its files there."""
    site = _without_module(name, file)
    for copy, digest in in_archive(Path(file)) or ((c, entry_of(os.path.realpath(c))[1]) for c in files_of(Path(file))):
        committed = _counterparts(os.path.relpath(copy, site), os.path.relpath(copy, homes.tree), homes)
        if committed and digest and copy.name not in _WRITTEN_BY_BUILDS and digest not in committed.values():
            yield copy, committed


def _counterparts(module: str, itself: str, homes: Homes) -> Dict[str, str]:
    """The hashes of the commit's files that are the module at the path `module`, as a file or as a package; not of
    `itself`.
    """
    stem = re.sub(r"(/__init__)?\.py$", "", module)
    shapes = (f"{stem}.py", f"{stem}/__init__.py")
    return {
        path: digest
        for shape in shapes
        for path, digest in homes.sources.get(posixpath.basename(shape), {}).items()
        if path != itself and (path == shape or path.endswith(f"/{shape}"))
    }


def _differs(copy: Path, committed: Container[str]) -> bool:
    digest = entry_of(os.path.realpath(copy))[1]  # blank if it is gone
    return bool(digest) and digest not in committed


def _digest(homes: Homes, path: str) -> str:
    """Of a Python file of the commit; blank if it holds none of this path."""
    return homes.sources.get(posixpath.basename(path), {}).get(path, "")


def _sources(manifest: Manifest) -> Dict[str, Dict[str, str]]:
    found: Dict[str, Dict[str, str]] = {}
    for path, (_, digest) in manifest.items():
        if path.endswith(".py"):
            found.setdefault(os.path.basename(path), {})[path] = digest
    return found


def compiled_in(manifest: Manifest) -> FrozenSet[str]:
    """The hashes of a commit's shared objects, if it also has what is compiled to such."""
    if not any(path.endswith(_COMPILED_FROM) for path in manifest):
        return frozenset()
    return frozenset(digest for path, (_, digest) in manifest.items() if digest and ".so" in os.path.basename(path))


def _is_installed_from_tree(file: str, homes: Homes) -> bool:
    site = _site_of(file)
    if site is None:
        return False
    owner = _owner(site, os.path.relpath(file, site).partition(os.sep)[0])
    return owner is not None and _comes_from(owner, homes)


def _site_of(file: str) -> Optional[str]:
    parts = file.split(os.sep)
    found = [number for number, part in enumerate(parts) if part in _SITES]
    return os.sep.join(parts[: found[-1] + 1]) if found else None


def _without_module(name: str, file: str) -> str:
    """The folder from which the module `name` was imported, as `pip install --target` fills one."""
    depth = name.count(".") + (2 if os.path.basename(file).startswith("__init__.") else 1)
    return os.sep.join(file.split(os.sep)[:-depth])


def _owner(site: str, top: str) -> Optional[Path]:
    """The metadata of the distribution in `site` that `top` was installed with."""
    for folder in sorted(Path(site).glob("*.dist-info")):
        try:
            lines = (folder / "RECORD").read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        if any(line.startswith((f"{top}/", f"{top}.", f'"{top}/')) for line in lines):
            return folder
    return None


def _comes_from(distribution: Path, homes: Homes) -> bool:
    """Whether it was installed from the tree, or from what the stage built (PEP 610)."""
    try:
        url = json.loads((distribution / "direct_url.json").read_text(encoding="utf-8"))["url"]
        parts = urlsplit(url)
    except (OSError, ValueError, LookupError, TypeError):
        return False
    path = os.path.realpath(unquote(parts.path))
    return parts.scheme == "file" and _is_below(path + os.sep, [homes.tree, *homes.built])


def _is_installed_program(file: str) -> bool:
    """Whether it lies with the programs of something that was installed: in `bin`, or beside such a folder and one of
    what they share (`condabin`, `env/vars.sh`); but not the user's own.
    """
    return any((p.name in _PROGRAM_FOLDERS and p.parent != Path.home()) or _is_prefix(p) for p in Path(file).parents)


def _is_prefix(folder: Path) -> bool:
    """Of an installation, which has a program, and what that needs; a checkout may have such folders, too."""
    if folder in (Path.home(), Path(folder.anchor)) or (folder / ".git").exists():
        return False
    has_program = any(os.access(file, os.X_OK) and file.is_file() for file in folder.glob("bin/*"))
    return has_program and any(next(folder.glob(f"{name}/*"), None) for name in ("lib", "share"))


def _is_below(path: str, folders: Sequence[str]) -> bool:
    return path.startswith(tuple(folder + os.sep for folder in folders))
