"""Bringing a tree to a pod, over each transport."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from orchestrator.agent.git.pristine import Pristine
from orchestrator.errors import ContactLost, IntegrityError, Unreachable
from orchestrator.files import Writer
from orchestrator.git.repository import Repository
from orchestrator.pod.client import Agent, install_agent
from orchestrator.pod.sync import PushStats, sync
from orchestrator.shared import tree
from orchestrator.transports import open_transport
from orchestrator.transports.base import Completed, Supplier
from orchestrator.transports.ssh.transport import SshTransport
from tests.support.proxy import Proxy
from tests.support.repository import Git
from tests.support.sshd import Sshd


@pytest.fixture
def git(tmp_path: Path) -> Git:
    git = Git(tmp_path / "repo")
    git.commit({"a": "aaaa", "d/b": "b" * 1000, "d/-c\nd": "c", "empty": ""})
    (git.root / "a").chmod(0o755)
    (git.root / "link").symlink_to("d/b")
    git.commit({})
    return git


def bring(agent: Agent, git: Git, revision: str = "HEAD") -> PushStats | None:
    repo = Repository.open(git.root)
    found = repo.revision(revision)
    return sync(agent, repo, found, repo.contents(found))


def trees(agent: Agent) -> list[str]:
    """What is in the pod's directory of trees."""
    return sorted(os.listdir(f"{agent.workdir}/trees"))


def tree_on_pod(agent: Agent, name: str) -> str:
    return tree.tree_hash(tree.scan(Path(agent.workdir, "trees", name)))


def test_a_tree_arrives_and_is_not_sent_again(agent: Agent, git: Git) -> None:
    tree = git("rev-parse", "HEAD^{tree}")
    assert bring(agent, git) == PushStats(4, 1005)
    assert (trees(agent), tree_on_pod(agent, tree)) == ([tree], tree)
    assert bring(agent, git) is None
    assert bring(agent, git, "HEAD~1") is not None


def test_a_change_of_one_file_moves_one_file(agent: Agent, git: Git) -> None:
    bring(agent, git)
    git.commit({"d/b": "B" * 1000})
    assert bring(agent, git) == PushStats(1, 1000)
    tree = git("rev-parse", "HEAD^{tree}")
    assert tree_on_pod(agent, tree) == tree
    assert len(trees(agent)) == 2


def test_the_nearest_tree_is_the_base_whatever_the_order(agent: Agent, git: Git) -> None:
    first = git("rev-parse", "HEAD")
    git.commit({str(n): "x" for n in range(50)})
    bring(agent, git)
    bring(agent, git, first)
    git.commit({"one": "more"})
    assert bring(agent, git) == PushStats(1, 4)


def test_submodules_arrive_with_their_tree(agent: Agent, git: Git, tmp_path: Path) -> None:
    inner = Git(tmp_path / "inner")
    inner.commit({"i": "1", "j": "1"})
    git("submodule", "add", "-q", str(inner.root), "sub")
    git.commit({})
    bring(agent, git)
    inner.commit({"i": "2"})
    git("-C", "sub", "pull", "-q")
    git.commit({})
    assert bring(agent, git) == PushStats(1, 1)
    git("rm", "-qf", "sub")
    git.commit({})
    assert bring(agent, git) == PushStats(1, 0)  # .gitmodules
    assert not Path(agent.workdir, "trees", git("rev-parse", "HEAD^{tree}"), "sub").exists()


def test_a_base_that_somebody_has_changed_is_done_without(agent: Agent, git: Git) -> None:
    tree = git("rev-parse", "HEAD^{tree}")
    bring(agent, git)
    Path(agent.workdir, "trees", tree, "d/b").write_text("tampered")
    git.commit({"a": "changed"})
    assert bring(agent, git) == PushStats(4, 1008)
    assert tree_on_pod(agent, git("rev-parse", "HEAD^{tree}")) == git("rev-parse", "HEAD^{tree}")


def test_trees_share_what_they_have_in_common_and_nobody_reads_it_again(agent: Agent, git: Git) -> None:
    bring(agent, git)
    first = Path(agent.workdir, "trees", git("rev-parse", "HEAD^{tree}"))
    git.commit({"a": "changed"})
    bring(agent, git)
    second = Path(agent.workdir, "trees", git("rev-parse", "HEAD^{tree}"))
    assert (first / "d/b").samefile(second / "d/b") and not (first / "a").samefile(second / "a")
    for place in (first, second):
        manifest = tree.scan(place)
        with mock.patch.object(tree, "entry_of", side_effect=AssertionError):
            assert Pristine(place).scan() == manifest


def test_a_shared_file_that_somebody_has_changed_is_replaced_in_both(agent: Agent, git: Git) -> None:
    bring(agent, git)
    git.commit({"a": "changed"})
    bring(agent, git)
    Path(agent.workdir, "trees", git("rev-parse", "HEAD^{tree}"), "d/b").write_text("B" * 1000)
    assert bring(agent, git, "HEAD~1") == PushStats(4, 1005)
    assert bring(agent, git) == PushStats(1, 7)
    assert tree_on_pod(agent, git("rev-parse", "HEAD^{tree}")) == git("rev-parse", "HEAD^{tree}")


@pytest.mark.parametrize("harm", ["edit", "remove", "add", "mode", "submodule"])
def test_a_tree_that_somebody_has_changed_is_replaced(agent: Agent, git: Git, tmp_path: Path, harm: str) -> None:
    inner = Git(tmp_path / "inner")
    inner.commit({"i": "1"})
    git("submodule", "add", "-q", str(inner.root), "sub")
    git.commit({})
    tree = git("rev-parse", "HEAD^{tree}")
    bring(agent, git)
    assert bring(agent, git) is None
    place = Path(agent.workdir, "trees", tree)
    if harm == "remove":
        (place / "d/b").unlink()
    elif harm == "mode":
        (place / "d/b").chmod(0o755)
    else:
        (place / {"edit": "d/b", "add": "d/new", "submodule": "sub/i"}[harm]).write_text("tampered")
    assert bring(agent, git) is not None
    assert bring(agent, git) is None
    assert (place / "d/b").read_text() == "b" * 1000 and not (place / "d/new").exists()
    assert not [name for name in trees(agent) if name != tree]


def test_what_arrives_wrong_gets_no_name(agent: Agent, git: Git) -> None:
    class Careless:
        """Delivers another byte than was sent."""

        def __getattr__(self, name: str) -> Any:
            return getattr(agent.transport, name)

        def supply(self, argv: list[str], write: Supplier, *, input: bytes) -> Completed:
            def careless(line: bytes, stdin: Writer) -> None:
                with io.BytesIO() as sent:
                    write(line, sent)
                    stdin.write(sent.getvalue().replace(b"aaaa", b"aaab"))

            return agent.transport.supply(argv, careless, input=input)

    with pytest.raises(IntegrityError, match="did not arrive whole"):
        bring(replace(agent, transport=Careless()), git)
    assert trees(agent) == []


def test_what_a_killed_laptop_left_goes_with_the_next_command(agent: Agent, git: Git) -> None:
    for name, age in (("old", 301), ("new", 200)):
        folder = Path(agent.workdir, "trees", f".incoming-{name}")
        folder.mkdir(parents=True)
        then = folder.stat().st_mtime - age
        os.utime(folder, (then, then))
    bring(agent, git)
    assert trees(agent)[0] == ".incoming-new" and len(trees(agent)) == 2


def test_two_laptops_at_once(sshd: Sshd, git: Git, tmp_path: Path) -> None:
    outcomes: list[object] = []

    def one() -> None:
        with open_transport(sshd.pod(workdir=str(tmp_path / "w"))) as transport:
            outcomes.append(bring(install_agent(transport), git))

    threads = [threading.Thread(target=one) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(outcomes) == 3
    assert os.listdir(tmp_path / "w" / "trees") == [git("rev-parse", "HEAD^{tree}")]


# What is lost is what the pod's sshd has not passed on when it sees the reset: at most the window of its channel.
_BIG, _PASSES, _IN_FLIGHT = 8_000_000, 6_000_000, 2 << 20


def test_a_sync_that_is_cut_leaves_the_old_state(
    sshd: Sshd, git: Git, tmp_path: Path, proxy_to: Callable[..., Proxy]
) -> None:
    git.commit({"big": os.urandom(_BIG)})
    proxy = proxy_to(sshd.port)
    with SshTransport(sshd.pod(port=proxy.port, workdir=str(tmp_path / "w"))) as transport:
        agent = install_agent(transport)
        proxy.cut_after(_PASSES)
        with pytest.raises((ContactLost, Unreachable)):
            bring(agent, git)
        proxy.cut_after(None)
        assert [name for name in trees(agent) if not name.startswith(".incoming-")] == []
        agent.transport.connect()
        before = proxy.passed
        assert bring(agent, git) is not None
        again = proxy.passed - before - (_BIG - _PASSES)
        assert again < _IN_FLIGHT + 500_000, "what had come was kept"
        assert len(trees(agent)) == 1, "and nothing is left over"
