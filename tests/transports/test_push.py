"""Trees on their way to a pod: rsync and tar give the same, and only what differs travels."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

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
    target = tmp_path / "pod"
    with SshTransport(sshd.pod()) as ssh:
        ssh.push_tree(one, str(target))
        os.utime(target / "file", (1_000_000_000, 1_000_000_000))
        ssh.push_tree(two, str(target))
    assert (target / "file").read_text() == "bbbb"


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


def test_a_command_is_fed_with_more_than_is_held(transport: Transport) -> None:
    piece = os.urandom(1 << 20)

    def write(stdin: IO[bytes]) -> None:
        for _ in range(40):
            stdin.write(piece)

    done = transport.supply(["sh", "-c", "wc -c; echo said >&2; exit 3"], write)
    assert (done.exit_code, done.stdout.split(), done.complaint()) == (3, [b"41943040"], "said")
    early = transport.supply(["sh", "-c", "echo enough"], write)
    assert (early.exit_code, early.stdout) == (0, b"enough\n")


def test_a_feed_that_is_cut_is_contact_lost(sshd: Sshd, proxy_to: Callable[..., Proxy]) -> None:
    proxy = proxy_to(sshd.port)
    with SshTransport(sshd.pod(port=proxy.port)) as ssh:
        proxy.cut_after(1_000_000)
        with pytest.raises((ContactLost, Unreachable)):
            ssh.supply(["cat"], lambda stdin: stdin.write(os.urandom(5_000_000)) and None)
