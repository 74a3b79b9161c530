"""Which distributions files import in any case, told by their text alone."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from orchestrator.config.metadata import FILES
from orchestrator.config.pytest_files import is_test_file
from orchestrator.config.read import parsed

_OF_THE_BUILD = frozenset({"pkg_resources", "setuptools"})
# Modules whose distribution is called otherwise.
DISTRIBUTIONS = {
    "absl": "absl-py", "attr": "attrs", "bs4": "beautifulsoup4", "bson": "pymongo", "composer": "mosaicml",
    "cuda": "cuda-python", "cutlass": "nvidia-cutlass-dsl", "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil", "dotenv": "python-dotenv", "fla": "flash-linear-attention",
    "flash_attn": "flash-attn", "git": "gitpython", "haiku": "dm-haiku", "hydra": "hydra-core", "jwt": "pyjwt",
    "mpl_toolkits": "matplotlib", "PIL": "pillow", "pynvml": "nvidia-ml-py", "skimage": "scikit-image",
    "sklearn": "scikit-learn", "stk": "stanford-stk", "tree": "dm-tree", "xdist": "pytest-xdist", "yaml": "pyyaml",
    "zmq": "pyzmq",
}  # fmt: skip


def distributions(
    texts: Mapping[PurePosixPath, str], files: Sequence[str], programs: Collection[PurePosixPath] = ()
) -> set[str]:
    """Those of what these texts import: neither Python's own nor the repository's, whose `files` these are. What lies
    beside `programs` they import by its name, be it a package.
    """
    paths = list(map(PurePosixPath, files))
    beside = _beside_tests(paths)
    found = (name for path, text in texts.items() for name in _imports(text, path))
    modules = {name.partition(".")[0] for name in found if beside.isdisjoint(_around(name))}
    folders = {program.parent for program in programs}
    modules -= {path.stem for path in paths if path.suffix == ".py" and path.parent in folders}
    others = modules - _importable(paths) - sys.stdlib_module_names - _OF_THE_BUILD
    return {DISTRIBUTIONS.get(name, name) for name in others if not name.startswith("_")}


def reached(
    texts: Mapping[PurePosixPath, str],
    files: Sequence[str],
    read: Callable[[PurePosixPath], str],
    roots: Collection[PurePosixPath] = (),
) -> dict[PurePosixPath, str]:
    """These texts, and those of the repository's modules, by their names from `roots` on, that their imports run, and
    theirs.
    """
    paths = list(map(PurePosixPath, files))
    modules = dict(_modules(paths, roots or _roots(paths)))
    found = dict(texts)
    waiting = list(texts.items())
    while waiting:
        path, text = waiting.pop()
        named = {module for name in _imports(text, path) for module in _around(name)}
        new = {modules[name] for name in named if name in modules} - found.keys()
        waiting += [(each, found.setdefault(each, read(each))) for each in new]
    return found


def with_helpers(
    programs: Mapping[PurePosixPath, str], files: Sequence[str], read: Callable[[PurePosixPath], str]
) -> dict[PurePosixPath, str]:
    """These programs, and what lies beside one and is imported by it, or by such a helper of its."""
    found: dict[PurePosixPath, str] = {}
    for program, text in programs.items():
        beside = [file for file in files if PurePosixPath(file).parent == program.parent]
        found |= reached({program: text}, beside, read, {program.parent})
    return found


def lacking(texts: Mapping[PurePosixPath, str], files: Sequence[str], read: Callable[[PurePosixPath], str]) -> set[str]:
    """Modules of the repository's own packages that the import of these runs, and that it has not: a build makes them,
    as one compiles, or writes down the version.
    """
    paths = list(map(PurePosixPath, files))
    modules = dict(_modules(paths, _roots(paths)))
    folders = {".".join(folder.parts) for path in paths for folder in path.parents}
    running = reached(texts, files, read).items()
    named = {name.rpartition(".")[0] for path, text in running for name in _imports(text, path)}
    return {name for name in named if name.rpartition(".")[0] in modules and name not in modules.keys() | folders}


def _modules(paths: Sequence[PurePosixPath], roots: Collection[PurePosixPath]) -> Iterator[tuple[str, PurePosixPath]]:
    """The repository's modules by the dotted names that begin at one of these folders."""
    for path in (path for path in paths if path.suffix == ".py"):
        parts = path.with_suffix("").parts
        inside = parts[:-1] if parts[-1] == "__init__" else parts
        yield from ((".".join(inside[len(root.parts) :]), path) for root in roots if root in path.parents)


def _roots(paths: Sequence[PurePosixPath]) -> set[PurePosixPath]:
    """Folders of metadata, and their src."""
    projects = {path.parent for path in paths if path.name in FILES} | {PurePosixPath()}
    return {*projects, *(folder / "src" for folder in projects)}


def _importable(paths: Sequence[PurePosixPath]) -> set[str]:
    """The names under which the repository's own files may be imported: what is no part of a package, wherever it
    lies, tests, and folders beside metadata, at the top or under src, which need no `__init__.py`.
    """
    packages = {path.parent for path in paths if path.name == "__init__.py"}
    roots = _roots(paths)
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


def _imports(text: str, path: PurePosixPath) -> Iterator[str]:
    """The modules that this file imports unconditionally, with what it takes from them; relative ones by their path."""
    for node in parsed(text):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = path.parts[: -node.level] if node.level else ()
            module = ".".join(filter(None, (*above, node.module)))
            yield from (f"{module}.{alias.name}" for alias in node.names)
