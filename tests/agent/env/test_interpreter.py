"""Whether an environment is still what it was, stage after stage, without looking at each file each time."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from orchestrator.agent.env import interpreter
from orchestrator.agent.env.interpreter import Installed, Interpreter
from orchestrator.agent.host import file_watch

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="inotify")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    site = tmp_path / "site-packages"
    (site / "package" / "inner").mkdir(parents=True)
    (site / "package" / "module.py").write_text("VALUE = 1\n")
    return site


@pytest.fixture
def python(site: Path) -> Interpreter:
    return Interpreter(
        python=sys.executable,
        kind="system",
        root=None,
        version="3.11.1",
        prefix="",
        base=sys.executable,
        virtual=False,
        library="",
        sites=(str(site),),
        modules=frozenset(),
    )


@pytest.fixture
def installed(python: Interpreter) -> Installed:
    found = Installed(python, python.fingerprint())
    assert found.is_same()
    return found


def test_what_nobody_touches_is_looked_at_once(installed: Installed) -> None:
    with mock.patch.object(interpreter, "system_fingerprint", side_effect=AssertionError):
        assert installed.is_same() and installed.is_same()
        with pytest.raises(AssertionError):
            installed.is_same_in_all()


def rewrite(site: Path) -> None:
    (site / "package" / "module.py").write_text("VALUE = 2\n")


def set_time_back(site: Path) -> None:
    path = site / "package" / "module.py"
    before = path.stat()
    path.write_text("VALUE = 3\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def add_below_a_new_folder(site: Path) -> None:
    (site / "other" / "deep").mkdir(parents=True)
    (site / "other" / "deep" / "module.py").touch()


def remove(site: Path) -> None:
    (site / "package" / "module.py").unlink()


def permit(site: Path) -> None:
    (site / "package" / "module.py").chmod(0o777)


@pytest.mark.parametrize("change", [rewrite, set_time_back, add_below_a_new_folder, remove, permit])
def test_a_change_is_noticed_and_stays(installed: Installed, site: Path, change: Callable[[Path], None]) -> None:
    change(site)
    assert not installed.is_same() and not installed.is_same()


def test_what_came_and_went_is_no_change_and_later_ones_are_seen(installed: Installed, site: Path) -> None:
    (site / "package" / "new.py").touch()
    (site / "package" / "new.py").unlink()
    assert installed.is_same()
    rewrite(site)
    assert not installed.is_same()


def test_a_write_that_the_kernel_does_not_tell_of_is_found_at_the_end(
    installed: Installed, site: Path, tmp_path: Path
) -> None:
    os.link(site / "package" / "module.py", tmp_path / "elsewhere.py")
    installed.is_same()
    (tmp_path / "elsewhere.py").write_text("VALUE = 12345\n")
    assert not installed.is_same_in_all()


def test_without_a_watch_every_file_is_looked_at(
    python: Interpreter, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_watch.ctypes, "CDLL", mock.Mock(side_effect=OSError))
    found = Installed(python, python.fingerprint())
    assert found.is_same()
    rewrite(site)
    assert not found.is_same()
