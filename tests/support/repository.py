"""Git repositories to make commits in, odd ones too."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.support.files import write_files

_ENV = {
    "GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.org", "GIT_COMMITTER_NAME": "A",
    "GIT_COMMITTER_EMAIL": "a@example.org", "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null",
}  # fmt: skip


class Git:
    """A repository to make commits in."""

    def __init__(self, root: Path, *options: str) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        self("init", "-q", "-b", "main", *options)

    def __call__(self, *arguments: str, stdin: bytes = b"") -> str:
        argv = ["git", "-c", "protocol.file.allow=always", *arguments]
        done = subprocess.run(
            argv, cwd=self.root, env={**os.environ, **_ENV}, input=stdin, check=True, capture_output=True
        )
        return os.fsdecode(done.stdout).strip()

    def commit(self, files: dict[str, str | bytes]) -> str:
        """Write `files` and commit everything; the commit."""
        write_files(self.root, files)
        self("add", "-A")
        self("commit", "-q", "--allow-empty", "-m", "c")
        return self("rev-parse", "HEAD")

    def tree(self, entries: list[tuple[str, str, str]]) -> str:
        """A tree object with (mode, hash, name), which git's porcelain need not be willing to make."""
        raw = b"".join(f"{mode} {name}\0".encode() + bytes.fromhex(hash_) for mode, hash_, name in entries)
        return self("hash-object", "-t", "tree", "-w", "--literally", "--stdin", stdin=raw)

    def blob(self, content: bytes) -> str:
        return self("hash-object", "-w", "--stdin", stdin=content)
