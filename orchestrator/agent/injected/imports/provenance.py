"""Where the code of a process came from: modules, shared objects and tests that are not known to be at home."""

from __future__ import annotations

import os
import sys

from ..files import unfiled
from ..stage import FOLDER, test_around

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterable, Iterator

    from ..stage import Config, Notes

_SITES = (os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep)
_INJECTED = FOLDER + os.sep
_MOST_PENDING = 8
_MOST_INSIDE = 500
_STANDARD_LIBRARY = tuple(os.path.dirname(file) + os.sep for file in (os.__file__, os.path.realpath(os.__file__)))
# Past what a class may make of `__dict__`: modules that load all they have when somebody looks.
own_dict: Callable[[object], dict[str, Any]] = vars(type(sys))["__dict__"].__get__


class Imports:
    """Notes each once: `{"module": NAME, "file": ..., "beside": ITS PROGRAM OR NOT}`, `{"mapped": ...}`,
    `{"tests": ...}`; and, where the interpreter is none of the environment's, `{"imported": FILE, "python": ...}` for
    the first file of the tree that it imports, and again if it has packages of its own.

    A module is looked at soon after it was imported, so that the import itself is left alone. Noted is what lies in
    none of the folders `home`, and what is called as something of the tree, of a package only its outermost part and
    what the tree has on the path too, where it does not lie there; where it does, what is at top level, or not in its
    package. The agent knows what that means.
    """

    def __init__(self, config: Config, notes: Notes) -> None:
        self._notes = notes
        self._tree = config.one("tree") + os.sep
        self._names = frozenset(config.all("name"))
        self._given = tuple(path + os.sep for path in config.all("home"))
        self._home = (*self._given, *(path + os.sep for path in own_folders()))
        self._is_stranger = os.path.realpath(sys.prefix) not in config.all("prefix")
        self._base = "".join(config.all("base"))
        self._began_with = frozenset(sys.modules if self._is_stranger else ())
        self._imported = ""
        self._folder = _current_folder()
        self._program = _program(self._folder)
        self._real: dict[str, str] = {}
        self._seen: set[str] = set()
        self._pending: list[str] = []

    def begins(self, name: str) -> None:
        """The module `name` is about to be imported."""
        self.look_at_new()
        self._pending.append(name)

    def look_at_new(self) -> None:
        """Look at what was imported since the last time."""
        if sys.modules.keys().isdisjoint(self._pending):  # as between most tests
            del self._pending[_MOST_PENDING:]
            return
        names, self._pending = self._pending, []
        for name in names:
            if name in sys.modules:
                self._look_at(name, sys.modules[name])
            elif len(self._pending) < _MOST_PENDING:  # it may still come, or cannot be imported
                self._pending.append(name)

    def look_at_all(self) -> None:
        """Also at what was loaded past the finders, or before they were watched, and at what is mapped."""
        self._pending = []
        modules = list(sys.modules.items())
        for name, module in modules:
            self._look_at(name, module)
        for name, module in modules:  # then, for a module's own name says more
            self._look_inside(module, self._program if name == "__main__" else None)
        if self._program:
            self._look_at_file("__main__", self._program)
        for path in mapped():
            if not path.startswith(self._home):
                self._note(mapped=path)
        if self._imported:
            self._note_stranger()

    def _look_inside(self, module: object, program: str | None) -> None:
        """Look at what a module of the tree, or the `program`, holds that came past the finders: functions, and modules
        that are known by no name, of files that were read and executed (`spec_from_file_location`, `exec`).
        """
        own = (own_dict(module) if issubclass(type(module), type(sys)) else None) or {}
        file = program or own.get("__file__")
        if not isinstance(file, str) or not self._is_of_tree(os.path.normpath(os.path.join(self._folder, file))):
            return
        files: set[str | None] = set()
        for value in list(own.values()):
            if type(value) is type(own_folders) and value.__code__.co_filename == file:  # as most are
                continue
            inside = list(vars(value).values()) if type(value) is type else ()
            if type(value) is dict and len(value) <= _MOST_INSIDE:  # as what `runpy` returns
                inside = list(value.values())
            files.update(map(_came_from, (value, *inside)))
        known = (*self._home, self._tree, _INJECTED)
        for came_from in filter(None, files):
            if not came_from.startswith(known) or "/../" in came_from:
                self._look_at_code(came_from)

    def _look_at_code(self, file: str) -> None:
        """What generates code may give its file any name; one that is there was read."""
        path = self._resolved(os.path.normpath(os.path.join(self._folder, file)))
        if not path.startswith((*self._home, self._tree)) and os.path.isfile(path):
            self._note(module=os.path.splitext(os.path.basename(path))[0], file=path)

    def look_at_tests(self, files: Iterable[str]) -> None:
        """Note those of the collected test files that are not the tree's."""
        for file in files:
            path = os.path.realpath(file)
            if not self._is_of_tree(path):
                self._note(tests=path)

    def _look_at(self, key: str, module: object) -> None:
        if key in self._seen or not issubclass(type(module), type(sys)):
            return
        own = own_dict(module)
        file = own.get("__file__") if own else None
        if file is None and type(module) is type(sys) and own and own.get("__spec__") is None:
            self._look_at_made(key)
        if not isinstance(file, str) or file.startswith(_INJECTED) or file in unfiled:
            return
        # A package may file another one under a name of its own: the module's real name is its spec's.
        name = getattr(own.get("__spec__"), "name", None) or key
        self._seen.add(key)
        self._look_at_file(name if isinstance(name, str) else key, file)

    def _look_at_made(self, name: str) -> None:
        """At a module that no import has made: `sys.modules["fast"] = ModuleType("fast")`."""
        if name != "__main__" and name.partition(".")[0] in self._names and self._hides_ours(name):
            self._note(doubt=f"module {name} was made by the program itself, and the commit has its own")

    def _look_at_file(self, name: str, file: str) -> None:
        called_as_ours = name.partition(".")[0] in self._names
        if not called_as_ours and file.startswith(self._home) and "/../" not in file:
            return
        named = os.path.normpath(os.path.join(self._folder, file))
        if self._is_of_tree(named):
            path = self._resolved(named)
            if self._is_of_tree(path):
                self._note_imported(path)
                if called_as_ours and not self._is_in_package(name, named):  # there may be several of its name
                    self._note(module=name, file=path, beside=self._is_beside_its_program(name, path))
            else:  # a link that leads out
                self._note(module=name, file=path, link=named)
            return
        called_as_ours = called_as_ours and not _is_standard(named)
        at_home = named.startswith(self._home) and not called_as_ours
        if not at_home and (not self._is_inside_another(name, named) or self._hides_ours(name)):
            path = self._resolved(named)
            if self._is_of_tree(path):  # an editable installation may be a link
                self._note_imported(path)
            elif called_as_ours or not path.startswith(self._home):
                self._note(module=name, file=path, own=path.startswith(self._home))

    def _is_inside_another(self, name: str, file: str) -> bool:
        """Whether a package around the module is itself not the tree's: it speaks for all that is in its folder."""
        outer = name.rpartition(".")[0]
        while outer:
            package = getattr(sys.modules.get(outer), "__file__", None)
            if isinstance(package, str):
                place = os.path.normpath(os.path.join(self._folder, package))
                is_ours = self._is_of_tree(place) or self._is_of_tree(os.path.realpath(place))
                return not is_ours and file.startswith(os.path.dirname(place) + os.sep)
            outer = outer.rpartition(".")[0]
        return False

    def _hides_ours(self, name: str) -> bool:
        """Whether the tree has a module of this name on the path, in a folder that is no package, which others' one of
        that name goes before.
        """
        file = name.replace(".", os.sep) + ".py"
        places = (os.path.normpath(os.path.join(self._folder, folder, file)) for folder in sys.path)
        return any(self._is_of_tree(place) and os.path.isfile(place) for place in places)

    def _is_in_package(self, name: str, file: str) -> bool:
        package = getattr(sys.modules.get(name.rpartition(".")[0]), "__file__", None)
        place = os.path.normpath(os.path.join(self._folder, package)) if isinstance(package, str) else None
        return "." in name and (place is None or file.startswith(os.path.dirname(place) + os.sep))

    def _is_beside_its_program(self, name: str, file: str) -> bool:
        """Whether the program, or a test, lies in the folder in which the module, or package, was found: by its name,
        and not by a loader that gives it another's.
        """
        folder, called = os.path.split(file)
        if called.startswith("__init__."):
            folder, called = os.path.split(folder)
        elif _is_tests(name):
            return called.partition(".")[0] == name.rpartition(".")[2]
        if called.partition(".")[0] != name.rpartition(".")[2]:
            return False
        tests = (getattr(module, "__file__", None) for name, module in list(sys.modules.items()) if _is_tests(name))
        users = (os.path.join(self._folder, file) for file in (self._program, *tests) if isinstance(file, str))
        return any(os.path.dirname(self._resolved(os.path.normpath(user))) == folder for user in users)

    def _note_imported(self, path: str) -> None:
        if self._is_stranger and not self._imported:
            self._imported = path
            self._note_stranger()

    def _note_stranger(self) -> None:
        base = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
        python = {
            "program": sys.executable,
            "prefix": os.path.realpath(sys.prefix),
            "base": self._base if _are_same(base, self._base) else base,
            "test": test_around(),
            "packages": next(self._packages_of_its_own(), None),
        }
        self._note(imported=self._imported, python=python)

    def _packages_of_its_own(self) -> Iterator[str]:
        """Files of those that it has imported from where neither the environment nor the stage has any; but not before
        its program began, as an installer's hooks are.
        """
        for name, module in list(sys.modules.items()):
            own = (own_dict(module) if issubclass(type(module), type(sys)) else None) or {}
            file = str(own.get("__file__"))
            is_package = name not in self._began_with and any(site in file for site in _SITES)
            if is_package and not file.startswith((*self._given, self._tree)):
                yield file

    def _note(self, **fields: str | bool | dict[str, str | None]) -> None:
        key = repr(fields)
        if key not in self._seen:
            self._seen.add(key)
            self._notes.add(**fields)

    def _is_of_tree(self, path: str) -> bool:
        """Whether `path` is named as one of the tree, and not as what is installed in an environment below it."""
        return path.startswith(self._tree) and not any(site in path[len(self._tree) - 1 :] for site in _SITES)

    def _resolved(self, path: str) -> str:
        folder, name = os.path.split(path)
        if folder not in self._real:
            self._real[folder] = os.path.realpath(folder)
        found = os.path.join(self._real[folder], name)
        return os.path.realpath(found) if os.path.islink(found) else found


def _are_same(program: str, other: str) -> bool:
    """Whether one is the other, or a copy of it."""
    try:
        with open(program, "rb") as one, open(other, "rb") as two:
            return program == other or one.read() == two.read()
    except OSError:
        return False


def _came_from(value: object) -> str | None:
    """The file of a function's code, or of a module."""
    kind = type(value)
    if kind is type(own_folders):
        return value.__code__.co_filename  # type: ignore[attr-defined, no-any-return]
    file = own_dict(value).get("__file__") if kind is type(sys) else None
    return file if isinstance(file, str) else None


def _is_tests(module: str) -> bool:
    """Whether pytest, by its usual patterns, takes it for tests, or for what is imported for them."""
    name = module.rpartition(".")[2]
    return name == "conftest" or name.startswith("test_") or name.endswith("_test")


def own_folders() -> Iterator[str]:
    """Where the interpreter has what is its own and what is installed for it."""
    for prefix in {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}:
        for inner in ("lib", "lib64", "bin"):
            yield os.path.join(prefix, inner)
            yield os.path.realpath(os.path.join(prefix, inner))
    yield os.path.dirname(os.path.realpath(os.__file__))


def _current_folder() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return os.sep


def _program(folder: str) -> str | None:
    """The file that the process begins with, a script or what stdin is: at its end its module has forgotten it."""
    script = (getattr(sys, "argv", None) or ["-c"])[0]
    if script in ("", "-"):
        script = os.path.realpath("/proc/self/fd/0")
    return script if os.path.isfile(os.path.join(folder, script)) else None


def _is_standard(path: str) -> bool:
    return path.startswith(_STANDARD_LIBRARY) and not any(site in path for site in _SITES)


def mapped() -> Iterator[str]:
    """The shared objects that the process has mapped to run; none where nobody tells."""
    try:
        with open("/proc/self/maps", "rb") as f:
            lines = f.read().splitlines()
    except OSError:
        return
    for line in lines:
        fields = line.split(None, 5)
        if len(fields) == 6 and b"x" in fields[1] and b".so" in fields[5] and not fields[5].endswith(b"(deleted)"):
            yield os.fsdecode(fields[5])
