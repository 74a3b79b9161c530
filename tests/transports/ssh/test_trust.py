"""Which machine is trusted: pinned keys only, for Fabric, ssh and rsync alike."""

from __future__ import annotations

import base64
import contextlib
import shutil
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import DEVNULL, CompletedProcess, Popen, run

import pytest

from orchestrator.config.inventory import Pod
from orchestrator.errors import HostKeyError, InputError, NoShell, Unreachable
from orchestrator.store import hostkeys
from orchestrator.store.hostkeys import Trust
from orchestrator.transports.ssh import transport as ssh_transport
from orchestrator.transports.ssh.transport import SshTransport
from tests.support.sshd import Sshd, new_sshd

Binary = Callable[..., CompletedProcess[str]]


def connect(sshd: Sshd, trust: Trust | None = None, **extra: object) -> SshTransport:
    """A connected transport; its pod has no pin in the inventory unless it is given."""
    transport = SshTransport(sshd.pod(**{"host_key": None, **extra}), trust)
    transport.connect()
    return transport


def test_a_pinned_key_works_for_all_three(ssh: SshTransport, by_binary: Binary, tmp_path: Path, sshd: Sshd) -> None:
    assert ssh.run(["echo", "fabric"]).stdout == b"fabric\n"
    assert by_binary(ssh, "ssh", "loop", "echo ssh").stdout == "ssh\n"
    (tmp_path / "file").write_text("rsync")
    assert by_binary(ssh, "rsync", str(tmp_path / "file"), "loop:copied").returncode == 0
    assert ssh.run(["cat", "copied"]).stdout == b"rsync"
    assert ssh.fingerprint == sshd.fingerprint


def test_an_unknown_key_is_refused_with_its_fingerprint(own_sshd: Sshd) -> None:
    with pytest.raises(HostKeyError, match="--accept-new-host-key") as refused:
        connect(own_sshd)
    assert own_sshd.fingerprint in str(refused.value)
    assert "Accepted" not in (own_sshd.folder / "log").read_text()  # no key of ours was shown to it
    assert not hostkeys.known_hosts().exists()


def test_a_person_accepts_an_unknown_key_once(sshd: Sshd) -> None:
    asked: list[str] = []
    with connect(sshd, Trust(ask=lambda question: not asked.append(question))) as transport:
        assert transport.fingerprint == sshd.fingerprint
    assert len(asked) == 1 and sshd.fingerprint in asked[0]
    with connect(sshd, Trust(ask=lambda question: False)):
        pass
    with pytest.raises(HostKeyError):
        connect(sshd, Trust(ask=lambda question: False), name="another")


def test_a_changed_key_is_refused_by_all_three(own_sshd: Sshd, by_binary: Binary, tmp_path: Path) -> None:
    with connect(own_sshd, Trust(accept_new=True)) as transport:
        old = transport.fingerprint
        with transport.stream(["true"]) as out:  # the master connection is up, and goes down with the server
            out.read()
        own_sshd.new_host_key()
        assert "HOST IDENTIFICATION HAS CHANGED" in by_binary(transport, "ssh", "loop", "true").stderr
        assert by_binary(transport, "rsync", __file__, "loop:x").returncode != 0
        with pytest.raises(HostKeyError):
            transport.supply(["true"], lambda line, stdin: None)
    with pytest.raises(HostKeyError, match="changed") as refused:
        connect(own_sshd, Trust(ask=lambda question: True))
    assert str(old) in str(refused.value) and own_sshd.fingerprint in str(refused.value)


def test_an_accepted_change_keeps_the_old_pin_in_the_audit_list(own_sshd: Sshd) -> None:
    with connect(own_sshd, Trust(accept_new=True)) as transport:
        old = transport.fingerprint
    own_sshd.new_host_key()
    with connect(own_sshd, Trust(accept_new=True)) as transport:
        assert transport.fingerprint == own_sshd.fingerprint != old
    with connect(own_sshd):
        pass
    audit = hostkeys.audit_list().read_text().splitlines()
    assert len(audit) == 2 and str(old) in audit[1] and own_sshd.fingerprint in audit[1]
    assert len(hostkeys.known_hosts().read_text().splitlines()) == 1


def test_a_connection_that_is_opened_again_accepts_no_other_key(own_sshd: Sshd) -> None:
    with connect(own_sshd, Trust(accept_new=True)) as transport:
        own_sshd.new_host_key()
        with pytest.raises(HostKeyError, match="changed"):
            transport.connect()


def test_a_recycled_address_is_not_the_pod_of_yesterday(own_sshd: Sshd, tmp_path: Path) -> None:
    with connect(own_sshd, Trust(accept_new=True), name="yesterday"):
        pass
    own_sshd.stop()
    stranger = new_sshd(tmp_path / "stranger")
    stranger.port = own_sshd.port
    stranger.start()
    try:
        with pytest.raises(HostKeyError, match="changed"):
            connect(own_sshd, name="yesterday")
        with pytest.raises(Unreachable, match="accepts none of the keys"):  # a new pod there is a question of its own
            connect(own_sshd, Trust(accept_new=True), name="today")
    finally:
        stranger.stop()


def test_one_pods_pin_says_nothing_about_another(sshd: Sshd) -> None:
    with connect(sshd, Trust(accept_new=True), name="first"):
        pass
    with pytest.raises(HostKeyError, match="is new"):
        connect(sshd, name="second")


def test_the_inventorys_pin_needs_nobody_and_yields_to_nobody(sshd: Sshd) -> None:
    with connect(sshd, host_key=sshd.fingerprint) as transport:
        assert transport.fingerprint == sshd.fingerprint
    wrong = "SHA256:" + "A" * 43
    for trust in (Trust(), Trust(accept_new=True), Trust(ask=lambda question: True)):
        with pytest.raises(HostKeyError, match="`host_key`") as refused:
            connect(sshd, trust, host_key=wrong)
        assert wrong in str(refused.value) and sshd.fingerprint in str(refused.value)


@pytest.mark.ssh
def test_the_inventory_may_pin_any_of_a_servers_keys(tmp_path: Path) -> None:
    server = new_sshd(tmp_path / "two", extra=f"HostKey {tmp_path}/two/rsa")
    run(["ssh-keygen", "-q", "-t", "rsa", "-N", "", "-f", str(tmp_path / "two/rsa")], check=True)
    listed = run(["ssh-keygen", "-lf", str(tmp_path / "two/rsa")], capture_output=True, text=True, check=True)
    rsa = listed.stdout.split()[1]
    server.start()
    try:
        with connect(server, host_key=rsa) as transport:
            assert transport.fingerprint == rsa
            with transport.stream(["echo", "by the binary"]) as out:
                assert out.read() == b"by the binary\n"
    finally:
        server.stop()


def test_names_of_pods_cannot_reach_into_the_configuration(sshd: Sshd) -> None:
    names = ["a b", "*", "UPPER", "-oProxyCommand=touch x", "a\nHost *"]
    for name in names:
        with connect(sshd, Trust(accept_new=True), name=name) as transport, transport.stream(["echo", "x"]) as out:
            assert out.read() == b"x\n"
    assert len(hostkeys.known_hosts().read_text().splitlines()) == len(names)


def test_refused_connection(sshd: Sshd) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        with pytest.raises(Unreachable, match="refused: is the machine running"):
            connect(sshd, port=free.getsockname()[1])


def test_a_server_that_hangs_up(sshd: Sshd) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=lambda: server.accept()[0].close(), daemon=True)
        thread.start()
        with pytest.raises(Unreachable, match="no SSH server answers"):
            connect(sshd, port=server.getsockname()[1])


def test_what_a_server_says_that_speaks_no_ssh(sshd: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh_transport, "AGAIN_S", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def turn_away() -> None:
            with contextlib.suppress(OSError):  # until the end
                while True:
                    with server.accept()[0] as peer:
                        peer.sendall(b"Not allowed at this time\r\n")

        thread = threading.Thread(target=turn_away)
        thread.start()
        try:
            with pytest.raises(Unreachable, match=r"no SSH server answers there \(it says: Not allowed at this time\)"):
                connect(sshd, port=server.getsockname()[1])
        finally:  # before another test's socket gets its number
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.ssh
def test_a_server_that_takes_one_login_at_a_time(tmp_path: Path) -> None:
    """Its key is asked for first, by a connection that is closed; the server still counts that one."""
    server = new_sshd(tmp_path / "sshd", "MaxStartups 1:100:1\n").start()
    try:
        with connect(server, Trust(accept_new=True)) as transport:
            assert transport.run(["true"]).exit_code == 0
    finally:
        server.stop()


def test_an_unknown_host_name(sshd: Sshd) -> None:
    with pytest.raises(Unreachable, match="cannot be resolved"):
        connect(sshd, host="no-such-host.invalid")


def test_a_key_that_the_server_does_not_know_is_named(sshd: Sshd, own_sshd: Sshd) -> None:
    with pytest.raises(Unreachable, match=r"none of the keys \(user: SHA256:") as refused:
        connect(sshd, Trust(accept_new=True), identity_file=str(own_sshd.key))
    assert str(own_sshd.folder) not in str(refused.value)


def test_a_missing_key_file_is_bad_input(sshd: Sshd) -> None:
    with pytest.raises(InputError, match="identity_file /no/such/key does not exist"):
        connect(sshd, identity_file="/no/such/key")
    with pytest.raises(InputError, match=r"identity_file .* is no file: expected a private key"):
        connect(sshd, identity_file=str(sshd.folder))


@pytest.mark.ssh
def test_a_login_shell_that_runs_nothing_is_said_without_what_was_to_run(tmp_path: Path) -> None:
    server = new_sshd(tmp_path / "closed", extra="ForceCommand echo This account is limited\n").start()
    said = r"^pod 'loop': the login shell does not run commands \(This account is limited\)"
    try:
        with connect(server, Trust(accept_new=True)) as transport:
            with pytest.raises(NoShell, match=said):
                transport.run(["sh", "-c", "a long script"])
            with pytest.raises(NoShell, match=said):
                transport.converse(["sh", "-c", "a long script"]).receive(10)
    finally:
        server.stop()


def test_a_public_key_in_the_place_of_the_private_one_is_called_so(sshd: Sshd) -> None:
    with pytest.raises(Unreachable, match=r"user\.pub: a public key, expected the private one"):
        connect(sshd, Trust(accept_new=True), identity_file=f"{sshd.key}.pub")


@pytest.fixture
def locked_key(sshd: Sshd, tmp_path: Path) -> Path:
    """The server's user key, under a passphrase."""
    key = tmp_path / "locked"
    shutil.copy(sshd.key, key)
    shutil.copy(f"{sshd.key}.pub", f"{key}.pub")
    run(["ssh-keygen", "-q", "-p", "-P", "", "-N", "secret", "-f", str(key)], check=True, capture_output=True)
    return key


def test_a_locked_key_is_never_asked_for(sshd: Sshd, locked_key: Path) -> None:
    with pytest.raises(Unreachable, match="locked: locked by a passphrase and not in the agent"):
        connect(sshd, Trust(accept_new=True), identity_file=str(locked_key))


def test_a_locked_key_works_through_the_agent(
    sshd: Sshd, own_sshd: Sshd, locked_key: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
    agent = Popen(["ssh-agent", "-D", "-a", str(tmp_path / "agent")], stdout=DEVNULL)
    try:
        while not (tmp_path / "agent").exists():
            time.sleep(0.01)
        run(["ssh-add", "-q", str(own_sshd.key), str(sshd.key)], check=True)
        transport = connect(sshd, Trust(accept_new=True), identity_file=str(locked_key))
        with transport, transport.stream(["echo", "x"]) as out:
            assert out.read() == b"x\n"
    finally:
        agent.terminate()
        agent.wait()


def test_pins_made_at_once_are_all_kept() -> None:
    keys = {f"pod{n}": hostkeys.HostKey("ssh-ed25519", base64.b64encode(bytes([n]) * 51).decode()) for n in range(20)}
    pods = {name: Pod(name=name, host="h") for name in keys}
    threads = [
        threading.Thread(target=hostkeys.accept, args=(pods[name], key, Trust(accept_new=True)))
        for name, key in keys.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {name: hostkeys.pinned(pod) for name, pod in pods.items()} == keys
