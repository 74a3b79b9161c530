"""A word when it is over, by a command of the user's or the terminal's bell; what becomes of it changes no verdict."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from types import TracebackType

from orchestrator.errors import NsaPodError
from orchestrator.results import Result
from orchestrator.ui import Progress

BELL = ("bell",)
_LIMIT_S = 30.0


class Notice:
    """Tells, at the end of a `with`, each of `commands` how it ended: the sentence is their last argument.

    A command is a list of words, and no shell sees it; `BELL` is the terminal's.
    """

    def __init__(self, commands: Sequence[Sequence[str]], progress: Progress) -> None:
        self._commands, self._progress = commands, progress
        self._told: dict[str, str] | None = None

    def ended(self, result: Result) -> None:
        """What is to be told."""
        self._told = {
            "NSA_POD_VERDICT": result.verdict or "",
            "NSA_POD_SUMMARY": result.error or result.summary,
            "NSA_POD_RUN": result.run_id,
            "NSA_POD_PATH": result.path,
        }

    def __enter__(self) -> Notice:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if isinstance(error, NsaPodError):
            self._told = {"NSA_POD_VERDICT": "error", "NSA_POD_SUMMARY": str(error)}
        for command in self._commands if self._told else ():
            self._tell(command, self._told or {})

    def _tell(self, command: Sequence[str], told: dict[str, str]) -> None:
        if tuple(command) == BELL:
            self._progress.bell()
            return
        message = f"nsa-pod: {told['NSA_POD_SUMMARY']}"
        try:
            subprocess.run(
                [*command, message],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # stdout is for data
                env={**os.environ, **told},
                timeout=_LIMIT_S,
                check=True,
            )
        except (OSError, ValueError, subprocess.SubprocessError) as e:
            self._progress.warn(f"the notice was not given: {e}")
