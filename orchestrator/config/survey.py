"""What kind of repository a folder holds: its project, tests, benches, and what they need. Nothing of it is run."""

from __future__ import annotations

import ast
import configparser
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from orchestrator.config.markers import applies
from orchestrator.shared.vendor import tomli

_METADATA = ("pyproject.toml", "setup.cfg", "setup.py")
_MOST_FILES = 20_000
_MOST_BYTES = 1 << 20
_LONGEST_REASON = 90
_NOT_OURS = frozenset("node_modules site-packages build dist artifacts third_party thirdparty external vendor".split())
_TEST_FILE = re.compile(r"test_.*\.py|.*_test\.py")
_TESTS_BY_NAME = re.compile(r"tests?\.py")
_BENCH = re.compile(r"bench(mark)?s?(_.*)?|.*_bench(mark)?s?", re.IGNORECASE)
_NATIVE = (".c", ".cc", ".cpp", ".cxx", ".cu", ".pyx", ".rs", ".f90")
_CUDA = re.compile(r"\bcuda\b|\btriton\b", re.IGNORECASE)
_IMPORT = re.compile(r"^\s*(?:from|import)\s+(torch|triton|flash_attn)\b", re.MULTILINE)
_FOR_TESTS = ("test", "tests", "testing", "dev")
_TESTS_FOLDER = re.compile(r"tests?|testing")
_OF_THE_BUILD = frozenset({"pkg_resources", "setuptools"})
# Modules whose distribution is called otherwise.
_DISTRIBUTIONS = {
    "attr": "attrs", "bs4": "beautifulsoup4", "cv2": "opencv-python-headless", "dateutil": "python-dateutil",
    "dotenv": "python-dotenv", "flash_attn": "flash-attn", "git": "gitpython", "hydra": "hydra-core", "jwt": "pyjwt",
    "mpl_toolkits": "matplotlib", "PIL": "pillow", "skimage": "scikit-image", "sklearn": "scikit-learn",
    "xdist": "pytest-xdist", "yaml": "pyyaml", "zmq": "pyzmq",
}  # fmt: skip


@dataclass
class Survey:
    """Paths are relative to the repository; `project` is the folder with the metadata, None without any. `needs` are
    requirements of the project and its tests, `unread` such as are no plain ones, `build_needs` those of setup.py, none
    without one; `discovered` is the package or module at the top that setuptools has to find by itself. `cuda_tests`
    are those of the `tests` files that mention CUDA or Triton, `skips` the reasons that tests give to be skipped.
    """

    name: str
    project: str | None = None
    source: str = ""
    extension: bool = False
    tests: list[str] = field(default_factory=list)
    test_files: int = 0
    cuda_tests: list[str] = field(default_factory=list)
    benches: list[str] = field(default_factory=list)
    cuda_benches: list[str] = field(default_factory=list)
    modules: set[str] = field(default_factory=set)
    packages: list[str] = field(default_factory=list)
    scripts: bool = False
    discovered: str = ""
    needs: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    build_needs: list[str] = field(default_factory=list)
    skips: list[str] = field(default_factory=list)

    def told(self) -> str:
        """What was found, as a clause."""
        parts = [f"a project in {self.project or 'the top folder'}" if self.project is not None else "no project"]
        parts += ["src layout"] if self.source else []
        parts += ["a compiled extension"] if self.extension else []
        parts += [f"{self.test_files} test files" if self.test_files != 1 else "1 test file"]
        parts += [f"{len(self.cuda_tests)} of them for CUDA or Triton"] if self.cuda_tests else []
        parts += [f"{len(self.benches)} benches" if len(self.benches) != 1 else "1 bench"] if self.benches else []
        parts += [" and ".join(sorted(self.modules))] if self.modules else []
        return ", ".join(parts)


def survey(root: Path) -> Survey:
    """Look at the repository in `root`."""
    files = list(_files(root))
    found = Survey(name=root.resolve().name)
    found.project = _project_folder(files)
    own = [file for file in files if _below(file, found.project or "")]
    metadata = _Metadata(root / (found.project or ""))
    found.name = metadata.name or found.name
    found.extension = _has_extension(own, metadata)
    found.packages = sorted({package for file in own if (package := _package_of(file, found.project or ""))})
    found.scripts = any(file.endswith(".py") for file in own)
    inside = {PurePosixPath(file).relative_to(found.project or ".").parts[0] for file in own}
    found.source = "src" if "src" in inside and found.packages else ""
    if metadata.discovers and not found.source and not found.project:
        modules = [file[:-3] for file in own if file.endswith(".py") and "/" not in file and file != "setup.py"]
        found.discovered = next(iter(found.packages or modules), "")
    _look_at_python(root, own, found)
    found.tests = _where_tests_are(found, own, metadata)
    found.needs, found.unread = metadata.requirements()
    found.build_needs = metadata.build_needs
    known = {canonicalize_name(Requirement(text).name) for text in found.needs} | {canonicalize_name(found.name)}
    found.needs += sorted(name for name in _imported_by_tests(root, own, found) if not _brought(name, known))
    return found


def _brought(name: str, known: Iterable[str]) -> bool:
    """Whether one of these distributions is or brings it: `z3-solver` holds z3, `tensorflow-cpu` tensorflow, and a
    plugin needs what it is for; stubs alone bring nothing.
    """
    name = canonicalize_name(name)
    return any(other == name or (other.startswith(f"{name}-") and not other.endswith("-stubs")) for other in known)


def _imported_by_tests(root: Path, files: Sequence[str], found: Survey) -> set[str]:
    """Distributions of what the files of the chosen tests import in any case: neither Python's own nor the
    repository's.
    """
    paths = [PurePosixPath(file) for file in files]
    chosen = [PurePosixPath(_joined(found.project or "", path)) for path in found.tests]
    tests = [path for path in paths if _TEST_FILE.fullmatch(path.name) and {path, *path.parents} & {*chosen}]
    around = {folder for test in tests for folder in test.parents if any(map(_TESTS_FOLDER.fullmatch, folder.parts))}
    tests += [path for path in paths if path.name == "__init__.py" and path.parent in around]
    tests += [path for path in paths if path in chosen or path.name == "conftest.py"]
    modules = {name for path in tests for name in _imports(_text(root / path))}
    others = modules - _importable(paths) - sys.stdlib_module_names - _OF_THE_BUILD
    return {_DISTRIBUTIONS.get(name, name) for name in others if not name.startswith("_")}


def _importable(paths: Sequence[PurePosixPath]) -> set[str]:
    """The names under which the repository's own files may be imported: what is no part of a package, wherever it
    lies, and folders beside metadata, at the top or under src, which need no `__init__.py`.
    """
    packages = {path.parent for path in paths if path.name == "__init__.py"}
    projects = {path.parent for path in paths if path.name in _METADATA} | {PurePosixPath()}
    roots = {*projects, *(folder / "src" for folder in projects)}
    code = [path for path in paths if path.suffix == ".py"]
    names = {path.stem for path in code if path.parent not in packages}
    names |= {package.name for package in packages if package.parent not in packages}
    return names | {folder.name for path in paths for folder in path.parents if folder.parent in roots}


def _imports(text: str) -> Iterator[str]:
    """The top-level modules that a file imports unconditionally."""
    for node in _parsed(text):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.module.partition(".")[0]


def _parsed(text: str) -> Sequence[ast.stmt]:
    try:
        return ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError):
        return ()


def _files(root: Path) -> Iterator[str]:
    """Paths of regular files, without hidden folders, virtual environments and what others wrote."""
    count = 0
    for folder, folders, names in os.walk(root):
        if "pyvenv.cfg" in names:
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _NOT_OURS)
        for name in sorted(names):
            count += 1
            if count > _MOST_FILES:
                return
            yield (Path(folder) / name).relative_to(root).as_posix()


def _project_folder(files: Iterable[str]) -> str | None:
    """The top, if it has metadata; else the only folder below it that does."""
    folders = {str(PurePosixPath(file).parent) for file in files if PurePosixPath(file).name in _METADATA}
    if "." in folders:
        return ""
    near = [folder for folder in folders if folder.count("/") <= 1]
    return near[0] if len(near) == 1 else None


def _below(file: str, folder: str) -> bool:
    return not folder or file.startswith(f"{folder}/")


def _package_of(file: str, project: str) -> str:
    """The name of the package whose __init__ this is, at the top of the project or of its src."""
    parts = PurePosixPath(file).relative_to(project or ".").parts
    parts = parts[1:] if parts[0] == "src" else parts
    is_package = len(parts) == 2 and parts[1] == "__init__.py" and parts[0].isidentifier()
    return parts[0] if is_package and not parts[0].startswith("test") and not _BENCH.fullmatch(parts[0]) else ""


def _has_extension(files: Iterable[str], metadata: _Metadata) -> bool:
    return metadata.builds_extension and any(file.endswith(_NATIVE) for file in files)


def _look_at_python(root: Path, files: Iterable[str], found: Survey) -> None:
    skips: dict[str, None] = {}
    for file in files:
        path = PurePosixPath(file)
        if path.suffix == ".cu":
            found.modules.add("CUDA")
        if path.suffix != ".py":
            continue
        text = _text(root / file)
        found.modules |= {name.replace("_", "-") for name in _IMPORT.findall(text)}
        if _is_tests(path, text, found.project or ".") and not _is_bench(path):
            found.tests.append(file)
            found.cuda_tests += [file] if _CUDA.search(text) else []
            skips.update(dict.fromkeys(_skips(text)))
        elif _is_bench(path) and ("__main__" in text or _TEST_FILE.fullmatch(path.name)):
            found.benches.append(file)
            found.cuda_benches += [file] if _CUDA.search(text) else []
    found.test_files = len(found.tests)
    found.skips = [reason for reason in skips if len(reason) <= _LONGEST_REASON]


def _is_tests(path: PurePosixPath, text: str, project: str) -> bool:
    """By its name, or a test.py beside the metadata, which pytest collects where it is named."""
    alone = _TESTS_BY_NAME.fullmatch(path.name) and path.parent == PurePosixPath(project) and "def test" in text
    return bool(_TEST_FILE.fullmatch(path.name) or alone)


def _is_bench(path: PurePosixPath) -> bool:
    if path.stem.startswith("__"):
        return False
    return any(_BENCH.fullmatch(part) for part in (*path.parent.parts, path.stem))


def _where_tests_are(found: Survey, files: Iterable[str], metadata: _Metadata) -> list[str]:
    """What pytest's own configuration says, else the folders of test files, the outermost of each, by the project."""
    project = found.project or ""
    configured = [path for path in metadata.testpaths if any(_below(file, _joined(project, path)) for file in files)]
    if configured:
        return configured
    folders = {str(PurePosixPath(file).relative_to(project or ".").parent) for file in found.tests}
    named = {folder for folder in folders if any(map(_TESTS_FOLDER.fullmatch, PurePosixPath(folder).parts))}
    if named:
        return _outermost(named)
    if "." in folders or len(folders) > 20:
        at_top = sorted(PurePosixPath(f).name for f in found.tests if str(PurePosixPath(f).parent) == (project or "."))
        folders.discard(".")
        return [*at_top, *_outermost(folders)]
    return _outermost(folders)


def _outermost(folders: Iterable[str]) -> list[str]:
    kept: list[str] = []
    for folder in sorted(folders):
        if not any(folder.startswith(f"{outer}/") for outer in kept):
            kept.append(folder)
    return kept


def _joined(folder: str, path: str) -> str:
    return f"{folder}/{path}".strip("/").removesuffix("/")


def _skips(text: str) -> Iterator[str]:
    """The reasons of skips and xfails that a test file gives in so many words."""
    nodes = (node for statement in _parsed(text) for node in ast.walk(statement))
    for call in (node for node in nodes if isinstance(node, ast.Call)):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        given = next((word.value for word in call.keywords if word.arg == "reason"), None)
        reason = given if given is not None or name != "skip" or not call.args else call.args[0]
        said = _constant(call.args[0] if name == "importorskip" and call.args else reason)
        if said and name == "importorskip":
            yield f"could not import {said!r}"
        elif said and name in ("skip", "skipif", "xfail"):
            yield f"{'xfail: ' if name == 'xfail' else ''}{said}"


def _constant(node: ast.expr | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _text(path: Path) -> str:
    try:
        return path.read_bytes()[:_MOST_BYTES].decode("utf-8", "replace")
    except OSError:
        return ""


class _Metadata:
    """What pyproject.toml, setup.cfg, setup.py and requirements files say; what cannot be read says nothing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            self._data: Mapping[str, Any] = tomli.loads(_text(folder / "pyproject.toml"))
        except (tomli.TOMLDecodeError, RecursionError):
            self._data = {}
        self._setup = configparser.ConfigParser(interpolation=None)
        try:
            self._setup.read_string(_text(folder / "setup.cfg"))
        except configparser.Error:
            self._setup = configparser.ConfigParser(interpolation=None)
        self._setup_py = _text(folder / "setup.py")
        self._given = _setup_arguments(self._setup_py)

    @property
    def name(self) -> str:
        """The project's own, if it says one."""
        said = (self._project.get("name"), self._setup.get("metadata", "name", fallback=""), self._given.get("name"))
        return next((name for name in said if name and isinstance(name, str)), "")

    @property
    def builds_extension(self) -> bool:
        """Whether building it may compile something."""
        build = self._table(self._data, "build-system").get("requires", ())
        tools = re.compile(r"scikit.build|meson|maturin|cython|pybind11|nanobind|cffi|torch|setuptools-rust", re.I)
        native = re.search(r"ext_modules|Extension\(|cffi_modules|rust_extensions", self._setup_py)
        own = "ext-modules" in self._table(self._data, "tool", "setuptools")
        return bool(native or own or any(tools.match(str(text)) for text in build))

    @property
    def discovers(self) -> bool:
        """Whether setuptools has to find by itself what it is to install (its automatic discovery)."""
        build = self._table(self._data, "build-system")
        given = [*self._table(self._data, "tool", "setuptools"), *self._given]
        given += self._setup.options("options") if self._setup.has_section("options") else []
        is_named = {name.replace("-", "_") for name in given} & {"packages", "py_modules", "ext_modules"}
        is_project = bool(self._project or self._setup_py or self._setup.has_section("metadata"))
        return is_project and not is_named and str(build.get("build-backend", "setuptools")).startswith("setuptools")

    @property
    def build_needs(self) -> list[str]:
        """Requirements of setup.py, where there is one."""
        given = _texts(self._table(self._data, "build-system").get("requires"))
        return (given or ["setuptools"]) if self._setup_py else []

    @property
    def testpaths(self) -> list[str]:
        """Where pytest's configuration says that the tests are."""
        given = self._table(self._data, "tool", "pytest", "ini_options").get("testpaths", [])
        given = given or self._setup.get("tool:pytest", "testpaths", fallback="")
        ini = configparser.ConfigParser(interpolation=None)
        for name in ("pytest.ini", "tox.ini"):
            try:
                ini.read_string(_text(self._folder / name))
            except configparser.Error:
                continue
        given = given or ini.get("pytest", "testpaths", fallback="")
        words = given.split() if isinstance(given, str) else [word for word in given if isinstance(word, str)]
        return [word.removeprefix("./").rstrip("/") for word in words if not set(word) & set("*?[")]

    def requirements(self) -> tuple[list[str], list[str]]:
        """Those of the project and of its tests; and lines that are none of a package on an index."""
        plain: dict[str, str] = {}
        others: list[str] = []
        for line in dict.fromkeys([*self._of_project(), *self._of_tests(), *self._of_files()]):
            try:
                requirement = Requirement(line)
            except InvalidRequirement:
                others.append(line)
                continue
            name = canonicalize_name(requirement.name)
            if requirement.url:
                others.append(line)
            elif name != canonicalize_name(self.name or "-") and applies(requirement):
                requirement.marker = None
                plain.setdefault(name, str(requirement))
        return list(plain.values()), others

    @property
    def _project(self) -> Mapping[str, Any]:
        return self._table(self._data, "project") or self._table(self._data, "tool", "poetry")

    def _of_project(self) -> Iterator[str]:
        yield from _texts(self._project.get("dependencies"))
        yield from _lines(self._setup.get("options", "install_requires", fallback=""))
        yield from _texts(self._given.get("install_requires"))

    def _of_tests(self) -> Iterator[str]:
        groups = {
            **self._table(self._given, "extras_require"),
            **self._table(self._project, "optional-dependencies"),
            **self._table(self._data, "dependency-groups"),
        }
        name = next((name for name in _FOR_TESTS if name in groups), None)
        yield from self._of_group(name, groups, set()) if name else ()
        if self._setup.has_section("options.extras_require"):
            extras = self._setup["options.extras_require"]
            chosen = next((key for key in _FOR_TESTS if key in extras), None)
            yield from _lines(extras[chosen]) if chosen else ()

    def _of_group(self, name: str, groups: Mapping[str, Any], seen: set[str]) -> Iterator[str]:
        """Those of a group and of those that it includes: `{include-group = NAME}`, or the project's own extras."""
        seen.add(name)
        for item in groups.get(name, ()) if isinstance(groups.get(name), list) else ():
            inner = [item["include-group"]] if isinstance(item, dict) and "include-group" in item else []
            if isinstance(item, str):
                match = re.fullmatch(r"([\w.-]+)\s*\[([\w., -]+)\]\s*", item)
                if match and canonicalize_name(match[1]) == canonicalize_name(self.name or "-"):
                    inner = [extra.strip() for extra in match[2].split(",")]
                else:
                    yield item
            for other in inner:
                if other not in seen:
                    yield from self._of_group(other, groups, seen)

    def _of_files(self) -> Iterator[str]:
        names = [f"requirements{dash}{kind}.txt" for dash in "-_/" for kind in _FOR_TESTS]
        chosen = next((name for name in names if (self._folder / name).is_file()), None)
        for name in ("requirements.txt", *([chosen] if chosen else [])):
            lines = (line.split(" #")[0].strip() for line in _text(self._folder / name).splitlines())
            yield from (line for line in lines if line and not line.startswith(("#", "-r", "--", "-c")))

    @staticmethod
    def _table(data: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
        for key in keys:
            data = data.get(key, {})
            if not isinstance(data, dict):
                return {}
        return data


def _texts(value: object) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("#")]


def _setup_arguments(text: str) -> dict[str, Any]:
    """What setup.py gives to `setup` in so many words, by way of a variable too."""
    nodes = [node for statement in _parsed(text) for node in ast.walk(statement)]
    named = {
        target.id: node.value
        for node in nodes
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    calls = [node for node in nodes if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("setup")]
    words = {word.arg: word.value for call in calls for word in call.keywords if word.arg}
    return {
        name: _literal(named.get(value.id, value) if isinstance(value, ast.Name) else value)
        for name, value in words.items()
    }


def _literal(node: ast.expr) -> object:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, RecursionError):
        return None
