"""The machine itself: which boot of it this is, its processors, memory and disk."""

from __future__ import annotations

import os
import platform
import re
import socket
from pathlib import Path
from typing import Any

from orchestrator.shared.user import user

# Where a container sees its own limits (version 2; the first one's lie below, by controller).
_CGROUP = "/sys/fs/cgroup"
_MEMORY = (
    ("memory.max", "memory.current", "memory.stat"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"),
)


def boot_id() -> str | None:
    """The kernel's id of this boot; None where there is none."""
    return _read("/proc/sys/kernel/random/boot_id").strip() or None


def facts() -> dict[str, Any]:
    """Machine, operating system, user. Memory in bytes; what the system does not tell is None."""
    return {
        "hostname": socket.gethostname(),
        "boot_id": boot_id(),
        "os": platform.system(),
        "release": platform.release(),
        "distribution": _found(r'^PRETTY_NAME="?([^"\n]*)', _read("/etc/os-release")),
        "arch": platform.machine(),
        "libc": list(platform.libc_ver()),
        "cpus": _cpus(),
        "cpu_model": _found(r"^model name\s*:\s*(.*)$", _read("/proc/cpuinfo")),
        "memory_bytes": _memory(),
        "memory_available_bytes": _kibibytes(r"^MemAvailable:\s*(\d+)", _read("/proc/meminfo")),
        "uid": os.getuid(),
        "user": user(),
    }


def disk(path: str) -> dict[str, Any]:
    """Room at `path`, or at the nearest directory above it that exists."""
    place = Path(path)
    while not place.exists():
        place = place.parent
    found = os.statvfs(place)
    return {
        "path": str(place),
        "free_bytes": found.f_bavail * found.f_frsize,
        "total_bytes": found.f_blocks * found.f_frsize,
        # Some file systems make inodes as they need them and count none.
        "free_inodes": found.f_favail if found.f_files else None,
        "writable": os.access(place, os.W_OK),
    }


def usable_cpus() -> int:
    """Processors that a container may use at once."""
    quota, _, period = _read(f"{_CGROUP}/cpu.max").strip().partition(" ")
    limits = [int(quota) // int(period)] if quota.isdigit() and period.isdigit() else []
    old = [_read(f"{_CGROUP}/cpu/cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
    limits += [int(old[0]) // int(old[1])] if all(text.isdigit() for text in old) else []
    return max(1, min([_cpus() or 1, *limits]))


def usable_memory() -> int:
    """Bytes that are free, of the machine's memory and of what a container is allowed."""
    free = [_kibibytes(r"^MemAvailable:\s*(\d+)", _read("/proc/meminfo")) or _memory()]
    for limit, used, below in _MEMORY:
        texts = [_read(f"{_CGROUP}/{name}").strip() for name in (limit, used)]
        if all(text.isdigit() for text in texts):
            # Files that were read count as used, and are dropped when room is needed.
            dropped = _found(r"^(?:total_)?inactive_file (\d+)", _read(f"{_CGROUP}/{below}")) or "0"
            free.append(max(0, int(texts[0]) - int(texts[1]) + int(dropped)))
    return min(free)


def jobs(job_bytes: int) -> int:
    """How many compilers may run at once, each of which takes so much memory."""
    return max(1, min(usable_cpus(), usable_memory() // job_bytes))


def _cpus() -> int | None:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def _memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def _found(pattern: str, text: str) -> str | None:
    match = re.search(pattern, text, re.MULTILINE)
    return match[1] if match else None


def _kibibytes(pattern: str, text: str) -> int | None:
    found = _found(pattern, text)
    return int(found) * 1024 if found else None
