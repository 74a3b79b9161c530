"""Files by their paths, in a folder or in an archive."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path


def write_files(root: Path, files: Mapping[str, str | bytes]) -> None:
    """Each with the folders that it lies in."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def write_tar(path: Path, files: Mapping[str, str], mode: int = 0o644) -> Path:
    """An archive of the files."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(text.encode()), mode
            archive.addfile(entry, io.BytesIO(text.encode()))
    return path
