"""What a test or a program runs as a command in its own process, by click's CliRunner: an exception ends up in the
result, and is lost where nobody asks that for it.

It is meant where their own file raises it whatever happens, and what the command was run for where a warning is
looked for (`pytest.warns`).
"""

from __future__ import annotations

from ..checks.pending import Pending, held_by, hold
from ..frames import always_raises
from ..hooks import Attribute, watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType, ModuleType
    from typing import Any, Callable

    from ..checks.records import Checks
    from .inner import Inner

_ENDINGS = ("exit_code", "exception", "exc_info", "return_value")
_OUTPUTS = ("stdout_bytes", "stderr_bytes", "output_bytes")
"""Which do not hold an exception that is no SystemExit; who reads them may expect it all the same."""


class Commands:
    """Watches click's runner, which typer's is too."""

    def __init__(self, checks: Checks, inner: Inner) -> None:
        self._checks, self._inner = checks, inner
        self._warns = 0  # how many blocks that look for a warning are open
        self.after_import: dict[str, Callable[[ModuleType], None]] = {
            "click.testing": self._watch,
            "_pytest.recwarn": self._watch_warns,
        }

    def _watch(self, testing: Any) -> None:
        watch(testing.CliRunner, "invoke", after=self._has_ended)
        for name in _ENDINGS:
            setattr(testing.Result, name, Attribute(name, lambda frame, result, value: _retrieve(result)))
        for name in _OUTPUTS:
            setattr(
                testing.Result, name, Attribute(name, lambda frame, result, value: _retrieve(result, by_output=True))
            )

    def _watch_warns(self, recwarn: Any) -> None:
        watch(recwarn.WarningsChecker, "__enter__", before=lambda *_: self._count(1))
        watch(recwarn.WarningsChecker, "__exit__", before=lambda *_: self._count(-1))

    def _count(self, step: int) -> None:
        self._warns += step

    def _has_ended(self, frame: FrameType, result: Any, *_: Any, **__: Any) -> None:
        error = result.__dict__.get("exception")
        if not isinstance(error, Exception) or self._warns:
            return
        if not isinstance(error, AssertionError) and always_raises(error, frame.f_code.co_filename):
            return
        if self._checks.now.test is None:
            self._inner.has_failed(result, frame)
        else:
            said = f"{type(error).__name__}: {error}".partition("\n")[0][:200].rstrip(": ")
            pending = Pending(f"a command raised {said}, and nobody asked its result for that", error)
            self._checks.now.pending.append(pending)
            hold(pending, result)


def _retrieve(result: Any, *, by_output: bool = False) -> None:
    for pending in held_by(result):
        pending.retrieved |= not (by_output and isinstance(pending.error, AssertionError))
