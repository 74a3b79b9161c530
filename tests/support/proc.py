"""This machine's processes as /proc shows them; of one that ends meanwhile there is nothing to be seen."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

_COUNT = itertools.count(1000)


def pids() -> list[int]:
    """All processes."""
    return [int(path.name) for path in Path("/proc").glob("[0-9]*")]


def command(pid: int) -> bytes:
    """The command line, with a NUL after each argument."""
    return _read(pid, "cmdline")


def saying(*words: str | bytes) -> list[int]:
    """Processes whose command lines contain all `words`."""
    wanted = [word.encode() if isinstance(word, str) else word for word in words]
    return [pid for pid in pids() if (line := command(pid)) and all(word in line for word in wanted)]


def a_sleep() -> str:
    """Seconds to sleep that nobody else does: by them a test knows its processes, whoever tests beside it."""
    return f"{next(_COUNT)}.{os.getpid()}"


def sleeping(seconds: str) -> list[int]:
    """Processes `sleep SECONDS`."""
    return saying(f"sleep\0{seconds}\0")


def is_alive(pid: int) -> bool:
    """Whether the process runs, and is not just waiting to be reaped."""
    return _stat(pid)[:1] not in ([], ["Z"], ["X"])


def parent(pid: int) -> int | None:
    """The pid of its parent."""
    fields = _stat(pid)
    return int(fields[1]) if fields else None


def children(pid: int) -> list[int]:
    """The processes that its first thread started."""
    return [int(child) for child in _read(pid, f"task/{pid}/children").split()]


def name(pid: int) -> str:
    """The name of its program."""
    return _read(pid, "comm").decode().strip()


def status(pid: int, key: str) -> list[str]:
    """The words after `key` in its status."""
    lines = _read(pid, "status").decode(errors="replace").splitlines()
    return next((line.split()[1:] for line in lines if line.startswith(f"{key}:")), [])


def peak_kib(pid: int) -> int:
    """The most memory that it has had resident."""
    return int((status(pid, "VmHWM") or ["0"])[0])


def _stat(pid: int) -> list[str]:
    """Its state, its parent, and so on: what follows the name, which may hold anything."""
    return _read(pid, "stat").decode(errors="replace").rpartition(")")[2].split()


def _read(pid: int, file: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{file}").read_bytes()
    except OSError:
        return b""
