"""The laptop's disk is full or read-only: one sentence, nothing half there, and the next fetch goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.disk import Disk
from tests.support.many_files import ManyFiles
from tests.support.sshd import Sshd

FILES, TOTAL = 300, 12_000_000


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory, sshd: Sshd) -> ManyFiles:
    return ManyFiles(tmp_path_factory.mktemp("many"), sshd, FILES, TOTAL)


def here(home: Path) -> dict[str, tuple[int, int]]:
    """The run's files below `home`: inode and time, which a file that is fetched again does not keep."""
    found = [p for part in ("stages", "artifacts") for p in (home / part).rglob("*") if p.is_file()]
    return {p.relative_to(home).as_posix(): (p.stat().st_ino, p.stat().st_mtime_ns) for p in found}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("small", "large"),
    [
        ("size=6m", "size=64m"),
        ("nr_inodes=120", "nr_inodes=2000"),
        ("ro", "rw"),
    ],
    ids=["bytes", "inodes", "read-only"],
)
def test_a_disk_that_takes_no_more(many: ManyFiles, disk: Disk, small: str, large: str) -> None:
    disk.become(small)
    stopped = many.fetch(str(disk.path))
    assert stopped.exit_code == 4 and stopped.result["verdict"] == "error"
    sentence = stopped.result["error"]
    assert ("disk is full" if small != "ro" else "Read-only file system") in sentence and str(disk.path) in sentence
    assert "Traceback" not in stopped.stderr
    *progress, last = stopped.stderr.strip().splitlines()
    assert last.startswith("error: ") and not any(line.startswith("error: ") for line in progress)
    home = many.home(str(disk.path))
    kept = here(home)
    assert all((home / name).read_bytes() == (many.remote / name).read_bytes() for name in kept)
    assert [p.name for p in home.parent.glob(".*")] == [], "nothing is left aside"
    assert bool(kept) == (small != "ro") and len(kept) < FILES
    disk.become(large)
    whole = many.fetch(str(disk.path))
    assert (whole.exit_code, whole.result["verdict"]) == (0, "passed")
    after = here(home)
    assert len(after) == FILES + 4 and {name: after[name] for name in kept} == kept


def test_a_disk_that_is_full_before_a_run(many: ManyFiles, disk: Disk) -> None:
    """Nothing is launched that could not be judged."""
    disk.become("size=4k")
    (disk.path / "fill").write_bytes(b"x" * 4096)
    runs = sorted(p.name for p in (many.workdir / "runs").iterdir())
    outcome = many.project.run(
        "validate", "--pod", "p", "--runbook", "many", "--json", "--artifacts", str(disk.path / "a")
    )
    assert outcome.exit_code == 4 and "disk is full" in outcome.json["error"], outcome
    assert "Traceback" not in outcome.stderr
    assert sorted(p.name for p in (many.workdir / "runs").iterdir()) == runs


@pytest.mark.slow
def test_the_inventory_says_how_much_may_come(many: ManyFiles, tmp_path: Path) -> None:
    entry = many.server.entry(workdir=str(many.workdir))
    for limit, value in (("max_bytes", "1M"), ("max_files", 60)):
        many.set_pod({**entry, limit: value})
        fetched = many.fetch(str(tmp_path / limit))
        assert (fetched.exit_code, fetched.result["verdict"]) == (0, "passed"), "the evidence is here"
        (sentence,) = fetched.result["refused"]
        assert "stay on the pod" in sentence and limit in sentence
        assert "stay on the pod" in fetched.result["summary"]
        assert len(here(many.home(str(tmp_path / limit)))) < 62
    many.set_pod(entry)
    whole = many.fetch(str(tmp_path / "max_bytes"))
    assert whole.exit_code == 0 and whole.result["refused"] == []
    assert len(here(many.home(str(tmp_path / "max_bytes")))) == FILES + 4
