"""A run that leaves many files on a pod behind SSH, fetched by the real command line and by bare rsync."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support import ROOT
from tests.support.measured import measured, peak_mib
from tests.support.project import Project, new_project
from tests.support.sshd import Sshd

# Files in folders of 1000, of the same size; the index is what the stage owes.
_WRITE = """\
import csv, os, sys
files, size = int(sys.argv[1]), int(sys.argv[2])
root = os.environ["NSA_POD_ARTIFACTS"]
block = os.urandom(1 << 20)
with open(f"{root}/index.csv", "w", newline="") as index:
    rows = csv.writer(index)
    rows.writerow(["file", "bytes"])
    for n in range(files):
        name = f"data/{n // 1000:04d}/sample-{n:06d}.bin"
        if n % 1000 == 0:
            os.makedirs(os.path.dirname(f"{root}/{name}"))
        with open(f"{root}/{name}", "wb") as f:
            f.write(b"%d\\n" % n)
            left = size - f.tell()
            while left > 0:
                left -= f.write(block[n % 4096 : n % 4096 + left])
        rows.writerow([name, size])
print(files, "files")
"""
_RUNBOOK = """\
name: many
environment: {{python: system}}
stages:
  - name: write
    run: [python, write.py, "{files}", "{size}"]
    expect:
      artifacts:
        - {{path: index.csv, kind: csv, columns: [file, bytes], min_rows: {files}}}
"""


@dataclass(frozen=True)
class Fetched:
    """How one fetch ended, how long it took and the largest memory of its process."""

    exit_code: int
    seconds: float
    peak_mib: float
    result: dict[str, Any]
    stderr: str


class ManyFiles:
    """A run of `files` files with `total` bytes that has ended on the pod, with nothing of it fetched yet."""

    def __init__(self, folder: Path, server: Sshd, files: int, total: int, **entry: Any) -> None:
        self.folder, self.server, self.files, self.size = folder, server, files, total // files
        self.workdir = folder / "workdir"
        self.project: Project = new_project(folder, {"p": server.entry(workdir=str(self.workdir), **entry)})
        self.project.commit({"write.py": _WRITE, "runbooks/many.yaml": _RUNBOOK.format(files=files, size=self.size)})
        self.run_id = self._run()

    def set_pod(self, entry: Mapping[str, Any]) -> None:
        """Change the pod's entry of the inventory."""
        self.project.inventory.write_text(json.dumps({"pods": {"p": entry}}))

    @property
    def remote(self) -> Path:
        """The run's directory on the pod."""
        return self.workdir / "runs" / self.run_id

    def _run(self) -> str:
        """Launch as a laptop that dies as soon as the run goes on, and wait for its end."""
        laptop = self.project.popen(
            "validate", "--pod", "p", "--runbook", "many", "--artifacts", str(self.folder / "a")
        )
        try:
            while not (found := list(self.workdir.glob("runs/*/journal.jsonl"))):
                assert laptop.poll() is None, laptop.communicate()
                time.sleep(0.05)
        finally:
            laptop.kill()
            laptop.communicate()
        while b'"run_ended"' not in found[0].read_bytes()[-1000:]:
            time.sleep(0.2)
        return found[0].parent.name

    def arguments(self, name: str) -> list[str]:
        """The command line of a fetch into the artifacts directory `name`, as from a laptop of its own."""
        return ["fetch", "--pod", "p", "--json", "--artifacts", str(self.folder / name), self.run_id]

    def laptop(self, name: str) -> dict[str, str]:
        return {"NSA_POD_HOME": str(self.folder / f"home-{Path(name).name}")}

    def home(self, name: str) -> Path:
        """Where a fetch into `name` puts the run."""
        commit = self.project.git("rev-parse", "HEAD")
        return self.folder / name / "runner" / commit / self.run_id

    def fetch(self, name: str) -> Fetched:
        """Fetch the run with the real command line, to the end."""
        output = self.folder / f"{Path(name).name}.out"
        errors, peak = output.with_suffix(".err"), output.with_suffix(".peak")
        program = measured(peak, *self.arguments(name))
        environment = self.project.environment(PYTHONPATH=str(ROOT), **self.laptop(name))
        began = time.monotonic()
        with output.open("wb") as out, errors.open("wb") as err:
            done = subprocess.run(
                program, cwd=self.project.root, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err
            )
        took = time.monotonic() - began
        return Fetched(done.returncode, took, peak_mib(peak), json.loads(output.read_text()), errors.read_text())

    def fetch_killed_at(self, name: str, part: float) -> None:
        """Fetch, and kill the laptop's process as soon as `part` of the bytes is here."""
        process = self.project.popen(*self.arguments(name), **self.laptop(name))
        home, wanted = self.home(name), int(part * self.files)
        try:
            while count_below(home / "artifacts") < wanted:
                assert process.poll() is None, process.communicate()
                time.sleep(0.02)
        finally:
            process.kill()
            process.communicate()

    def rsync(self, name: str) -> float:
        """Seconds that `rsync -a` of the run's stages and artifacts takes over a connection of its own."""
        target = self.folder / name
        target.mkdir()
        trust = f"-o UserKnownHostsFile={self.folder}/known -o StrictHostKeyChecking=no -o LogLevel=ERROR"
        ssh = f"ssh -F /dev/null -p {self.server.port} -i {self.server.key} {trust}"
        sources = [f"127.0.0.1:{self.remote}/{part}" for part in ("artifacts", "stages")]
        began = time.monotonic()
        subprocess.run(["rsync", "-a", "-e", ssh, *sources, str(target)], check=True, capture_output=True)
        return time.monotonic() - began

    def drop(self, name: str) -> None:
        """Delete what was fetched into `name`."""
        shutil.rmtree(self.folder / name)


def count_below(folder: Path) -> int:
    """How many files are below `folder`."""
    return sum(len(files) for _, _, files in os.walk(folder))
