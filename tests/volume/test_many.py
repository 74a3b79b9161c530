"""Many artifact files: fetched, resumed after a cut, verified, in little more time than rsync needs for them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from tests.support.many_files import ManyFiles
from tests.support.sshd import Sshd

SLOWER_THAN_RSYNC = 2.0


def is_whole(many: ManyFiles, name: str) -> bool:
    """Whether every file is here as it is on the pod, and the manifest says so of each."""
    home = many.home(name)
    manifest = {f["path"]: f for f in json.loads((home / "manifest.json").read_text())["files"]}
    found = [p for p in (many.remote / "artifacts").rglob("*") if p.is_file()]
    for path in found:
        relative = path.relative_to(many.remote).as_posix()
        content = (home / relative).read_bytes()
        if content != path.read_bytes() or manifest[relative]["sha256"] != hashlib.sha256(content).hexdigest():
            return False
    return len(found) == many.files + 1


def check_resumption(many: ManyFiles) -> None:
    """A fetch that is killed at half and begun again brings only the rest."""
    many.fetch_killed_at("resumed", 0.5)
    artifacts = many.home("resumed") / "artifacts"
    before = {p: p.stat().st_mtime_ns for p in artifacts.rglob("*.bin")}
    assert many.files / 2 - 1 <= len(before) < many.files, "it was cut"
    again = many.fetch("resumed")
    assert (again.exit_code, again.result["verdict"]) == (0, "passed"), again
    assert all(p.stat().st_mtime_ns == then for p, then in before.items())
    assert is_whole(many, "resumed")


@pytest.mark.slow
def test_some_files(tmp_path: Path, sshd: Sshd) -> None:
    """As below, small."""
    many = ManyFiles(tmp_path, sshd, 3000, 15_000_000)
    fetched = many.fetch("once")
    assert (fetched.exit_code, fetched.result["verdict"]) == (0, "passed"), fetched
    assert is_whole(many, "once")
    check_resumption(many)


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_a_hundred_thousand_files_of_two_gigabytes(tmp_path: Path, sshd: Sshd) -> None:
    many = ManyFiles(tmp_path, sshd, 100_000, 2_000_000_000, max_files=110_000)
    times = []
    for _ in range(2):
        bare = many.rsync("bare")
        many.drop("bare")
        fetched = many.fetch("once")
        assert (fetched.exit_code, fetched.result["verdict"]) == (0, "passed"), fetched
        times.append(fetched.seconds / bare)
        assert is_whole(many, "once")
        many.drop("once")
    assert min(times) <= SLOWER_THAN_RSYNC, times
    assert fetched.peak_mib < 180
    check_resumption(many)
