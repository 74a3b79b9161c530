"""`python -m tests.bench.cuts`: a line that cuts every connection after so many bytes.

A cold pod, its agent, a tree of 2 MB, launch and result, by the real command line; beside `rsync --partial` of agent
and tree over the same line, begun again until it is through. Printed: how many connections each took.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.pod import bundle
from tests.support.project import Project, new_project
from tests.support.proxy import Proxy
from tests.support.sshd import Sshd, new_sshd

SIZES = (100_000, 200_000, 500_000, 1_000_000)
_MOST = 300
_RUNBOOK = """\
name: r
environment: {python: system}
stages:
  - {name: only, run: [python, -c, "print(1)"], expect: {artifacts: [{path: said.txt, from: stdout}]}}
"""


@dataclass(frozen=True)
class Tries:
    """Connections that were made until all was done."""

    ours: int
    rsync: int

    @property
    def ratio(self) -> float:
        return self.ours / self.rsync


def fill(root: Path) -> None:
    """2 MB that cannot be compressed: a large file, some middling ones, many small ones."""
    sizes = {"large.bin": 1_000_000}
    sizes.update({f"middling/{n}.bin": 80_000 for n in range(10)})
    sizes.update({f"small/{n}.bin": 1_000 for n in range(200)})
    for name, size in sizes.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(os.urandom(size))


def measure(folder: Path, server: Sshd, line: Proxy, size: int) -> Tries:
    """Both over `line`, whose connections each carry `size` bytes; `folder` is empty."""
    project = new_project(folder, {"p": server.entry(port=line.port, workdir=str(folder / "workdir"))})
    fill(project.root)
    project.commit({"runbooks/r.yaml": _RUNBOOK})
    line.cut_each(size)
    try:
        return Tries(_ours(project, line), _rsync(project, server, folder, line))
    finally:
        line.cut_each(None)


def _ours(project: Project, line: Proxy) -> int:
    before = line.accepted
    done = project.run("validate", "--pod", "p", "--runbook", "r", "--json")
    assert done.exit_code == 0, done.stderr
    return line.accepted - before


def _rsync(project: Project, server: Sshd, folder: Path, line: Proxy) -> int:
    (folder / "agent.pyz").write_bytes(bundle.build()[0])
    trust = f"-o UserKnownHostsFile={folder}/known -o StrictHostKeyChecking=no -o LogLevel=ERROR"
    ssh = f"ssh -F /dev/null -p {line.port} -i {server.key} {trust}"
    sources = [str(folder / "agent.pyz"), f"{project.root}/"]
    command = ["rsync", "-a", "--partial", "--exclude=/.git", "-e", ssh, *sources, f"127.0.0.1:{folder}/rsync/"]
    before = line.accepted
    for _ in range(_MOST):
        if subprocess.run(command, capture_output=True).returncode == 0:
            return line.accepted - before
    raise AssertionError(f"rsync does not come to an end in {_MOST} tries")


def main(sizes: Sequence[int] = SIZES) -> None:
    print("| bytes for each connection | nsa-pod | rsync --partial | ratio |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        server = new_sshd(Path(name) / "sshd").start()
        line = Proxy(server.port).start()
        try:
            for size in sizes:
                found = measure(Path(name) / str(size), server, line, size)
                print(f"| {size} | {found.ours} | {found.rsync} | {found.ratio:.2f} |", flush=True)
        finally:
            line.stop()
            server.stop()


if __name__ == "__main__":
    main()
