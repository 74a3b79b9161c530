"""What each Python of a stage does at its start: it tells the agent that it is there, and from then on what it sees.

It notes where modules came from and which kernels ran, brings the agent's plugin into every pytest session, and lets
the agent ask for a stack dump.
"""

from __future__ import annotations

import _imp
import atexit
import os
import sys

from .checks.comparisons import Comparisons
from .checks.records import Checks
from .hooks import missed, replace, tell, watch
from .imports.finder import Finder
from .imports.provenance import Imports
from .imports.uncompiled import Uncompiled
from .kernels.cuda import CudaWork
from .kernels.launches import Launches
from .processes.ancestors import Origin
from .processes.ends import End
from .processes.environments import MadeEnvironments
from .processes.lost import Lost
from .programs.dropped import Programs
from .programs.idle import IdleTests
from .programs.read_files import ReadFiles
from .programs.substitutes import Substitutes
from .stage import Config, Notes, known_test, moved_up, read_config, sessions, stack_signal, test_around

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Callable, Iterable, Mapping

PLUGIN = "nsa_pod_injected.pytest_plugin"
_installed: list[Guard] = []


class Guard:
    """Who looks at this process, and at what of it."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.notes = Notes(config.one("report"))
        self.origin = Origin(self.notes)
        known_test.extend(filter(None, [self.origin.test]))
        self._imports = Imports(config, self.notes)
        self._uncompiled = Uncompiled(config)
        self._around = test_around()  # of a process that a test has started
        self._tests: list[str] = []  # that run in this process, each inside the one before
        self._any_test = False
        self._launches = Launches(self.notes, self.test)
        self._cuda = CudaWork(self.notes)
        self.checks = Checks(config, self.notes)
        self.end = End(config, self.notes)
        self._lost = lost = Lost(self.checks, self.end)
        self._idle = IdleTests(self.checks.tree, self.notes)
        self._programs = Programs(self.checks.tree, lost.inner, self.end, self.notes, self.checks.marking.helps)
        made = MadeEnvironments(config)  # before what asks who has started a process
        of_tests = (self.checks.marking, Comparisons(self.checks))
        self._finder = finder = Finder(self.checks.tree, config.all("name"), self._seek)
        finder.begun = [self.checks.originals.begins]
        finder.ended = [self.checks.originals.has_ended, lost.inner.has_imported, Substitutes(self.checks).has_ended]
        self._late: dict[Callable[[Guard], Any], Any] = {}
        finder.when_imported({"_pytest.config": self._watch_sessions, "coverage.inorout": _leave_out_of_coverage})
        finder.when_imported({"torch._dynamo.trace_rules": lambda rules: rules.add(__name__.partition(".")[0])})
        for each in (made, self._launches, *of_tests, lost, lost.children, lost.inner, self._programs):
            finder.when_imported(each.after_import)
        for target in config.all("kill"):
            from .sabotage import target as sabotage

            harmless = bool(config.all("noticed"))  # a control
            finder.when_imported(sabotage.after_import(target, self.notes, harmless=harmless))
        self._of_figures = self._watch_figures() if config.all("owed") else ()
        self._files = ReadFiles(config, self.notes)
        finder.when_imported(self._files.after_import)
        self._sessions: list[Any] = []
        self._missed: set[str] = set()
        self._note_begin()

    def _watch_figures(self) -> Iterable[Any]:
        """Of a stage that owes artifacts: where their figures may come from."""
        from .kernels.waits import Waits
        from .programs.clocks import Clocks

        clocks, waits = Clocks(self.config, self.notes), Waits(self.config, self.notes)
        for each in (clocks, waits):
            self._finder.when_imported(each.after_import)
        clocks.start()
        return clocks, waits

    def _seek(self, name: str) -> None:
        self._imports.begins(name)
        if name in _LATE:
            self._bring(name)

    def _bring(self, name: str) -> None:
        """Make who waits for the module `name`, once."""
        make = _LATE[name]
        if make not in self._late:
            self._late[make] = made = make(self)
            self._finder.when_imported(made.after_import)

    def test(self) -> str | None:
        """The test that this process works for now: of tests inside one another the outermost."""
        return self._around or (self._tests[0] if self._tests else test_around())

    def begin_test(self, test: str) -> bool:
        """What was counted so far is not the work of `test`, which begins in this process; whether it is in none."""
        is_outermost = self._around is None and not self._tests
        if not self._tests:
            self._launches.note()
        if not self._any_test:  # what collection has allocated; between tests hardly anything does
            self._any_test = True
            self._cuda.note(self.test())
        self._tests.append(test)
        return is_outermost

    @property
    def launched(self) -> int:
        """How many kernels this process has launched."""
        return self._launches.total

    def note_aside(self, before: int) -> None:
        """What was launched since `before` hands the tests nothing: it says nothing of what they test."""
        self.notes.add(aside=self.launched - before)

    def note_test(self, test: str) -> None:
        """Write down what was counted as the work of `test`, which has just ended in this process."""
        if len(self._tests) <= 1:
            of = self.test() or test
            self._launches.note(of)
            self._cuda.note(of)
            self._imports.look_at_new()
        if self._tests:
            self._tests.pop()

    def look_at_kernels(self, test: object) -> None:
        """The function of a `test` has called what it tests, and its fixtures have not yet set back what they have
        replaced.
        """
        if _never_ran in self._late:
            tell(self._late[_never_ran].look, test)

    def when(self, looks: Mapping[str, Callable[..., None]]) -> None:
        """Have them look at events of Python's own in this process, by their names."""
        self._files.when(looks)

    def note_test_files(self, files: Iterable[str]) -> None:
        """Write down where the tests that a session has collected lie, if not in the tree."""
        self._imports.look_at_tests(files)

    def _note_missed(self, look: Callable[..., object], error: Exception) -> None:
        what = f"{getattr(look, '__qualname__', look)}: {type(error).__name__}: {error}"[:300]
        if what not in self._missed:
            self._missed.add(what)
            self.notes.add(missed=what)

    def note_all(self) -> None:
        """Write down what is known so far: the process, or its session, ends."""
        self._imports.look_at_all()
        self._uncompiled.tell()
        self._note_work()
        for make in (_compiled, _never_ran, _arguments, _empty_runs):
            self._tell_of(make)
        for each in self._of_figures:
            each.tell()
        for session in self._sessions:
            if session.pluginmanager.is_blocked(PLUGIN):
                wrong = "the agent's plugin was kept out of a pytest session"
                self.notes.add(session=f"of process {os.getpid()}", wrong=wrong)

    def _note_work(self) -> None:
        self._launches.note()
        self._cuda.note(self.test(), at_end=True)

    def _tell_of(self, make: Callable[[Guard], Any]) -> None:
        if make in self._late:
            self._late[make].tell()

    def _note_begin(self) -> None:
        self.notes.write(f'{{"loaded": {os.getpid()}}}')

    def start(self) -> None:
        """Begin to watch this process."""
        missed.append(self._note_missed)
        self.end.start()
        atexit.register(self.note_all)
        atexit.register(self._idle.tell)
        os.register_at_fork(after_in_child=self._note_begin)
        atexit.register(self._tell_of, _other_runners)
        os.register_at_fork(after_in_child=self._launches.forget)
        os.register_at_fork(after_in_child=self.checks.after_child_starts)
        self.checks.start()
        self.checks.marking.start()
        self._lost.start()
        self._programs.start()
        self._files.start()
        watch(os, "_exit", before=self._leaves)
        for name in _LATE.keys() & sys.modules.keys():
            self._bring(name)
        self._finder.start()
        _imp.check_hash_based_pycs = "always"  # no bytecode is taken for its source's because it says so

    def _leaves(self, frame: object, status: int) -> None:
        """Children of multiprocessing, and what forks, end without their exit functions."""
        self._note_work()
        self._imports.look_at_new()
        for each in self._of_figures:
            each.tell()
        self.end.leaves_by(status)
        self._tell_of(_other_runners)

    def _watch_sessions(self, pytest_config: Any) -> None:
        """Have the agent's plugin in every session, whatever PYTEST_PLUGINS and the arguments say."""
        watch(pytest_config, "get_config", after=self._begin_session)

    def _is_of_program(self, frame: FrameType | None) -> bool:
        while frame is not None and not os.path.abspath(frame.f_code.co_filename).startswith(self.checks.tree):
            frame = frame.f_back
        return frame is not None

    def _begin_session(self, frame: FrameType | None, config: Any, *_: Any, **__: Any) -> None:
        from . import pytest_plugin

        if not self._sessions:  # what it starts from now on is the tests'
            self.notes.keep_open()
            _allow_stack_dumps(kept=True)  # pytest is about to redirect stderr
            self.notes.write(f'{{"handled_by": {os.getpid()}}}')
        self._sessions.append(config)
        sessions.append(config)
        if self._is_of_program(frame):  # which goes on when the session has ended, as no pytest does
            config.add_cleanup(lambda: sessions.remove(config))
        pytest_plugin.brought_by(self)
        config.pluginmanager.register(pytest_plugin, PLUGIN)


_LATE: dict[str, Callable[[Guard], Any]] = {}
"""What makes those who watch modules that few processes import, by the names of these."""


def _late(*names: str) -> Callable[[Callable[[Guard], Any]], Callable[[Guard], Any]]:
    def made_for(make: Callable[[Guard], Any]) -> Callable[[Guard], Any]:
        _LATE.update(dict.fromkeys(names, make))
        return make

    return made_for


@_late("click.testing", "_pytest.recwarn")
def _commands(guard: Guard) -> Any:
    from .processes.commands import Commands

    return Commands(guard.checks, guard._lost.inner)


@_late("argparse")
def _arguments(guard: Guard) -> Any:
    from .programs.arguments import Arguments

    return Arguments(guard.checks.tree, guard.end, guard.notes)


@_late("tox.run", "nox.sessions")
def _empty_runs(guard: Guard) -> Any:
    from .programs.empty_runs import EmptyRuns

    return EmptyRuns(guard.end, guard.notes)


@_late("IPython.core.interactiveshell")
def _notebooks(guard: Guard) -> Any:
    from .processes.notebooks import Notebooks

    return Notebooks(guard.notes)


@_late("triton.runtime.interpreter")
def _never_ran(guard: Guard) -> Any:
    from .kernels.never_ran import NeverRan

    return NeverRan(guard.checks)


@_late("torch._dynamo", "torch._dynamo.symbolic_convert")
def _compiled(guard: Guard) -> Any:
    from .kernels.compiled import Compiled

    return Compiled(guard.checks, guard.notes)


@_late("unittest.case", "unittest.suite", "unittest.result", "doctest", "twisted.trial.reporter")
def _other_runners(guard: Guard) -> Any:
    from .runners.other_runners import OtherRunners

    look = guard.look_at_kernels
    return OtherRunners(guard.config, guard.checks, guard.test, look, is_bare=guard.origin.is_bare)


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
    from _frozen_importlib_external import PathFinder  # as in `hooks`

    spec = PathFinder.find_spec("sitecustomize", [p for p in sys.path if os.path.realpath(p) != os.path.realpath(own)])
    if spec is not None and spec.loader is not None:
        from importlib.util import module_from_spec

        module = sys.modules["sitecustomize"] = module_from_spec(spec)
        spec.loader.exec_module(module)


def _leave_out_of_coverage(inorout: Any) -> None:
    """How much of the stage's code has run is not asked of the agent's, which lies beside it and is none of it."""
    ours = os.path.dirname(os.path.realpath(__file__)) + os.sep

    def leaving_out(why_not: Callable[..., Any]) -> Callable[..., Any]:
        return lambda own, filename, frame: (
            "is the agent's" if filename.startswith(ours) else why_not(own, filename, frame)
        )

    replace(inorout.InOrOut, "check_include_omit_etc", leaving_out)


def _allow_stack_dumps(*, kept: bool = False) -> None:
    """At the agent's signal all threads' stacks go to stderr; if `kept`, to what that is now, whatever redirects it."""
    import faulthandler

    try:
        fd = moved_up(os.dup(2)) if kept else 2
        faulthandler.register(stack_signal(), file=fd, all_threads=True)
    except (OSError, ValueError, RuntimeError):  # no stderr, so nowhere to write to
        return
