"""What kind of repository a folder holds: its project, tests, benches, and what they need. Nothing of it is run."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from packaging.utils import canonicalize_name

from orchestrator.config import imports, other_tests, pytest_plugins
from orchestrator.config.import_mode import import_mode
from orchestrator.config.metadata import FILES, Metadata
from orchestrator.config.programs import Check, check, prints, runs, wants
from orchestrator.config.pytest_files import TESTS_FOLDER, is_called_tests, is_test_file, writes_tests
from orchestrator.config.read import parsed, text_of
from orchestrator.config.under_test import functions, layers, silent

_MOST_FILES = 20_000
_LONGEST_REASON = 90
MOST_BENCHES = 3
"""Of a project, that become stages."""
_NOT_OURS = frozenset("node_modules site-packages build dist artifacts third_party thirdparty external vendor".split())
_BENCH = re.compile(r"(?:.*_)?bench(?:es|(?:mark)?(?:s|ing)?)(?:_.*)?", re.IGNORECASE)
_NATIVE = (".c", ".cc", ".cpp", ".cxx", ".cu", ".pyx", ".rs", ".f90")
_CUDA = re.compile(r"\bcuda\b|\btriton\b", re.IGNORECASE)
_MEASURES = re.compile(r"time|timer|timeit|perf_counter|do_bench|benchmarks?|elapsed|profiler?", re.IGNORECASE)
_IMPORT = re.compile(
    r"(?:^\s*(?:from|import)\s+|\bimportorskip\(\s*[\"'])"
    r"(torch|triton|flash_attn|cupy|jax|numba|tensorflow|pycuda|cuda|cudf|cuml|taichi|tinygrad)\b",
    re.MULTILINE,
)
_NO_MODULES = ("setup.py", "conftest.py")  # of a project, whatever lies beside them
_STUBS = re.compile(r"types-.*|.*-stubs")
_PAIRED = frozenset({"torch", "triton", "flash-attn"})  # whose versions are chosen anyway


@dataclass
class Survey:
    """Paths are relative to the repository; `project` is the folder with the metadata, None without any. `needs` are
    requirements of the project, its tests and benches, `guessed` those of them that only an import tells, `of_benches`
    what benches for CUDA import beside them (peers mostly), `unread` such as are no plain ones, `unnamed` those of
    developers that no test names, `build_needs` those of setup.py, none without one;
    `import_mode` is the one that pytest needs where modules that its build makes (`is_made`) are only installed;
    `discovered` is the package (dotted, in a namespace) or module at the top that setuptools has to find by itself.
    `cuda_tests` are those of the `tests` files that mention CUDA or Triton, `skips` the reasons that tests give to be
    skipped, `functions` what they call of the project, `layers` its classes with a `forward`, `other_tests` a shell's
    lines that run tests which are none of pytest's, `checks` programs that check something by themselves.
    """

    name: str
    project: str | None = None
    source: str = ""
    extension: bool = False
    is_made: bool = False
    needs_cuda: bool = False
    tests: list[str] = field(default_factory=list)
    test_files: int = 0
    cuda_tests: list[str] = field(default_factory=list)
    other_tests: list[str] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    benches: list[str] = field(default_factory=list)
    cuda_benches: list[str] = field(default_factory=list)
    wanted: dict[str, list[str]] = field(default_factory=dict)
    modules: set[str] = field(default_factory=set)
    packages: list[str] = field(default_factory=list)
    scripts: bool = False
    discovered: str = ""
    needs: list[str] = field(default_factory=list)
    guessed: list[str] = field(default_factory=list)
    of_benches: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    unnamed: list[str] = field(default_factory=list)
    build_needs: list[str] = field(default_factory=list)
    import_mode: str = ""
    skips: list[str] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)
    layers: set[str] = field(default_factory=set)

    def told(self) -> str:
        """What was found, as a clause."""
        parts = [f"a project in {self.project or 'the top folder'}" if self.project is not None else "no project"]
        parts += ["src layout"] if self.source else []
        parts += [f"a compiled extension{' for CUDA' if self.needs_cuda else ''}"] if self.extension else []
        parts += [f"{self.test_files} test files" if self.test_files != 1 else "1 test file"]
        parts += [f"{len(self.cuda_tests)} of them for CUDA or Triton"] if self.cuda_tests else []
        parts += [f"{len(self.checks)} programs that check something"] if len(self.checks) > 1 else []
        parts += ["1 program that checks something"] if len(self.checks) == 1 else []
        parts += [f"tests for {self.other_tests[-1].split()[0]}"] if self.other_tests else []
        parts += [f"{len(self.benches)} benches" if len(self.benches) != 1 else "1 bench"] if self.benches else []
        libraries = sorted({imports.DISTRIBUTIONS.get(name, name) for name in self.modules})
        parts += [" and ".join(libraries)] if libraries else []
        return ", ".join(parts)


def survey(root: Path, ignored: Collection[str] = ()) -> list[Survey]:
    """Look at the repository in `root`: at its project, or at each of several; at what there is without one. Files and
    folders that are `ignored` will be in no commit.
    """
    files = list(_files(root, ignored))
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
    found.needs_cuda = found.extension and metadata.builds_for_cuda_alone
    packages = {file: package for file in own if (package := _package_of(file, found.project or ""))}
    found.packages = sorted({*packages.values()})
    found.scripts = any(file.endswith(".py") for file in own)
    found.source = "src" if any(_below(file, _joined(found.project or "", "src")) for file in packages) else ""
    if metadata.discovers and not found.source and not found.project:
        modules = [file[:-3] for file in own if file.endswith(".py") and "/" not in file and file not in _NO_MODULES]
        found.discovered = next(iter(found.packages or sorted(_in_namespaces(own)) or modules), "")
    found.is_made = found.extension or (project is not None and _lacks_modules(root, packages, files))
    _look_at_python(root, own, found)
    found.tests = _where_tests_are(found, own, metadata)
    found.cuda_tests = [file for file in found.cuda_tests if _is_inside(file, found)]
    inside_project = [str(PurePosixPath(file).relative_to(project or ".")) for file in own]
    if "--import-mode" not in metadata.pytest:
        found.import_mode = import_mode(inside_project, found.tests)
    found.benches = [
        bench for bench in found.benches if bench in found.cuda_benches or not _is_among_tests(bench, found)
    ]
    if not found.tests:
        found.other_tests = other_tests.lines(root / (project or ""), inside_project)
    found.build_needs = metadata.build_needs
    texts = {path: text_of(root / path) for path in _around_tests(own, found)}
    skips = dict.fromkeys(reason for text in texts.values() for reason in _skips(text))
    found.skips = [reason for reason in skips if len(reason) <= _LONGEST_REASON]
    found.checks = [each for each in found.checks if not _is_started_by(texts, each.path)]
    texts |= {PurePosixPath(each.path): text_of(root / each.path) for each in found.checks}
    code = (text_of(root / file) for file in own if file.endswith(".py"))
    found.functions = functions(texts.values(), inside_project, found.layers, silent(code))
    shown = found.benches[:MOST_BENCHES]
    benches = _with_helpers(root, shown, own)
    on_cpu = _with_helpers(root, [path for path in shown if path not in found.cuda_benches], own)
    if not (texts or found.other_tests):  # then all that is asked of a package is that it can be imported
        texts |= {PurePosixPath(file): text_of(root / file) for file in packages}
    top = Metadata(root)
    named_by = (
        *texts.values(),
        *benches.values(),
        *(text_of(root / path) for path in _helpers(own)),
        metadata.pytest,
        top.pytest,
    )
    needs = metadata.requirements(
        lambda name: any(_names(text, name) for text in named_by),
        *([] if top.is_project or not project else [top]),
    )
    known = {*needs.plain, canonicalize_name(found.name)}
    on_path = [path for name in metadata.pytest_paths("pythonpath") for path in (metadata.folder / name).glob("*")]
    names_all = known - _PAIRED - {canonicalize_name(found.name)}
    running = texts | on_cpu
    running = running if names_all else imports.reached(running, files, lambda path: text_of(root / path))
    programs = {*on_cpu, *(PurePosixPath(each.path) for each in found.checks)}
    imported = imports.distributions(running, files, programs) - {path.stem for path in on_path} - metadata.extensions
    collected = [text for path, text in benches.items() if is_test_file(path)]
    imported |= pytest_plugins.of_tests([*texts.values(), *collected], metadata.pytest_configuration(), known)
    found.guessed = sorted(name for name in imported if not _brought(name, known))
    known |= {canonicalize_name(name) for name in (*imported, *_PAIRED)}
    found.of_benches = sorted(n for n in imports.distributions(benches, files, benches) if not _brought(n, known))
    found.needs = [*needs.plain.values(), *found.guessed]
    found.unread, found.unnamed = needs.unread, needs.unnamed
    return found


def _names(text: str, distribution: str) -> bool:
    """Whether a text of Python or of pytest's configuration names this distribution, or its module."""
    modules = [module for module, name in imports.DISTRIBUTIONS.items() if canonicalize_name(name) == distribution]
    words = "|".join(map(re.escape, (distribution, distribution.replace("-", "_"), *modules)))
    return bool(re.search(rf"(?<![A-Za-z0-9])(?:{words})(?![A-Za-z0-9])", text, re.IGNORECASE))


def _brought(name: str, known: Iterable[str]) -> bool:
    """Whether one of these distributions is or brings it: `z3-solver` holds z3, `nvidia-cutlass-dsl` cutlass, and a
    plugin needs what it is for; stubs alone bring nothing.
    """
    name = canonicalize_name(name)
    return any(f"-{name}-" in f"-{other}-" and not _STUBS.fullmatch(other) for other in known)


def _is_started_by(tests: Mapping[PurePosixPath, str], program: str) -> bool:
    """Whether tests name this program: then they run it themselves, with what it needs."""
    stem = re.compile(rf"\b{re.escape(PurePosixPath(program).stem)}\b")
    return any(stem.search(text) for path, text in tests.items() if str(path) != program)


def _around_tests(files: Sequence[str], found: Survey) -> list[PurePosixPath]:
    """The chosen tests, packages around them, and each conftest."""
    paths = [PurePosixPath(file) for file in files]
    chosen = [PurePosixPath(_joined(found.project or "", path)) for path in found.tests]
    tests = [path for path in paths if is_test_file(path) and {path, *path.parents} & {*chosen}]
    around = {folder for test in tests for folder in test.parents if any(map(TESTS_FOLDER.fullmatch, folder.parts))}
    tests += [path for path in paths if path.name == "__init__.py" and path.parent in around]
    return [*tests, *(path for path in paths if path in chosen or path.name == "conftest.py")]


def _helpers(files: Iterable[str]) -> list[PurePosixPath]:
    """What lies in folders of tests beside them: what they import, and programs that they run."""
    paths = (PurePosixPath(file) for file in files)
    code = (path for path in paths if path.suffix == ".py" and not is_test_file(path))
    return [path for path in code if any(map(TESTS_FOLDER.fullmatch, path.parts[:-1]))]


def _files(root: Path, ignored: Collection[str]) -> Iterator[str]:
    """Paths of regular files, without hidden folders, virtual environments, what others wrote and what is ignored."""
    count = 0
    for folder, folders, names in os.walk(root):
        if "pyvenv.cfg" in names:
            folders.clear()
            continue
        inside = Path(folder).relative_to(root)
        ours = (name for name in folders if not name.startswith(".") and name not in _NOT_OURS)
        folders[:] = sorted(name for name in ours if (inside / name).as_posix() not in ignored)
        for name in sorted(names):
            count += 1
            if count > _MOST_FILES:
                return
            if (path := (inside / name).as_posix()) not in ignored:
                yield path


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
    return {f"{top}.{name}" for top, name in inside if not TESTS_FOLDER.fullmatch(top) and not _BENCH.fullmatch(top)}


def _has_extension(files: Iterable[str], metadata: Metadata) -> bool:
    return metadata.builds_extension and any(file.endswith(_NATIVE) for file in files)


def _lacks_modules(root: Path, packages: Iterable[str], files: Sequence[str]) -> bool:
    """Whether the import of these packages needs modules that only a build makes."""
    inits = {PurePosixPath(file): text_of(root / file) for file in packages}
    return bool(imports.lacking(inits, files, lambda path: text_of(root / path)))


def _with_helpers(root: Path, programs: Iterable[str], files: Sequence[str]) -> dict[PurePosixPath, str]:
    texts = {PurePosixPath(program): text_of(root / program) for program in programs}
    return imports.with_helpers(texts, files, lambda path: text_of(root / path))


def _look_at_python(root: Path, files: Sequence[str], found: Survey) -> None:
    for file in files:
        path = PurePosixPath(file)
        if path.suffix == ".cu":
            found.modules.add("CUDA")
        if path.suffix != ".py":
            continue
        text = text_of(root / file)
        found.layers |= layers(text)
        found.modules |= {name.replace("_", "-") for name in _IMPORT.findall(text)}
        if _is_bench(path, text):
            if runs(text) or prints(text) or is_test_file(path):
                found.benches.append(file)
                found.wanted[file] = wants(text)
                found.cuda_benches += (
                    [file] if any(map(_CUDA.search, _with_helpers(root, [file], files).values())) else []
                )
        elif _is_where_tests_are(path, found.project or ".") and (checking := check(path, text)):
            found.checks.append(checking)
        elif _is_tests(path, text, found.project or "."):
            found.tests.append(file)
            found.cuda_tests += [file] if _CUDA.search(text) and writes_tests(text) else []
    if not found.modules:  # nothing here can use a GPU: it is only spoken of
        found.cuda_tests, found.cuda_benches = [], []
        found.checks = [replace(check, cuda=False) for check in found.checks]
    found.test_files = len(found.tests)


def _is_tests(path: PurePosixPath, text: str, project: str) -> bool:
    """By its name, or a test.py beside the metadata, which pytest collects where it is named."""
    alone = is_called_tests(path) and path.parent == PurePosixPath(project) and "def test" in text
    return bool(is_test_file(path) or alone)


def _is_where_tests_are(path: PurePosixPath, project: str) -> bool:
    """Beside the metadata, or in a folder of tests."""
    return path.parent == PurePosixPath(project) or any(map(TESTS_FOLDER.fullmatch, path.parts[:-1]))


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
    named = {folder for folder in folders if any(map(TESTS_FOLDER.fullmatch, PurePosixPath(folder).parts))}
    if named:
        return _outermost(named)
    if "." in folders or len(folders) > 20:
        at_top = sorted(PurePosixPath(f).name for f in found.tests if str(PurePosixPath(f).parent) == (project or "."))
        folders.discard(".")
        return [*at_top, *_outermost(folders)]
    return _outermost(folders)


def _is_among_tests(bench: str, found: Survey) -> bool:
    """Whether pytest runs it with the tests anyway."""
    return _is_inside(bench, found) and is_test_file(PurePosixPath(bench))


def _is_inside(file: str, found: Survey) -> bool:
    """Whether it is one of the chosen tests, or below one of their folders."""
    chosen = [_joined(found.project or "", path) for path in found.tests]
    return file in chosen or any(_below(file, path) for path in chosen)


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
