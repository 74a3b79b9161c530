"""What a project's own files say of it: pyproject.toml, setup.cfg, setup.py, requirements files, tox.ini, a noxfile."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from orchestrator.config import poetry, pytest_plugins, test_runners
from orchestrator.config.markers import applies
from orchestrator.config.read import ini, lines_of, parsed, text_of
from orchestrator.shared.vendor import tomli

FILES = ("pyproject.toml", "setup.cfg", "setup.py")
_FOR_TESTS = ("test", "tests", "testing")
_MOST_TEXTS = 1000
_MOST_INCLUDES = 100
_INCLUDE = re.compile(r"(?:-r|--requirement)[\s=]*(?P<path>\S+)")
_OWN = re.compile(r"(?:-e|--editable)?[\s=]*(?P<name>\.|\w[\w.-]*)\s*(?:\[(?P<groups>[\w., -]+)\])?")


@dataclass
class Needs:
    """Requirements by the names of their packages; lines that are none of a package on an index; and what was left out,
    as no test names it.
    """

    plain: dict[str, str] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)
    unnamed: list[str] = field(default_factory=list)

    def add(self, text: str) -> None:
        """A requirement; of a package that is there already, its extras."""
        new = Requirement(text)
        known = self.plain.get(canonicalize_name(new.name))
        kept = Requirement(known) if known else new
        kept.extras |= new.extras
        self.plain[canonicalize_name(new.name)] = str(kept)


class Metadata:
    """What the files of the project in a folder say; what cannot be read says nothing. `broken` is why pyproject.toml
    cannot be.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.broken = ""
        self._data: Mapping[str, Any] = {}
        try:
            self._data = tomli.loads(text_of(folder / "pyproject.toml"))
        except (tomli.TOMLDecodeError, RecursionError) as error:
            self.broken = str(error)
        self._setup = ini(text_of(folder / "setup.cfg"))
        self._setup_py = text_of(folder / "setup.py")
        try:
            self._given = _setup_arguments(self._setup_py)
        except RecursionError:
            self._given = {}

    @property
    def name(self) -> str:
        """The project's own, if it says one."""
        said = (self._project.get("name"), self._setup.get("metadata", "name", fallback=""), self._given.get("name"))
        return next((name for name in said if name and isinstance(name, str)), "")

    @property
    def is_project(self) -> bool:
        """Whether there is something to install: a pyproject.toml may hold no more than settings of tools, and Poetry's
        or uv's no more than dependencies.
        """
        uv = _table(self._data, "tool", "uv")
        is_package = uv.get("package", bool(not uv or "build-system" in self._data or self._setup_py))
        if not is_package or _table(self._data, "tool", "poetry").get("package-mode") is False:
            return False
        said = self._project or "build-system" in self._data or self._setup.has_section("metadata")
        return bool(said or (self.folder / "setup.py").is_file())

    def has_member(self, path: str) -> bool:
        """Whether the project in this folder is one of its workspace (uv's)."""
        workspace = _table(self._data, "tool", "uv", "workspace")
        named = (any(fnmatch(path, text) for text in _texts(workspace.get(key))) for key in ("members", "exclude"))
        return next(named) and not next(named)

    @property
    def builds_extension(self) -> bool:
        """Whether building it may compile something."""
        build = _texts(_table(self._data, "build-system").get("requires"))
        tools = re.compile(r"scikit.build|meson|maturin|cython|pybind11|nanobind|cffi|torch|setuptools-rust", re.I)
        native = re.search(r"ext_modules|Extension\(|cffi_modules|rust_extensions", self._setup_py)
        own = "ext-modules" in _table(self._data, "tool", "setuptools")
        own = own or "backend-path" in _table(self._data, "build-system")  # what a backend of its own does, nobody says
        return bool(native or own or any(map(tools.match, build)))

    @property
    def builds_for_cuda_alone(self) -> bool:
        """Whether each extension of its setup.py is one of torch's for CUDA: nothing of it is built without nvcc."""
        made = re.findall(r"\b(\w*Extension)\(", self._setup_py)
        return bool(made) and set(made) == {"CUDAExtension"}

    @property
    def extensions(self) -> set[str]:
        """Top-level names of the modules that setup.py compiles, as far as it says them in so many words."""
        return {name.partition(".")[0] for name in _extension_names(self._setup_py)}

    @property
    def discovers(self) -> bool:
        """Whether setuptools has to find by itself what it is to install (its automatic discovery)."""
        build = _table(self._data, "build-system")
        given = [*_table(self._data, "tool", "setuptools"), *self._given]
        given += self._setup.options("options") if self._setup.has_section("options") else []
        is_named = {name.replace("-", "_") for name in given} & {"packages", "py_modules", "ext_modules"}
        return (
            self.is_project and not is_named and str(build.get("build-backend", "setuptools")).startswith("setuptools")
        )

    @property
    def build_needs(self) -> list[str]:
        """Requirements of setup.py, where there is one."""
        given = _texts(_table(self._data, "build-system").get("requires"))
        return (list(filter(_is_requirement, given)) or ["setuptools"]) if self._setup_py else []

    @property
    def pytest(self) -> str:
        """pytest's configuration, as a text."""
        return " ".join(f"{key} {value}" for key, value in self.pytest_configuration().items())

    def pytest_paths(self, key: str) -> list[str]:
        """Paths of pytest's configuration, such as `testpaths`; none that is a pattern."""
        given = self.pytest_configuration().get(key)
        words = given.split() if isinstance(given, str) else _texts(given)
        paths = [word.removeprefix("./").rstrip("/") for word in words if not set(word) & set("*?[")]
        return [path for path in paths if path]

    def pytest_configuration(self) -> dict[str, Any]:
        own = _table(self._data, "tool", "pytest")
        found = {**own, **_table(own, "ini_options")}
        files = [("setup.cfg", "tool:pytest"), ("tox.ini", "pytest"), ("pytest.ini", "pytest")]
        for name, section in files:
            read = ini(text_of(self.folder / name))
            found.update(read.items(section) if read.has_section(section) else ())
        return found

    def requirements(self, is_named: Callable[[str], bool], *around: Metadata) -> Needs:
        """Those of the project and of its tests, and of pytest's configuration; of what everybody who works on it gets,
        pytest's plugins and those whose names stand in the tests, and of its extras the latter. So too of what lies
        around it.
        """
        needs = self._read([*self._of_project(), *self._of_tests()])
        runners = test_runners.needs(self.folder, _table(self._data, "tool", "hatch", "envs"))
        others = self._read([".[dev]", "-r requirements.txt", *self._files(("dev",)), *runners])
        for name, text in others.plain.items():
            if "pytest" in name or name in needs.plain or is_named(name):
                needs.add(text)
            else:
                needs.unnamed.append(text)
        extras = self._read(f".[{name}]" for name in self._extras if not self._pins_torch(name)).plain
        for text in (text for name, text in extras.items() if name in needs.plain or is_named(name)):
            needs.add(text)
        for text in self._read(pytest_plugins.needs(self.pytest_configuration(), self._own_modules())).plain.values():
            needs.add(text)
        needs.unread += others.unread
        for outer in (each.requirements(is_named) for each in around):
            needs.plain = {**outer.plain, **needs.plain}
            needs.unread += outer.unread
            needs.unnamed += outer.unnamed
        return needs

    def _pins_torch(self, extra: str) -> bool:
        """Whether an extra names one version of torch or triton: with the pair that is chosen for a pod, the rest of it
        need not go together (`triton-ascend` brings a triton of its own).
        """
        plain = self._read([f".[{extra}]"]).plain
        return any("==" in plain.get(name, "") for name in ("torch", "triton"))

    def _own_modules(self) -> set[str]:
        """What may be imported of the project where its tests run."""
        folders = (self.folder, self.folder / "src", *(self.folder / path for path in self.pytest_paths("pythonpath")))
        return {path.stem for folder in folders for path in folder.glob("*")}

    def _read(self, lines: Iterable[str]) -> Needs:
        needs = Needs()
        for line in dict.fromkeys(self._meant(lines, self.folder, set())):
            try:
                requirement = Requirement(line)
            except InvalidRequirement:
                needs.unread.append(line)
                continue
            if requirement.url:
                needs.unread.append(line)
            elif applies(requirement):
                requirement.marker = None
                needs.add(str(requirement))
        return needs

    def _meant(self, lines: Iterable[str], folder: Path, seen: set[str]) -> Iterator[str]:
        """These lines; instead of one that names a file or the project itself, those of the file, of its extras or
        groups. Options of an installer are none.
        """
        for line in lines:
            include, own = _INCLUDE.fullmatch(line), self._own(line)
            if include:
                path = Path(os.path.normpath(folder / include["path"]))
                if self._is_own(path) and len(seen) < _MOST_INCLUDES and str(path) not in seen:
                    seen.add(str(path))
                    source = path.with_suffix(".in")  # what was written, where the file is made of it
                    text = text_of(source) or text_of(path)
                    yield from self._meant(lines_of(text), path.parent, seen)
            elif own:
                groups = {name.strip() for name in (own["groups"] or "").split(",")} & {*self._groups} - seen
                seen |= groups
                for name in sorted(groups):
                    yield from self._meant(_group_lines(self._groups[name]), self.folder, seen)
            elif not line.startswith("-") or line.startswith(("-e", "--editable")):
                yield line

    def _is_own(self, path: Path) -> bool:
        try:
            return path.resolve().is_relative_to(self.folder.resolve())
        except (OSError, RuntimeError, ValueError):  # a loop of links, a name that is none
            return False

    def _own(self, line: str) -> re.Match[str] | None:
        """The project itself, with or without extras or groups."""
        match = _OWN.fullmatch(line)
        is_own = match and (match["name"] == "." or canonicalize_name(match["name"]) == canonicalize_name(self.name))
        return match if is_own else None

    @property
    def _project(self) -> Mapping[str, Any]:
        return _table(self._data, "project") or _table(self._data, "tool", "poetry")

    @property
    def _extras(self) -> Mapping[str, Any]:
        extras = "options.extras_require"
        return {
            **_table(self._given, "extras_require"),
            **({key: lines_of(text) for key, text in self._setup[extras].items()} if extras in self._setup else {}),
            **_table(self._project, "optional-dependencies"),
        }

    @property
    def _groups(self) -> Mapping[str, Any]:
        """Extras and dependency groups, by name."""
        return {
            **self._extras,
            **poetry.groups(_table(self._data, "tool", "poetry")),
            **self._of_developers(),
            **_table(self._data, "tool", "pdm", "dev-dependencies"),
            **_table(self._data, "dependency-groups"),
        }

    def _of_developers(self) -> dict[str, Any]:
        """The group of which Rye and uv keep one list, without a name."""
        lists = (_table(self._data, "tool", tool).get("dev-dependencies") for tool in ("rye", "uv"))
        given = next(filter(None, lists), None)
        return {"dev": given} if given else {}

    def _of_project(self) -> Iterator[str]:
        yield from _texts(self._project.get("dependencies"))
        yield from lines_of(self._setup.get("options", "install_requires", fallback=""))
        yield from _texts(self._given.get("install_requires"))
        # One that installs the project itself is for those who work on it.
        lines = lines_of(text_of(self.folder / "requirements.txt"))
        own = [line for line in lines if (match := self._own(line)) and match["name"] == "."]
        yield from own or ["-r requirements.txt"]

    def _of_tests(self) -> Iterator[str]:
        yield from [f".[{name}]" for name in _FOR_TESTS if name in self._groups][:1]
        yield from self._files(_FOR_TESTS)

    def _files(self, kinds: Sequence[str]) -> list[str]:
        """The requirements file of the first of these kinds, in whichever order and folder its name has both words."""
        files = sorted([*self.folder.glob("*.txt"), *self.folder.glob("requirements/*.txt")])
        names = [path.relative_to(self.folder).as_posix() for path in files]
        return [f"-r {name}" for kind in kinds for name in names if _words(name) == {"requirements", kind}][:1]


def _is_requirement(text: str) -> bool:
    try:
        return bool(Requirement(text))
    except InvalidRequirement:
        return False


def _words(name: str) -> set[str]:
    return {*re.split(r"[-_./]", name.removesuffix(".txt"))} - {""}


def _group_lines(group: object) -> Iterator[str]:
    for item in group if isinstance(group, list) else ():
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict) and "include-group" in item:
            yield f".[{item['include-group']}]"


def _table(data: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    for key in keys:
        data = data.get(key, {})
        if not isinstance(data, dict):
            return {}
    return data


def _texts(value: object) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _extension_names(text: str) -> Iterator[str]:
    nodes = (node for statement in parsed(text) for node in ast.walk(statement))
    for call in (node for node in nodes if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Extension")):
        for said in [*call.args[:1], *(word.value for word in call.keywords if word.arg == "name")]:
            if isinstance(said, ast.Constant) and isinstance(said.value, str):
                yield said.value


def _setup_arguments(text: str) -> dict[str, Any]:
    """What setup.py gives to `setup` in so many words, by way of variables too, also of one that is filled by keys."""
    nodes = [node for statement in parsed(text) for node in ast.walk(statement)]
    named: dict[str, Any] = {}
    for node in (node for node in nodes if isinstance(node, ast.Assign)):
        for target in node.targets:
            if isinstance(target, ast.Name):
                named[target.id] = _value(node.value, named)
            elif isinstance(target, ast.Subscript):
                filled, key = _value(target.value, named), _value(target.slice, named)
                if isinstance(filled, dict) and isinstance(key, str):
                    filled[key] = _value(node.value, named)
    calls = [node for node in nodes if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("setup")]
    return {word.arg: _value(word.value, named) for call in calls for word in call.keywords if word.arg}


def _value(node: ast.expr, named: Mapping[str, Any]) -> Any:
    """Of a literal, a variable, a member of one, or a sum of lists; None of anything else."""
    if isinstance(node, ast.Name):
        return named.get(node.id)
    if isinstance(node, ast.Subscript):
        whole, key = _value(node.value, named), _value(node.slice, named)
        return whole.get(key) if isinstance(whole, dict) and isinstance(key, str) else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [*_texts(_value(node.left, named)), *_texts(_value(node.right, named))][:_MOST_TEXTS]
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, RecursionError):
        return None
