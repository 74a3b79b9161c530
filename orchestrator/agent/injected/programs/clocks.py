"""Whether a stage that owes figures read a clock, and what else its figures may come from: `clock` and `measures`.

A duration takes two reads with something done between them, by code that is the stage's, or that it calls: what only
the standard library reads (logging, threads) is no measurement, but where it hands that on (timeit, the `time` of a
loop). Once that was seen, the clocks are Python's own again.
"""

from __future__ import annotations

import os
import re
import sys
import time
from sys import _getframe  # bound here, as in `hooks`

from ..files import read
from ..frames import INSTALLED, STANDARD_LIBRARY, package
from ..hooks import caller, replace, tell, watch
from ..source.own_files import own_files
from .timed import Spans

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType, ModuleType
    from typing import Any, Callable, Iterator

    from ..stage import Config, Notes

_OF_TIME = ("time", "perf_counter", "monotonic", "process_time", "thread_time")
_CLOCKS = [(time, f"{name}{unit}") for name in _OF_TIME for unit in ("", "_ns")] + [(os, "times")]
_TIMEIT = STANDARD_LIBRARY + "timeit.py"
# They tell of the machine and of the commit, and compile: none of them measures.
_TELLING = frozenset("git nvidia-smi uname hostname lscpu ldconfig lsb_release gcc g++ cc c++ clang nvcc ptxas".split())
# Libraries with clocks of their own, and what of Python's own is seen in no module that could be watched.
_OTHERS = ("cupy", "numba.cuda", "jax", "pycuda", "cuda", "tensorflow", "warp", "cProfile", "profile", "psutil")
_OF_DATES = re.compile(rb"total_seconds|microseconds|timedelta|timestamp\(|getrusage|clock_gettime")
_LIBRARIES = ("/usr/", "/lib", "/opt/")


class Clocks:
    """Of this process. Noted once: `{"clock": true}`, or `{"measures": WHAT}` of something else that may have."""

    def __init__(self, config: Config, notes: Notes) -> None:
        self._config, self._notes = config, notes
        self._names = frozenset(config.all("name"))
        self._home = (*(path + os.sep for path in (*config.all("home"), sys.prefix, sys.base_prefix)), *_LIBRARIES)
        self._built = os.path.realpath(os.environ.get("TMPDIR", os.sep)) + os.sep
        self._watched: list[tuple[Any, str, Any, Any]] = []  # whose, its name, the clock, what is in its place
        self._spans = Spans(tuple(name for _, name in _CLOCKS), self._clocks)
        self._is_told = False
        self.after_import: dict[str, Callable[[ModuleType], None]] = {
            "subprocess": lambda module: watch(module.Popen, "__init__", before=self._starts),
            "socket": lambda module: watch(module.socket, "connect", before=self._connects),
            "torch.cuda.streams": self._watch_events,
            "torch.autograd.profiler": self._watch_profiler,
        }

    def start(self) -> None:
        """From now on clocks are watched."""
        for holder, name in _CLOCKS:
            clock = getattr(holder, name, None)
            if clock is not None:
                replace(holder, name, self._watching)
                self._watched.append((holder, name, clock, getattr(holder, name)))
        watch(os, "system", before=lambda frame, command: self._starts(frame, None, command))

    def _watching(self, clock: Callable[[], Any]) -> Any:
        def watched() -> Any:
            now = clock()
            if not self._is_told:
                tell(self._note_read, caller(_getframe(1)))
            return now

        return watched

    def _note_read(self, frame: FrameType | None) -> None:
        if frame is not None and self._is_of_stage(frame) and self._spans.read_at(frame):
            self._measures()
            self._give_back(frame.f_globals)

    def _clocks(self) -> set[int]:
        return {id(each) for _, _, clock, watched in self._watched for each in (clock, watched)}

    def _is_of_stage(self, frame: FrameType | None) -> bool:
        """Whether code of the stage has called, itself or by a library, what reads a clock; an import has not."""
        while frame is not None:
            file = frame.f_code.co_filename
            if any(site in file for site in INSTALLED):
                if package(frame) in self._names:
                    return True
            elif file.startswith((STANDARD_LIBRARY, "<frozen ")):
                if file != _TIMEIT and frame.f_code.co_name != "time":
                    return False
            elif file != "<timeit-src>":
                return True
            frame = frame.f_back
        return False

    def _measures(self, *_: Any, **__: Any) -> None:
        self._tell(clock=True)

    def _tell(self, **what: Any) -> None:
        if not self._is_told:
            self._is_told = True
            self._notes.add(**what)

    def _give_back(self, names: dict[str, Any]) -> None:
        """The clocks, also to the module that has them by these names: it need not pay for what looks on."""
        for holder, name, clock, watched in self._watched:
            if getattr(holder, name, None) is watched:
                setattr(holder, name, clock)
        clocks = {id(watched): clock for _, _, clock, watched in self._watched}
        names.update({name: clocks[id(value)] for name, value in list(names.items()) if id(value) in clocks})

    def _watch_events(self, streams: Any) -> None:
        watch(streams.Event, "elapsed_time", before=self._measures)

    def _watch_profiler(self, profiler: Any) -> None:
        watch(profiler.profile, "__enter__", before=self._measures)

    def _starts(self, frame: object, process: object, args: Any = None, *_: Any, **__: Any) -> None:
        words = args.split() if isinstance(args, str) else [args] if isinstance(args, os.PathLike) else args
        program = os.path.basename(os.fsdecode(words[0])) if words else ""
        if program not in _TELLING and not re.fullmatch(self._config.one("python"), program):
            self._tell(measures=program)

    def _connects(self, *_: Any) -> None:
        self._tell(measures="a connection")

    def tell(self) -> None:
        """At the end of the process: what it has loaded that may have a clock."""
        if not self._is_told:
            found = next(self._others(), None)
            if found:
                self._tell(measures=found)

    def _others(self) -> Iterator[str]:
        yield from (name for name in _OTHERS if name in sys.modules)
        for name, file in own_files(self._config):
            if file.endswith((".so", ".pyd")) or _OF_DATES.search(read(file)):
                yield name
        if "ctypes" in sys.modules or "cffi" in sys.modules:
            from ..imports.provenance import mapped

            yield from (file for file in mapped() if file.startswith(self._built) or not file.startswith(self._home))
