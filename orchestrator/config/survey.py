"""What kind of repository a folder holds: its project, tests, benches, and what they need. Nothing of it is run."""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from packaging.utils import canonicalize_name

from orchestrator.config import other_tests, pytest_plugins
from orchestrator.config.metadata import FILES, Metadata
from orchestrator.config.read import parsed, text_of
from orchestrator.config.under_test import functions

_MOST_FILES = 20_000
_LONGEST_REASON = 90
_NOT_OURS = frozenset("node_modules site-packages build dist artifacts third_party thirdparty external vendor".split())
_TEST_FILE = re.compile(r"test_.*\.py|.*_test\.py")
_TESTS_BY_NAME = re.compile(r"tests?\.py")
_BENCH = re.compile(r"bench(mark)?s?(_.*)?|.*_bench(mark)?s?", re.IGNORECASE)
_NATIVE = (".c", ".cc", ".cpp", ".cxx", ".cu", ".pyx", ".rs", ".f90")
_CUDA = re.compile(r"\bcuda\b|\btriton\b", re.IGNORECASE)
_MEASURES = re.compile(r"time|timer|timeit|perf_counter|do_bench|benchmarks?|elapsed|profiler?", re.IGNORECASE)
_PROGRAM = re.compile(r"\b__main__\b|\.parse_args\(|\bsys\.argv\b")
_IMPORT = re.compile(
    r"(?:^\s*(?:from|import)\s+|\bimportorskip\(\s*[\"'])"
    r"(torch|triton|flash_attn|cupy|jax|numba|tensorflow|pycuda|cuda|cudf|cuml|taichi|tinygrad)\b",
    re.MULTILINE,
)
_WRITTEN_TEST = re.compile(r"^\s*(?:(?:async\s+)?def|class)\s+\w*test|import \*", re.IGNORECASE | re.MULTILINE)
_NO_MODULES = ("setup.py", "conftest.py")  # of a project, whatever lies beside them
_TESTS_FOLDER = re.compile(r"_*tests?_*|testing")
_STUBS = re.compile(r"types-.*|.*-stubs")
_OF_THE_BUILD = frozenset({"pkg_resources", "setuptools"})
# Modules whose distribution is called otherwise.
_DISTRIBUTIONS = {
    "absl": "absl-py", "attr": "attrs", "bs4": "beautifulsoup4", "bson": "pymongo", "composer": "mosaicml",
    "cuda": "cuda-python", "cutlass": "nvidia-cutlass-dsl", "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil", "dotenv": "python-dotenv", "fla": "flash-linear-attention",
    "flash_attn": "flash-attn", "git": "gitpython", "haiku": "dm-haiku", "hydra": "hydra-core", "jwt": "pyjwt",
    "mpl_toolkits": "matplotlib", "PIL": "pillow", "pynvml": "nvidia-ml-py", "skimage": "scikit-image",
    "sklearn": "scikit-learn", "stk": "stanford-stk", "tree": "dm-tree", "xdist": "pytest-xdist", "yaml": "pyyaml",
    "zmq": "pyzmq",
}  # fmt: skip


@dataclass
class Survey:
    """Paths are relative to the repository; `project` is the folder with the metadata, None without any. `needs` are
    requirements of the project and its tests, `guessed` those of them that only an import tells, `unread` such as are
    no plain ones, `unnamed` those of developers that no test names, `build_needs` those of setup.py, none without one;
    `discovered` is the package (dotted, in a namespace) or module at the top that setuptools has to find by itself.
    `cuda_tests` are those of the `tests` files that mention CUDA or Triton, `skips` the reasons that tests give to be
    skipped, `functions` what they call of the project, `other_tests` a shell's lines that run tests which are none of
    pytest's.
    """

    name: str
    project: str | None = None
    source: str = ""
    extension: bool = False
    tests: list[str] = field(default_factory=list)
    test_files: int = 0
    cuda_tests: list[str] = field(default_factory=list)
    other_tests: list[str] = field(default_factory=list)
    benches: list[str] = field(default_factory=list)
    cuda_benches: list[str] = field(default_factory=list)
    modules: set[str] = field(default_factory=set)
    packages: list[str] = field(default_factory=list)
    scripts: bool = False
    discovered: str = ""
    needs: list[str] = field(default_factory=list)
    guessed: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    unnamed: list[str] = field(default_factory=list)
    build_needs: list[str] = field(default_factory=list)
    skips: list[str] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)

    def told(self) -> str:
        """What was found, as a clause."""
        parts = [f"a project in {self.project or 'the top folder'}" if self.project is not None else "no project"]
        parts += ["src layout"] if self.source else []
        parts += ["a compiled extension"] if self.extension else []
        parts += [f"{self.test_files} test files" if self.test_files != 1 else "1 test file"]
        parts += [f"{len(self.cuda_tests)} of them for CUDA or Triton"] if self.cuda_tests else []
        parts += [f"tests for {self.other_tests[-1].split()[0]}"] if self.other_tests else []
        parts += [f"{len(self.benches)} benches" if len(self.benches) != 1 else "1 bench"] if self.benches else []
        parts += [" and ".join(sorted(self.modules))] if self.modules else []
        return ", ".join(parts)


def survey(root: Path) -> list[Survey]:
    """Look at the repository in `root`: at its project, or at each of several; at what there is without one."""
    files = list(_files(root))
    projects = _project_folders(root, files)
    own: dict[str | None, list[str]] = {name: [] for name in (*projects, None)}
    for file in files:
        own[max((name for name in projects if _below(file, name)), key=len, default=None)].append(file)
    is_tested = any(is_test_file(PurePosixPath(file)) for file in own[None])
    found = [_of_project(root, files, own[name], name) for name in projects]
    return found + ([_of_project(root, files, own[None], None)] if is_tested or not projects else [])


def _of_project(root: Path, files: Sequence[str], own: Sequence[str], project: str | None) -> Survey:
    found = Survey(name=(root / (project or "")).resolve().name, project=project)
    metadata = Metadata(root / (project or ""))
    found.name = metadata.name or found.name
    found.extension = _has_extension(own, metadata)
    packages = {file: package for file in own if (package := _package_of(file, found.project or ""))}
    found.packages = sorted({*packages.values()})
    found.scripts = any(file.endswith(".py") for file in own)
    found.source = "src" if any(_below(file, _joined(found.project or "", "src")) for file in packages) else ""
    if metadata.discovers and not found.source and not found.project:
        modules = [file[:-3] for file in own if file.endswith(".py") and "/" not in file and file not in _NO_MODULES]
        found.discovered = next(iter(found.packages or sorted(_in_namespaces(own)) or modules), "")
    _look_at_python(root, own, found)
    found.tests = _where_tests_are(found, own, metadata)
    found.benches = [
        bench for bench in found.benches if bench in found.cuda_benches or not _is_among_tests(bench, found)
    ]
    inside_project = [str(PurePosixPath(file).relative_to(project or ".")) for file in own]
    if not found.tests:
        found.other_tests = other_tests.lines(root / (project or ""), inside_project)
    found.build_needs = metadata.build_needs
    texts = {path: text_of(root / path) for path in _around_tests(own, found)}
    found.functions = functions(texts.values(), inside_project)
    top = Metadata(root)
    named_by = (*texts.values(), *(text_of(root / path) for path in _helpers(own)), metadata.pytest, top.pytest)
    needs = metadata.requirements(
        lambda name: any(_names(text, name) for text in named_by),
        *([] if top.is_project or not project else [top]),
    )
    known = {*needs.plain, canonicalize_name(found.name)}
    on_path = [path for name in metadata.pytest_paths("pythonpath") for path in (metadata.folder / name).glob("*")]
    imported = _imported(texts.values(), files) - {path.stem for path in on_path} - metadata.extensions
    imported |= pytest_plugins.of_tests(texts.values(), metadata.pytest_configuration(), known)
    found.guessed = sorted(name for name in imported if not _brought(name, known))
    found.needs = [*needs.plain.values(), *found.guessed]
    found.unread, found.unnamed = needs.unread, needs.unnamed
    return found


def _names(text: str, distribution: str) -> bool:
    """Whether a text of Python or of pytest's configuration names this distribution, or its module."""
    modules = [module for module, name in _DISTRIBUTIONS.items() if canonicalize_name(name) == distribution]
    words = "|".join(map(re.escape, (distribution, distribution.replace("-", "_"), *modules)))
    return bool(re.search(rf"(?<![A-Za-z0-9])(?:{words})(?![A-Za-z0-9])", text, re.IGNORECASE))


def _brought(name: str, known: Iterable[str]) -> bool:
    """Whether one of these distributions is or brings it: `z3-solver` holds z3, `nvidia-cutlass-dsl` cutlass, and a
    plugin needs what it is for; stubs alone bring nothing.
    """
    name = canonicalize_name(name)
    return any(f"-{name}-" in f"-{other}-" and not _STUBS.fullmatch(other) for other in known)


def _around_tests(files: Sequence[str], found: Survey) -> list[PurePosixPath]:
    """The chosen tests, packages around them, and each conftest."""
    paths = [PurePosixPath(file) for file in files]
    chosen = [PurePosixPath(_joined(found.project or "", path)) for path in found.tests]
    tests = [path for path in paths if is_test_file(path) and {path, *path.parents} & {*chosen}]
    around = {folder for test in tests for folder in test.parents if any(map(_TESTS_FOLDER.fullmatch, folder.parts))}
    tests += [path for path in paths if path.name == "__init__.py" and path.parent in around]
    return [*tests, *(path for path in paths if path in chosen or path.name == "conftest.py")]


def _helpers(files: Iterable[str]) -> list[PurePosixPath]:
    """What lies in folders of tests beside them: what they import, and programs that they run."""
    paths = (PurePosixPath(file) for file in files)
    code = (path for path in paths if path.suffix == ".py" and not is_test_file(path))
    return [path for path in code if any(map(_TESTS_FOLDER.fullmatch, path.parts[:-1]))]


def _imported(texts: Iterable[str], files: Sequence[str]) -> set[str]:
    """Distributions of what these texts import in any case: neither Python's own nor the repository's."""
    paths = list(map(PurePosixPath, files))
    beside = _beside_tests(paths)
    names = {name for text in texts for name in _imports(text) if beside.isdisjoint(_around(name))}
    modules = {name.partition(".")[0] for name in names}
    others = modules - _importable(paths) - sys.stdlib_module_names - _OF_THE_BUILD
    return {_DISTRIBUTIONS.get(name, name) for name in others if not name.startswith("_")}


def _importable(paths: Sequence[PurePosixPath]) -> set[str]:
    """The names under which the repository's own files may be imported: what is no part of a package, wherever it
    lies, tests, and folders beside metadata, at the top or under src, which need no `__init__.py`.
    """
    packages = {path.parent for path in paths if path.name == "__init__.py"}
    projects = {path.parent for path in paths if path.name in FILES} | {PurePosixPath()}
    roots = {*projects, *(folder / "src" for folder in projects)}
    code = [path for path in paths if path.suffix == ".py"]
    names = {path.stem for path in code if path.parent not in packages or is_test_file(path)}
    names |= {package.name for package in packages if package.parent not in packages}
    return names | {folder.name for path in paths for folder in path.parents if folder.parent in roots}


def _beside_tests(paths: Sequence[PurePosixPath]) -> set[str]:
    """Modules in folders below one that pytest puts on the path, that of a test or a conftest, which need no
    `__init__.py`: `from tensor.helpers import check`.
    """
    packages = {path.parent for path in paths if path.name == "__init__.py"}
    found = {path.parent for path in paths if is_test_file(path) or path.name == "conftest.py"} - packages
    below = ((path, folder) for path in paths if path.suffix == ".py" for folder in found.intersection(path.parents))
    modules = (path.relative_to(folder).with_suffix("").parts for path, folder in below)
    return {".".join(parts) for parts in modules if len(parts) > 1}


def _around(name: str) -> Iterator[str]:
    """A dotted name, and those that it begins with."""
    parts = name.split(".")
    return (".".join(parts[:count]) for count in range(1, len(parts) + 1))


def _imports(text: str) -> Iterator[str]:
    """The modules that a file imports unconditionally, with what it takes from them."""
    for node in parsed(text):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


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


def _project_folders(root: Path, files: Iterable[str]) -> list[str]:
    """The top with its workspace, if it is a project; else the only one near below it; of several, those that have
    tests. What they or the top need of the repository is installed from it, and not from an index.
    """
    metadata = {PurePosixPath(file).parent for file in files if PurePosixPath(file).name in FILES}
    told = {
        str(folder).removeprefix("."): about
        for folder in sorted(metadata)
        if len(folder.parts) <= 2 and (about := Metadata(root / folder)).is_project
    }
    if len(told) <= 1:
        return [*told]
    top = told.get("") or Metadata(root)
    names: dict[str, str] = {canonicalize_name(about.name): name for name, about in told.items() if about.name}
    tested = {name for name in told if any(_below(file, name) and is_test_file(PurePosixPath(file)) for file in files)}
    chosen = [name for name in told if not name or (name in tested and ("" not in told or top.has_member(name)))]
    pending = [top, *(told[name] for name in chosen)]
    for about in pending:  # grows
        needed = {names[need] for need in about.requirements(lambda _: False).plain if need in names}
        pending += [told[name] for name in sorted(needed.difference(chosen))]
        chosen += sorted(needed.difference(chosen))
    return sorted(chosen)


def _below(file: str, folder: str) -> bool:
    return not folder or file.startswith(f"{folder}/")


def _package_of(file: str, project: str) -> str:
    """The name of the package whose __init__ this is, at the top of the project or of its src."""
    parts = PurePosixPath(file).relative_to(project or ".").parts
    parts = parts[1:] if parts[0] == "src" else parts
    is_package = len(parts) == 2 and parts[1] == "__init__.py" and parts[0].isidentifier()
    return parts[0] if is_package and not parts[0].startswith("test") and not _BENCH.fullmatch(parts[0]) else ""


def _in_namespaces(files: Iterable[str]) -> set[str]:
    """Packages one folder down, in one that is none itself and is called neither as tests nor as benches."""
    parts = [PurePosixPath(file).parts for file in files]
    inside = {p[:2] for p in parts if len(p) == 3 and p[2] == "__init__.py" and all(map(str.isidentifier, p[:2]))}
    return {f"{top}.{name}" for top, name in inside if not _TESTS_FOLDER.fullmatch(top) and not _BENCH.fullmatch(top)}


def _has_extension(files: Iterable[str], metadata: Metadata) -> bool:
    return metadata.builds_extension and any(file.endswith(_NATIVE) for file in files)


def _look_at_python(root: Path, files: Iterable[str], found: Survey) -> None:
    skips: dict[str, None] = {}
    for file in files:
        path = PurePosixPath(file)
        if path.suffix == ".cu":
            found.modules.add("CUDA")
        if path.suffix != ".py":
            continue
        text = text_of(root / file)
        found.modules |= {name.replace("_", "-") for name in _IMPORT.findall(text)}
        is_bench = _is_bench(path, text)
        if _is_tests(path, text, found.project or ".") and not is_bench:
            found.tests.append(file)
            found.cuda_tests += [file] if _CUDA.search(text) and _WRITTEN_TEST.search(text) else []
            skips.update(dict.fromkeys(_skips(text)))
        elif is_bench and (_PROGRAM.search(text) or is_test_file(path)):
            found.benches.append(file)
            found.cuda_benches += [file] if _CUDA.search(text) else []
    if not found.modules:  # nothing here can use a GPU: it is only spoken of
        found.cuda_tests, found.cuda_benches = [], []
    found.test_files = len(found.tests)
    found.skips = [reason for reason in skips if len(reason) <= _LONGEST_REASON]


def is_test_file(path: PurePosixPath) -> bool:
    """Whether pytest collects it where nothing else is configured."""
    return bool(_TEST_FILE.fullmatch(path.name))


def _is_tests(path: PurePosixPath, text: str, project: str) -> bool:
    """By its name, or a test.py beside the metadata, which pytest collects where it is named."""
    alone = _TESTS_BY_NAME.fullmatch(path.name) and path.parent == PurePosixPath(project) and "def test" in text
    return bool(is_test_file(path) or alone)


def _is_bench(path: PurePosixPath, text: str) -> bool:
    """By its name; by a folder's only what speaks of time too: one of a benchmark's tasks is called so as well."""
    if path.stem.startswith("_"):  # a helper
        return False
    in_folder = any(map(_BENCH.fullmatch, path.parent.parts))
    return bool(_BENCH.fullmatch(path.stem) or (in_folder and _MEASURES.search(text)))


def _where_tests_are(found: Survey, files: Iterable[str], metadata: Metadata) -> list[str]:
    """What pytest's own configuration says, else the folders of test files, the outermost of each, by the project."""
    project = found.project or ""
    paths = metadata.pytest_paths("testpaths")
    configured = [path for path in paths if any(_below(file, _joined(project, path)) for file in files)]
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


def _is_among_tests(bench: str, found: Survey) -> bool:
    """Whether pytest runs it with the tests anyway."""
    is_inside = any(_below(bench, _joined(found.project or "", path)) for path in found.tests)
    return is_inside and is_test_file(PurePosixPath(bench))


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
    nodes = (node for statement in parsed(text) for node in ast.walk(statement))
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
