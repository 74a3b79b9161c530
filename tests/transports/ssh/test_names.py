"""Pods of one name in two inventories have pins of their own, and what an older store pinned holds."""

from __future__ import annotations

import pytest

from orchestrator.errors import HostKeyError, InputError
from orchestrator.store import hostkeys
from orchestrator.store.hostkeys import Trust
from orchestrator.transports.ssh import sshconfig
from orchestrator.transports.ssh.endpoint import endpoint_of
from orchestrator.transports.ssh.transport import SshTransport
from tests.support.sshd import Sshd


def connect(sshd: Sshd, trust: Trust | None = None, inventory: str = "") -> SshTransport:
    pod = sshd.pod(host_key=None).model_copy(update={"inventory": inventory})
    transport = SshTransport(pod, trust)
    transport.connect()
    return transport


def test_two_projects_with_a_pod_of_one_name_do_not_clash(own_sshd: Sshd) -> None:
    with connect(own_sshd, Trust(accept_new=True), "/one/pods.yaml"):
        pass
    own_sshd.new_host_key()  # as another machine
    asked: list[str] = []
    with connect(own_sshd, Trust(ask=lambda question: not asked.append(question)), "/two/pods.yaml"):
        pass
    assert len(asked) == 1 and "is new" in asked[0]
    with pytest.raises(HostKeyError, match="changed its host key"):
        connect(own_sshd, Trust(ask=lambda question: True), "/one/pods.yaml")


def test_a_pin_of_an_older_store_holds_and_is_taken_over_by_the_machine_that_shows_it(own_sshd: Sshd) -> None:
    with connect(own_sshd, Trust(accept_new=True)):
        pass
    with connect(own_sshd, inventory="/one/pods.yaml") as transport, transport.stream(["echo", "by ssh"]) as out:
        assert out.read() == b"by ssh\n"  # OpenSSH finds the pin under the new name
    assert "by an older store" in hostkeys.audit_list().read_text()
    assert len(hostkeys.known_hosts().read_text().splitlines()) == 1


def test_a_changed_key_is_no_new_one_because_the_store_is_old(own_sshd: Sshd) -> None:
    with connect(own_sshd, Trust(accept_new=True)):
        pass
    own_sshd.new_host_key()
    with pytest.raises(HostKeyError, match="changed its host key"):
        connect(own_sshd, Trust(ask=lambda question: True), "/one/pods.yaml")


def test_a_configuration_that_openssh_reads_otherwise_is_not_used(own_sshd: Sshd, tmp_path: object) -> None:
    pod = own_sshd.pod()
    endpoint = endpoint_of(pod)
    path = own_sshd.folder / "config"
    known = hostkeys.known_hosts()
    text = sshconfig.render(pod, endpoint, path=path, known_hosts=known, control=None)
    sshconfig.write(path, pod, text, endpoint)
    with pytest.raises(InputError, match="OpenSSH reads proxycommand touch /tmp/canary for"):
        sshconfig.write(path, pod, text.replace("  HostName", "  ProxyCommand touch /tmp/canary\n  HostName"), endpoint)
    with pytest.raises(InputError, match="expected text without line breaks"):
        odd = own_sshd.folder / "known\n  ProxyCommand touch /tmp/canary"
        sshconfig.render(pod, endpoint, path=path, known_hosts=odd, control=None)
