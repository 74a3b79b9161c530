"""What a hostile pod may send: nothing but the files that were asked for, inside the run's directory, under limits."""

from __future__ import annotations

import hashlib
import io
import json
import os
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

import pytest

from orchestrator.errors import ContactLost, DiskError, IntegrityError
from orchestrator.pod.client import Agent
from orchestrator.pod.download import Downloader, Quota

CONTENT = b"content\n"
SENT = b"+\n" + CONTENT
UNLIMITED = Quota()


class HostilePod:
    """Stands for the agent's `send`: answers every request with the same bytes."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer

    @contextmanager
    def stream(self, *_: object, **__: object) -> Iterator[BinaryIO]:
        yield io.BytesIO(self.answer)


def file(path: Any, content: bytes = CONTENT, **fields: Any) -> dict[str, Any]:
    return {"path": path, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest(), **fields}


Pull = Callable[..., Downloader]


@pytest.fixture
def pull(tmp_path: Path) -> Pull:
    (tmp_path / "run").mkdir()

    def one(
        answer: bytes, records: list[Any], expected: Collection[str] = (), quota: Quota = UNLIMITED, run: str = "run"
    ) -> Downloader:
        downloader = Downloader(tmp_path / run, expected, quota)
        downloader.note([{"event": "stage_ended", "files": records}])
        downloader.take(cast(Agent, HostilePod(answer)), "/remote", everything=True)
        return downloader

    return one


def everything_below(folder: Path) -> set[str]:
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if not p.is_dir() or p.is_symlink()}


def test_what_is_honest_comes_home(tmp_path: Path, pull: Pull) -> None:
    names = ["stages/s/stdout", "artifacts/a b.txt", "artifacts/" + "n" * 255, "artifacts/é"]
    assert pull(SENT * 4, [file(n) for n in names]).refused == []
    assert everything_below(tmp_path) == {f"run/{n}" for n in names}
    assert pull(b"", [file(n) for n in names]).refused == [], "nothing is asked for twice"


def test_what_is_here_with_another_content_comes_again(tmp_path: Path, pull: Pull) -> None:
    """As a disk leaves it that lost its power, or a first attempt at a stage that was gone on with."""
    place = tmp_path / "run" / "artifacts" / "a"
    place.parent.mkdir()
    place.write_bytes(bytes(len(CONTENT)))
    assert pull(SENT, [file("artifacts/a")]).refused == [] and place.read_bytes() == CONTENT


def test_the_evidence_comes_first(tmp_path: Path, pull: Pull) -> None:
    """The answer is by order: what is asked for first gets the first content."""
    contents = {"stages/s/junit.xml": b"1", "artifacts/owed": b"2", "artifacts/a": b"3"}
    records = [file(name, content) for name, content in sorted(contents.items())]
    assert pull(b"+\n2+\n1+\n3", records, expected={"artifacts/owed"}).refused == []
    assert {name: (tmp_path / "run" / name).read_bytes() for name in contents} == contents


LONG = "artifacts/" + "/".join("d" * 40)


@pytest.mark.parametrize(
    "path",
    [
        *("/etc/x", "../x", "artifacts/../../x", "artifacts", "plan.json", "other/x", "", None, 3, ["artifacts/a"]),
        *("artifacts/a\0b", "artifacts/a\nb", "artifacts/\x1b[31m", "artifacts/\u202eb", "artifacts/\ud800"),
        *("artifacts/./a", "artifacts//a", "artifacts/a/", "artifacts/..", LONG, "artifacts/" + "é" * 128),
    ],
)
def test_a_record_that_names_no_file_of_the_run_is_refused(tmp_path: Path, pull: Pull, path: Any) -> None:
    (sentence,) = pull(b"", [file(path)]).refused
    assert sentence.isprintable() and len(sentence) < 600
    assert everything_below(tmp_path) == set()


@pytest.mark.parametrize(
    "record",
    [
        None,
        3,
        [],
        {},
        *(file("artifacts/a", **f) for f in ({"bytes": -1}, {"bytes": "8"}, {"bytes": True}, {"bytes": 8.0})),
    ],
)
def test_a_record_of_another_shape_is_refused(tmp_path: Path, pull: Pull, record: Any) -> None:
    assert len(pull(b"", [record, file("artifacts/a", sha256=None)]).refused) == 2
    assert everything_below(tmp_path) == set()


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (b"-is missing\n", "is missing"),
        (b"-is \x1b[31m missing\n", "is missing"),
        (b"+\n" + CONTENT.upper(), "sha256"),
    ],
)
def test_what_does_not_come_or_is_not_as_recorded_is_refused(
    tmp_path: Path, pull: Pull, answer: bytes, sentence: str
) -> None:
    refused = pull(answer + SENT, [file("artifacts/a"), file("artifacts/b")]).refused
    assert len(refused) == 1 and refused[0].startswith("artifacts/a: ") and sentence in refused[0]
    assert everything_below(tmp_path) == {"run/artifacts/b"}, "the others come"


@pytest.mark.parametrize("answer", [b"", b"+", b"no such protocol\n", b"+\ncont", b"x" * 100_000])
def test_an_answer_that_is_none_is_an_error_and_leaves_nothing(tmp_path: Path, pull: Pull, answer: bytes) -> None:
    with pytest.raises(IntegrityError, match="the files of run arrived"):
        pull(answer, [file("artifacts/a")])
    assert everything_below(tmp_path) == set()


def test_a_file_in_the_way_of_a_folder_is_said(tmp_path: Path, pull: Pull) -> None:
    records = [file("artifacts/a"), file("artifacts/a/b"), file("artifacts/c/d"), file("artifacts/c")]
    refused = pull(SENT * 4, records).refused
    assert [sentence.partition(":")[0] for sentence in refused] == ["artifacts/a/b", "artifacts/c"]
    assert everything_below(tmp_path) == {"run/artifacts/a", "run/artifacts/c/d"}


# Limits ----------------------------------------------------------------------------------------------------------


def test_beyond_a_limit_the_evidence_comes_and_the_rest_stays(tmp_path: Path, pull: Pull) -> None:
    records = [file(f"artifacts/{n}") for n in range(5000)] + [file("stages/s/stdout"), file("artifacts/owed")]
    for quota in (Quota(bytes=3 * len(CONTENT)), Quota(files=3)):
        run = f"run-{quota.files}"
        (tmp_path / run).mkdir()
        downloader = pull(SENT * 3, records, expected={"artifacts/owed"}, quota=quota, run=run)
        assert everything_below(tmp_path / run) == {"stages/s/stdout", "artifacts/owed", "artifacts/0"}
        (sentence,) = downloader.refused
        assert sentence.startswith("4999 files of 39.1 KiB in all stay on the pod") and "max_bytes" in sentence
        assert set(downloader.left) == {f"artifacts/{n}" for n in range(1, 5000)}


def test_terabytes_are_not_asked_for(tmp_path: Path, pull: Pull) -> None:
    downloader = pull(b"", [file("artifacts/a", bytes=1 << 50), file("artifacts/b", bytes=1 << 70)])
    assert "stay on the pod" in downloader.refused[0] and everything_below(tmp_path) == set()


def test_what_is_here_counts(pull: Pull) -> None:
    quota = Quota(files=2)
    assert pull(SENT * 2, [file("artifacts/a"), file("artifacts/b")], quota=quota).refused == []
    assert len(pull(b"", [file("artifacts/c")], quota=quota).left) == 1


def test_many_refusals_are_counted_not_listed(pull: Pull) -> None:
    refused = pull(b"", [file(f"../{n}") for n in range(5000)]).refused
    assert len(refused) == 101 and refused[-1] == "4900 more files that cannot be taken"


# This machine's disk ---------------------------------------------------------------------------------------------


def test_a_name_that_the_disk_takes_for_another_is_refused(tmp_path: Path, pull: Pull) -> None:
    """As `A` beside `a` on macOS: it is there, and no name in its folder is spelled so, like a thread's in /proc."""
    ready, done = threading.Event(), threading.Event()
    ids: list[int] = []

    def wait() -> None:
        ids.append(threading.get_native_id())
        ready.set()
        done.wait(10)

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        ready.wait(10)
        (tmp_path / "run" / "artifacts").symlink_to("/proc")
        (sentence,) = pull(SENT, [file(f"artifacts/{ids[0]}/x")]).refused
        assert "takes for the same" in sentence
    finally:
        done.set()
        thread.join()


def test_what_a_killed_process_left_aside_goes_after_an_hour(tmp_path: Path, pull: Pull) -> None:
    for name, age in ((".run.1", 7200), (".run.2", 60)):
        (tmp_path / name).write_text("half")
        os.utime(tmp_path / name, (os.stat(tmp_path).st_mtime - age,) * 2)
    pull(SENT, [file("artifacts/a")])
    assert everything_below(tmp_path) == {".run.2", "run/artifacts/a"}


def test_a_directory_that_cannot_be_written_is_one_sentence(tmp_path: Path, pull: Pull) -> None:
    (tmp_path / "run" / "artifacts").symlink_to("/proc/self")
    with pytest.raises(DiskError, match="cannot be written"):
        pull(SENT, [file("artifacts/a")])


class Cut:
    """An honest `send`, whose connections each end after `most` bytes of `content`."""

    def __init__(self, content: bytes, most: int) -> None:
        self.content, self.most = content, most
        self.begun: list[int] = []

    @contextmanager
    def stream(self, *_: object, input: bytes, **__: object) -> Iterator[BinaryIO]:
        [[_, _, begin]] = json.loads(input)
        self.begun.append(begin)
        part = self.content[begin : begin + self.most]
        try:
            yield io.BytesIO(b"+\n" + part)
        except IntegrityError as e:
            raise ContactLost("the connection broke") from e


def test_a_large_file_goes_on_where_a_connection_broke(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    content = os.urandom(500_000)
    downloader = Downloader(tmp_path / "run")
    downloader.note([{"event": "stage_ended", "files": [file("artifacts/a", content)]}])
    pod = Cut(content, 200_000)
    downloader.take(cast(Agent, pod), "/remote", everything=True)
    assert pod.begun == [0, 200_000, 400_000]
    assert (tmp_path / "run/artifacts/a").read_bytes() == content
    assert everything_below(tmp_path) == {"run/artifacts/a"}


def test_a_laptop_that_was_killed_amid_a_large_file_goes_on_with_it(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    content = os.urandom(500_000)
    record = {"event": "stage_ended", "files": [file("artifacts/a", content)]}
    for most, begun, spoiled in ((60_000, [0], False), (60_000, [60_000], True), (500_000, [120_000, 0], False)):
        downloader, pod = Downloader(tmp_path / "run"), Cut(content, most)
        downloader.note([record])
        with suppress(ContactLost):
            downloader.take(cast(Agent, pod), "/remote", everything=True)
        assert pod.begun == begun
        for part in tmp_path.glob(".run.*") if spoiled else ():
            part.write_bytes(b"0" * part.stat().st_size)
    assert (tmp_path / "run/artifacts/a").read_bytes() == content


def test_more_files_than_can_be_held_are_not_taken_in(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    downloader = Downloader(tmp_path / "run")
    many = {"event": "stage_files", "files": [file(f"artifacts/{n}") for n in range(1000)]}
    with pytest.raises(IntegrityError, match="names more than 40000 files: raise max_files"):
        for _ in range(41):
            downloader.note([many])
