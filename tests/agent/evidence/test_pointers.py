"""Which Git LFS pointers a stage has read."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.agent.evidence.pointers import Pointers
from orchestrator.shared import tree
from tests.support.files import write_files

pytestmark = pytest.mark.process
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "4" * 64 + "\nsize 12345\n"
ATTRIBUTES = {"data/.gitattributes": "*.bin filter=lfs diff=lfs merge=lfs -text\n"}
FILES = {"data/a.bin": POINTER, "data/b.bin": POINTER, "data/real.bin": "MODL", "code.py": ""}


def pointers(tmp_path: Path, files: dict[str, str]) -> Pointers:
    write_files(tmp_path / "pristine", files)
    manifest = tree.scan(tmp_path / "pristine")
    tree.copy(tmp_path / "pristine", tmp_path / "tree")
    return Pointers(tmp_path / "tree", tmp_path / "pristine", manifest)


def test_what_a_stage_reads_of_them_is_told_once(tmp_path: Path) -> None:
    found = pointers(tmp_path, {**FILES, **ATTRIBUTES})
    data = tmp_path / "tree" / "data"
    found.begin()
    assert sorted(path.name for path in data.iterdir() if path.stat().st_size > 100) == ["a.bin", "b.bin"]
    (data / "real.bin").read_bytes()
    assert found.read() == []
    found.begin()
    (data / "a.bin").read_bytes()
    assert found.read() == [
        "it read data/a.bin, a Git LFS pointer: the commit does not hold the file that it stands for"
    ]
    (data / "b.bin").read_bytes()  # the agent, between two stages
    found.begin()
    assert found.read() == []
    found.begin()
    (data / "a.bin").read_bytes(), (data / "b.bin").read_bytes()
    (said,) = found.read()
    assert said.startswith("it read data/a.bin, data/b.bin, Git LFS pointers: ")


def test_a_folder_that_a_stage_has_replaced_is_watched_again(tmp_path: Path) -> None:
    found = pointers(tmp_path, {**FILES, **ATTRIBUTES})
    found.begin()
    (tmp_path / "tree" / "data").rename(tmp_path / "away")
    found.read()
    tree.copy(tmp_path / "away", tmp_path / "tree" / "data")
    found.begin()
    (tmp_path / "tree" / "data" / "a.bin").read_bytes()
    assert len(found.read()) == 1


def test_where_no_file_is_said_to_be_of_lfs_none_is_looked_for(tmp_path: Path) -> None:
    found = pointers(tmp_path, FILES)
    found.begin()
    (tmp_path / "tree" / "data" / "a.bin").read_bytes()
    assert found.read() == []
