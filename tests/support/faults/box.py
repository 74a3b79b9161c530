"""A pod in a box: an OpenSSH server in process and mount namespaces of its own, so that its machine can really end.

The end of the first process of a process namespace is the end of all of them at once, as a reboot is; a new box has
processes numbered from 1 again, another boot id, and an empty /tmp. The disk is a directory that stays.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orchestrator.agent.host import processes
from tests.support import ROOT
from tests.support.agent_pod import small_python
from tests.support.sshd import new_sshd

_BOOT = """\
set -e
mount -t proc proc /proc
mount --bind "$1" /proc/sys/kernel/random/boot_id
shift
mount --rbind /tmp /mnt
mount -t tmpfs tmpfs /tmp
while [ "$1" != -- ]; do
    case $1 in /tmp/*) mkdir -p "$1"; mount --bind "/mnt/${1#/tmp/}" "$1";; esac
    shift
done
shift
exec "$@"
"""
_UNSHARE = ("unshare", "--pid", "--mount", "--fork", "--kill-child")


def why_not() -> str | None:
    """Why this machine has no boxes; None if it has."""
    if shutil.which("unshare") is None or os.geteuid() != 0:
        return "only root can reboot a box (unshare)"
    tried = subprocess.run([*_UNSHARE, "mount", "-t", "proc", "proc", "/proc"], capture_output=True)
    return None if tried.returncode == 0 else f"no namespaces here: {tried.stderr.decode(errors='replace').strip()}"


class Box:
    """A pod that is on from construction until `power_off`; its disk is `disk`, its work directory below it.

    Of what this machine has in /tmp the pod sees `folder`, `shared`, and what its Python needs.
    """

    def __init__(self, folder: Path, shared: Sequence[Path] = ()) -> None:
        self.disk = folder / "disk"
        self.disk.mkdir(parents=True)
        self.workdir = self.disk / "workdir"
        self._boot_id = folder / "boot_id"
        self.server = new_sshd(folder / "sshd")
        kept = [*map(str, (folder, *shared, Path(small_python()).parents[1])), sys.prefix, sys.base_prefix, str(ROOT)]
        self.server.inside = [*_UNSHARE, "sh", "-c", _BOOT, "sh", str(self._boot_id), *kept, "--"]
        self.boot()

    @property
    def boot_id(self) -> str:
        return self._boot_id.read_text().strip()

    def entry(self, **extra: Any) -> dict[str, Any]:
        """The inventory's entry, with the host key that the pod has now."""
        return self.server.entry(workdir=str(self.workdir), **extra)

    def boot(self) -> None:
        self._boot_id.write_text(f"{uuid.uuid4()}\n")
        self.server.start()

    def power_off(self) -> None:
        """All processes of the pod end at once, without a word."""
        machine = self.server.process
        if machine is None:
            return
        processes.send(signal.SIGKILL, self.first())
        machine.wait(10)
        self.server.process = None

    def reboot(self) -> None:
        self.power_off()
        self.boot()

    def replace(self) -> None:
        """Another machine at the same address: an empty disk, another host key."""
        self.power_off()
        shutil.rmtree(self.disk)
        self.disk.mkdir()
        self.server.rekey()
        self.boot()

    def wipe_tmp(self) -> None:
        """Remove all that is in the pod's own /tmp; what else is mounted below it stays."""
        inside = ["nsenter", "--mount", "--target", str(self.first()[0])]
        find = ["find", "/tmp", "-mindepth", "1", "-xdev", "!", "-type", "d", "-delete"]
        subprocess.run([*inside, *find], check=True)

    def first(self) -> list[int]:
        """The first process of the namespace: the server."""
        machine = self.server.process
        return processes.descendants(machine.pid)[:1] if machine else []
