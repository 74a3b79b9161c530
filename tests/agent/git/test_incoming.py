"""A tree that comes in parts: what came is kept, and only the rest is asked for."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from orchestrator.agent.git import incoming
from orchestrator.agent.git.incoming import Incoming
from orchestrator.agent.git.pristine import Wanted
from orchestrator.git.checkout import Change, Stream, change
from orchestrator.git.folder import Folder
from orchestrator.shared import tree
from orchestrator.shared.failure import Failure
from tests.support.files import write_files

FILES = {"a": b"a" * 3000, "empty": b"", "b": os.urandom(200_000), "c": b"last\n"}


def stream_of(folder: Path, files: dict[str, bytes]) -> tuple[Wanted, Stream]:
    write_files(folder, files)
    entries = Folder(folder).files
    wanted = Wanted(tree.tree_hash({path: (entry.mode, entry.blob) for path, entry in entries.items()}), ())
    return wanted, Stream.of(Change(entries, ()))


def written(stream: Stream, at: int = 0) -> bytes:
    out = io.BytesIO()
    stream.write(out, at)
    return out.getvalue()


def take(trees: Path, wanted: Wanted, stream: Stream, most: int | None = None, base: str | None = None) -> list[int]:
    """Over a connection that carries `most` bytes; where it began."""
    began: list[int] = []
    line = io.BytesIO()

    def ready(at: int) -> None:
        began.append(at)
        line.write(written(stream, at)[:most])
        line.seek(0)

    Incoming(trees, wanted, base, "s").go_on(ready, line)
    return began


def test_the_stream_is_the_same_from_any_byte_on(tmp_path: Path) -> None:
    _, stream = stream_of(tmp_path / "source", FILES)
    whole = written(stream)
    for at in (0, 1, len(stream.head) - 1, len(stream.head), len(stream.head) + 20, len(whole) - 3, len(whole)):
        assert written(stream, at) == whole[at:]


@pytest.mark.parametrize("portion", [1, 33, 500, 70_000])
def test_what_came_is_kept_and_the_rest_is_enough(tmp_path: Path, portion: int) -> None:
    files = FILES if portion > 100 else {"a": b"abc", "empty": b"", "l": b"x"}
    wanted, stream = stream_of(tmp_path / "source", files)
    came = 0
    while came + portion < len(written(stream)):
        with pytest.raises(Failure, match="what came is kept"):
            assert take(tmp_path / "trees", wanted, stream, portion) == [came]
        came += portion
        assert not (tmp_path / "trees" / wanted.tree).exists()
    [began] = take(tmp_path / "trees", wanted, stream)
    assert came - 70_000 < began <= len(written(stream))
    assert wanted.why_not(tree.scan(tmp_path / "trees" / wanted.tree)) is None
    assert os.listdir(tmp_path / "trees") == [wanted.tree], "and nothing is left over"
    assert take(tmp_path / "trees", wanted, stream) == [], "it is there already"


def test_a_difference_goes_on_over_its_base(tmp_path: Path) -> None:
    old, first = stream_of(tmp_path / "old", FILES)
    take(tmp_path / "trees", old, first)
    new, _ = stream_of(tmp_path / "new", {**FILES, "b": os.urandom(200_000)})
    difference = Stream.of(change(Folder(tmp_path / "old").files, Folder(tmp_path / "new").files))
    with pytest.raises(Failure, match="what came is kept"):
        take(tmp_path / "trees", new, difference, 100_000, old.tree)
    assert take(tmp_path / "trees", new, difference, None, old.tree) == [100_000]
    assert new.why_not(tree.scan(tmp_path / "trees" / new.tree)) is None


def test_a_part_that_was_spoiled_is_not_gone_on_with_twice(tmp_path: Path) -> None:
    wanted, stream = stream_of(tmp_path / "source", FILES)
    with pytest.raises(Failure, match="what came is kept"):
        take(tmp_path / "trees", wanted, stream, 150_000)
    [part] = (tmp_path / "trees").glob(".incoming-*/tree/b")
    part.write_bytes(b"0" * part.stat().st_size)
    with pytest.raises(Failure, match="it is not that of"):
        take(tmp_path / "trees", wanted, stream)
    assert take(tmp_path / "trees", wanted, stream) == [0]


def test_beside_somebody_who_sends_the_same_all_of_it_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming, "_PATIENCE_S", 0.0)
    wanted, stream = stream_of(tmp_path / "source", FILES)
    with incoming._held(tmp_path / "trees" / f".incoming-{wanted.tree}-s") as ours:
        assert ours and take(tmp_path / "trees", wanted, stream) == [0]
    assert wanted.why_not(tree.scan(tmp_path / "trees" / wanted.tree)) is None


def test_who_is_done_with_the_directory_may_remove_it_at_any_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, stream = stream_of(tmp_path / "source", FILES)
    place, opened, removed = tmp_path / "trees" / f".incoming-{wanted.tree}-s", os.open, []

    def removing(path: Path, *how: int, **where: int) -> int:
        if path == place / "lock" and not removed:
            removed.append(place.rmdir())
        return opened(path, *how, **where)

    monkeypatch.setattr(os, "open", removing)
    assert take(tmp_path / "trees", wanted, stream) == [0]
    assert removed and wanted.why_not(tree.scan(tmp_path / "trees" / wanted.tree)) is None


def test_what_is_no_directory_there_is_an_error(tmp_path: Path) -> None:
    wanted, stream = stream_of(tmp_path / "source", FILES)
    write_files(tmp_path / "trees", {f".incoming-{wanted.tree}-s": b""})
    with pytest.raises(FileExistsError):
        take(tmp_path / "trees", wanted, stream)
