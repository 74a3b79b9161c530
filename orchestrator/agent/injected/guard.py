"""Installed beside a run as `nsa_pod_guard`, and loaded by every Python of a stage through `sitecustomize`.

It notes modules that were imported from outside the tree although the tree holds a module of that name, and lets the
agent ask for a stack dump by SIGUSR1. Every start of a Python pays for what it imports, so it imports little; any
Python from 3.8 on can.
"""

from __future__ import annotations

import atexit
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` itself would cost more than all the rest
    from types import ModuleType
    from typing import Sequence

CONFIG_VARIABLE = "NSA_POD_GUARD"
_STANDARD_LIBRARY = os.path.dirname(os.path.realpath(os.__file__)) + os.sep
_HIGH_FD = 100


def config_text(report: str, tree: str, roots: list[str], names: set[str]) -> str:
    """The guard's configuration: where it reports, the tree, its import roots, the top-level names to watch."""
    return "\n".join([report, os.path.realpath(tree), os.pathsep.join(roots), *sorted(names)])


class Guard:
    """A meta path finder that finds nothing: it only looks at what the others find."""

    def __init__(self, config: str) -> None:
        with open(config, encoding="utf-8", errors="surrogateescape") as f:
            report, self._tree, roots, *names = f.read().split("\n")
        self._roots = roots.split(os.pathsep)
        self._names = frozenset(names)
        self._seen: set[str] = set()
        self._fd = _move_up(os.open(report, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644))
        if os.fstat(self._fd).st_size == 0:
            os.write(self._fd, b'{"loaded": true}\n')

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> None:
        """Look up `name` as the finders after this one will; report it if it comes from elsewhere."""
        if name.partition(".")[0] not in self._names:
            return
        others = (f for f in sys.meta_path if f is not self and hasattr(f, "find_spec"))
        found = next(filter(None, (f.find_spec(name, path, target) for f in others)), None)
        if found is not None and found.has_location:
            self._check(name, found.origin)

    def check_loaded(self) -> None:
        """Report the modules that were loaded past the finders, or before this one was there."""
        for key, module in list(sys.modules.items()):
            own = getattr(module, "__dict__", {})
            # A package may file another one under a name of its own: the module's real name is its spec's.
            name = getattr(own.get("__spec__"), "name", None) or key
            file = own.get("__file__")
            if isinstance(file, str) and (name.partition(".")[0] in self._names or self._is_in_tree(file)):
                self._check(name, file)
        for script in sys.argv[:1]:  # __main__ has forgotten its file by now
            if self._is_in_tree(script):
                self._check("__main__", script)
            self._check_pytest(script)
        cuda = getattr(sys.modules.get("torch"), "cuda", None)
        if cuda is not None and hasattr(cuda, "is_initialized"):  # it may still be half imported
            self.note(cuda="used" if cuda.is_initialized() else "unused")

    def _check_pytest(self, script: str) -> None:
        """Report a pytest, run behind another program, that was told to do without the agent's plugin."""
        plugin = "nsa_pod_pytest_plugin"
        main = getattr(getattr(sys.modules.get("__main__"), "__spec__", None), "name", os.path.basename(script))
        wanted = plugin in os.environ.get("PYTEST_PLUGINS", "")
        if wanted and main in ("pytest", "py.test", "pytest.__main__") and plugin not in sys.modules:
            self.note(session=f"of process {os.getpid()}", wrong="the agent's plugin was kept out of it")

    def _is_in_tree(self, file: str) -> bool:
        """Whether `file` is named as one of the tree: where it leads is another question."""
        return os.path.abspath(file).startswith(self._tree + os.sep)

    def _check(self, name: str, file: str | None) -> None:
        if name in self._seen or file is None:
            return
        self._seen.add(name)
        path = os.path.realpath(file)
        inside_tree = path.startswith(self._tree + os.sep)
        if not inside_tree and not _is_standard(path) and (self._is_in_tree(file) or self._tree_holds(name)):
            self.note(name=name, file=path)

    def _tree_holds(self, name: str) -> bool:
        inner = name.replace(".", os.sep)
        bases = [os.path.join(root, inner) for root in self._roots]
        return any(os.path.isfile(b + ".py") or os.path.isfile(os.path.join(b, "__init__.py")) for b in bases)

    def note(self, **fields: str) -> None:
        """Write a line for the agent."""
        import json

        os.write(self._fd, json.dumps(fields).encode("ascii") + b"\n")


def install() -> Guard | None:
    """Install the guard that the environment asks for, then run the sitecustomize that this one has displaced."""
    config = os.environ.get(CONFIG_VARIABLE)
    guard = Guard(config) if config else None
    if guard is not None:
        sys.meta_path.insert(0, guard)
        atexit.register(guard.check_loaded)
        _allow_stack_dumps()
    _run_displaced_sitecustomize()
    return guard


def _is_standard(path: str) -> bool:
    inside = path[len(_STANDARD_LIBRARY) :]
    installed = inside.startswith(("site-packages" + os.sep, "dist-packages" + os.sep))
    return path.startswith(_STANDARD_LIBRARY) and not installed


def _allow_stack_dumps() -> None:
    """On SIGUSR1 all threads' stacks go to what is stderr now, even when a test runner redirects it later."""
    import faulthandler
    import signal

    try:
        fd = _duplicate_high(2)
    except OSError:  # no stderr, so nowhere to write to
        return
    faulthandler.register(signal.SIGUSR1, file=fd, all_threads=True)


def _duplicate_high(fd: int) -> int:
    import fcntl

    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _HIGH_FD)


def _move_up(fd: int) -> int:
    """The same file under a high number: programs may count on the low ones."""
    high = _duplicate_high(fd)
    os.close(fd)
    return high


def _run_displaced_sitecustomize() -> None:
    from importlib.machinery import PathFinder

    own = os.path.dirname(os.path.realpath(__file__))
    spec = PathFinder.find_spec("sitecustomize", [p for p in sys.path if os.path.realpath(p) != own])
    if spec is not None and spec.loader is not None:
        from importlib.util import module_from_spec

        spec.loader.exec_module(module_from_spec(spec))
