"""What a test runs as a command in its own process, by click's CliRunner: an exception ends up in the result, and is
lost where nobody asks that for it.

It is meant where the test's own file raises it whatever happens, and what the command was run for where a warning is
looked for (`pytest.warns`).
"""

from __future__ import annotations

from functools import wraps
from sys import _getframe

from .checks import Pending
from .frames import always_raises

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Callable

    from .checks import Checks

_PENDING = "_nsa_pod_pending"
_ENDINGS = ("exit_code", "exception", "exc_info", "return_value")
_OUTPUTS = ("stdout_bytes", "stderr_bytes", "output_bytes")
"""Which do not hold an exception that is no SystemExit; who reads them may expect it all the same."""


class Commands:
    """Watches click's runner, which typer's is too."""

    def __init__(self, checks: Checks) -> None:
        self._checks = checks
        self._warns = 0  # how many blocks that look for a warning are open
        self.after_import: dict[str, Callable[[ModuleType], None]] = {
            "click.testing": self._watch,
            "_pytest.recwarn": self._watch_warns,
        }

    def _watch(self, testing: Any) -> None:
        invoke, result = testing.CliRunner.invoke, testing.Result

        @wraps(invoke)
        def watched(runner: Any, *args: Any, **kwargs: Any) -> Any:
            made = invoke(runner, *args, **kwargs)
            error = made.__dict__.get("exception")
            if isinstance(error, Exception) and self._checks.now.test is not None and not self._warns:
                self._keep(made, error, _getframe(1).f_code.co_filename)
            return made

        testing.CliRunner.invoke = watched
        for name in (*_ENDINGS, *_OUTPUTS):
            setattr(result, name, _Asked(name))

    def _watch_warns(self, recwarn: Any) -> None:
        kind = recwarn.WarningsChecker
        kind.__enter__ = self._counting(kind.__enter__, 1)
        kind.__exit__ = self._counting(kind.__exit__, -1)

    def _counting(self, method: Callable[..., Any], step: int) -> Callable[..., Any]:
        @wraps(method)
        def counted(*args: Any) -> Any:
            __tracebackhide__ = True
            self._warns += step
            return method(*args)

        return counted

    def _keep(self, result: Any, error: Exception, file: str) -> None:
        if not isinstance(error, AssertionError) and always_raises(error, file):
            return
        said = f"{type(error).__name__}: {error}".partition("\n")[0][:200].rstrip(": ")
        pending = Pending(f"a command raised {said}, and nobody asked its result for that")
        self._checks.now.pending.append(pending)
        result.__dict__[_PENDING] = pending, isinstance(error, AssertionError)


class _Asked:
    """An attribute of a result; who reads it has seen how the command ended."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, result: Any, kind: type) -> Any:
        if result is None:
            return self
        if self._name not in result.__dict__:
            raise AttributeError(self._name)
        pending, is_check = result.__dict__.get(_PENDING, (None, False))
        if pending is not None and not (is_check and self._name in _OUTPUTS):
            pending.retrieved = True
        return result.__dict__[self._name]

    def __set__(self, result: Any, value: Any) -> None:
        result.__dict__[self._name] = value
