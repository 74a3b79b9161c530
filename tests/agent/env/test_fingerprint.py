"""What changes an environment, and what only looks like it: links that come and go touch no content."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.agent.env.fingerprint import fingerprint, is_same, system_fingerprint

Change = Callable[[Path], None]
MODULE = "lib/python3.11/site-packages/mod.py"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An environment with one installed package, `mod`."""
    root = tmp_path / "env"
    module, info = root / MODULE, root / "lib/python3.11/site-packages/mod-1.dist-info"
    info.mkdir(parents=True)
    (root / "bin").mkdir()
    module.write_text("VALUE = 1\n")
    digest = base64.urlsafe_b64encode(hashlib.sha256(module.read_bytes()).digest()).rstrip(b"=").decode()
    (info / "RECORD").write_text(f"mod.py,sha256={digest},10\nmod-1.dist-info/RECORD,,\n")
    return root


def whole(root: Path) -> str:
    return fingerprint(root)


def of_a_python_that_others_use_too(root: Path) -> str:
    return system_fingerprint([str((root / MODULE).parent)])


def link(root: Path) -> None:
    for path in [path for path in root.rglob("*") if path.is_file()]:
        os.link(path, root.parent / path.name)


def unlink(root: Path) -> None:
    for path in root.parent.iterdir():
        if path.is_file():
            path.unlink()


def edit(root: Path) -> None:
    """In place, of the same size, at the time of before."""
    status = (root / MODULE).stat()
    (root / MODULE).write_text("VALUE = 2\n")
    os.utime(root / MODULE, ns=(status.st_atime_ns, status.st_mtime_ns))


def link_and_edit(root: Path) -> None:
    link(root)
    edit(root)


def put_beside(root: Path) -> None:
    (root / MODULE).with_name("stray.py").touch()


@pytest.mark.parametrize("of", [whole, of_a_python_that_others_use_too])
@pytest.mark.parametrize(
    ("before", "change", "same"),
    [
        (None, link, True),
        (link, unlink, True),
        (None, edit, False),
        (None, link_and_edit, False),
        (None, put_beside, False),
        (put_beside, link, False),  # nobody can say what a stray file held
    ],
)
def test_a_link_that_comes_or_goes_is_no_change(
    root: Path,
    of: Callable[[Path], str],
    before: Callable[[Path], None] | None,
    change: Callable[[Path], None],
    same: bool,
) -> None:
    """Two suites that shared one environment by hard links were told now and then that it had changed."""
    if before:
        before(root)
    recorded = of(root)
    change(root)
    assert of(root) != recorded and len(recorded) == 64
    assert is_same(recorded, of(root), [(root / MODULE).parent]) is same


@pytest.mark.parametrize("of", [whole, of_a_python_that_others_use_too])
def test_what_twisted_writes_when_it_looks_for_plugins_is_none_of_it(root: Path, of: Callable[[Path], str]) -> None:
    before = of(root)
    (root / MODULE).with_name("dropin.cache").write_bytes(b"names")
    assert of(root) == before


def test_what_an_older_agent_recorded_is_the_same_only_to_the_letter(root: Path) -> None:
    sites, now = [(root / MODULE).parent], fingerprint(root)
    assert is_same(now[:32] + "0" * 32, now, sites)
    link(root)
    assert not is_same(now[:32] + "0" * 32, fingerprint(root), sites)
