"""A real OpenSSH server on a loopback port, with keys made for the tests.

What logs in has its own home directory, so that nothing of the user's shell or files takes part.
"""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from orchestrator.config.inventory import Pod
from tests.support import proc
from tests.support.agent_pod import small_python

_CONFIG = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
PidFile none
AuthorizedKeysFile {folder}/user.pub
StrictModes no
UsePAM no
PermitRootLogin yes
PasswordAuthentication no
KbdInteractiveAuthentication no
Subsystem sftp internal-sftp
LogLevel VERBOSE
MaxStartups 100
SetEnv HOME={folder}/home
{extra}
"""
# From OpenSSH 9.8 on an address that fails to log in a few times is refused for a while; older servers lack the word.
_NO_PENALTIES = "PerSourcePenalties no\n"
_START_LIMIT_S = 10


@dataclass
class Sshd:
    """A server in `folder`: its host key is `host`, the one private key that it accepts is `user`.

    `inside` is a command line that the server's is appended to.
    """

    folder: Path
    port: int
    extra: str = ""
    inside: Sequence[str] = ()
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def home(self) -> Path:
        """The home directory of whoever logs in."""
        return self.folder / "home"

    @property
    def key(self) -> Path:
        return self.folder / "user"

    @property
    def fingerprint(self) -> str:
        """The host key's, as ssh-keygen prints it."""
        done = subprocess.run(
            ["ssh-keygen", "-lf", str(self.folder / "host")], capture_output=True, check=True, text=True
        )
        return done.stdout.split()[1]

    def entry(self, **extra: Any) -> dict[str, Any]:
        """The inventory's entry for a pod behind this server, its host key pinned."""
        known = {"host": "127.0.0.1", "port": self.port, "user": getpass.getuser(), "identity_file": str(self.key)}
        return {**known, "host_key": self.fingerprint, "python": small_python(), **extra}

    def pod(self, name: str = "loop", **extra: Any) -> Pod:
        """As `entry`; with `host_key=None` nothing is pinned."""
        return Pod(name=name, **{k: v for k, v in self.entry(**extra).items() if v is not None})

    def start(self) -> Sshd:
        """Start the server and wait until it listens."""
        config = self.folder / "sshd_config"
        text = _CONFIG.format(port=self.port, folder=self.folder, extra=self.extra)
        config.write_text(text + _NO_PENALTIES)
        if subprocess.run([_sshd(), "-t", "-f", str(config)], capture_output=True).returncode:
            config.write_text(text)
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [*self.inside, _sshd(), "-D", "-e", "-f", str(config)], stdin=subprocess.DEVNULL, stderr=log
            )
        end = time.monotonic() + _START_LIMIT_S
        while "Server listening" not in (self.folder / "log").read_text():
            if self.process.poll() is not None or time.monotonic() > end:
                pytest.fail(f"sshd does not start: {(self.folder / 'log').read_text()}")
            time.sleep(0.02)
        return self

    def stop(self) -> None:
        """End the server and the sessions that it still has; fail where it has ended by itself, with what it said."""
        if self.process:
            code = self.process.poll()
            assert code is None, f"sshd has ended with {code}: {(self.folder / 'log').read_text()[-4000:]}"
            sessions = self.sessions()
            self.process.terminate()
            self.process.wait(10)
            for pid in sessions:
                _signal(pid, signal.SIGKILL)
            self.process = None

    def sessions(self) -> list[int]:
        """The server processes that serve one connection each, their unprivileged children included."""
        assert self.process is not None
        found = proc.children(self.process.pid)
        below = [pid for session in found for pid in proc.children(session)]
        return found + [pid for pid in below if proc.name(pid).startswith("sshd")]  # sshd-session from 9.8 on

    def signal_sessions(self, sign: signal.Signals) -> None:
        """Send `sign` to the processes of every connection, not to what they run."""
        for pid in self.sessions():
            _signal(pid, sign)

    def new_host_key(self) -> None:
        """Become another machine at the same address."""
        self.stop()
        self.rekey()
        self.start()

    def rekey(self) -> None:
        """Make another host key, while the server is stopped."""
        _new_key(self.folder / "host")


def new_sshd(folder: Path, extra: str = "") -> Sshd:
    """A server in `folder`, not yet started."""
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(
            mode=0o755, exist_ok=True
        )  # privilege separation wants it, and only Debian's init makes it
    (folder / "home").mkdir(parents=True)
    for name in ("host", "user"):
        _new_key(folder / name)
    return Sshd(folder, _free_port(), extra)


def _sshd() -> str:
    found = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if found is None:
        pytest.fail("these tests run a real OpenSSH server: install openssh-server")
    return found


def _new_key(path: Path) -> None:
    path.unlink(missing_ok=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(path)], check=True, input=b"")


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


def _signal(pid: int, sign: signal.Signals) -> None:
    try:
        os.kill(pid, sign)
    except ProcessLookupError:
        return
