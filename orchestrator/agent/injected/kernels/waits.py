"""Whether a process whose work goes to CUDA ever waited for it: a clock that nobody waits with times a launch alone."""

from __future__ import annotations

import re

from ..files import read
from ..hooks import watch
from ..source.own_files import own_files
from .cuda import has_allocated

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Callable

    from ..stage import Config, Notes

# What waits by itself, for it needs what was computed.
_READS = re.compile(
    rb"\.(?:item|cpu|tolist|numpy|wait|barrier|synchronize|block_until_ready)\b|\bto\([\"']cpu|allclose|assert_close"
    rb"|\b(?:float|int|bool|equal)\(|do_bench|Event\("
)


class Waits:
    """Noted as `{"unwaited": true}` at the end of a process that used torch on CUDA, and in which nobody waited."""

    def __init__(self, config: Config, notes: Notes) -> None:
        self._config, self._notes = config, notes
        self._has_waited = False
        self.after_import: dict[str, Callable[[ModuleType], None]] = {
            "torch.cuda": lambda cuda: watch(cuda, "synchronize", before=self._waits),
            "torch.cuda.streams": self._watch_streams,
        }

    def _watch_streams(self, streams: Any) -> None:
        watch(streams.Stream, "synchronize", before=self._waits)
        for name in ("synchronize", "elapsed_time"):
            watch(streams.Event, name, before=self._waits)

    def _waits(self, *_: Any, **__: Any) -> None:
        self._has_waited = True

    def tell(self) -> None:
        """At the end of the process."""
        if self._has_waited or not has_allocated():
            return
        if not any(_READS.search(read(file)) for _, file in own_files(self._config)):
            self._notes.add(unwaited=True)
