"""What each Python of a stage does at its start: it tells the agent that it is there, and from then on what it sees.

It notes where modules came from and which kernels ran, brings the agent's plugin into every pytest session, and lets
the agent ask for a stack dump.
"""

from __future__ import annotations

import atexit
import os
import sys

from .ancestors import Origin
from .checks import Checks
from .children import put_into_os
from .commands import Commands
from .comparisons import Comparisons
from .cuda import CudaWork
from .ends import End
from .environments import MadeEnvironments
from .frames import importing
from .idle import IdleTests
from .imports import Imports
from .kernels import Launches
from .lost import Lost
from .notebooks import Notebooks
from .other_runners import OtherRunners
from .stage import Config, Notes, moved_up, read_config, stack_signal, started_by, test_around

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Callable, Iterable, Sequence

PLUGIN = "nsa_pod_injected.pytest_plugin"
_installed: list[Guard] = []


class Guard:
    """A meta path finder that finds nothing: it only looks at what the others find."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.notes = Notes(config.one("report"))
        self.origin = Origin(self.notes)
        started_by.extend(filter(None, [self.origin.test]))
        self._imports = Imports(config, self.notes)
        self._own = frozenset(config.all("name"))
        self._around = test_around()  # of a process that a test has started
        self._tests: list[str] = []  # that run in this process, each inside the one before
        self._any_test = False
        self._launches = Launches(self.notes, self.test)
        self._cuda = CudaWork(self.notes)
        self.checks = Checks(config, self.notes)
        self._end = End(config, self.notes)
        self._lost = Lost(self.checks, self._end)
        self._idle = IdleTests(self.checks.tree, self.notes)
        self._runners = OtherRunners(config, self.checks, self.test, is_bare=self.origin.is_bare)
        self._after_import: dict[str, Callable[[ModuleType], None]] = {
            "_pytest.config": self._watch_sessions,
            "coverage.inorout": _leave_out_of_coverage,
        }
        made = MadeEnvironments(config)  # before what asks who has started a process
        others = (Comparisons(self.checks), Commands(self.checks), Notebooks(self.notes))
        for watch in (made, self._launches, self.checks, *others, self._lost, self._runners):
            for name, hook in watch.after_import.items():
                self._after_import[name] = _both(self._after_import.get(name), hook)
        for target in config.all("kill"):
            from . import sabotage

            harmless = bool(config.all("noticed"))  # a control
            self._after_import.update(sabotage.after_import(target, self.notes, harmless=harmless))
        self._sessions: list[Any] = []
        self._note_begin()

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> Any:
        """Look up `name` as the finders after this one will, if something is to be done after its import."""
        self._imports.begins(name)
        hook = self._after_import.get(name)
        if hook is None and name.partition(".")[0] not in self._own:
            return None
        others = (f for f in sys.meta_path if f is not self and hasattr(f, "find_spec"))
        found = next(filter(None, (f.find_spec(name, path, target) for f in others)), None)
        if found is None or not hasattr(found.loader, "exec_module"):  # a mere folder of that name
            return None
        if isinstance(found.loader, type):  # of frozen modules, all of which have this one
            found.loader = _Loader(found.loader)
        self.checks.watch_import(found.loader)
        if hook is not None:
            _call_after(found.loader, hook, lambda: self._after_import.pop(name, None))
        return found

    def test(self) -> str | None:
        """The test that this process works for now: of tests inside one another the outermost."""
        return self._around or (self._tests[0] if self._tests else test_around())

    def begin_test(self, test: str) -> None:
        """What was counted so far is not the work of `test`, which begins in this process."""
        if not self._tests:
            self._launches.note()
        if not self._any_test:  # what collection has allocated; between tests hardly anything does
            self._any_test = True
            self._cuda.note(self.test())
        self._tests.append(test)

    def note_test(self, test: str) -> None:
        """Write down what was counted as the work of `test`, which has just ended in this process."""
        if len(self._tests) <= 1:
            of = self.test() or test
            self._launches.note(of)
            self._cuda.note(of)
            self._imports.look_at_new()
        if self._tests:
            self._tests.pop()

    def note_test_files(self, files: Iterable[str]) -> None:
        """Write down where the tests that a session has collected lie, if not in the tree."""
        self._imports.look_at_tests(files)

    def note_all(self) -> None:
        """Write down what is known so far: the process, or its session, ends."""
        self._imports.look_at_all()
        self._note_work()
        for session in self._sessions:
            if session.pluginmanager.is_blocked(PLUGIN):
                wrong = "the agent's plugin was kept out of a pytest session"
                self.notes.add(session=f"of process {os.getpid()}", wrong=wrong)

    def _note_work(self) -> None:
        self._launches.note()
        self._cuda.note(self.test(), at_end=True)

    def _note_begin(self) -> None:
        self.notes.write(f'{{"loaded": {os.getpid()}}}')

    def start(self) -> None:
        """Begin to watch this process."""
        sys.meta_path.insert(0, self)
        self._end.start()
        atexit.register(self.note_all)
        atexit.register(self._idle.tell)
        os.register_at_fork(after_in_child=self._note_begin)
        atexit.register(self._runners.tell_end)
        os.register_at_fork(after_in_child=self._launches.forget)
        os.register_at_fork(after_in_child=self.checks.after_child_starts)
        self.checks.start()
        self._runners.start()
        self._lost.start()
        self._watch_exit()

    def _watch_exit(self) -> None:
        """Children of multiprocessing, and what forks, end without their exit functions."""
        end = os._exit

        def _exit(status: int) -> Any:
            try:
                self._note_work()
                self._imports.look_at_new()
                self._end.leaves_by(status)
                self._runners.tell_end()
            finally:
                end(status)

        put_into_os("_exit", _exit)

    def _watch_sessions(self, pytest_config: Any) -> None:
        """Have the agent's plugin in every session, whatever PYTEST_PLUGINS and the arguments say."""
        make = pytest_config.get_config

        def get_config(*args: Any, **kwargs: Any) -> Any:
            from . import pytest_plugin

            config = make(*args, **kwargs)
            if not self._sessions:  # what it starts from now on is the tests'
                self.notes.keep_open()
                _allow_stack_dumps(kept=True)  # pytest is about to redirect stderr
                self.notes.write(f'{{"handled_by": {os.getpid()}}}')
            self._sessions.append(config)
            config.pluginmanager.register(pytest_plugin, PLUGIN)
            return config

        pytest_config.get_config = get_config


def install() -> None:
    """Begin to watch this process, once; not where there is no stage, or its report cannot be written."""
    config = None if _installed else read_config()
    if config is None:
        return
    try:
        guard = Guard(config)
    except OSError:  # the process may run as another user
        return
    _installed.append(guard)
    guard.start()
    _allow_stack_dumps()


def installed() -> Guard:
    """The guard of this process."""
    return _installed[0]


def run_displaced_sitecustomize(own: str) -> None:
    """Run the sitecustomize that the one in the folder `own` keeps from being found."""
    from _frozen_importlib_external import PathFinder  # as in `checks`

    spec = PathFinder.find_spec("sitecustomize", [p for p in sys.path if os.path.realpath(p) != os.path.realpath(own)])
    if spec is not None and spec.loader is not None:
        from importlib.util import module_from_spec

        module = sys.modules["sitecustomize"] = module_from_spec(spec)
        spec.loader.exec_module(module)


class _Loader:
    """A loader of one module, which is loaded by `other`."""

    def __init__(self, other: Any) -> None:
        self._other = other
        self.create_module = other.create_module

    @importing
    def exec_module(self, module: Any) -> None:
        self._other.exec_module(module)
        module.__loader__ = module.__spec__.loader = self._other


def _leave_out_of_coverage(inorout: Any) -> None:
    """How much of the stage's code has run is not asked of the agent's, which lies beside it and is none of it."""
    why_not = inorout.InOrOut.check_include_omit_etc
    ours = os.path.dirname(os.path.realpath(__file__)) + os.sep

    def check_include_omit_etc(self: object, filename: str, frame: object) -> Any:
        return "is the agent's" if filename.startswith(ours) else why_not(self, filename, frame)

    inorout.InOrOut.check_include_omit_etc = check_include_omit_etc


def _both(first: Callable[[ModuleType], None] | None, second: Callable[[ModuleType], None]) -> Any:
    """Two that look at the same module, one after the other."""
    if first is None:
        return second
    before = first

    def look(module: ModuleType) -> None:
        before(module)
        second(module)

    return look


def _call_after(loader: Any, hook: Callable[[ModuleType], None], done: Callable[[], object]) -> None:
    """Have `hook` called when `loader`, which was made for one look-up, has run the module: not all look-ups import."""
    run = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        del loader.exec_module
        run(module)
        if not done():
            return
        try:
            hook(module)
        except Exception:  # a version that looks otherwise goes unwatched, and works
            return

    loader.exec_module = importing(exec_module)


def _allow_stack_dumps(*, kept: bool = False) -> None:
    """At the agent's signal all threads' stacks go to stderr; if `kept`, to what that is now, whatever redirects it."""
    import faulthandler

    try:
        fd = moved_up(os.dup(2)) if kept else 2
        faulthandler.register(stack_signal(), file=fd, all_threads=True)
    except (OSError, ValueError, RuntimeError):  # no stderr, so nowhere to write to
        return
