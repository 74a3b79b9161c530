"""Carry files to a pod that cannot fetch them itself: a directory of wheels, or uv."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import sys
import tempfile
from pathlib import Path

from orchestrator.errors import EnvironmentFailed, InputError
from orchestrator.files import sha256
from orchestrator.pod.client import Agent
from orchestrator.pod.facts import PodFacts
from orchestrator.shared.failure import Failure
from orchestrator.shared.wheels import uv_wheel
from orchestrator.shared.wheels.settings import Settings
from orchestrator.ui import Progress

# For what comes: not where it is to be, where half of it would count, nor where another user's comes just then. What a
# lost connection left is removed after a day, if it is still there when it is looked at.
_MAKE_ROOM = """\
mkdir -p "$1" "$2" || exit 1
find "$(dirname "$1")" -mindepth 1 -maxdepth 1 -mmin +1440 -exec rm -rf {} + 2>/dev/null
exit 0
"""
# Its arguments are the two directories; stdin says {file name: sha256}.
_SETTLE = """\
import hashlib, json, os, sys
for name, expected in json.load(sys.stdin).items():
    digest = hashlib.sha256()
    with open(os.path.join(sys.argv[1], name), "rb") as f:
        for piece in iter(lambda: f.read(1 << 20), b""):
            digest.update(piece)
    if digest.hexdigest() != expected:
        sys.exit(f"{name} did not arrive as it was sent")
try:
    os.rename(*sys.argv[1:])
except OSError:
    if not os.path.isdir(sys.argv[2]):  # another user's came first
        raise
"""
_SETTLE_LIMIT_S = 600.0


def carry_wheelhouse(agent: Agent, folder: Path) -> str:
    """Bring a directory of wheels to the pod, unless it is there; where it lies."""
    if not any(folder.glob("*.whl")):
        raise InputError(f"wheelhouse {folder}: expected a directory with wheels")
    return _carry(agent, folder, "wheelhouses/")


def carry_uv(agent: Agent, facts: PodFacts, progress: Progress) -> None:
    """Bring this machine's index's wheel of uv for the pod there. EnvironmentFailed if there is none to be had."""
    with tempfile.TemporaryDirectory() as folder:
        fetch_uv(facts, Path(folder), progress)
        progress.say("the pod cannot get uv: carrying it there")
        _carry(agent, Path(folder), "tools/carried-")


def fetch_uv(facts: PodFacts, folder: Path, progress: Progress) -> Path:
    """The newest wheel of uv that runs on the pod, in `folder`, from where this machine's pip gets packages.

    EnvironmentFailed if there is none to be had.
    """
    machine = uv_wheel.Machine(facts.raw["os"], facts.raw["arch"], *(*facts.raw["libc"], "", "")[:2])
    try:
        return uv_wheel.fetch(Settings.of(sys.executable), machine, [], folder, progress)
    except Failure as e:
        raise EnvironmentFailed(f"this machine cannot get uv for the pod: {e}") from e


def _carry(agent: Agent, folder: Path, below: str) -> str:
    """The files of `folder` as `<workdir>/<below><hash of their contents>`, unless they are there."""
    files = {path.name: sha256(path) for path in sorted(folder.iterdir()) if path.is_file()}
    content = "\n".join(f"{name} {digest}" for name, digest in files.items())
    remote = f"{agent.workdir}/{below}{hashlib.sha256(content.encode()).hexdigest()[:16]}"
    if agent.transport.run(["test", "-d", remote]).exit_code != 0:
        incoming = f"{agent.workdir}/incoming/{secrets.token_hex(8)}"
        agent.transport.output(["sh", "-c", _MAKE_ROOM, "sh", incoming, os.path.dirname(remote)])
        try:
            agent.transport.push_tree(folder, incoming)
            settle = [agent.python, "-I", "-c", _SETTLE, incoming, remote]
            agent.transport.output(settle, input=json.dumps(files).encode(), timeout=_SETTLE_LIMIT_S)
        finally:
            agent.transport.run(["rm", "-rf", incoming])
    return remote
