"""`python -m tests.bench.overhead`: a warm validate beside its stages, and a warm one-file sync beside rsync.

Over a real OpenSSH server on loopback; a validate of many short stages also where a round trip takes 300 ms.
Prints one JSON object; medians of --rounds.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import click

from orchestrator.git.repository import Repository
from orchestrator.pod.client import install_agent
from orchestrator.pod.sync import sync
from orchestrator.transports.ssh.transport import SshTransport
from tests.support import round_trips
from tests.support.project import Project, new_project, with_pod
from tests.support.proxy import Proxy
from tests.support.sshd import Sshd, new_sshd

STAGE_S = 1.0
SHORT_STAGE_S = 0.2
RUNBOOK = f"""\
name: r
environment: {{python: system}}
stages:
  - name: known
    run: [python, -c, "import time; time.sleep({STAGE_S}); print('done')"]
    expect: {{artifacts: [{{path: out.txt, from: stdout}}]}}
"""
FILES = 300
FILE_BYTES = 8192


@click.command()
@click.option("--rounds", default=3, show_default=True)
def main(rounds: int) -> None:
    """Measure both and print them."""
    with tempfile.TemporaryDirectory(prefix="nsa-pod-bench-") as name:
        folder = Path(name)
        server = new_sshd(folder / "sshd").start()
        try:
            project = new_project(folder, {"p": server.entry(workdir=str(folder / "workdir"))})
            project.commit({"runbooks/r.yaml": RUNBOOK, **{f"src/f{n}.txt": _content(n) for n in range(FILES)}})
            overhead = _validate_overhead(project, rounds)
            slow = _over_a_slow_line(project, server, folder, rounds)
            ratios = _sync_ratios(project, server, folder, rounds)
        finally:
            server.stop()
    click.echo(json.dumps({"files": FILES, "rounds": rounds, **overhead, **slow, **ratios}, indent=1))


def _content(seed: int) -> str:
    return f"{seed}\n" * (FILE_BYTES // (len(str(seed)) + 1))


def _validate_overhead(project: Project, rounds: int) -> dict[str, Any]:
    """Wall time of `nsa-pod validate` less the stages' own time, everything on the pod being warm."""
    project.validate("--runbook", "r", pod="p")
    found = []
    for _ in range(rounds):
        began = time.monotonic()
        outcome = project.validate("--runbook", "r", pod="p")
        wall = time.monotonic() - began
        assert outcome.json["verdict"] == "passed", outcome.stderr
        found.append(wall - sum(stage["seconds"] for stage in outcome.json["stages"]))
    return {
        "validate_overhead_s": round(statistics.median(found), 3),
        "validate_overheads_s": [round(x, 3) for x in found],
    }


def _over_a_slow_line(project: Project, server: Sshd, folder: Path, rounds: int) -> dict[str, Any]:
    """A warm validate of as many stages as cpu-smoke has: round trips after authentication, seconds over the stages."""
    line = Proxy(server.port).start()
    pod = server.pod("line", port=line.port, workdir=str(folder / "workdir"))
    with_pod(project, "line", **server.entry(port=line.port, workdir=str(folder / "workdir")))
    project.commit({"runbooks/r.yaml": round_trips.runbook(SHORT_STAGE_S)})
    project.validate("--runbook", "r", pod="line")
    found: dict[str, Any] = {}
    try:
        for delay in (0.0, 0.15):
            line.delay = delay
            measured = [round_trips.over(line, pod, project)[1:] for _ in range(rounds)]
            trips, over = zip(*measured, strict=True)
            found[f"at_{2000 * delay:.0f}_ms"] = {
                "round_trips": max(trips),
                "over_its_stages_s": round(statistics.median(over), 3),
                "all_s": [round(x, 3) for x in over],
            }
    finally:
        line.stop()
    return {"stages": round_trips.STAGES, "load": round(os.getloadavg()[0], 1), **found}


def _sync_ratios(project: Project, server: Sshd, folder: Path, rounds: int) -> dict[str, Any]:
    """A one-file change: the sync, against `rsync -c` of the same two trees over a connection of its own."""
    ours, bare = [], []
    pod = server.pod("p", workdir=str(folder / "workdir"))
    for round_ in range(rounds):
        project.commit({"src/f0.txt": f"change {round_}\n"})
        repo = Repository.open(project.root)
        with SshTransport(pod) as transport:
            agent = install_agent(transport)
            began = time.monotonic()
            revision = repo.revision("HEAD")
            moved = sync(agent, repo, revision, repo.contents(revision))
            ours.append(time.monotonic() - began)
            assert moved is not None and moved.files == 1, moved
            bare.append(_bare_rsync(project, folder, server))
    ratio = statistics.median(ours) / statistics.median(bare)
    return {
        "sync_s": round(statistics.median(ours), 3),
        "bare_rsync_s": round(statistics.median(bare), 3),
        "sync_over_rsync": round(ratio, 2),
    }


def _bare_rsync(project: Project, folder: Path, server: Sshd) -> float:
    """`rsync -rlpc` of the new tree onto the one before it."""
    source, target = folder / "source", folder / "target"
    ignored = shutil.ignore_patterns(".git", "artifacts")
    if not target.exists():
        shutil.copytree(project.root, target, ignore=ignored)
        (target / "src" / "f0.txt").write_text("before\n")
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(project.root, source, ignore=ignored)
    trust = f"-o UserKnownHostsFile={folder}/known -o StrictHostKeyChecking=no"
    ssh = f"ssh -F /dev/null -p {server.port} -i {server.key} {trust}"
    command = ["rsync", "-rlpc", "-e", ssh, f"{source}/", f"127.0.0.1:{target}/"]
    began = time.monotonic()
    subprocess.run(command, check=True, capture_output=True)
    return time.monotonic() - began


if __name__ == "__main__":
    main()
