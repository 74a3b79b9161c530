"""Git's index of a tree as it is on disk, so that `git status` finds it clean without reading a file."""

from __future__ import annotations

import hashlib
import os
import struct
from pathlib import Path

from orchestrator.shared.tree import SHA1_OPTIONS, Manifest

_32_BITS = 0xFFFFFFFF
_LONGEST_NAME = 0xFFF  # a longer one ends where its zero byte is


def index_of(root: Path, listed: Manifest) -> bytes:
    """Version 2 (gitformat-index(5)); `listed` are the entries of git's own list."""
    named = sorted((os.fsencode(path), path) for path in listed)
    content = b"DIRC" + struct.pack(">II", 2, len(named))
    content += b"".join(_entry(root, name, path, listed[path]) for name, path in named)
    return content + hashlib.sha1(content, **SHA1_OPTIONS).digest()


def _entry(root: Path, name: bytes, path: str, entry: tuple[str, str]) -> bytes:
    mode, blob = entry
    head = struct.pack(">10I", *_stat_data(root, path, int(mode, 8)))
    head += bytes.fromhex(blob) + struct.pack(">H", min(len(name), _LONGEST_NAME)) + name
    return head + b"\0" * (8 - len(head) % 8)


def _stat_data(root: Path, path: str, mode: int) -> tuple[int, ...]:
    """What git compares to tell, without reading it, that a file is unchanged."""
    try:
        s = os.lstat(f"{root}/{path}")
    except OSError:  # a submodule that is not there
        return 0, 0, 0, 0, 0, 0, mode, 0, 0, 0
    times = (part for ns in (s.st_ctime_ns, s.st_mtime_ns) for part in divmod(ns, 10**9))
    size = 0 if mode == 0o160000 else s.st_size
    return tuple(n & _32_BITS for n in (*times, s.st_dev, s.st_ino, mode, s.st_uid, s.st_gid, size))
