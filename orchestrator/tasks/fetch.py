"""Bring a stage's files home: only what its record names, only regular files, only inside the run's directory."""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, Any

from orchestrator.errors import IntegrityError, PodError
from orchestrator.files import sha256
from orchestrator.rundir import RunDirectory
from orchestrator.tasks.probe import Agent
from orchestrator.text import plain, size

# What one run may put on the laptop's disk.
MAX_BYTES = 8 * 2**30


def missing_files(run: RunDirectory, records: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The files that the records name and that are not here yet, or are not here as recorded."""
    listed = (record.get("files") for record in records)
    files = (file for some in listed if isinstance(some, list) for file in some if isinstance(file, dict))
    return [file for file in files if not _is_here(run.path, file)]


def pull(agent: Agent, remote: str, run: RunDirectory, files: Sequence[Mapping[str, Any]]) -> list[str]:
    """Fetch `files` of the run directory `remote` on the pod; returns a sentence for each one that was refused."""
    wanted, refused = _admit(run.path, files)
    if not wanted:
        return refused
    names = json.dumps(list(wanted)).encode()
    with agent.stream("export", remote, "--files-from", "-", input=names) as stream:
        try:
            with tarfile.open(fileobj=stream, mode="r|") as archive:
                refused += [sentence for member in archive if (sentence := _take(archive, member, wanted, run.path))]
        except tarfile.TarError as e:
            raise IntegrityError(f"the files of {run.path.name} arrived damaged: {e}") from e
        except OSError as e:
            raise PodError(f"the files of {run.path.name} cannot be written to {run.path}: {e.strerror or e}") from e
    return refused + [f"{plain(name)}: the pod did not send it" for name in wanted if not (run.path / name).exists()]


def _is_here(directory: Path, file: Mapping[str, Any]) -> bool:
    if _unsafe(file):
        return False
    path = directory / str(file["path"])
    return path.is_file() and path.stat().st_size == int(file["bytes"])


def _admit(directory: Path, files: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Mapping[str, Any]], list[str]]:
    """The files that may be fetched, by name, and a sentence for each that may not."""
    wanted: dict[str, Mapping[str, Any]] = {}
    refused = []
    total = sum(p.stat().st_size for p in directory.rglob("*") if p.is_file())
    for file in files:
        reason = _unsafe(file)
        if reason is None and total + file["bytes"] > MAX_BYTES:
            reason = f"with it the run would take more than {size(MAX_BYTES)} here"
        if reason:
            refused.append(f"{plain(file.get('path'))}: {reason}")
        else:
            wanted[file["path"]] = file
            total += file["bytes"]
    return wanted, refused


def _unsafe(file: Mapping[str, Any]) -> str | None:
    """Why the record names no file of a run's directory; None if it does."""
    path, count, digest = file.get("path"), file.get("bytes"), file.get("sha256")
    if not isinstance(path, str) or not isinstance(count, int) or count < 0 or not isinstance(digest, str):
        return "the record lacks path, bytes or sha256"
    parts = PurePosixPath(path).parts
    if path.startswith("/") or ".." in parts or "\0" in path or len(parts) < 2:
        return "it would lie outside the run's directory"
    if parts[0] not in ("stages", "artifacts"):
        return "expected a file under stages/ or artifacts/"
    return None


def _take(archive: tarfile.TarFile, member: tarfile.TarInfo, wanted: Mapping[str, Any], directory: Path) -> str | None:
    """Write one member if it is the file that was asked for; else say why not."""
    name = member.name
    file = wanted.get(name)
    if file is None:
        return f"{plain(name)}: it was not asked for"
    content = archive.extractfile(member) if member.isreg() else None
    if content is None:
        return f"{plain(name)}: it is not a regular file"
    if member.size != file["bytes"]:
        return f"{plain(name)}: {member.size} bytes came, {file['bytes']} were recorded"
    target = directory / name
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        _copy(content, aside)
        if sha256(aside) != file["sha256"]:
            return f"{plain(name)}: its sha256 is not the recorded one"
        aside.replace(target)
    finally:
        aside.unlink(missing_ok=True)
    return None


def _copy(source: IO[bytes], target: Path) -> None:
    with target.open("wb") as f:
        for piece in iter(lambda: source.read(1 << 20), b""):
            f.write(piece)
