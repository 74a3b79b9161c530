"""The command line in a process of its own, forked from one that has imported it already: as real, and cheap."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from orchestrator import commands
from orchestrator.agent.host import processes

_FORKS = multiprocessing.get_context("forkserver")
_VERBS = (f"{commands.__name__}.{verb.module}" for verb in commands.VERBS.values())
_FORKS.set_forkserver_preload(["orchestrator.cli", *_VERBS, "orchestrator.transports.ssh"])


@dataclass
class Laptop:
    """One command that goes on, or has ended; what it prints is in two files beside `output`."""

    arguments: tuple[str, ...]
    output: Path
    process: BaseProcess
    asleep: bool = False

    @property
    def ended(self) -> bool:
        return self.process.exitcode is not None

    @property
    def exit_code(self) -> int | None:
        """Of a shell's kind: negative for a signal."""
        return self.process.exitcode

    @property
    def stderr(self) -> str:
        return self._read(".err")

    @property
    def result(self) -> dict[str, Any] | None:
        """The JSON that it printed; None without one, as after a kill."""
        try:
            content: dict[str, Any] = json.loads(self._read(".out"))
        except ValueError:
            return None
        return content

    def _read(self, suffix: str) -> str:
        """What it printed; nothing if it was killed before it could."""
        file = self.output.with_suffix(suffix)
        return file.read_text(errors="replace") if file.exists() else ""

    def signal(self, signum: int) -> None:
        if not self.ended and self.process.pid:
            processes.send(signum, [self.process.pid])

    def sleep(self) -> None:
        """Stop it and all that it has started, as closing the lid does."""
        if not self.ended and self.process.pid:
            self.asleep = True
            processes.send(signal.SIGSTOP, [self.process.pid, *processes.descendants(self.process.pid)])

    def wake(self) -> None:
        if self.asleep and self.process.pid:
            self.asleep = False
            processes.send(signal.SIGCONT, [self.process.pid, *processes.descendants(self.process.pid)])

    def wait(self, seconds: float) -> int | None:
        """Its exit code; None if it goes on after so long."""
        self.process.join(seconds)
        return self.process.exitcode

    def kill(self) -> None:
        self.wake()
        self.signal(signal.SIGKILL)
        self.process.join(10)


def start(arguments: tuple[str, ...], folder: Path, environment: Mapping[str, str], output: Path) -> Laptop:
    """Start `nsa-pod ARGUMENTS` in `folder`."""
    process = _FORKS.Process(target=_run, args=(arguments, str(folder), dict(environment), str(output)), daemon=True)
    process.start()
    return Laptop(arguments, output, process)


def _run(arguments: tuple[str, ...], folder: str, environment: Mapping[str, str], output: str) -> None:
    from orchestrator.cli import main

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt before the command has begun is none of its business
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    for descriptor, name, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, f"{output}.out", os.O_WRONLY | os.O_CREAT),
        (2, f"{output}.err", os.O_WRONLY | os.O_CREAT),
    ):
        opened = os.open(name, flags, 0o644)
        os.dup2(opened, descriptor)
        os.close(opened)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main(list(arguments))
