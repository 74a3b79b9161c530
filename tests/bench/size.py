"""`python -m tests.bench.size`: what a large repository and many stages cost, beside rsync in the same run.

Over a real OpenSSH server on loopback. Prints one JSON object of seconds; the machine's load counts in both columns.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from orchestrator.git.repository import Repository
from orchestrator.pod.client import Agent, install_agent
from orchestrator.pod.sync import sync
from orchestrator.transports.ssh.transport import SshTransport
from tests.support.project import Project, new_project
from tests.support.sshd import Sshd, new_sshd

RUNBOOK = "runbooks/r.yaml"
PER_FOLDER = 100
SEED = 7


@click.command()
@click.option("--files", default=2000, show_default=True)
@click.option("--megabytes", default=100, show_default=True)
@click.option("--stages", default=300, show_default=True, help="Stages of nothing, in a repository of one file.")
@click.option("--folder", type=click.Path(path_type=Path), help="Where the repository and the pod's files are made.")
def main(files: int, megabytes: int, stages: int, folder: Path | None) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(prefix="nsa-pod-bench-", dir=folder) as name:
        place = Path(name)
        server = new_sshd(place / "sshd").start()
        try:
            large = new_project(place / "large", {"p": server.entry(workdir=str(place / "pod"))})
            _fill(large, files, megabytes * 1_000_000)
            found = {
                "files": files,
                "megabytes": megabytes,
                "sync": _syncs(large, server, place),
                "run": _validate(large, place / "pod"),
            }
            small = new_project(place / "small", {"p": server.entry(workdir=str(place / "pod2"))})
            small.commit({RUNBOOK: _runbook(stages)})
            found["stages"] = stages
            found["empty_stages"] = _validate(small, place / "pod2")
        finally:
            server.stop()
    click.echo(json.dumps(found, indent=1))


def _fill(project: Project, files: int, size: int) -> None:
    """Files of bytes that no compression makes smaller, in a pack as a clone has them; each in a folder of 100."""
    importer = subprocess.Popen(
        ["git", "-c", "core.compression=1", "fast-import", "--quiet"], cwd=project.root, stdin=subprocess.PIPE
    )
    assert importer.stdin is not None
    out, rng = importer.stdin, random.Random(SEED)

    def data(content: bytes) -> None:
        out.write(b"data %d\n%s\n" % (len(content), content))

    out.write(b"commit refs/heads/main\ncommitter A <a@example.org> 1000000000 +0000\n")
    data(b"c")
    for number in range(files):
        out.write(b"M 644 inline d%d/f%d\n" % (number // PER_FOLDER, number))
        data(rng.randbytes(size // files))
    out.write(f"M 644 inline {RUNBOOK}\n".encode())
    data(_runbook(5).encode())
    out.close()
    if importer.wait():
        raise click.ClickException("git fast-import failed")
    project.git("reset", "-q", "--hard", "main")


def _runbook(stages: int) -> str:
    lines = [
        f"  - {{name: s{n}, run: [echo, done], expect: {{artifacts: [{{path: s{n}.txt, from: stdout}}]}}}}\n"
        for n in range(stages)
    ]
    return "name: r\nenvironment: {python: system}\nstages:\n" + "".join(lines)


def _syncs(project: Project, server: Sshd, place: Path) -> dict[str, Any]:
    pod = server.pod("p", workdir=str(place / "pod"))
    bare = place / "bare"
    bare.mkdir()
    found = {}
    with SshTransport(pod) as transport:
        agent = install_agent(transport)

        def pair(name: str) -> None:
            theirs = _seconds(lambda: _rsync(project, server, place, bare))
            ours = _seconds(lambda: _sync(agent, project))
            found[name] = {"nsa_pod": ours, "rsync": theirs, "ratio": round(ours / theirs, 2)}

        pair("cold")
        pair("unchanged")
        project.commit({"d0/f0": "changed\n"})
        pair("one_file")
    shutil.rmtree(bare)
    return found


def _sync(agent: Agent, project: Project) -> None:
    repo = Repository.open(project.root)
    revision = repo.revision("HEAD")
    sync(agent, repo, revision, repo.contents(revision))


def _rsync(project: Project, server: Sshd, place: Path, target: Path) -> None:
    trust = f"-o UserKnownHostsFile={place}/known -o StrictHostKeyChecking=no"
    ssh = f"ssh -F /dev/null -p {server.port} -i {server.key} {trust}"
    command = ["rsync", "-a", "--exclude=/.git", "-e", ssh, f"{project.root}/", f"127.0.0.1:{target}/"]
    subprocess.run(command, check=True, capture_output=True)


def _validate(project: Project, workdir: Path) -> dict[str, Any]:
    """The second validate of a commit; from the pod's journal, where its time went."""
    first = _seconds(lambda: _passes(project))
    wall = _seconds(lambda: _passes(project))
    journal = max((workdir / "runs").glob("*/journal.jsonl"), key=os.path.getmtime)
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    at = {event["event"]: event["t"] for event in reversed(events)}
    ends = [at["environment_checked"], *(event["t"] for event in events if event["event"] == "stage_ended")]
    own = [event["seconds"] for event in events if event["event"] == "stage_ended"]
    gaps = [end - before - seconds for before, end, seconds in zip(ends, ends[1:], own, strict=False)]
    return {
        "first_wall": first,
        "wall": wall,
        "tree": round(at["tree_checked"] - at["run_started"], 3),
        "environment": round(at["environment_checked"] - at["tree_checked"], 3),
        "until_first_stage": round(at["stage_started"] - at["environment_checked"], 3),
        "stages": round(sum(own), 3),
        "per_stage": round(sum(gaps[1:]) / max(1, len(gaps) - 1), 4),
    }


def _passes(project: Project) -> None:
    outcome = project.validate("--runbook", "r", pod="p")
    if outcome.exit_code:
        raise click.ClickException(outcome.stdout[-2000:] + outcome.stderr[-2000:])


def _seconds(work: Callable[[], None]) -> float:
    os.sync()  # what was written before is not this one's to wait for
    began = time.monotonic()
    work()
    return round(time.monotonic() - began, 3)


if __name__ == "__main__":
    main()
