"""Trees on disk against git itself."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from orchestrator.agent.git.pristine import Wanted, adopt
from orchestrator.shared import tree
from orchestrator.shared.failure import Failure
from orchestrator.shared.files import Refused, copy_inside, describe, open_inside
from orchestrator.shared.plan import Submodule
from tests.support.agent_pod import Pod
from tests.support.files import write_files

FILES = {
    "a": "1\n", "a.b/c": "2\n", "a-b": "3", "a0": "", "Z/Y/x": "x\r\n", "Z/é ü": "é", "sub.d/e": "\0bin",
}  # fmt: skip


def git(root: Path, *argv: str) -> str:
    own = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@b"}
    env = {**os.environ, **own, "GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@b"}
    allowed = ("-c", "protocol.file.allow=always", "-c", "core.autocrlf=false")
    done = subprocess.run(["git", *allowed, *argv], cwd=root, env=env, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    root.mkdir()
    git(root, "init", "-q")
    write_files(root, FILES)
    (root / "a0").chmod(0o755)
    (root / "link").symlink_to("a.b/c")
    (root / "dangling").symlink_to("nowhere")
    (root / "empty").mkdir()
    git(root, "add", "-A")
    git(root, "commit", "-qm", "one")
    return root


def test_the_hash_is_gits(repo: Path) -> None:
    manifest = tree.scan(repo)
    assert tree.tree_hash(manifest) == git(repo, "rev-parse", "HEAD^{tree}")
    assert manifest["a0"][0] == "100755" and manifest["link"][0] == "120000"


def test_submodules(repo: Path, tmp_path: Path) -> None:
    outer = tmp_path / "outer"
    outer.mkdir()
    git(outer, "init", "-q")
    git(outer, "submodule", "add", "-q", str(repo), "libs/inner")
    git(outer, "commit", "-qm", "one")
    expected = git(outer, "rev-parse", "HEAD^{tree}")
    inner = outer / "libs/inner"
    commit, found = git(inner, "rev-parse", "HEAD"), git(inner, "rev-parse", "HEAD^{tree}")
    submodule = Submodule(path="libs/inner", commit=commit, tree=found)
    (inner / ".git").unlink()
    assert tree.wrong_hash(tree.scan(outer), expected, [submodule]) is None
    (inner / "a").write_text("changed")
    assert "submodule libs/inner" in str(tree.wrong_hash(tree.scan(outer), expected, [submodule]))
    assert "expected" in str(tree.wrong_hash(tree.scan(outer), expected, []))


def test_a_copy_is_equal_and_no_link(repo: Path, tmp_path: Path) -> None:
    tree.copy(repo, tmp_path / "copy")
    assert tree.scan(tmp_path / "copy") == tree.scan(repo) and not (tmp_path / "copy/.git").exists()
    assert not os.path.samefile(repo / "a", tmp_path / "copy/a")


def test_adopt_tree(pod: Pod) -> None:
    hashed = pod.add_tree({"a.txt": "1\n"})
    target = pod.workdir / "trees" / hashed
    assert tree.tree_hash(tree.scan(target)) == hashed
    assert pod.add_tree({"a.txt": "1\n"}) == hashed, "the same tree again, while it is there"
    (target / "a.txt").write_text("rotten")
    pod.add_tree({"a.txt": "1\n"})
    assert (target / "a.txt").read_text() == "1\n", "a tree that is not what its name says is replaced"
    assert [p.name for p in (pod.workdir / "trees").iterdir()] == [hashed]


def test_a_tree_that_did_not_arrive_whole_is_refused(tmp_path: Path) -> None:
    incoming = tmp_path / "incoming"
    incoming.mkdir()
    (incoming / "a").write_text("1")
    with pytest.raises(Failure, match="did not arrive whole"):
        adopt(incoming, tmp_path / "trees" / ("0" * 40), Wanted("0" * 40, ()))
    assert incoming.exists()


# Files that may be hostile ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("/etc/passwd", "outside"),
        ("../x", "outside"),
        ("a/../../x", "outside"),
        ("link", "symbolic link"),
        ("linked/passwd", "symbolic link"),
        ("folder", "not a regular file"),
        ("pipe", "not a regular file"),
        ("socket", "not a regular file"),
        ("", "outside"),
    ],
)
def test_open_inside_refuses(tmp_path: Path, name: str, why: str) -> None:
    os.chdir(tmp_path)
    (tmp_path / "link").symlink_to("/etc/passwd")
    (tmp_path / "linked").symlink_to("/etc")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    os.mknod(tmp_path / "socket", stat.S_IFSOCK | 0o600)
    with pytest.raises(Refused, match=why), open_inside(tmp_path, name):
        pass


def test_copy_inside_never_overwrites(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    copy_inside(tmp_path, "a", tmp_path, "deep/b")
    assert describe(tmp_path, "deep/b")["bytes"] == 1
    with pytest.raises(FileExistsError):
        copy_inside(tmp_path, "a", tmp_path, "deep/b")
