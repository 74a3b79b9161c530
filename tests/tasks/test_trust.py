"""No verb contacts a pod of a pods.yaml that was only found in a repository, until that was trusted."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fuzz.run import command
from tests.support.project import Project

VERBS = [
    ["validate"], ["bootstrap"], ["fetch"], ["follow"], ["cancel"], ["doctor"], ["runs", "--pod", "gpu"], ["ssh"],
    ["run", "--", "true"], ["envs"], ["prune"], ["logs", "20260101T000000Z-a", "tests"],
]  # fmt: skip
RUNBOOK = "name: r\nenvironment: {python: system}\nstages: [{name: s, run: [pytest, t.py]}]\n"


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server


@pytest.fixture
def cloned(project: Project, listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a pods.yaml of its own, as it was cloned, and the current directory."""
    pod = {"host": "127.0.0.1", "port": listener.getsockname()[1], "host_key": "SHA256:" + "A" * 43}
    project.commit({"pods.yaml": json.dumps({"pods": {"gpu": pod}, "default": "gpu"}), "runbooks/r.yaml": RUNBOOK})
    for name, value in project.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NSA_POD_INVENTORY")
    monkeypatch.chdir(project.root)
    return project.root


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
def test_nothing_is_contacted_before_trust(cloned: Path, listener: socket.socket, verb: list[str]) -> None:
    said = command(*verb)
    assert said.code == 4 and f"nsa-pod trust --inventory {cloned}/pods.yaml" in said.err
    with pytest.raises(BlockingIOError):
        listener.accept()


def test_trust_says_what_it_allows_and_is_of_this_content_only(cloned: Path, listener: socket.socket) -> None:
    trusted = command("trust", "--json")
    port = listener.getsockname()[1]
    assert trusted.code == 0 and json.loads(trusted.out)["trusted"]
    assert json.loads(trusted.out)["demands"] == [f"pod 'gpu' would have this laptop connect to 127.0.0.1:{port}"]
    assert command("validate", "--dry-run").code in (0, 3)
    listener.close()
    reached = command("doctor")
    assert reached.code == 4 and "nobody has trusted" not in reached.err
    (cloned / "pods.yaml").write_text((cloned / "pods.yaml").read_text() + "\n")
    assert "nobody has trusted" in command("doctor").err
    assert command("trust").code == 0 and command("trust", "--revoke").code == 0
    assert "nobody has trusted" in command("doctor").err


def test_what_contacts_nothing_needs_no_trust(cloned: Path) -> None:
    for verb in (["pods"], ["check"], ["validate", "--dry-run"], ["runs"]):
        assert "trusted" not in command(*verb).err


def test_a_named_inventory_and_one_without_demands_need_none(cloned: Path) -> None:
    assert "nobody has trusted" not in command("doctor", "--inventory", str(cloned / "pods.yaml")).err
    (cloned / "pods.yaml").write_text("pods: {local: {transport: local}}\n")
    assert "nobody has trusted" not in command("cancel", "--pod", "local").err
    (cloned / "pods.yaml").write_text("pods: {local: {transport: local, python: /tmp/evil}}\n")
    assert "with its own python" in command("cancel", "--pod", "local").err
