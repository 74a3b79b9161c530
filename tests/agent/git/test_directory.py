"""The .git of a run's tree, asked by git itself."""

from __future__ import annotations

import base64
import os
import subprocess
from collections.abc import Sequence
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent.git import packs
from orchestrator.agent.git.directory import GitDirectory
from orchestrator.git.ancestry import ancestry_of
from orchestrator.git.repository import Repository
from orchestrator.shared import tree
from orchestrator.shared.failure import Failure
from tests.support.materialise import materialise
from tests.support.repository import Git

pytestmark = pytest.mark.process

FILES: dict[str, str | bytes] = {
    "a.txt": "1\n",
    "a-b": "2\n",
    "a/b/c.py": "c\n",
    "long/" + "x" * 200: "3\n",
    "odd\nname é": "4\n",
    "big.bin": os.urandom(1 << 17),
    ".gitattributes": "*.txt text eol=crlf export-ignore\n*.dat filter=lfs diff=lfs merge=lfs -text\n",
    "w.dat": "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n",
}


@pytest.fixture
def repo(tmp_path: Path) -> Git:
    repo = Git(tmp_path / "repo")
    repo.commit(FILES)
    return repo


def arrive(repo: Git, pod: Path, revision: str = "HEAD", **over: Any) -> Path:
    """The tree of a run of the commit, with its .git; the store of objects is the pod's."""
    here = Repository.open(repo.root)
    found = here.revision(revision)
    contents = here.contents(found)
    root = pod / f"run-{len(list(pod.iterdir())) if pod.exists() else 0}"
    pod.mkdir(exist_ok=True)
    materialise(contents.files, root)
    plan: Any = {
        "commit": found.commit,
        "commit_object": base64.b64encode(here.commit_object(found.commit)).decode(),
        "ancestry": ancestry_of(here, found.commit),
        "tree": found.tree,
        "submodules": contents.submodules,
        **over,
    }
    GitDirectory(root, plan, tree.scan(root), pod / "objects").renew()
    return root


def git(root: Path, *arguments: str) -> str:
    env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    who = ("-c", "user.name=A", "-c", "user.email=a@b")
    done = subprocess.run(["git", *who, *arguments], cwd=root, env=env, capture_output=True, text=True)
    assert done.returncode == 0, (arguments, done.stderr)
    assert "error" not in done.stderr
    return done.stdout.strip()


def same(repo: Git, root: Path, *questions: Sequence[str]) -> None:
    """The answers are those of the repository that the commit is from."""
    for question in questions:
        assert git(root, *question) == git(repo.root, *question), question


def test_what_a_clone_of_depth_1_answers(repo: Git, tmp_path: Path) -> None:
    os.symlink("a/b", repo.root / "link")
    (repo.root / "a-b").chmod(0o755)
    repo.commit({})
    root = arrive(repo, tmp_path / "pod")
    clone = Git(tmp_path / "clone")
    clone("pull", "-q", "--depth", "1", f"file://{repo.root}", "main")
    same(clone, root, ["show"], ["log"], ["describe", "--always", "--dirty"], ["status", "--porcelain"])
    assert git(root, "status", "--porcelain") == git(root, "diff", "HEAD") == git(root, "diff", "--cached") == ""
    same(repo, root, ["ls-files", "-s"], ["ls-tree", "-r", "HEAD"], ["rev-parse", "HEAD", "HEAD^{tree}"])
    same(repo, root, ["show", "HEAD:a.txt"], ["log", "-1"], ["describe", "--always"], ["archive", "HEAD", "a"])
    assert git(root, "fsck", "--full", "--strict") == ""
    assert git(root, "rev-list", "--count", "HEAD") == "1"


def test_what_a_stage_may_do_with_it(repo: Git, tmp_path: Path) -> None:
    root = arrive(repo, tmp_path / "pod")
    (root / "a.txt").write_text("changed\n")
    (root / "new.txt").write_text("n\n")
    assert git(root, "status", "--porcelain").split("\n") == ["M a.txt", "?? new.txt"]
    assert "+changed" in git(root, "diff")
    git(root, "stash", "-q")
    assert (root / "a.txt").read_text() == "1\n"
    git(root, "stash", "pop", "-q")
    git(root, "checkout", "-q", "big.bin", "a.txt")
    git(root, "add", "new.txt")
    git(root, "commit", "-qm", "more")
    git(root, "clone", "-q", "--no-local", ".", str(tmp_path / "clone"))
    git(root, "worktree", "add", "-q", str(tmp_path / "worktree"))
    assert (tmp_path / "worktree" / "new.txt").exists()
    git(root, "gc", "-q")
    git(root, "fsck")


def test_the_index_knows_the_files_as_they_are(repo: Git, tmp_path: Path) -> None:
    root = arrive(repo, tmp_path / "pod")
    assert git(root, "diff-files") == "", "nothing to be read: sizes, times and inodes are those on the disk"
    os.utime(root / "a.txt", (1, 1))
    assert git(root, "diff-files", "--name-only") == "a.txt" and git(root, "status", "--porcelain") == ""


def test_a_later_commit_adds_what_is_new(repo: Git, tmp_path: Path) -> None:
    pod = tmp_path / "pod"
    arrive(repo, pod)
    (first,) = (pod / "objects/pack").glob("*.pack")
    arrive(repo, pod)
    assert list((pod / "objects/pack").glob("*.pack")) == [first], "the same again is there already"
    repo.commit({"a.txt": "new\n"})
    git(arrive(repo, pod), "fsck", "--full")
    (second,) = set((pod / "objects/pack").glob("*.pack")) - {first}
    listed = git(pod, "verify-pack", "-v", str(second)).split("\n")
    assert sum(line[41:45] in ("blob", "tree", "comm") for line in listed) == 3


def test_an_offset_beyond_2_gib_has_a_place_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(packs, "_LARGE", 20)
    data = packs._index([packs._Entry(bytes([n]) * 20, 12 + n * 10, n) for n in range(3)], b"p" * 20)
    offsets = data[8 + 1024 + 3 * 24 :][:12]
    assert offsets == b"\0\0\0\x0c" + b"\0\0\0\x14\0\0\0\x15"
    assert data[8 + 1024 + 3 * 28 :][:16] == (22).to_bytes(8, "big") + (32).to_bytes(8, "big")


# Tags and counts --------------------------------------------------------------------------------------------------

DESCRIBE = (["describe", "--tags"], ["describe", "--tags", "--long", "--dirty", "--match", "*[0-9]*"])


def commits(repo: Git, number: int) -> None:
    for _ in range(number):
        repo("commit", "-q", "--allow-empty", "-m", "c")


def test_describe_counts_as_at_home(repo: Git, tmp_path: Path) -> None:
    commits(repo, 3)
    repo("tag", "-a", "v1.0", "-m", "one")
    commits(repo, 2)
    repo("tag", "light-2")
    repo("tag", "nightly")
    commits(repo, 4)
    root = arrive(repo, tmp_path / "pod")
    same(repo, root, ["describe"], *DESCRIBE, ["describe", "--exclude", "*2*", "--tags"], ["describe", "--long"])
    assert git(root, "describe") == f"v1.0-6-g{repo('rev-parse', '--short', 'HEAD')}"
    assert git(root, "tag").split() == ["light-2", "nightly", "v1.0"]
    assert git(root, "cat-file", "tag", "v1.0") == repo("cat-file", "tag", "v1.0")
    git(root, "fsck", "--full")


@pytest.mark.parametrize("kind", ["annotated", "light"])
def test_the_tag_of_the_commit_itself(repo: Git, tmp_path: Path, kind: str) -> None:
    commits(repo, 2)
    repo("tag", *(("-a", "-m", "x") if kind == "annotated" else ()), "v2")
    root = arrive(repo, tmp_path / "pod")
    same(repo, root, *DESCRIBE)
    assert git(root, "rev-list", "--count", "HEAD") == "1"


@pytest.mark.parametrize("later", ["11111111111111111111", "00000000000000000010", "00000000000000000100"])
def test_a_branch_that_began_before_the_tag_and_was_merged_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later: str
) -> None:
    """`later`: by how many seconds each commit is later than the one before. Git walks by date, and counts otherwise
    where several have one and the commits before the tag are not there.
    """
    repo = Git(tmp_path / "repo")
    dates = (f"{2000000000 + second} +0000" for second in accumulate(map(int, later)))

    def make(*command: str, times: int = 1) -> None:
        for date in islice(dates, times):
            for name in ("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"):
                monkeypatch.setenv(name, date)
            repo(*command)

    commit, merge = ("commit", "-q", "--allow-empty", "-m", "c"), ("merge", "-q", "--no-ff", "-m")
    make(*commit, times=6)
    repo("checkout", "-qb", "side")
    make(*commit, times=2)
    repo("checkout", "-q", "main")
    make(*commit, times=3)
    make(*merge, "early", "side")
    repo("tag", "v1")
    repo("checkout", "-q", "side")
    make(*commit, times=2)
    repo("checkout", "-q", "main")
    make(*commit)
    make(*merge, "late", "side")
    repo("checkout", "-q", "--orphan", "other")
    make(*commit, times=3)
    repo("checkout", "-qf", "main")
    make(*merge, "subtree", "--allow-unrelated-histories", "other")
    root = arrive(repo, tmp_path / "pod")
    same(repo, root, *DESCRIBE)


def test_no_tag_or_one_too_far_away(repo: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = Repository.open(repo.root)
    head = here.revision("HEAD").commit
    assert ancestry_of(here, head) == {"objects": "", "tags": {}}
    repo("tag", "v1")
    commits(repo, 5)
    monkeypatch.setattr("orchestrator.git.ancestry._MOST_COMMITS", 4)
    assert ancestry_of(here, here.revision("HEAD").commit) == {"objects": "", "tags": {}}
    assert git(arrive(repo, tmp_path / "pod"), "status", "--porcelain") == ""


# Odd repositories -------------------------------------------------------------------------------------------------


def test_a_submodule(repo: Git, tmp_path: Path) -> None:
    inner = Git(tmp_path / "inner")
    inner.commit({"i.py": "1\n"})
    repo("submodule", "add", "-q", str(inner.root), "libs/inner")
    repo.commit({})
    root = arrive(repo, tmp_path / "pod")
    assert (root / "libs/inner/i.py").exists() and git(root, "status", "--porcelain") == ""
    same(repo, root, ["ls-files", "-s"], ["ls-tree", "-r", "HEAD"])


def test_a_submodule_that_the_clone_does_not_have(repo: Git, tmp_path: Path) -> None:
    repo("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},libs/inner")
    repo("commit", "-q", "-m", "with a submodule")
    root = arrive(repo, tmp_path / "pod")
    assert git(root, "status", "--porcelain") == ""
    same(repo, root, ["ls-files", "-s"], ["ls-tree", "-r", "HEAD"])


def test_shallow_clones_and_worktrees(repo: Git, tmp_path: Path) -> None:
    commits(repo, 3)
    repo("tag", "v3")
    commits(repo, 2)
    shallow = Git(tmp_path / "shallow")
    shallow("fetch", "-q", "--depth", "4", "--tags", f"file://{repo.root}", "main")
    shallow("checkout", "-q", "FETCH_HEAD")
    same(repo, arrive(shallow, tmp_path / "pod"), *DESCRIBE)
    repo("worktree", "add", "-q", str(tmp_path / "other"))
    linked = Git.__new__(Git)
    linked.root = tmp_path / "other"
    same(repo, arrive(linked, tmp_path / "pod"), *DESCRIBE)


def test_what_does_not_belong_together_is_refused(repo: Git, tmp_path: Path) -> None:
    first = repo("rev-parse", "HEAD")
    repo.commit({"a.txt": "2\n"})
    with pytest.raises(Failure, match="is not that of"):
        arrive(repo, tmp_path / "pod", commit=first)
    with pytest.raises(Failure, match="cannot be read"):
        arrive(repo, tmp_path / "pod", ancestry={"objects": base64.b64encode(b"x").decode(), "tags": {}})
    torn = {"objects": "", "tags": {"v1": "0" * 40, "bad\nname": first}}
    assert git(arrive(repo, tmp_path / "pod", ancestry=torn), "tag") == ""


def test_a_branch_at_the_commit_is_as_good_as_none(repo: Git, tmp_path: Path) -> None:
    here = Repository.open(repo.root)
    found = here.revision("HEAD")
    root = tmp_path / "root"
    materialise(here.contents(found).files, root)
    content = base64.b64encode(here.commit_object(found.commit)).decode()
    plan: Any = {"commit": found.commit, "commit_object": content, "tree": found.tree, "submodules": []}
    directory = GitDirectory(root, plan, tree.scan(root), tmp_path / "objects")
    directory.renew()
    git(root, "checkout", "-qb", "work")
    assert directory.is_at_commit()
    git(root, "commit", "--allow-empty", "-qm", "other")
    assert not directory.is_at_commit()
    (root / ".git/hooks").mkdir(exist_ok=True)
    directory.renew()
    assert directory.is_at_commit() and not (root / ".git/hooks").exists() and git(root, "branch") != "work"
    (root / "a.txt").unlink()
    assert git(root, "status", "--porcelain") == "D a.txt"
