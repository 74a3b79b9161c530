"""Which Pythons of a pod are asked about themselves: each once, as far as names can tell."""

from __future__ import annotations

from pathlib import Path

from orchestrator.agent.probe import _named


def test_a_link_to_a_python_beside_it_is_the_same(tmp_path: Path) -> None:
    (tmp_path / "python3.11").touch()
    (tmp_path / "python3").symlink_to("python3.11")
    names = [str(tmp_path / name) for name in ("python3", "python3.11")]
    assert _named(names) == names[:1]


def test_a_link_from_another_folder_may_be_an_environment_and_a_shim_goes_by_its_name(tmp_path: Path) -> None:
    for folder in ("usr", "venv", "shims"):
        (tmp_path / folder).mkdir()
    (tmp_path / "usr" / "python3.11").touch()
    (tmp_path / "venv" / "python3.11").symlink_to("../usr/python3.11")
    (tmp_path / "shims" / "manager").touch()
    for name in ("python3.8", "python3.9"):
        (tmp_path / "shims" / name).symlink_to("manager")
    names = [str(path) for folder in ("usr", "venv", "shims") for path in sorted((tmp_path / folder).glob("python*"))]
    assert len(names) == 4 and _named(names) == names
