"""Revisions and their exact trees, against real git repositories; git itself says what is right."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from orchestrator.agent.git.pristine import Wanted
from orchestrator.errors import InputError
from orchestrator.git.checkout import Change, change
from orchestrator.git.repository import Contents, Repository, Revision
from orchestrator.shared import tree as on_disk
from tests.support.materialise import bring_tree, materialise
from tests.support.repository import Git


@pytest.fixture
def git(tmp_path: Path) -> Git:
    return Git(tmp_path / "repo")


def written(git: Git, target: Path, revision: str = "HEAD") -> tuple[Revision, Contents]:
    """The revision's files in `target`, verified as a pod verifies them."""
    repo = Repository.open(git.root)
    found = repo.revision(revision)
    contents = repo.contents(found)
    materialise(contents.files, target)
    submodules = contents.submodules
    assert on_disk.wrong_hash(on_disk.scan(target), found.tree, submodules) is None
    return found, contents


@pytest.mark.parametrize(
    "name",
    ["HEAD", "main", "v1", "annotated", "HEAD~1", "main^", ":/first", "@{{0}}", "{short}", "{full}", "HEAD^{{/first}}"],
)
def test_whatever_git_resolves(git: Git, name: str) -> None:
    git.commit({"a": "1"})
    git("commit", "--amend", "-q", "-m", "first")
    commit = git.commit({"a": "2"})
    git("tag", "v1", "HEAD~1")
    git("tag", "-a", "-m", "t", "annotated")
    revision = name.format(short=commit[:7], full=commit)
    found = Repository.open(git.root).revision(revision)
    expected = git("log", "-1", "--format=%H %T", *([revision] if revision[0] != ":" else ["HEAD~1"]))
    assert found == Revision(*expected.split())


def refusal(git: Git, revision: str = "HEAD") -> str:
    """The sentence with which a revision is refused; it is bad input."""
    with pytest.raises(InputError) as refused:
        repo = Repository.open(git.root)
        repo.contents(repo.revision(revision))
    assert refused.value.exit_code == 2 and "\n" not in str(refused.value)
    return str(refused.value)


def test_unknown_revisions_are_refused_with_the_nearest_names(git: Git) -> None:
    git.commit({"a": "1"})
    git("branch", "feature/decode")
    assert "did you mean feature/decode?" in refusal(git, "feature/decod")
    assert "is unknown" in refusal(git, "zzz")
    assert "is not a commit" in refusal(git, "HEAD:a")
    assert "is not a commit" in refusal(git, git("rev-parse", "HEAD^{tree}"))
    for odd in ("", "-x", "--all", "a b", "\n", "HEAD:no/such", "HEAD~7", "a..b", "x" * 5000):
        assert "is unknown" in refusal(git, odd)


def test_an_ambiguous_abbreviation_names_its_candidates(git: Git) -> None:
    seen: dict[str, str] = {}
    tree = git("write-tree")
    for n in range(2000):
        commit = git("commit-tree", tree, "-m", str(n))
        if commit[:4] in seen:
            sentence = refusal(git, commit[:4])
            assert "ambiguous" in sentence and commit[:12] in sentence and seen[commit[:4]][:12] in sentence
            return
        seen[commit[:4]] = commit
    pytest.fail("no two commits with the same beginning in 2000")


def test_a_branch_called_like_another_commits_abbreviation(git: Git) -> None:
    first, second = (git("commit-tree", git("write-tree"), "-m", message) for message in "ab")
    git("branch", first[:7], second)
    assert f"is commit {first[:12]}, and a name of {second[:12]}" in refusal(git, first[:7])
    git("branch", "facade0", first)
    assert Repository.open(git.root).revision("facade0").commit == first


def test_a_tag_and_a_branch_of_one_name(git: Git) -> None:
    first, second = (git("commit-tree", git("write-tree"), "-m", message) for message in "ab")
    git("branch", "both", first)
    git("tag", "both", second)
    told = f"a tag and a branch: expected tags/both ({second[:12]}) or heads/both ({first[:12]})"
    assert told in refusal(git, "both") and "both~0" in refusal(git, "both~0")
    assert Repository.open(git.root).revision("heads/both").commit == first
    git("tag", "--force", "both", first)
    assert Repository.open(git.root).revision("both").commit == first


def test_a_branch_beside_a_reference_of_its_name_that_is_none(git: Git) -> None:
    first, second = (git("commit-tree", git("write-tree"), "-m", message) for message in "ab")
    git("branch", "one", first)
    git("update-ref", "refs/one", second)
    assert f"taken by git for commit {second[:12]}: expected heads/one ({first[:12]})" in refusal(git, "one")
    git("update-ref", "refs/one", first)
    assert Repository.open(git.root).revision("one").commit == first


def test_no_tag_takes_the_place_of_head_or_of_a_full_hash(git: Git) -> None:
    first, second = (git("commit-tree", git("write-tree"), "-m", message) for message in "ab")
    git("update-ref", "HEAD", first)
    git("tag", "HEAD", second)
    git("tag", first, second)
    for name in ("HEAD", "@", "HEAD@{0}", first, first.upper(), f"{first}~0"):
        assert Repository.open(git.root).revision(name).commit == first
    assert refusal(git, "HEAD^{tree}").endswith("is not a commit")
    assert "is unknown" in refusal(git, "HEAD..HEAD")


def test_what_a_revision_leaves_out_is_no_commit(git: Git) -> None:
    git("commit", "--allow-empty", "-m", "a")
    assert "'^HEAD'" in refusal(git, "^HEAD") and refusal(git, "^HEAD").endswith("is not a commit")


@pytest.mark.process
def test_what_is_no_repository(tmp_path: Path) -> None:
    for folder, sentence in ((tmp_path, "not inside a git repository"), (tmp_path / "none", "is not a directory")):
        with pytest.raises(InputError, match=sentence):
            Repository.open(folder)
    empty = Git(tmp_path / "empty")
    assert "has no commit yet" in refusal(empty)
    empty.commit({"a": "1"})
    empty("checkout", "-q", "--orphan", "fresh")
    assert refusal(empty).endswith("is on a branch that has no commit: known are main")
    sha256 = Git(tmp_path / "sha256", "--object-format=sha256")
    assert "sha256 objects" in refusal(sha256)


def test_a_folder_below_the_root_and_a_bare_repository(git: Git, tmp_path: Path) -> None:
    commit = git.commit({"sub/a": "1"})
    assert Repository.open(git.root / "sub").root == git.root
    git("clone", "-q", "--bare", str(git.root), str(tmp_path / "bare"))
    bare = Repository.open(tmp_path / "bare")
    assert (bare.revision("main").commit, bare.dirty()) == (commit, [])
    assert list(bare.contents(bare.revision("main")).files) == ["sub/a"]


def test_a_linked_worktree_is_a_repository_of_its_own(git: Git, tmp_path: Path) -> None:
    git.commit({"a": "1"})
    git("worktree", "add", "-q", "-b", "other", str(tmp_path / "linked"))
    linked = Repository.open(tmp_path / "linked")
    (tmp_path / "linked" / "new").touch()
    assert (linked.root, linked.dirty()) == (tmp_path / "linked", ["new"])
    assert Repository.open(git.root).dirty() == []


def test_the_callers_git_variables_take_no_part(git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = git.commit({"a": "1"})
    other = Git(tmp_path / "other")
    other.commit({"b": "2"})
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY"):
        monkeypatch.setenv(name, str(other.root / ".git"))
    assert Repository.open(git.root).revision("HEAD").commit == commit


def test_a_replaced_object_is_not_what_was_committed(git: Git, tmp_path: Path) -> None:
    git.commit({"a": "true"})
    git("replace", git("rev-parse", "HEAD:a"), git.blob(b"false"))
    written(git, tmp_path / "out")
    assert (tmp_path / "out" / "a").read_text() == "true"


def test_files_come_out_as_they_are_stored(git: Git, tmp_path: Path) -> None:
    names = [
        "a b",
        "line\nbreak",
        "ünïcode",
        "-leading",
        "back\\slash",
        "'\"",
        "empty",
        "deep/er/file",
        "#x",
        "trailing ",
    ]
    git.commit({name: name * 3 if name != "empty" else "" for name in names} | {"binary": bytes(range(256)) * 1000})
    (git.root / os.fsdecode(b"\xff\xfe")).write_text("no UTF-8")
    (git.root / "exec").write_text("x")
    (git.root / "exec").chmod(0o755)
    (git.root / "link").symlink_to("deep/er")
    (git.root / "broken").symlink_to("/no such")
    git.commit({})
    written(git, tmp_path / "out")
    assert os.access(tmp_path / "out" / "exec", os.X_OK) and not os.access(tmp_path / "out" / "a b", os.X_OK)
    assert os.readlink(tmp_path / "out" / "link") == "deep/er"


def test_permissions_do_not_depend_on_the_umask(git: Git, tmp_path: Path) -> None:
    git.commit({"d/f": "x"})
    old = os.umask(0o077)
    try:
        written(git, tmp_path / "out")
    finally:
        os.umask(old)
    assert [oct((tmp_path / "out" / p).stat().st_mode & 0o777) for p in (".", "d", "d/f")] == [
        "0o755",
        "0o755",
        "0o644",
    ]


def test_no_attribute_and_no_filter_is_applied(git: Git, tmp_path: Path) -> None:
    attributes = "*.txt text eol=crlf\n*.id ident\nout export-ignore\n*.sub export-subst\n*.f filter=shout\n"
    git("config", "core.autocrlf", "true")
    git("config", "filter.shout.smudge", "tr a-z A-Z")
    content = {"a.txt": "one\ntwo\n", "x.id": "$Id$\n", "out": "kept", "v.sub": "$Format:%H$", "w.f": "quiet"}
    git("config", "core.safecrlf", "false")
    git.commit({".gitattributes": attributes, **content})
    written(git, tmp_path / "out")
    assert {name: (tmp_path / "out" / name).read_bytes().decode() for name in content} == content


def test_two_commits_in_one_second_with_equal_sizes_do_not_mix(git: Git, tmp_path: Path) -> None:
    first, second = git.commit({"a": "aaaa"}), git.commit({"a": "bbbb"})
    for n, commit in enumerate((first, second, first)):
        written(git, tmp_path / str(n), commit)
    assert [(tmp_path / str(n) / "a").read_text() for n in range(3)] == ["aaaa", "bbbb", "aaaa"]


def test_what_is_not_committed_is_said(git: Git) -> None:
    git.commit({"tracked": "1", ".gitignore": "ignored\n", "gone": "1", "sub dir/x": "1"})
    repo = Repository.open(git.root)
    assert repo.dirty() == []
    (git.root / "ignored").touch()
    assert repo.dirty() == []
    (git.root / "tracked").write_text("2")
    (git.root / "gone").unlink()
    (git.root / "new\nfile").touch()
    git("mv", "sub dir/x", "sub dir/y")
    assert sorted(repo.dirty()) == ["gone", "new\nfile", "sub dir/x", "sub dir/y", "tracked"]


def test_looking_takes_no_lock(git: Git) -> None:
    git.commit({"a": "1"})
    (git.root / ".git" / "index.lock").touch()
    (git.root / "a").touch()
    assert Repository.open(git.root).dirty() == []


def test_blobs_and_commits(git: Git, tmp_path: Path) -> None:
    commit = git.commit({"a b": "content", "d/e": "x"})
    repo = Repository.open(git.root)
    assert repo.blob_at(commit, "a b") == b"content"
    assert [repo.blob_at(commit, path) for path in ("nope", "d", "../a b", "/etc/passwd")] == [None] * 4
    assert repo.has_commit(commit) and not repo.has_commit("0" * 40) and not repo.has_commit("HEAD")
    assert repo.commit_object(commit).startswith(f"tree {repo.revision(commit).tree}".encode())


@pytest.mark.parametrize("name", ["..", ".", ".git", ".GIT", "git~1", ".git ", ".git."])
def test_dangerous_paths_are_refused(git: Git, name: str) -> None:
    inner = git.tree([("100644", git.blob(b"x"), "config")])
    outer = git.tree([("40000", inner, name)])
    assert "cannot be written safely" in refusal(git, git("commit-tree", outer, "-m", "c"))


def test_a_link_with_something_below_it_is_refused(git: Git) -> None:
    below = git.tree([("100644", git.blob(b"x"), "passwd")])
    both = git.tree([("120000", git.blob(b"/etc"), "a"), ("40000", below, "a")])
    assert "below a file or a link" in refusal(git, git("commit-tree", both, "-m", "c"))


def test_modes_that_could_not_be_had_back_are_refused(git: Git) -> None:
    tree = git.tree([("100664", git.blob(b"x"), "old")])
    assert "no directory can give back" in refusal(git, git("commit-tree", tree, "-m", "c"))
    empty = git.tree([("40000", git.tree([]), "empty")])
    assert "no directory can give back" in refusal(git, git("commit-tree", empty, "-m", "c"))


def test_a_missing_object_is_said(git: Git, tmp_path: Path) -> None:
    git.commit({"a": "1"})
    blob = git("rev-parse", "HEAD:a")
    (git.root / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    with pytest.raises(InputError, match=f"object {blob} is missing"):
        written(git, tmp_path / "out")


def test_a_shallow_clone_says_so(git: Git, tmp_path: Path) -> None:
    old = git.commit({"a": "1"})
    git.commit({"a": "2"})
    git("clone", "-q", "--depth", "1", f"file://{git.root}", str(tmp_path / "shallow"))
    shallow = Git(tmp_path / "shallow")
    written(shallow, tmp_path / "out")
    assert all("git fetch --unshallow" in refusal(shallow, name) for name in (old, "HEAD~1", "HEAD^"))
    assert "did you mean" in refusal(shallow, "mian")


def test_submodules_are_part_of_the_tree(git: Git, tmp_path: Path) -> None:
    inner = Git(tmp_path / "inner")
    nested = Git(tmp_path / "nested")
    nested_commit = nested.commit({"deep": "nested"})
    inner.commit({"i": "inner"})
    inner("submodule", "add", "-q", str(nested.root), "n n")
    inner_commit = inner.commit({})
    git.commit({"o": "outer"})
    git("submodule", "add", "-q", "--name", "another name", str(inner.root), "libs/inner")
    git.commit({})
    _, contents = written(git, tmp_path / "before")
    assert on_disk.without_files(contents.submodules) == ["libs/inner/n n"]
    git("submodule", "update", "-q", "--init", "--recursive")
    _, contents = written(git, tmp_path / "out")
    assert on_disk.without_files(contents.submodules) == []
    assert [(s["path"], s["commit"]) for s in contents.submodules] == [
        ("libs/inner", inner_commit), ("libs/inner/n n", nested_commit)
    ]  # fmt: skip
    assert (tmp_path / "out" / "libs" / "inner" / "n n" / "deep").read_text() == "nested"


def test_an_older_commit_of_a_submodule_whose_working_tree_is_gone(git: Git, tmp_path: Path) -> None:
    inner = Git(tmp_path / "inner")
    inner.commit({"i": "1"})
    git("submodule", "add", "-q", str(inner.root), "sub")
    old = git.commit({})
    git("rm", "-q", "-f", "sub")
    git.commit({})
    assert not (git.root / "sub").exists()
    written(git, tmp_path / "out", old)
    assert (tmp_path / "out" / "sub" / "i").read_text() == "1"


def test_nothing_of_a_submodule_that_is_not_there_is_shipped(git: Git, tmp_path: Path) -> None:
    inner = Git(tmp_path / "inner")
    inner.commit({"i": "1"})
    git("submodule", "add", "-q", str(inner.root), "sub")
    git.commit({"o": "outer"})
    git("clone", "-q", str(git.root), str(tmp_path / "clone"))
    _, contents = written(Git(tmp_path / "clone"), tmp_path / "out")
    assert set(contents.files) == {".gitmodules", "o"} and on_disk.without_files(contents.submodules) == ["sub"]
    git("update-index", "--cacheinfo", f"160000,{'1' * 40},sub")
    git("commit", "-q", "-m", "not there")
    _, contents = written(git, tmp_path / "out of another commit")
    assert on_disk.without_files(contents.submodules) == ["sub"]


def test_a_dirty_submodule_is_dirty(git: Git, tmp_path: Path) -> None:
    inner = Git(tmp_path / "inner")
    inner.commit({"i": "1"})
    git("submodule", "add", "-q", str(inner.root), "sub")
    git.commit({})
    (git.root / "sub" / "i").write_text("2")
    assert Repository.open(git.root).dirty() == ["sub"]


CHANGES = {
    "nothing": "true",
    "one file": "echo changed > d/e/f",
    "removed": "rm d/e/f",
    "file to directory": "rm a; mkdir a; echo x > a/b",
    "directory to file": "rm -r d; echo x > d",
    "file to link": "rm a; ln -s d/e/f a",
    "link to file": "rm l; echo x > l",
    "link elsewhere": "ln -sf d l",
    "link to directory": "rm l; mkdir l; echo x > l/x",
    "bits": "chmod +x a",
    "renamed": "mv d dd",
    "all gone": "rm -r a d h l",
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_makes_one_tree_of_another(git: Git, tmp_path: Path, name: str) -> None:
    git.commit({"a": "1", "d/e/f": "2", "d/g": "3", "h/i": "4"})
    (git.root / "l").symlink_to("a")
    git.commit({})
    repo, trees = Repository.open(git.root), tmp_path / "trees"
    before = repo.revision("HEAD").tree
    files = repo.contents_of_tree(before).files
    bring_tree(Change(files, ()), trees, Wanted(before, ()))
    subprocess.run(["sh", "-ec", CHANGES[name]], cwd=git.root, check=True)
    git.commit({})
    after = repo.revision("HEAD").tree
    found = change(files, repo.contents_of_tree(after).files)
    made = bring_tree(found, trees, Wanted(after, ()), before)
    assert on_disk.tree_hash(on_disk.scan(made)) == after
    assert on_disk.tree_hash(on_disk.scan(trees / before)) == before
    if name == "one file":
        assert (list(found.files), found.removed) == (["d/e/f"], ())
    if name == "renamed":
        assert found.removed == ("d",)


def test_the_nearest_tree_is_the_one_with_the_fewest_differences(git: Git) -> None:
    files = {str(n): "x" for n in range(10)}
    trees = [git.commit(files) and git("rev-parse", "HEAD^{tree}")]
    for n in range(3):
        git.commit({str(n): "y"})
        trees.append(git("rev-parse", "HEAD^{tree}"))
    repo = Repository.open(git.root)
    assert repo.nearest(trees[3], [trees[0], trees[2], trees[1]]) == trees[2]
    assert repo.nearest(trees[3], ["0" * 40, "not a hash", ".incoming-x"]) is None
    assert repo.nearest(trees[3], [git("rev-parse", "HEAD")]) is None
    assert repo.diff_size(trees[0], trees[3]) == 3
