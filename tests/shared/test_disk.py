"""A disk that takes no more is said to, with what is free on it; also one that is read-only, or has a quota."""

from __future__ import annotations

import errno
import os
import re
import tempfile
from pathlib import Path

import pytest

from orchestrator.errors import PodFull
from orchestrator.shared import disk


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (
            errno.ENOSPC,
            r"pod 'p': its disk is full \([0-9.]+ \w+ of [0-9.]+ \w+(, \d+ of \d+ inodes)? are free, not en",
        ),
        (
            errno.EDQUOT,
            r"its disk is full \(the quota is used up, though [0-9.]+ \w+ of .* are free, not enough\): free",
        ),
    ],
)
def test_what_is_free_comes_home_with_the_error(tmp_path: Path, number: int, said: str) -> None:
    error = OSError(number, os.strerror(number), str(tmp_path / "a (b)"))
    told = PodFull.of("pod 'p'", disk.told(error, tmp_path / "not" / "there"))
    assert re.search(said, str(told))


@pytest.mark.parametrize(
    ("complaint", "is_full"),
    [
        ("sh: 1: cannot create x: No space left on device", True),
        ("tar: x: Wrote only 512 of 10240 bytes", True),
        ("sh: 1: cannot create x: Permission denied", False),
    ],
)
def test_what_other_programs_say_is_understood(complaint: str, is_full: bool) -> None:
    assert ("(bytes or inodes)" in str(PodFull.of("pod 'p'", complaint))) == is_full


def test_other_errors_are_told_as_they_are(tmp_path: Path) -> None:
    assert disk.told(OSError(errno.EROFS, "Read-only file system"), tmp_path) == "[Errno 30] Read-only file system"


def test_a_folder_that_takes_files_refuses_none(tmp_path: Path) -> None:
    assert disk.refusal(tmp_path) == "" and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO])
def test_why_a_folder_takes_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(dir: str) -> None:
        raise OSError(number, os.strerror(number), f"{dir}/tmpxyz")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    said = disk.refusal(tmp_path)
    assert os.strerror(number) in said and "tmpxyz" not in said
    assert ("are free" in said) == (number in disk.FULL)
