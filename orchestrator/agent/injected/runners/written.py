"""Tests that are written in the files that a session collects from, and that it did not collect.

What stands there is found in the source, what was collected is known by its code: file and first line. A file that
pytest was not to look at counts if it is named like a file of tests, or stands in a folder with collected ones.
"""

from __future__ import annotations

import ast
import inspect
import os
import re
import sys
from collections import Counter, defaultdict
from fnmatch import fnmatch
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import (
    Any,
    Callable,
    Collection,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Set,
    Tuple,
)

import pytest

from ..checks.reached import reached
from ..files import read
from ..source.syntax import FUNCTIONS, first_line, name_of, parsed
from .examples import left_out
from .misnamed import is_named, is_nearly_hook, is_nearly_test, names_in

NO_TESTS_IN = ("*.egg", ".*", "_darcs", "build", "CVS", "dist", "node_modules", "venv", "{arch}", "__pycache__")
"""pytest's default `norecursedirs`: where nobody expects the commit's tests."""
Names = Tuple[str, ...]
Place = Callable[[str], str]
"""Where a file stands in the tree, if it does, or was installed from there."""

_FILES = ("test_*.py", "*_test.py")
_NO_TESTS = ("conftest.py", "setup.py")
_BLOCKS = ("body", "orelse", "handlers", "finalbody", "cases")
_DEFINED = re.compile(r"\bdef[\s\\]+(\w+)")
# By which a file may have tests and define none.
_MAKES_TESTS = re.compile(rb"(?m)^(test\w*\s*=(?!=)|\s*from\s.*\simport\s+\*|\s*class\s+Test\w*\s*\()")
_AROUND = re.compile("(?i)set_?up|tear_?down|tear_?up|set_?down")
# What a function inside another is decorated with and still waits to be called; anything else has registered it.
_MARKS = ("pytest", "mark", "unittest", "mock", "patch", "hypothesis", "given", "settings")
_NO_TEST_BY = ("overload", "'setter'", "'register'", "contextmanager", "hookimpl")


class _Fixtures(NamedTuple):
    """The names of `all` fixtures, and of those that a collected test asks for, or one of its fixtures; `nose`, where
    pytest calls what nose called.
    """

    all: Set[str]
    used: Set[str]
    nose: bool


class _Collected(NamedTuple):
    """What a session collected: code by file and first line, and how many of each name by file; tests and their classes
    by file and names; `known` are the tests whose own code is, with their functions; `bases` are all classes that these
    inherit from.
    """

    code: Set[Tuple[str, int]]
    names: Dict[str, Dict[str, int]]
    tests: Set[Tuple[str, Names]]
    known: Dict[Tuple[str, Names], object]
    classes: Dict[Tuple[str, Names], object]
    bases: Set[Tuple[str, Names]]


class _Written(NamedTuple):
    """A test in the source: `path` are its name and those around it, `arms` the branches that it stands in.

    `bare` is a function of the module that nothing decorates and nothing in its file names; of one that is `doubtful`,
    by its name or because it was made a fixture, what stands in it has to tell.
    """

    path: Names
    line: int
    arms: Tuple[Tuple[int, str], ...]
    bare: bool = False
    doubtful: bool = False


def not_collected(
    session: pytest.Session, items: Iterable[pytest.Item], place_in_tree: Place, said: Collection[str]
) -> Iterator[str]:
    """The ids of tests that are written where the session collects, in the tree or installed from it, and are none of
    its `items`.

    Of the files and folders in `said` it is known already that they were not collected.
    """
    items = list(items)
    found = _collected(items, place_in_tree)
    functions = _function_names(session)
    used = {name for item in items for name in getattr(item, "fixturenames", ())}
    fixtures = _Fixtures(_fixtures(session), used, session.config.pluginmanager.has_plugin("nose"))
    for item in items:
        if hasattr(item, "dtest"):
            yield from left_out(item.nodeid, item.dtest)
    for file in map(str, _files(session, {item.path for item in items})):
        relative = os.path.relpath(file, session.config.rootpath)
        known = any(relative == path or relative.startswith(path + os.sep) for path in said)
        written = "" if known else place_in_tree(file)
        if written:
            for path in _missing(Path(written), found, functions, fixtures):
                yield "::".join([os.path.relpath(written, session.config.rootpath), *path])


def ignored(
    session: pytest.Session, items: Iterable[pytest.Item], place_in_tree: Place, paths: Iterable[Path]
) -> Iterator[Path]:
    """Those of the files and folders that pytest was told not to look at which may hold tests that no item runs; but
    not what stands beside the way to those that are named, which it asks about too.
    """
    found = _collected(items, place_in_tree)
    functions = _function_names(session)
    patterns = session.config.getini("python_files")
    for path in paths:
        if not any(map(session.isinitpath, (path, *path.parents))):
            continue
        inside = (file for pattern in patterns for file in path.rglob(pattern)) if path.is_dir() else (path,)
        if any(_may_hold(file, found, functions) for file in inside):
            yield path


def _may_hold(path: Path, found: _Collected, names: Sequence[str]) -> bool:
    if not os.access(path, os.R_OK):
        return True
    source = read(str(path))
    return bool(_MAKES_TESTS.search(source)) or _may_miss(source, found.names.get(str(path), {}), names)


def _function_names(session: pytest.Session) -> Sequence[str]:
    asked = session.config.getini("python_functions")
    return ["test*", *(p if set(p) & set("*?[") else p + "*" for p in asked)]


def _collected(items: Iterable[pytest.Item], place_in_tree: Place) -> _Collected:
    found = _Collected(set(), defaultdict(lambda: defaultdict(int)), set(), {}, {}, set())
    for (parent, path), siblings in groupby(items, lambda item: (item.parent, item.path)):
        file = place_in_tree(str(path)) or str(path)
        classes = tuple(node.name for node in parent.listchain() if isinstance(node, pytest.Class)) if parent else ()
        copy = _installed_copy(parent, file)
        own = found.classes[file, classes] = getattr(parent, "cls", None)
        for cls in getattr(own, "__mro__", ()):
            source = getattr(sys.modules.get(cls.__module__), "__file__", None)
            found.bases.add((str(source), tuple(cls.__qualname__.split("."))))
        for item in siblings:
            test = (file, (*classes, getattr(item, "originalname", None) or item.name))
            found.tests.add(test)
            function = _function_of(item)
            if _code_below(function) is not None:
                found.known[test] = function
            for code in reached(function or _only_function(item)).codes:
                stands_in = file if code.co_filename == copy else code.co_filename
                place = (stands_in, code.co_firstlineno)
                if place not in found.code:
                    found.code.add(place)
                    found.names[stands_in][code.co_name] += 1
    return found


def _installed_copy(parent: Optional[pytest.Collector], file: str) -> str:
    """The same file as it is installed, where that was imported before: pytest takes the module that is there."""
    module = parent.getparent(pytest.Module) if parent else None
    origin = str(getattr(getattr(module, "obj", None), "__file__", None) or file)
    return origin if origin != file and read(origin) == read(file) else ""


def code_of(item: pytest.Item) -> Any:
    """The code of an item's function, below what it is wrapped in; None if it has none."""
    return _code_below(_function_of(item))


def _function_of(item: pytest.Item) -> Any:
    try:
        return item.function  # type: ignore[attr-defined]
    except Exception:  # items of plugins may be anything
        return None


def _only_function(item: pytest.Item) -> Any:
    """What an item of a plugin, or of a conftest, calls by all that can be seen of it."""
    own = [value for value in vars(item).values() if inspect.isfunction(value)]
    return own[0] if len(own) == 1 else None


def _code_below(function: Any) -> Any:
    try:
        return (inspect.unwrap(function) if "__wrapped__" in function.__dict__ else function).__code__
    except Exception:
        return None


def _fixtures(session: pytest.Session) -> Set[str]:
    """The names of all fixtures; where pytest keeps them differs between its versions."""
    manager = vars(getattr(session, "_fixturemanager", session))
    return {"request", *(n for key, names in manager.items() if key.startswith("_arg2") for n in names)}


def _files(session: pytest.Session, collected: Set[Path]) -> List[Path]:
    """The files `collected`, but for those of which single tests were named, and others in the folders named."""
    whole: Set[Path] = set()
    folders: Set[Path] = set()
    single: Set[Path] = set()
    named = session.config.pluginmanager.get_plugin("nsa-pod-named")
    for argument in {*map(str, session.config.args), *getattr(named, "targets", ())}:
        name, _, inner = argument.partition("::")
        path = _path_of(name, session.config)
        (single if inner else folders if path.is_dir() else whole).add(path)
    homes = {path.parent for path in collected}
    patterns = (*_FILES, *session.config.getini("python_files"))
    for path in _below(folders):
        if path.is_symlink() and path.resolve() in collected:  # another name of it
            continue
        if path.parent in homes or any(fnmatch(path.name, pattern) for pattern in patterns):
            whole.add(path)
    return sorted(whole | (collected - single))


def _path_of(argument: str, config: pytest.Config) -> Path:
    """The file or folder that pytest takes an argument for: with `--pyargs` a module goes before a path of its name."""
    try:
        spec = find_spec(argument) if config.option.pyargs else None
    except Exception:  # whatever the module's parents raise; pytest takes it for a path, or has ended with it
        spec = None
    if spec and spec.has_location and spec.origin:
        return Path(os.path.dirname(spec.origin) if spec.submodule_search_locations else spec.origin)
    return Path(os.path.abspath(config.invocation_params.dir / argument))


def _below(folders: Iterable[Path]) -> Iterator[Path]:
    for folder in folders:
        for where, inner, names in os.walk(folder):
            inner[:] = [n for n in inner if not any(fnmatch(n, pattern) for pattern in NO_TESTS_IN)]
            yield from (Path(where, n) for n in names if n.endswith(".py") and n not in _NO_TESTS)


def _missing(path: Path, found: _Collected, names: Sequence[str], fixtures: _Fixtures) -> Iterator[Names]:
    file = str(path)
    source = read(str(path))
    module = parsed(file, source) if _may_miss(source, found.names.get(file, {}), names) else None
    if module is None:
        return
    read_tests = _Reader(module, names, fixtures).read(module)
    written = [
        t for t in read_tests if not t.doubtful or (_is_among(t, file, found) and not _overrides(t, file, found))
    ]
    missing = [
        t for t in written if (file, t.line) not in found.code and not _is_accounted_for(t, written, file, found)
    ]
    if not missing:
        return
    from ..marks.assertions import mark  # which a session takes otherwise that marks a file itself

    facts = mark(module, source, file)
    for test in missing:
        if (not test.doubtful and _is_named_as_test(test.path[:-1])) or facts.holds(test.line):
            yield test.path


def _may_miss(source: bytes, collected: Mapping[str, int], names: Sequence[str]) -> bool:
    """Whether more functions of a test's name are defined than were collected: few files need be parsed for it."""
    defined = Counter(_DEFINED.findall(source.decode("utf-8", errors="replace")))
    missed = (name for name, n in defined.items() if n > collected.get(name, 0))
    return any(_is_named(name, names) or is_nearly_test(name) or _AROUND.search(name) for name in missed)


def _is_named(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)


def _is_among(test: _Written, file: str, found: _Collected) -> bool:
    """Whether tests of its class, or of its file, were collected."""
    around = test.path[:-1]
    return any(other == file and names[: len(around)] == around for other, names in found.tests)


def _overrides(test: _Written, file: str, found: _Collected) -> bool:
    """Whether it stands in the place of a method that its class inherits, and is called as that is."""
    bases = getattr(found.classes.get((file, test.path[:-1])), "__mro__", ())[1:]
    return any(test.path[-1] in vars(base) for base in bases)


def _is_named_as_test(around: Names) -> bool:
    """Methods of other classes are tests if they hold an assertion."""
    return not around or around[0].lower().startswith("test")


def _is_accounted_for(test: _Written, written: Sequence[_Written], file: str, found: _Collected) -> bool:
    """Whether it is inherited, or the one of its name that was not meant here, or was wrapped beyond knowing."""
    inside = (file, test.path[:-1])
    if inside in found.bases and inside not in found.classes:
        return True
    namesakes = [other for other in written if other.path == test.path and other is not test]
    collected = [other for other in namesakes if (file, other.line) in found.code]
    if collected:
        return all(other.arms != test.arms for other in collected)
    if (file, test.path) in found.known and (test.bare or reached(found.known[file, test.path]).all_known):
        return False
    return (file, test.path) in found.tests and test.line >= max((n.line for n in namesakes), default=0)


class _Reader:
    """Finds what looks like a test: by its name, what it asks for, and whether something else uses it."""

    def __init__(self, module: ast.Module, names: Sequence[str], fixtures: _Fixtures) -> None:
        self._module = module
        self._names = names
        self._fixtures = fixtures
        self._own_fixtures: Optional[Set[str]] = None
        self._named: Optional[Set[str]] = None

    def read(
        self, node: Any, path: Names = (), arms: Tuple[Tuple[int, str], ...] = (), around: Optional[ast.ClassDef] = None
    ) -> Iterator[_Written]:
        """The tests in the blocks of a module, a class (the innermost `around`), or a statement in one of them."""
        for block in _BLOCKS:
            for child in getattr(node, block, ()):
                begins = getattr(node, "pattern", node)  # a case of `match` has no line of its own
                inside = arms if isinstance(node, (ast.Module, ast.ClassDef)) else (*arms, (begins.lineno, block))
                if isinstance(child, FUNCTIONS) and self._is_around(child, around):
                    yield _Written((*path, child.name), first_line(child), inside, doubtful=True)
                elif isinstance(child, FUNCTIONS):
                    yield from self._of_function(child, path, inside)
                else:
                    is_class = isinstance(child, ast.ClassDef)
                    below = (*path, child.name) if is_class else path
                    yield from self.read(child, below, inside, child if is_class else around)

    def _is_around(self, node: Any, around: Optional[ast.ClassDef]) -> bool:
        """Whether it is meant to be called before or after tests, and is not, for its name is nearly right."""
        others = ("setup", "teardown") if self._fixtures.nose else ()
        return is_nearly_hook(node.name, around, by_pytest=True, others=others) and self._is_bare(node)

    def _of_function(self, node: Any, path: Names, arms: Tuple[Tuple[int, str], ...]) -> Iterator[_Written]:
        """The function itself, and those in it that nothing there uses."""
        misspelt = not _is_named(node.name, self._names)
        if misspelt and not self._is_misspelt(node):
            return
        if self._is_test(node, is_method=bool(path)):
            bare = not path and self._is_bare(node)
            doubtful = misspelt or any(map(_makes_another, node.decorator_list))
            yield _Written((*path, node.name), first_line(node), arms, bare, doubtful)
        nested = [n for n in node.body if isinstance(n, FUNCTIONS) and _is_named(n.name, self._names)]
        used = {name_of(n) for n in ast.walk(node)} if nested else ()
        for inner in nested:
            if inner.name not in used and _only_marked(inner) and self._is_test(inner, is_method=False):
                yield _Written((*path, node.name, inner.name), first_line(inner), arms)

    def _is_misspelt(self, node: Any) -> bool:
        if not is_nearly_test(node.name) or any(map(_makes_another, node.decorator_list)):
            return False
        return _only_marked(node) and not self._is_named(node.name)

    def _is_bare(self, node: Any) -> bool:
        """Whether nothing decorates it, and nothing in the file names it, or all names at once."""
        return not node.decorator_list and not self._is_named(node.name)

    def _is_named(self, name: str) -> bool:
        if self._named is None:
            self._named = names_in(self._module)
        return is_named(name, self._named)

    def _is_test(self, node: Any, *, is_method: bool) -> bool:
        """Whether pytest could call it: a decorator may give it what it asks for, or make something else of it."""
        decorators = [ast.dump(decorator) for decorator in node.decorator_list]
        if any(word in decorator for word in _NO_TEST_BY for decorator in decorators):
            return False
        if any("property" in decorator for decorator in decorators):  # by mistake, where nobody asks for it
            return not self._is_named(node.name)
        for decorator in filter(_makes_fixture, node.decorator_list):  # likewise
            name = next((k.value for k in getattr(decorator, "keywords", ()) if k.arg == "name"), None)
            return name is None and node.name not in self._fixtures.used and not self._is_named(node.name)
        arguments = [a.arg for a in (*getattr(node.args, "posonlyargs", ()), *node.args.args)]
        kinds = [name_of(decorator) for decorator in node.decorator_list]  # of methods: they give nothing
        has_self = is_method and "staticmethod" not in kinds
        asked = arguments[: len(arguments) - len(node.args.defaults)][has_self:]
        return not {*kinds} <= {"classmethod", "staticmethod"} or all(
            name in self._fixtures.all or self._is_own_fixture(name) for name in asked
        )

    def _is_own_fixture(self, name: str) -> bool:
        """Whether the file itself makes it, which nobody has asked if the file was not collected."""
        if self._own_fixtures is None:
            functions = [node for node in ast.walk(self._module) if isinstance(node, FUNCTIONS)]
            self._own_fixtures = {f.name for f in functions if any(map(_makes_fixture, f.decorator_list))}
        return name in self._own_fixtures


def _only_marked(node: Any) -> bool:
    return all(any(f"'{name}'" in ast.dump(decorator) for name in _MARKS) for decorator in node.decorator_list)


def _makes_another(decorator: ast.expr) -> bool:
    """Whether what it makes is no test, which may be meant."""
    return _makes_fixture(decorator) or "property" in ast.dump(decorator)


def _makes_fixture(decorator: ast.expr) -> bool:
    return "'fixture'" in ast.dump(decorator)
