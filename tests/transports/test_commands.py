"""Commands on a pod: exact arguments, limits, and a peer that goes away."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.config.inventory import Pod
from orchestrator.errors import CommandTimeout, ContactLost, InputError, PodError, Unreachable
from orchestrator.store.hostkeys import Trust
from orchestrator.transports import open_transport
from orchestrator.transports.base import Transport
from orchestrator.transports.ssh import execute
from orchestrator.transports.ssh.transport import SshTransport
from tests.support import proc
from tests.support.proxy import Proxy
from tests.support.sshd import Sshd
from tests.support.waiting import wait_for

NASTY = [
    "a b",
    "x; touch pwned",
    "$(touch pwned)",
    "`touch pwned`",
    "'\"",
    "*",
    "",
    "-n",
    "\\",
    "line\nbreak",
    "ünï",
    "~",
]


def test_arguments_arrive_as_they_are(transport: Transport) -> None:
    script = "import sys; sys.stdout.write('\\0'.join(sys.argv[1:]))"
    done = transport.run(["python3", "-c", script, *NASTY])
    assert done.stdout.decode().split("\0") == NASTY
    assert not (Path.home() / "pwned").exists()


def test_the_environment_arrives_as_it_is(transport: Transport, sshd: Sshd) -> None:
    env = {f"V{n}": value for n, value in enumerate(NASTY)}
    done = transport.run(
        ["python3", "-c", "import os,sys; sys.stdout.write(os.environ['V' + sys.argv[1]])", "1"], env=env
    )
    assert done.stdout == b"x; touch pwned"
    for n, value in enumerate(NASTY):
        assert transport.run(["printenv", f"V{n}"], env=env).stdout.decode() == f"{value}\n"
    assert not list(sshd.home.rglob("pwned"))


def test_what_is_no_variable_is_refused(ssh: SshTransport) -> None:
    for env in ({"A B": "x"}, {"A;touch pwned": "x"}, {"": "x"}, {"A": "nul\0"}):
        with pytest.raises(InputError, match="cannot be an environment variable"):
            ssh.run(["true"], env=env)


def test_the_environment_does_not_show_in_the_process_list(ssh: SshTransport) -> None:
    done = ssh.run(["sh", "-c", "cat /proc/*/cmdline | tr '\\0' ' '"], env={"TOKEN": "planted-secret"})
    assert b"sh -c" in done.stdout and b"planted-secret" not in done.stdout


def test_output_input_and_exit_code(transport: Transport) -> None:
    done = transport.run(["sh", "-c", "cat; printf err >&2; exit 7"], input=b"\0\xff" * 300_000)
    assert (done.exit_code, done.stdout, done.stderr) == (7, b"\0\xff" * 300_000, b"err")
    assert transport.run(["sh", "-c", "kill -KILL $$"]).exit_code == 128 + signal.SIGKILL
    assert transport.run(["sh", "-c", "exit 255"]).exit_code == 255
    assert transport.run(["no-such-program"]).exit_code == 127


def test_check_says_what_the_command_said(transport: Transport) -> None:
    with pytest.raises(PodError, match=r"pod '\w+': sh -c .* failed: no luck"):
        transport.output(["sh", "-c", "echo no luck >&2; exit 3"])


def test_put_writes_all_or_nothing(transport: Transport, tmp_path: Path) -> None:
    target = tmp_path / "new dir" / "it's"
    transport.put(b"one", str(target))
    transport.put(b"two" * 100_000, str(target))
    assert target.read_bytes() == b"two" * 100_000
    assert os.listdir(target.parent) == ["it's"]
    with pytest.raises(PodError, match="cannot write"):
        transport.put(b"x", "/proc/nowhere/file")


def test_a_command_does_not_outlive_its_limit(transport: Transport, tmp_path: Path) -> None:
    script = f"sleep 300 & echo $! > {tmp_path}/child; trap '' TERM; echo $$ > {tmp_path}/leader; sleep 300; sleep 300"
    began = time.monotonic()
    with pytest.raises(CommandTimeout, match="did not end within 1 s") as timeout:
        transport.run(["sh", "-c", script], timeout=1)
    assert time.monotonic() - began < 8 and "still be running" not in str(timeout.value)
    for name in ("child", "leader"):
        pid = int((tmp_path / name).read_text())
        wait_for(lambda pid=pid: not proc.is_alive(pid))
    assert transport.run(["echo", "still usable"]).stdout == b"still usable\n"


def test_a_daemon_does_not_hold_its_starter(transport: Transport) -> None:
    began = time.monotonic()
    done = transport.run(["sh", "-c", "setsid sleep 7 & echo started"])
    assert done.stdout == b"started\n" and time.monotonic() - began < 5


def test_too_much_output_is_refused(ssh: SshTransport) -> None:
    with pytest.raises(PodError, match="prints more than"):
        ssh.run(["head", "-c", "80000000", "/dev/zero"])
    assert ssh.run(["echo", "still usable"]).exit_code == 0


def test_a_command_given_up_amid_its_output_leaves_the_connection(
    ssh: SshTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execute, "OUTPUT_LIMIT", 200_000)
    for _ in range(150):  # many, as each closes its channel at another moment of the next packet's arrival
        with pytest.raises(PodError, match="prints more than"):
            ssh.run(["head", "-c", "80000000", "/dev/zero"])
        assert ssh.run(["echo", "still usable"]).stdout == b"still usable\n"


def test_what_a_login_script_says_is_not_the_commands_output(sshd: Sshd, ssh: SshTransport) -> None:
    rc = sshd.home / ".bashrc"
    rc.write_text("echo Welcome; echo Careful >&2\n")
    try:
        done = ssh.run(["sh", "-c", "echo out; echo err >&2"])
        with ssh.stream(["echo", "out"]) as stream:
            streamed = stream.read()
    finally:
        rc.unlink()
    assert (done.stdout, done.stderr, streamed) == (b"out\n", b"err\n", b"out\n")


def test_stream_gives_bytes_and_the_end(transport: Transport) -> None:
    with transport.stream(["head", "-c", "3000000", "/dev/zero"]) as out:
        assert out.read() == bytes(3_000_000)
    with transport.stream(["cat"], input=b"given") as out:
        assert out.read() == b"given"
    with (
        pytest.raises(PodError, match="failed: no luck"),
        transport.stream(["sh", "-c", "echo no luck >&2; exit 3"]) as out,
    ):
        out.read()
    with (
        pytest.raises(PodError, match="failed: short"),
        transport.stream(["sh", "-c", "echo short >&2; exit 3"]) as out,
    ):
        raise EOFError("the body found too little")
    with (
        pytest.raises(CommandTimeout, match="sent nothing for"),
        transport.stream(["sleep", "60"], silence=0.5) as out,
    ):
        out.read()
    with pytest.raises(PodError, match="more than was asked"), transport.stream(["cat", "/dev/zero"]) as out:
        out.read(10)


def test_a_connection_that_breaks_is_contact_lost(own_sshd: Sshd) -> None:
    with SshTransport(own_sshd.pod()) as transport:
        threading.Timer(0.5, own_sshd.signal_sessions, [signal.SIGKILL]).start()
        began = time.monotonic()
        with pytest.raises(ContactLost, match="connection broke"):
            transport.run(["sleep", "30"])
        assert time.monotonic() - began < 5
        with pytest.raises(ContactLost):
            transport.run(["true"])
        transport.connect()
        assert transport.run(["echo", "again"]).stdout == b"again\n"


def test_every_kind_of_silence_is_noticed_within_ten_seconds(own_sshd: Sshd, proxy_to: Callable[..., Proxy]) -> None:
    """All at once, as each takes its time: a stopped server, a line that goes dead, a port that says nothing."""
    proxy = proxy_to(own_sshd.port)
    found: dict[str, tuple[type[Exception], str]] = {}
    silent = socket.create_server(("127.0.0.1", 0))
    with silent, SshTransport(own_sshd.pod()) as stopped, SshTransport(own_sshd.pod(port=proxy.port)) as dead:
        read_all(stopped, "true")  # so that there is a master connection
        acts = {
            "command": lambda: stopped.run(["sleep", "60"]),
            "stream": lambda: read_all(stopped, "sleep", "60"),
            "new command": lambda: time.sleep(1.2) or dead.run(["true"]),
            "connect": lambda: SshTransport(own_sshd.pod(port=silent.getsockname()[1])).connect(),
        }

        def attempt(name: str) -> None:
            try:
                acts[name]()
            except Exception as error:
                found[name] = (type(error), str(error))

        threads = [threading.Thread(target=attempt, args=[name]) for name in acts]
        for thread in threads:
            thread.start()
        time.sleep(1)
        proxy.stall()
        own_sshd.signal_sessions(signal.SIGSTOP)
        began = time.monotonic()
        try:
            for thread in threads:
                thread.join(15)
            assert time.monotonic() - began < 10
        finally:
            own_sshd.signal_sessions(signal.SIGCONT)
    kinds = {name: kind for name, (kind, _) in found.items()}
    assert kinds == {"command": ContactLost, "stream": ContactLost, "new command": ContactLost, "connect": Unreachable}
    assert "no answer for 8 s" in found["command"][1] and "no SSH server answers" in found["connect"][1]


def test_a_cut_at_any_byte_is_contact_lost_and_never_a_wrong_result(sshd: Sshd, proxy_to: Callable[..., Proxy]) -> None:
    proxy = proxy_to(sshd.port)
    for count in (1, 100, 1000, 5000, 20_000, 100_000):
        with SshTransport(sshd.pod(port=proxy.port)) as transport:
            proxy.cut_after(count)
            with pytest.raises(ContactLost):
                transport.run(["head", "-c", "300000", "/dev/zero"])
            proxy.cut_after(None)


def test_a_cut_put_leaves_the_old_file(sshd: Sshd, proxy_to: Callable[..., Proxy], tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_text("old")
    proxy = proxy_to(sshd.port)
    for count in (2000, 30_000, 150_000):
        with SshTransport(sshd.pod(port=proxy.port)) as transport:
            proxy.cut_after(count)
            with pytest.raises(ContactLost):
                transport.put(bytes(200_000), str(target))
            proxy.cut_after(None)
    time.sleep(0.5)
    assert target.read_text() == "old"


def test_a_long_line_is_only_slow(sshd: Sshd, proxy_to: Callable[..., Proxy]) -> None:
    proxy = proxy_to(sshd.port, 0.1)
    with SshTransport(sshd.pod(port=proxy.port)) as transport:
        assert transport.run(["cat"], input=b"x" * 100_000).stdout == b"x" * 100_000


def test_nothing_is_left_behind(own_sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "t"))
    (tmp_path / "t").mkdir()
    with SshTransport(own_sshd.pod()) as transport:
        with transport.stream(["true"]) as out:
            out.read()
        config = str(transport.config)
        assert len(proc.saying(config)) == 1 and own_sshd.sessions()
    assert os.listdir(tmp_path / "t") == []
    wait_for(lambda: proc.saying(config) == [] == own_sshd.sessions())


def test_a_new_pod_is_asked_for_once_per_transport(sshd: Sshd) -> None:
    asked: list[str] = []
    transport = open_transport(sshd.pod(host_key=None), Trust(ask=lambda q: not asked.append(q)))
    for _ in range(2):
        with transport:
            pass
    assert len(asked) == 1


@pytest.mark.process
def test_local_is_the_same_machine(tmp_path: Path) -> None:
    with open_transport(Pod(name="here", transport="local")) as transport:
        assert transport.run(["pwd"]).exit_code == 0 and transport.fingerprint is None


def read_all(transport: Transport, *argv: str) -> bytes:
    with transport.stream(argv) as out:
        return out.read()
