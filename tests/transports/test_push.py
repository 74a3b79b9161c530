"""Trees on their way to a pod: rsync and tar give the same, and only what differs travels."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchestrator.errors import ContactLost, PodError, Unreachable
from orchestrator.transports.base import PushStats, Transport
from orchestrator.transports.ssh import openssh
from orchestrator.transports.ssh.transport import SshTransport
from tests.support.proxy import Proxy
from tests.support.sshd import Sshd

NAMES = ["plain", "a b", "line\nbreak", "ünïcode", "-leading", "$(x)", "'\"", "back\\slash", "#hash", "~", "glob*[x]?"]
Listing = dict[bytes, tuple[str, bytes]]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Odd names, empty files, bits, links (one broken, one out of the tree) and a byte that is no UTF-8."""
    root = tmp_path / "source"
    for n, name in enumerate(NAMES):
        folder = root / f"d{n % 3}" / name
        folder.mkdir(parents=True)
        (folder / name).write_bytes(name.encode() * n)
    (root / "exec").write_text("#!/bin/sh\n")
    (root / "exec").chmod(0o755)
    (root / "empty").touch()
    (root / "link").symlink_to("d0/plain")
    (root / "broken").symlink_to("/no/such/file")
    (root / "out").symlink_to("../../..")
    Path(os.fsdecode(os.fsencode(root) + b"/\xff\xfe")).write_text("bytes")
    (root / "submodule").mkdir()
    return root


def listing(root: Path) -> Listing:
    """Every path with its kind and permissions, and its content."""
    found: Listing = {}
    for folder, folders, files in os.walk(os.fsencode(root)):
        for name in (*folders, *files):
            path = os.path.join(folder, name)
            mode = os.lstat(path).st_mode
            content = (
                os.readlink(path)
                if stat.S_ISLNK(mode)
                else Path(os.fsdecode(path)).read_bytes()
                if stat.S_ISREG(mode)
                else b""
            )
            found[os.path.relpath(path, os.fsencode(root))] = (stat.filemode(mode), content)
    return found


@pytest.fixture(params=["rsync", "tar without rsync here", "tar without rsync there"])
def pushing(request: pytest.FixtureRequest, sshd: Sshd, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """One way of pushing; the transport itself finds out what there is."""
    if request.param == "tar without rsync here":
        monkeypatch.setattr(openssh, "_rsync_here", lambda: False)
    if request.param == "tar without rsync there":
        # The pod's login shell finds no rsync: its PATH is cut by what it reads on login.
        (tmp_path / "bin").mkdir()
        for name in "sh tar mkdir bash cat rm mv cp wc dirname".split():
            (tmp_path / "bin" / name).symlink_to(str(shutil.which(name)))
        rc = sshd.home / ".bashrc"
        rc.write_text(f"PATH={tmp_path}/bin\n")
        request.addfinalizer(rc.unlink)
    return str(request.param)


def test_a_tree_arrives_as_it_is(pushing: str, sshd: Sshd, tree: Path, tmp_path: Path) -> None:
    target = tmp_path / "pod dir" / "it's $HOME" / "tree"
    target.parent.mkdir(parents=True)
    with SshTransport(sshd.pod()) as ssh:
        stats = ssh.push_tree(tree, str(target))
    assert listing(target) == listing(tree)
    assert stats == PushStats(14, sum(p.lstat().st_size for p in tree.rglob("*") if p.is_file() and not p.is_symlink()))


def test_the_local_transport_gives_the_same(transport: Transport, tree: Path, tmp_path: Path) -> None:
    transport.push_tree(tree, str(tmp_path / "target"))
    assert listing(tmp_path / "target") == listing(tree)


def test_a_base_is_copied_cut_and_laid_over(transport: Transport, tree: Path, tmp_path: Path) -> None:
    base, target, delta = tmp_path / "base", tmp_path / "target", tmp_path / "delta"
    transport.push_tree(tree, str(base))
    before = listing(base)
    (delta / "d0" / "plain").mkdir(parents=True)
    (delta / "d0" / "plain" / "plain").write_text("changed")
    (delta / "exec").write_text("no more")
    removed = ["empty", "link", "d1/-leading", "d2", "no such path"]
    stats = transport.push_tree(delta, str(target), base=str(base), removed=removed)
    assert stats == PushStats(2, 14)
    shutil.copytree(delta, tree, dirs_exist_ok=True)
    for path in removed:
        shutil.rmtree(tree / path) if (tree / path).is_dir() and path != "link" else (tree / path).unlink(
            missing_ok=True
        )
    assert listing(target) == listing(tree)
    assert listing(base) == before


def test_a_pod_without_rsync_gets_only_what_differs_too(pushing: str, sshd: Sshd, tree: Path, tmp_path: Path) -> None:
    delta = tmp_path / "delta"
    delta.mkdir()
    (delta / "exec").symlink_to("elsewhere")
    with SshTransport(sshd.pod()) as ssh:
        ssh.push_tree(tree, str(tmp_path / "base"))
        ssh.push_tree(delta, str(tmp_path / "target"), base=str(tmp_path / "base"), removed=["exec", "d0"])
    assert os.readlink(tmp_path / "target" / "exec") == "elsewhere"
    assert not (tmp_path / "target" / "d0").exists() and (tmp_path / "target" / "d1").exists()


def test_a_key_that_others_can_read_is_named_as_the_cause(sshd: Sshd, tree: Path, tmp_path: Path) -> None:
    key = tmp_path / "key"
    shutil.copy(sshd.key, key)
    key.chmod(0o644)
    with SshTransport(sshd.pod(identity_file=str(key))) as ssh, pytest.raises(Unreachable, match="chmod 600"):
        ssh.push_tree(tree, str(tmp_path / "target"))


def test_equal_sizes_and_times_do_not_mix(pushing: str, sshd: Sshd, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for folder, text in ((one, "aaaa"), (two, "bbbb")):
        folder.mkdir()
        (folder / "file").write_text(text)
        os.utime(folder / "file", (1_000_000_000, 1_000_000_000))
    base, target = tmp_path / "pod1", tmp_path / "pod2"
    with SshTransport(sshd.pod()) as ssh:
        ssh.push_tree(one, str(base))
        os.utime(base / "file", (1_000_000_000, 1_000_000_000))
        ssh.push_tree(two, str(target), base=str(base))
    assert ((base / "file").read_text(), (target / "file").read_text()) == ("aaaa", "bbbb")


def test_a_base_that_is_gone_is_an_error(transport: Transport, tree: Path, tmp_path: Path) -> None:
    with pytest.raises(PodError, match="cannot be copied"):
        transport.push_tree(tree, str(tmp_path / "target"), base=str(tmp_path / "gone"))


def test_where_nothing_can_be_written_it_is_said(pushing: str, sshd: Sshd, tree: Path) -> None:
    with SshTransport(sshd.pod()) as ssh, pytest.raises(PodError, match="cannot be copied to /proc/x"):
        ssh.push_tree(tree, "/proc/x")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(place)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("only root can mount a small file system")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_is_said(pushing: str, sshd: Sshd, small_disk: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "big").write_bytes(bytes(8_000_000))
    with SshTransport(sshd.pod()) as ssh:
        with pytest.raises(PodError, match="disk is full"):
            ssh.push_tree(source, str(small_disk / "tree"))
        with pytest.raises(PodError, match="disk is full"):
            ssh.put(bytes(8_000_000), str(small_disk / "file"))
    assert not (small_disk / "file").exists()


@pytest.mark.parametrize("count", [3000, 200_000, 2_000_000])
def test_a_push_that_is_cut_is_contact_lost(
    pushing: str, sshd: Sshd, proxy_to: Callable[..., Proxy], tmp_path: Path, count: int
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "big").write_bytes(os.urandom(5_000_000))
    proxy = proxy_to(sshd.port)
    with SshTransport(sshd.pod(port=proxy.port)) as ssh:
        proxy.cut_after(count)
        with pytest.raises((ContactLost, Unreachable)):
            ssh.push_tree(source, str(tmp_path / "target"))
