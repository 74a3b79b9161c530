"""Whether torch.compile has compiled what the tree gave it: it may run all of that as it is, and say nothing. And which
lines it has traced: an assertion there is decided while it traces, or is compiled, and no mark tells that it ran.
"""

from __future__ import annotations

import sys

from ..frames import outside
from ..hooks import watch

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
        self._told = ""
        self.after_import: dict[str, Callable[[ModuleType], None]] = {
            "torch._dynamo": self._watch,
            "torch._dynamo.symbolic_convert": self._watch_traces,
        }

    def _watch(self, dynamo: Any) -> None:
        watch(dynamo, "optimize", before=self._asks)
        watch(dynamo, "reset", before=self._forgets)

    def _watch_traces(self, symbolic_convert: Any) -> None:
        watch(symbolic_convert.InstructionTranslatorBase, "starts_line", before=self._traces)

    def _traces(self, _: object, translator: Any, line: int) -> None:
        self._checks.trace(translator.f_code.co_filename, line)

    def _forgets(self, *_: Any) -> None:
        """All that it has compiled, with what it measured of that, by which one sees that counters were cleared."""
        self._is_reset = True

    def _asks(self, frame: FrameType, *_: Any, **__: Any) -> None:
        asking = outside(frame, "torch")
        self._is_asked |= asking is not None and asking.f_code.co_filename.startswith(self._checks.tree)

    def tell(self) -> None:
        """`{"doubt": ...}`, where it was asked to compile and did not."""
        utils = sys.modules.get("torch._dynamo.utils")
        found = _why_not(utils, self._is_reset) if self._is_asked and utils is not None else ""
        if found not in ("", self._told):
            self._told = found
            self._notes.add(doubt=found)


def _why_not(utils: Any, is_reset: bool) -> str:
    counters = utils.counters
    if not counters and (is_reset or getattr(utils, "compilation_time_metrics", None)):  # somebody has cleared them
        return ""
    tried, done = (int(counters["frames"][name]) if "frames" in counters else 0 for name in ("total", "ok"))
    if done < tried:  # with `fullgraph` none is counted, and it raises
        return f"torch.compile gave up {tried - done} of {tried} times, and ran what it was given as it is"
    return "" if counters else "torch.compile compiled nothing: what it was given ran as it is, or never"
