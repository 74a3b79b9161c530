"""Which modules the commit provides, wherever it keeps them: by where packages usually are, and by its metadata."""

from __future__ import annotations

import ast
import configparser
import os
import posixpath
import re
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Callable, Dict, FrozenSet, Iterable, Iterator, List, Mapping, Optional, Set, Tuple

from orchestrator.shared.files import walk
from orchestrator.shared.vendor import tomli

METADATA = ("pyproject.toml", "setup.cfg", "setup.py")
_MODULES = (".py", ".pyx", "/__init__.py", "/__init__.pyx")
# Folders in which a project keeps its packages, beside its own top.
_FOLDERS = ("src", "lib", "python")
# What stands beside packages and is none, unless metadata says so: others install such names by mistake.
_BESIDE = frozenset(
    "tests test docs doc examples example benchmarks benchmark scripts data ci build dist conftest setup".split()
)
# One folder down too, as bindings/python/ has them, but not where others' code is kept.
_INNER = re.compile(rf"(?P<root>(?P<top>[^/.]+)/(?:{'|'.join(_FOLDERS)}))/[^/]+/__init__\.py")
_OTHERS = frozenset("third_party thirdparty 3rdparty vendor vendored external extern deps submodules".split())
_EXTENSION = re.compile(r"\w*Extension")

Read = Callable[[str], bytes]


@dataclass
class Project:
    """What a project's metadata says: its import `name`, the `modules` that it declares, by dotted name, and further
    `roots` of packages with patterns of the top-level names that are packages there.
    """

    name: Optional[str] = None
    modules: Set[str] = field(default_factory=set)
    roots: Dict[str, List[str]] = field(default_factory=dict)

    @property
    def names_its_packages(self) -> bool:
        return bool(self.modules or self.roots)

    def add_path(self, path: object) -> None:
        """A package by its folder, as hatch and scikit-build name it."""
        folder, name = posixpath.split(_clean(path))
        self.roots.setdefault(folder, []).append(name)

    def add_root(self, folder: object, patterns: Iterable[object] = ("*",)) -> None:
        self.roots.setdefault(_clean(folder), []).extend(str(p).partition(".")[0] for p in patterns)

    def add_package_dir(self, mapping: Mapping[Any, Any]) -> None:
        for package, folder in mapping.items():
            if package:
                self.modules.add(str(package))
            else:
                self.add_root(folder)


class Provided:
    """The modules that a commit's `files` provide, `read` giving the content of one; folders that are `absent`, though
    the commit has them, count as packages, and as projects of one, that are called as they are.
    """

    def __init__(self, files: Iterable[str], read: Read, absent: Iterable[str] = ()) -> None:
        self._files = frozenset(files).union(*map(_supposed_in, absent))
        self._tops_of = _tops_by_folder(self._files)
        self._declared: Set[str] = set()
        # By import root: patterns of the names that count there.
        self._roots: Dict[str, List[str]] = {}
        # Packages of which a project's metadata tells: the depth of its folder, and roots that they may lie in.
        self._own: Dict[str, Tuple[int, Set[str]]] = {}
        self._usual: Set[str] = set(_FOLDERS)  # roots of the others
        for folder in _project_folders(self._files):
            self._add_project(folder, read_project(folder, self._files, read))
        for found in filter(None, map(_INNER.fullmatch, self._files)):
            if found["top"] not in _BESIDE | _OTHERS:
                self._roots.setdefault(found["root"], []).append("*")

    @classmethod
    def by_tree(cls, root: Path, absent: Iterable[str] = ()) -> Provided:
        """Of the commit whose files lie below `root`."""
        return cls((name for name, _ in walk(root)), lambda path: (root / path).read_bytes(), absent)

    def and_below(self, roots: Iterable[str]) -> Provided:
        """With what is imported from further folders of the tree, such as those on a stage's PYTHONPATH."""
        more = Provided((), str.encode)
        more._files, more._tops_of, more._declared, more._own = self._files, self._tops_of, self._declared, self._own
        more._roots = {**self._roots, **{root: ["*"] for root in roots}}
        more._usual = {*self._usual, *roots}
        return more

    @property
    def names(self) -> FrozenSet[str]:
        """Top-level names."""
        declared = {name.partition(".")[0] for name in self._declared}
        return frozenset(declared | {name for root in self._roots for name in self._tops(root)})

    @property
    def roots(self) -> FrozenSet[str]:
        """Folders that packages may lie in."""
        return frozenset(self._roots)

    def holds(self, module: str) -> bool:
        """Whether `module` (dotted) is one of them: a package or a module, not merely a folder of that name."""
        if module in self._declared:
            return True
        top = module.partition(".")[0]
        inner = module.replace(".", "/")
        roots = (root for root in self._roots if self._counts(root, top))
        return any(posixpath.join(root, inner) + end in self._files for root in roots for end in _MODULES)

    def places_of(self, module: str) -> FrozenSet[str]:
        """The files of the commit that are the package or module of this name, by metadata of the outermost project, or
        of several beside each other; none where no metadata tells of it.
        """
        return self._in(self._own.get(module.partition(".")[0], (0, ()))[1], module)

    def usual_places_of(self, module: str) -> FrozenSet[str]:
        """The same by where packages usually are, and by the stage's path, else at the top, if it is a package there:
        of others of that name nobody has said that they are it, nor that they are not.
        """
        top = module.partition(".")[0]
        if top in self._own:
            return frozenset()
        lies_at_top = f"{top}/__init__.py" in self._files and top not in _BESIDE | _OTHERS
        roots = self._usual if self._in(self._usual, top) or not lies_at_top else ("",)
        return self._in(roots, module)

    def _in(self, roots: Iterable[str], module: str) -> FrozenSet[str]:
        inner = module.replace(".", "/")
        return self._files & {posixpath.join(root, inner) + end for root in roots for end in _MODULES}

    def _add_project(self, folder: str, project: Project) -> None:
        self._declared |= project.modules
        for root, patterns in project.roots.items():
            self._roots.setdefault(_below(folder, root), []).extend(patterns)
        for inner in _FOLDERS:
            self._roots.setdefault(posixpath.join(folder, inner), []).append("*")
        own = self._named_as(project, folder)
        self._add_places(folder, project, own)
        if project.name and not own and not project.names_its_packages:
            self._declared.add(project.name)
        known = [*own, *(module.partition(".")[0] for module in project.modules)]
        patterns = known if known or project.roots else ["*"]
        self._roots.setdefault(folder, []).extend(patterns)

    def _add_places(self, folder: str, project: Project, own: Iterable[str]) -> None:
        """Where the project keeps what it is called after, and what its metadata names."""
        usual = {_below(folder, inner) for inner in ("", *_FOLDERS)}
        named_in: Dict[str, Set[str]] = {}  # by package, the roots in which metadata names it
        names = {*own, *(module for module in project.modules if "." not in module)}
        for root, patterns in project.roots.items():
            named = [pattern for pattern in patterns if root or pattern != "*"]  # not all that just lies there
            for top in self._tops_of.get(_below(folder, root), ()):
                if any(fnmatchcase(top, pattern) for pattern in named):
                    named_in.setdefault(top, set()).add(_below(folder, root))
        depth = folder.count("/") + 1 if folder else 0
        for name in {*names, *named_in} - _BESIDE:  # every folder of tests may be called that
            if name not in self._own or depth < self._own[name][0]:  # what lies deeper is a copy
                self._own[name] = depth, set()
            if depth == self._own[name][0]:
                self._own[name][1].update(named_in.get(name, usual))

    def _named_as(self, project: Project, folder: str) -> List[str]:
        """The packages of the project that are called as it is, at its top or in one of the usual folders."""
        wanted = (project.name or "").casefold()
        tops = (self._tops_of.get(_below(folder, inner), ()) for inner in ("", *_FOLDERS))
        return sorted({top for found in tops for top in found if top.casefold() == wanted})

    def _tops(self, root: str) -> Iterator[str]:
        return (top for top in self._tops_of.get(root, ()) if self._counts(root, top))

    def _counts(self, root: str, top: str) -> bool:
        patterns = self._roots[root]
        if top in _BESIDE:  # only where it is named, not where it just lies
            return top in patterns
        return any(fnmatchcase(top, pattern) for pattern in patterns)


def read_project(folder: str, files: FrozenSet[str], read: Read) -> Project:
    """The metadata of the project at `folder`; files that cannot be understood say nothing."""
    project = Project()
    readers = {"pyproject.toml": _read_pyproject, "setup.cfg": _read_setup_cfg, "setup.py": _read_setup_py}
    for name, reader in readers.items():
        path = posixpath.join(folder, name)
        if path in files:
            try:
                reader(project, read(path).decode("utf-8", "replace"))
            except (OSError, ValueError, LookupError, TypeError, AttributeError, SyntaxError, RecursionError):
                continue
            except configparser.Error:
                continue
    return project


def _supposed_in(folder: str) -> Set[str]:
    """Where the package would be that an absent folder is, or holds."""
    name = re.sub(r"[-.]+", "_", posixpath.basename(folder))
    return {f"{folder}/__init__.py", f"{folder}/{name}/__init__.py"}


def _project_folders(files: FrozenSet[str]) -> List[str]:
    """The top, and wherever there is metadata, outermost first; what lies under packages/ without any, too."""
    found = {posixpath.dirname(path) for path in files if posixpath.basename(path) in METADATA}
    found |= {"/".join(path.split("/")[:2]) for path in files if re.match(r"packages/[^/]+/", path)}
    return sorted({"", *found})


def _tops_by_folder(files: Iterable[str]) -> Dict[str, Set[str]]:
    """For each folder, the names of the modules and of the folders of Python files directly below it."""
    found: Dict[str, Set[str]] = {}
    for path in files:
        if path.endswith((".py", ".pyx")):
            folder, name = posixpath.split(path)
            name = name.rpartition(".")[0]
            while name:
                if name.isidentifier():
                    found.setdefault(folder, set()).add(name)
                folder, name = posixpath.split(folder)
    return found


def _read_pyproject(project: Project, text: str) -> None:
    data = tomli.loads(text)
    tools = data.get("tool", {})
    poetry = tools.get("poetry", {})
    _name(project, data.get("project", {}).get("name") or poetry.get("name"))
    _read_setuptools(project, tools.get("setuptools", {}))
    for package in poetry.get("packages", ()):
        project.add_root(package.get("from", ""), [package["include"].partition("/")[0]])
    wheel = tools.get("hatch", {}).get("build", {}).get("targets", {}).get("wheel", {})
    for path in (*wheel.get("packages", ()), *wheel.get("only-include", ())):
        project.add_path(path)
    for path in tools.get("scikit-build", {}).get("wheel", {}).get("packages", ()):
        project.add_path(path)
    for tool, key in (("flit", "module"), ("flit", "metadata")):
        _module(project, tools.get(tool, {}).get(key, {}).get("name" if key == "module" else "module"))
    maturin = tools.get("maturin", {})
    _module(project, maturin.get("module-name"))
    for folder in (maturin.get("python-source"), tools.get("pdm", {}).get("build", {}).get("package-dir")):
        if folder:
            project.add_root(folder)


def _read_setuptools(project: Project, tool: Mapping[str, Any]) -> None:
    packages = tool.get("packages", ())
    if isinstance(packages, dict):
        find = packages.get("find") or packages.get("find-namespace") or {}
        for where in find.get("where", ["."]):
            project.add_root(where, find.get("include") or ["*"])
    else:
        project.modules.update(map(str, packages))
    project.add_package_dir(tool.get("package-dir", {}))
    project.modules.update(map(str, tool.get("py-modules", ())))
    project.modules.update(str(extension["name"]) for extension in tool.get("ext-modules", ()))


def _read_setup_cfg(project: Project, text: str) -> None:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(text)
    _name(project, parser.get("metadata", "name", fallback=None))
    packages = parser.get("options", "packages", fallback="").strip()
    if packages.startswith("find"):
        patterns = _lines(parser.get("options.packages.find", "include", fallback="*"))
        for where in _lines(parser.get("options.packages.find", "where", fallback=".")):
            project.add_root(where, patterns)
    else:
        project.modules.update(_lines(packages))
    mapping = (line.partition("=") for line in _lines(parser.get("options", "package_dir", fallback=""), "\n"))
    project.add_package_dir({key.strip(): value.strip() for key, _, value in mapping})
    project.modules.update(_lines(parser.get("options", "py_modules", fallback="")))


def _read_setup_py(project: Project, text: str) -> None:
    """What stands in calls as it is: nobody runs it for this."""
    for call in (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)):
        called = getattr(call.func, "attr", getattr(call.func, "id", ""))
        given = {word.arg: word.value for word in call.keywords if word.arg}
        first = call.args[0] if call.args else None
        if called == "setup":
            _name(project, _literal(given.get("name")))
            for key in ("packages", "py_modules"):
                project.modules.update(map(str, _literal(given.get(key)) or ()))
            project.add_package_dir(_literal(given.get("package_dir")) or {})
        elif called in ("find_packages", "find_namespace_packages"):
            include = _literal(given.get("include")) or ["*"]
            project.add_root(_literal(given.get("where", first)) or ".", include)
        elif _EXTENSION.fullmatch(called):
            _module(project, _literal(given.get("name", first)))


def _literal(node: Optional[ast.AST]) -> Any:
    try:
        return None if node is None else ast.literal_eval(node)
    except ValueError:  # it is worked out
        return None


def _name(project: Project, name: object) -> None:
    """How a distribution of this name is imported, as far as its name says."""
    found = re.sub(r"[-.]+", "_", str(name or ""))
    if found.isidentifier():
        project.name = found


def _module(project: Project, name: object) -> None:
    if name:
        project.modules.add(str(name))


def _lines(text: str, separators: str = ",\n") -> List[str]:
    return [part.strip() for part in re.split(f"[{separators}]", text) if part.strip()]


def _clean(path: object) -> str:
    normal = posixpath.normpath(os.fspath(str(path)))
    return "" if normal == "." else normal


def _below(folder: str, root: str) -> str:
    return _clean(posixpath.join(folder, root)) if folder or root else ""
