"""What tests make anew is absent for who gets the variables, or is moved; all is as before behind it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from orchestrator.agent.run.golden_files import GoldenFiles, written

pytestmark = pytest.mark.unit
_LONG_AGO, _IN_AN_HOUR = 0, time.time_ns() + 3600 * 10**9


def put(path: Path, text: str = "9.0") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def home(tmp_path: Path) -> Path:
    for name in (".netrc", ".ssh/id", ".cache/other/data", ".cache/mine/beside"):
        put(tmp_path / "home" / name)
    return tmp_path / "home"


def test_below_a_folder_that_a_variable_names_all_else_is_there(tmp_path: Path) -> None:
    top = home(tmp_path)
    golden = put(top / ".cache/mine/golden")
    files = GoldenFiles([str(golden), str(top / ".cache/mine/gone")], _IN_AN_HOUR)
    variables = {"HOME": str(top), "XDG_CACHE_HOME": f"{top}/.cache", "PATH": "/bin", "SSH": f"{top}/.ssh"}
    with files.absent(variables, tmp_path / "links", faulty=True) as led:
        assert set(led) == {"HOME", "XDG_CACHE_HOME"}
        assert led["XDG_CACHE_HOME"] == os.path.join(led["HOME"], ".cache")
        there = sorted(str(p.relative_to(led["HOME"])) for p in Path(led["HOME"]).rglob("*"))
        assert there == [".cache", ".cache/mine", ".cache/mine/beside", ".cache/other", ".netrc", ".ssh"]
        assert Path(led["HOME"], ".ssh/id").read_text() == "9.0"
        put(Path(led["HOME"], ".cache/mine/golden"), "wrong")
    assert golden.read_text() == "9.0"
    files.keep_made()
    assert files.files == {str(golden)}
    files.remove()
    assert golden.exists()


@pytest.mark.parametrize("faulty", [True, False])
def test_what_the_stage_has_written_is_moved_aside_and_put_back(tmp_path: Path, faulty: bool) -> None:
    golden, same, data = (put(tmp_path / name) for name in ("golden", "same", "data"))
    files = GoldenFiles(map(str, (golden, same, data)), _LONG_AGO)
    with files.absent({}, tmp_path / "links", faulty=faulty) as led:
        assert led == {} and not any(path.exists() for path in (golden, same, data))
        put(golden, "wrong")
        put(same)
    assert [path.read_text() for path in (golden, same, data)] == ["9.0"] * 3
    files.keep_made()
    assert files.files == {str(golden), str(same)}
    files.remove()
    assert (golden.exists(), same.exists()) == (not faulty, True)


def test_what_was_there_before_the_stage_and_no_variable_leads_to_stays(tmp_path: Path) -> None:
    old = put(tmp_path / "old")
    files = GoldenFiles([str(old)], _IN_AN_HOUR)
    with files.absent({"HOME": "relative"}, tmp_path / "links", faulty=True) as led:
        assert led == {} and old.exists()
    files.keep_made()
    assert not files.files


def test_what_was_written_below_the_users_folders_is_found_by_its_time(tmp_path: Path) -> None:
    top = home(tmp_path)
    variables = {"HOME": str(top), "XDG_CACHE_HOME": f"{top}/.cache", "DATA": str(tmp_path)}
    put(tmp_path / "aside/golden")
    fetched = put(top / ".cache/huggingface/hub/blob")
    found = set(written(variables, _LONG_AGO, [f"{top}/.ssh"]))
    assert found == {str(top / name) for name in (".netrc", ".cache/other/data", ".cache/mine/beside")}
    assert str(fetched) not in found
    assert not set(written(variables, _IN_AN_HOUR, [])) and not set(written({"HOME": "/"}, _LONG_AGO, []))
