"""What a hostile pod may send: nothing but regular files that its record names, inside the run's directory."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

import pytest

from orchestrator.errors import IntegrityError
from orchestrator.rundir import RunDirectory
from orchestrator.tasks import fetch
from orchestrator.tasks.probe import Agent

CONTENT = b"content\n"


class HostilePod:
    """Stands for the agent's `export`: answers every request with the same tar."""

    def __init__(self, archive: bytes) -> None:
        self.archive = archive

    @contextmanager
    def stream(self, *_: object, **__: object) -> Iterator[BinaryIO]:
        yield io.BytesIO(self.archive)


def tar_of(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w|") as archive:
        for member, content in members:
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


def file(path: Any, content: bytes = CONTENT, **fields: Any) -> dict[str, Any]:
    return {"path": path, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest(), **fields}


@pytest.fixture
def pull(tmp_path: Path) -> Callable[[bytes, list[dict[str, Any]]], list[str]]:
    run = RunDirectory(tmp_path / "run", "run")
    run.path.mkdir()
    return lambda archive, files: fetch.pull(cast(Agent, HostilePod(archive)), "/remote", run, files)


Pull = Callable[[bytes, list[dict[str, Any]]], list[str]]


def everything_below(folder: Path) -> set[str]:
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if not p.is_dir() or p.is_symlink()}


def test_what_is_honest_comes_home(tmp_path: Path, pull: Pull) -> None:
    names = ["artifacts/a b.txt", "stages/s/stdout"]
    assert pull(tar_of(*((member(n), CONTENT) for n in names)), [file(n) for n in names]) == []
    assert everything_below(tmp_path) == {f"run/{n}" for n in names}


@pytest.mark.parametrize(
    "path",
    ["/etc/x", "../x", "artifacts/../../x", "artifacts", "plan.json", "other/x", "", "artifacts/a\0b", None, 3],
)
def test_a_record_that_names_no_file_of_the_run_is_refused(tmp_path: Path, pull: Pull, path: Any) -> None:
    refused = pull(tar_of(), [file(path)])
    assert len(refused) == 1
    assert everything_below(tmp_path) == set()


@pytest.mark.parametrize("fields", [{"bytes": -1}, {"bytes": "8"}, {"sha256": None}, {"bytes": fetch.MAX_BYTES + 1}])
def test_a_record_with_impossible_fields_is_refused(tmp_path: Path, pull: Pull, fields: dict[str, Any]) -> None:
    assert len(pull(tar_of(), [file("artifacts/a", **fields)])) == 1
    assert everything_below(tmp_path) == set()


@pytest.mark.parametrize(
    ("sent", "content", "sentence"),
    [
        (member("../a"), CONTENT, "not asked for"),
        (member("/tmp/a"), CONTENT, "not asked for"),
        (member("artifacts/b"), CONTENT, "not asked for"),
        (member("artifacts/a", tarfile.SYMTYPE, "/etc/passwd"), b"", "not a regular file"),
        (member("artifacts/a", tarfile.LNKTYPE, "/etc/passwd"), b"", "not a regular file"),
        (member("artifacts/a", tarfile.CHRTYPE), b"", "not a regular file"),
        (member("artifacts/a", tarfile.FIFOTYPE), b"", "not a regular file"),
        (member("artifacts/a", tarfile.DIRTYPE), b"", "not a regular file"),
        (member("artifacts/a"), CONTENT + b"more", "bytes came"),
        (member("artifacts/a"), CONTENT.upper(), "sha256"),
    ],
)
def test_what_was_not_asked_for_or_is_not_as_recorded_is_refused(
    tmp_path: Path, pull: Pull, sent: tarfile.TarInfo, content: bytes, sentence: str
) -> None:
    refused = pull(tar_of((sent, content)), [file("artifacts/a")])
    assert sentence in refused[0]
    assert everything_below(tmp_path) == set()


def test_a_file_that_never_comes_is_named(pull: Pull) -> None:
    assert "did not send it" in pull(tar_of(), [file("artifacts/a")])[0]


def test_a_damaged_archive_is_an_error(pull: Pull) -> None:
    with pytest.raises(IntegrityError, match="damaged"):
        pull(b"no tar" * 200, [file("artifacts/a")])
