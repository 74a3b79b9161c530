"""Pods behind an alias of the user's ssh_config: jump hosts, proxy commands, and whom is trusted on the way."""

from __future__ import annotations

import getpass
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.config.inventory import Pod
from orchestrator.errors import HostKeyError, InputError, Unreachable
from orchestrator.store.hostkeys import Trust
from orchestrator.transports.ssh.endpoint import endpoint_of
from orchestrator.transports.ssh.transport import SshTransport
from tests.support.sshd import Sshd, new_sshd

RELAY = """\
import os, socket, sys, threading
there = socket.create_connection((sys.argv[1], int(sys.argv[2])))
def copy(read, write):
    while data := read(65536):
        write(data)
threading.Thread(target=copy, args=(lambda n: os.read(0, n), there.sendall), daemon=True).start()
copy(there.recv, lambda data: os.write(1, data))
"""


@pytest.fixture
def hop(tmp_path: Path) -> Iterator[Sshd]:
    """A jump host with keys of its own."""
    server = new_sshd(tmp_path / "hop").start()
    yield server
    server.stop()


def write_config(folder: Path, hop: Sshd, pod: Sshd, *, known: str | None = None, way: str = "ProxyJump hop") -> Path:
    """A user's ~/.ssh/config in which `pod` is reached through `hop`; `known` is the user's known_hosts."""
    if known is None:
        kind, blob = (hop.folder / "host.pub").read_text().split()[:2]
        known = f"[127.0.0.1]:{hop.port} {kind} {blob}\n"
    (folder / "user_known_hosts").write_text(known)
    config = folder / "user_config"
    config.write_text(
        f"""\
Host hop
  HostName 127.0.0.1
  Port {hop.port}
  User {getpass.getuser()}
  IdentityFile {hop.key}
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/user_known_hosts
  StrictHostKeyChecking no
Host pod
  HostName 127.0.0.1
  Port {pod.port}
  User {getpass.getuser()}
  IdentityFile {pod.key}
  IdentitiesOnly yes
  {way}
Host *
  ControlMaster auto
  ControlPath {folder}/users-own-%C
"""
    )
    return config


def behind(config: Path, trust: Trust | None = None, **extra: object) -> SshTransport:
    """A transport to the pod of `config`, by its alias."""
    return SshTransport(Pod(name="far", **{"ssh_config": "pod", **extra}), trust or Trust(accept_new=True), config)


def test_everything_goes_through_the_jump_host(sshd: Sshd, hop: Sshd, tmp_path: Path) -> None:
    with behind(write_config(tmp_path, hop, sshd)) as transport:
        assert transport.fingerprint == sshd.fingerprint
        assert transport.run(["cat"], input=b"x" * 100_000).stdout == b"x" * 100_000
        there = ["sh", "-c", f"echo ready; cat > {tmp_path}/supplied"]
        transport.supply(there, lambda line, stdin: stdin.write(line) and None)
        with transport.stream(["echo", "x"]) as out:
            assert out.read() == b"x\n"
    assert (tmp_path / "supplied").read_text() == "ready\n"
    assert (hop.folder / "log").read_text().count("Accepted publickey") == 3  # refused once, accepted, and the master
    assert not list(tmp_path.glob("users-own-*"))


@pytest.mark.parametrize("known", ["", "changed"])
def test_a_jump_host_that_is_not_the_known_one_is_refused(sshd: Sshd, hop: Sshd, tmp_path: Path, known: str) -> None:
    # Even though the user's configuration says `StrictHostKeyChecking no`.
    if known:
        kind, blob = (sshd.folder / "host.pub").read_text().split()[:2]
        known = f"[127.0.0.1]:{hop.port} {kind} {blob}\n"
    config = write_config(tmp_path, hop, sshd, known=known)
    with pytest.raises(HostKeyError, match="connect to it once with ssh"):
        behind(config).connect()
    assert "Accepted" not in (hop.folder / "log").read_text()
    assert (tmp_path / "user_known_hosts").read_text() == known


def test_the_pods_own_key_is_pinned_behind_a_jump_host_too(own_sshd: Sshd, hop: Sshd, tmp_path: Path) -> None:
    config = write_config(tmp_path, hop, own_sshd)
    with behind(config):
        pass
    own_sshd.new_host_key()
    with pytest.raises(HostKeyError, match="changed its host key"):
        behind(config, Trust()).connect()


def test_a_pod_that_the_jump_host_cannot_reach(sshd: Sshd, hop: Sshd, tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match=r"through 127.0.0.1:\d+: the jump host cannot reach it"):
        behind(write_config(tmp_path, hop, sshd), port=1).connect()


def test_a_proxy_command(sshd: Sshd, hop: Sshd, tmp_path: Path) -> None:
    config = write_config(tmp_path, hop, sshd, way="ProxyCommand sh -c 'exec 3<>/dev/tcp/%h/%p'")
    with pytest.raises(Unreachable, match="its ProxyCommand"):
        behind(config).connect()
    (tmp_path / "relay.py").write_text(RELAY)
    config = write_config(tmp_path, hop, sshd, way=f"ProxyCommand python3 {tmp_path}/relay.py %h %p")
    with behind(config) as transport:
        assert transport.run(["echo", "relayed"]).stdout == b"relayed\n"
        with transport.stream(["echo", "x"]) as out:
            assert out.read() == b"x\n"


@pytest.mark.ssh
def test_chains_keep_their_order(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host pod\n HostName p\n ProxyJump u@one:2201,two\nHost two\n HostName t\n Port 22\n User v\n")
    pod = endpoint_of(Pod(name="x", ssh_config="pod"), config)
    assert [(hop.host, hop.port, hop.user) for hop in pod.hops] == [("t", 22, "v"), ("one", 2201, "u")]
    assert (pod.host, pod.proxy_command) == ("p", None)


@pytest.mark.ssh
def test_a_jump_host_through_itself_is_bad_input(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host pod\n ProxyJump one\nHost one\n ProxyJump two\nHost two\n ProxyJump one\n")
    with pytest.raises(InputError, match="more than 8 jump hosts"):
        endpoint_of(Pod(name="x", ssh_config="pod"), config)


def test_what_the_inventory_says_wins_over_the_alias(tmp_path: Path, sshd: Sshd) -> None:
    config = tmp_path / "config"
    config.write_text("Host pod\n HostName p\n Port 1\n User u\n IdentityFile /x\n")
    pod = Pod(name="x", ssh_config="pod", port=2, user="v", identity_file=str(sshd.key))
    found = endpoint_of(pod, config)
    assert (found.host, found.port, found.user, found.identity_files) == ("p", 2, "v", (str(sshd.key),))


def test_an_alias_is_no_option(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected an alias"):
        endpoint_of(Pod(name="x", ssh_config="-oProxyCommand=touch x"), tmp_path / "none")
