"""The journal: what is written is read, and nothing else is."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from orchestrator.shared import journal


@pytest.fixture
def written(tmp_path: Path) -> bytes:
    writer = journal.Journal(tmp_path / "journal.jsonl")
    for n in range(5):
        writer.append({"event": "output", "stage": "s", "last_line": f"line {n} \u2028 é \udcff"})
    writer.close()
    return (tmp_path / "journal.jsonl").read_bytes()


def test_round_trip(tmp_path: Path, written: bytes) -> None:
    events = journal.read(written)
    assert [e["seq"] for e in events] == [0, 1, 2, 3, 4] and events[0]["prev"] == journal.GENESIS
    assert written.isascii() and os.listdir(tmp_path) == ["journal.jsonl"]
    assert [e["t"] for e in events] == sorted(e["t"] for e in events)


def test_an_unfinished_line_is_no_event_yet(written: bytes) -> None:
    assert len(journal.read(written[:-1])) == 4 and len(journal.read(written[:10])) == 0
    assert journal.head(written[:-1]) == journal.read(written)[4]["prev"] and journal.head(b"") == journal.GENESIS


def lines(written: bytes) -> list[bytes]:
    return written.splitlines(keepends=True)


@pytest.mark.parametrize(
    ("tampered", "line"),
    [
        (lambda w: w.replace(b"line 2", b"line 7"), 4),
        (lambda w: b"".join(lines(w)[1:]), 1),
        (lambda w: b"".join(lines(w)[:2] + lines(w)[3:]), 3),
        (lambda w: b"".join([*lines(w)[:2], lines(w)[3], lines(w)[2], lines(w)[4]]), 3),
        (lambda w: b"".join(lines(w)[:3] + lines(w)[2:]), 4),
        (lambda w: w + b"{}\n", 6),
        (lambda w: w + b"\n", 6),
        (lambda w: w + b'{"event": "run_ended", "seq": 5, "prev": "0"}\n', 6),
        (lambda w: b"\xff\n" + w, 1),
        (lambda w: w.replace(b'"seq":0', b'"seq":1', 1), 1),
    ],
)
def test_tampering_is_found_where_it_is(written: bytes, tampered: object, line: int) -> None:
    with pytest.raises(journal.ChainBroken, match=f"line {line} "):
        journal.read(tampered(written))  # type: ignore[operator]


def test_a_changed_last_line_changes_the_head(written: bytes) -> None:
    assert journal.head(written) != journal.head(written.replace(b"line 4", b"line 5"))


def test_there_is_only_one_journal(tmp_path: Path) -> None:
    journal.Journal(tmp_path / "j")
    with pytest.raises(FileExistsError):
        journal.Journal(tmp_path / "j")


@pytest.mark.parametrize("change", ["append", "truncate", "remove", "replace"])
def test_intact(tmp_path: Path, change: str) -> None:
    path = tmp_path / "j"
    writer = journal.Journal(path)
    writer.append({"event": "output"})
    assert writer.intact()
    if change == "append":
        path.open("ab").write(b"x")
    elif change == "truncate":
        os.truncate(path, 3)
    else:
        path.unlink()
        if change == "replace":
            path.write_text("other")
    assert not writer.intact()


def test_a_full_disk_still_takes_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the disk full, the reserve makes room; what was written of a line that did not fit is taken back."""
    path = tmp_path / "j"
    writer = journal.Journal(path)
    writer.append({"event": "run_started"})
    real_write, reserve = os.write, tmp_path / "j.reserve"
    assert reserve.stat().st_size > 1 << 16

    def full(fd: int, data: bytes) -> int:
        if reserve.exists():
            real_write(fd, bytes(data)[:5])
            raise OSError(errno.ENOSPC, "No space left on device")
        return real_write(fd, data)

    monkeypatch.setattr(os, "write", full)
    writer.append({"event": "run_ended", "reason": "completed"})
    assert [e["event"] for e in journal.read(path.read_bytes())] == ["run_started", "run_ended"]
    assert not reserve.exists() and writer.intact()


def test_lines_hold_no_nonsense(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        journal.Journal(tmp_path / "j").append({"event": "x", "value": float("nan")})
    assert json.loads('"\\u2028"') == "\u2028"
