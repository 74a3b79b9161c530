"""Compiles what the Pythons of stages import: once, since a stage keeps no bytecode and each of its processes would.

What the agent brings is compiled as a run begins. What is installed usually is where it lies; for an environment that
came without (installers that do not compile, images that forbid it), what a stage had to compile is kept for those
after it, in the run's directory: never beside the sources, which are not the agent's.
"""

from __future__ import annotations

import contextlib
import importlib.util
import marshal
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import CodeType
from typing import Any, Iterator, Mapping, Optional, Sequence

from orchestrator.agent.env.interpreter import Interpreter
from orchestrator.agent.host import machine
from orchestrator.agent.layout import Layout
from orchestrator.shared.files import Identity, snapshot
from orchestrator.verdict import execution
from orchestrator.verdict.outcomes import Malformed

FORM = f"{sys.implementation.cache_tag} {importlib.util.MAGIC_NUMBER.hex()}"
"""In which this Python keeps what it has compiled."""
VARIABLE = "PYTHONPYCACHEPREFIX"
"""A Python that has it looks for bytecode there, and nowhere else."""

_TIMEOUT_S = 120
_JOB_BYTES = 256 << 20
_LEAST_OF_A_JOB = 50
# What it imports itself is where it always is.
_COMPILE = "import compileall, sys; sys.pycache_prefix = sys.argv.pop(1) or None; compileall.main()"
_BY_TIME = bytes(4)  # PEP 552: it is of the source that has this time and size


class Bytecode:
    """Of the stages on one ground, with `interpreter`."""

    def __init__(self, interpreter: Interpreter, places: Layout) -> None:
        self._interpreter, self._places = interpreter, places
        self.folder = places.bytecode
        self.report = self.folder.with_suffix(".wanted")
        self._written: Mapping[str, Identity] = {}
        self.remove()  # of a run that is gone on with

    def keep_injected(self, own: Mapping[Path, str]) -> None:
        """Compile what the agent brings. The files in `own` are copies of these modules of the agent's, which it has
        compiled already. What fails, the Pythons that import it do themselves.
        """
        injected = list(self._places.injected.rglob("*.py"))
        if self._interpreter.bytecode != FORM:
            self._compile(injected, None)
            return
        for path in injected:
            with contextlib.suppress(SyntaxError, ValueError, OSError):  # what a stage left, in a run that goes on
                _write(path, _code(own[path]) if path in own else _compiled(path))

    def variables(self) -> Mapping[str, str]:
        """For a stage, once there is something."""
        return {VARIABLE: str(self.folder)} if self._written else {}

    def renew(self) -> None:
        """Take out what is not the agent's: a stage may have written there what its modules are to do."""
        if self.folder.is_symlink():  # what it leads to is not the agent's to clear
            self.folder.unlink()
        found = snapshot(self.folder)
        for name in (name for name, file in found.items() if self._written.get(name) != file):
            (self.folder / name).unlink()

    def take_told(self) -> None:
        """Compile what the processes of a stage have told that they had to."""
        files = sorted(filter(self._stays, set(map(Path, self._told()))))
        if files:
            self.renew()
            self._compile(files, self.folder)
            self._written = snapshot(self.folder)

    def remove(self) -> None:
        """Leave nothing: what is installed may be others by the next run."""
        shutil.rmtree(self.folder, ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            self.report.unlink()
        self._written = {}

    def _told(self) -> Iterator[str]:
        with contextlib.suppress(OSError):
            with self.report.open("rb") as f, contextlib.suppress(Malformed):
                for files in (line.get("files") for line in execution.lines(f)):
                    yield from filter(os.path.isabs, map(str, files if isinstance(files, list) else ()))
            self.report.unlink()

    def _stays(self, file: Path) -> bool:
        """Whether other stages find the same there: not what a stage has made, or the commit holds."""
        homes = [self._places.injected, *(Path(each.prefix) for each in self._interpreter.layers)]
        made = self._places.workdir in file.parents or self._places.short in file.parents
        return not made or any(home in file.parents for home in homes)

    def _compile(self, files: Sequence[Path], folder: Optional[Path]) -> None:
        """Have the environment's Python compile them, into `folder` if that is given."""
        into = str(folder) if folder else ""
        command = [self._interpreter.python, "-I", "-S", "-B", "-c", _COMPILE, into, "-qq", "-i", "-"]
        jobs = min(machine.jobs(_JOB_BYTES), -(-len(files) // _LEAST_OF_A_JOB))

        def compile_part(part: Sequence[Path]) -> None:
            listed = os.fsencode("".join(f"{file}\n" for file in part))
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                subprocess.run(command, input=listed, capture_output=True, timeout=_TIMEOUT_S)

        with ThreadPoolExecutor(max(jobs, 1)) as pool:
            list(pool.map(compile_part, (files[number::jobs] for number in range(jobs))))


def _code(module: str) -> CodeType:
    spec = importlib.util.find_spec(module)
    loader: Any = spec.loader if spec else None
    code: CodeType = loader.get_code(module)
    return code


def _compiled(path: Path) -> CodeType:
    code: CodeType = compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    return code


def _write(path: Path, code: CodeType) -> None:
    """As Python does beside the source; who loads it names the source as the code's file, wherever it was compiled."""
    status = path.stat()
    numbers = (int(status.st_mtime) & 0xFFFFFFFF, status.st_size & 0xFFFFFFFF)
    head = importlib.util.MAGIC_NUMBER + _BY_TIME + b"".join(number.to_bytes(4, "little") for number in numbers)
    place = Path(importlib.util.cache_from_source(str(path)))
    place.parent.mkdir(exist_ok=True)
    part = place.with_suffix(".part")  # half a file, of a full disk, ends who imports it
    try:
        part.write_bytes(head + marshal.dumps(code))
        part.replace(place)
    finally:
        with contextlib.suppress(FileNotFoundError):
            part.unlink()
