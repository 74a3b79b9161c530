"""Whether torch.compile has compiled what the tree gave it: it may run all of that as it is, and say nothing. And which
lines it has traced: an assertion there is decided while it traces, or is compiled, and no mark tells that it ran.
"""

from __future__ import annotations

import sys

from ..frames import outside
from ..hooks import replace, watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType, ModuleType
    from typing import Any, Callable

    from ..checks.records import Checks
    from ..stage import Notes


class Compiled:
    """Of this process: by TorchDynamo's own counters, at its end."""

    def __init__(self, checks: Checks, notes: Notes) -> None:
        self._checks, self._notes = checks, notes
        self._is_asked = self._is_reset = False
        self._explained = [0, 0]
        self._told = ""
        self.after_import: dict[str, Callable[[ModuleType], None]] = {
            "torch._dynamo": self._watch,
            "torch._dynamo.symbolic_convert": self._watch_traces,
        }

    def _watch(self, dynamo: Any) -> None:
        watch(dynamo, "optimize", before=self._asks)
        watch(dynamo, "reset", before=self._forgets)
        replace(dynamo, "explain", self._explains)

    def _watch_traces(self, symbolic_convert: Any) -> None:
        watch(symbolic_convert.InstructionTranslatorBase, "starts_line", before=self._traces)

    def _traces(self, _: object, translator: Any, line: int) -> None:
        self._checks.trace(translator.f_code.co_filename, line)

    def _forgets(self, *_: Any) -> None:
        """All that it has compiled, with what it measured of that, by which one sees that counters were cleared."""
        self._is_reset = True

    def _explains(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Frames that `explain`, or the function it gives, gives up: that only tells where graphs end."""

        def call(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            before = _frames()
            try:
                found = function(*args, **kwargs)
            finally:
                self._explained = [x + now - was for x, now, was in zip(self._explained, _frames(), before)]
            return self._explains(found) if callable(found) else found

        return call

    def _asks(self, frame: FrameType, *_: Any, **__: Any) -> None:
        asking = outside(frame, "torch")
        self._is_asked |= asking is not None and asking.f_code.co_filename.startswith(self._checks.tree)

    def tell(self) -> None:
        """`{"doubt": ...}`, where it was asked to compile and did not."""
        found = self._why_not() if self._is_asked and _utils() is not None else ""
        if found not in ("", self._told):
            self._told = found
            self._notes.add(doubt=found)

    def _why_not(self) -> str:
        utils = _utils()
        if not utils.counters and (self._is_reset or getattr(utils, "compilation_time_metrics", None)):
            return ""  # somebody has cleared them
        tried, done = (x - explained for x, explained in zip(_frames(), self._explained))
        if done < tried:  # with `fullgraph` none is counted, and it raises
            return f"torch.compile gave up {tried - done} of {tried} times, and ran what it was given as it is"
        return "" if utils.counters else "torch.compile compiled nothing: what it was given ran as it is, or never"


def _utils() -> Any:
    return sys.modules.get("torch._dynamo.utils")


def _frames() -> list[int]:
    """That TorchDynamo has tried to compile, and has compiled, as it counts them."""
    counters = getattr(_utils(), "counters", {})
    return [int(counters["frames"][name]) if "frames" in counters else 0 for name in ("total", "ok")]
