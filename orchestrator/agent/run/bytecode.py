"""Compiles what the agent brings into stages: once, since a stage keeps no bytecode and each of its processes would."""

from __future__ import annotations

import contextlib
import importlib.util
import marshal
import subprocess
import sys
from pathlib import Path
from types import CodeType
from typing import Any, Mapping

from orchestrator.agent.env.interpreter import Interpreter

FORM = f"{sys.implementation.cache_tag} {importlib.util.MAGIC_NUMBER.hex()}"
"""In which this Python keeps what it has compiled."""

_TIMEOUT_S = 120
_BY_TIME = bytes(4)  # PEP 552: it is of the source that has this time and size


def keep(interpreter: Interpreter, folder: Path, own: Mapping[Path, str]) -> None:
    """Compile all modules in `folder` for `interpreter`; the files in `own` are copies of these modules of the agent's,
    which it has compiled already. Where this fails, the Pythons that import them do it themselves."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        if interpreter.bytecode != FORM:
            compile_all = [interpreter.python, "-I", "-S", "-m", "compileall", "-q", str(folder)]
            subprocess.run(compile_all, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIMEOUT_S)
            return
        for path in folder.rglob("*.py"):
            with contextlib.suppress(SyntaxError, ValueError):  # what a stage has left there, in a run that goes on
                _write(path, _code(own[path]) if path in own else _compiled(path))


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
