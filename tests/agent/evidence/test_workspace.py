"""What a stage did to the tree, and the clean tree that the next one gets."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent.evidence import workspace as workspaces
from orchestrator.agent.evidence.workspace import Aftermath, Workspace
from orchestrator.agent.host.file_watch import FileWatch
from orchestrator.agent.layout import Layout
from orchestrator.shared import tree
from tests.support.agent_pod import COMMIT, artifact, stage
from tests.support.files import write_files

FILES = {
    "a.py": "A = 1\n",
    "pkg/core.py": "VALUE = 1\n",
    "pkg/__init__.py": "",
    "data/snapshot.json": "{}\n",
    "run": "#!/bin/sh\n",
    "odd\nname.txt": "x",
}

pytestmark = pytest.mark.process


class Ground:
    """A run's tree in its places."""

    def __init__(self, workdir: Path, *stages: dict[str, Any]) -> None:
        self.places = Layout(workdir / "runs" / "r")
        pristine = workdir / "trees" / "t"
        write_files(pristine, FILES)
        (pristine / "run").chmod(0o755)
        os.symlink("pkg", pristine / "link")
        self.places.run_dir.mkdir(parents=True)
        self.stages = stages or (stage("s", ["true"]),)
        self.plan: Any = {"commit": COMMIT, "commit_object": "", "tree": "t", "submodules": [], "stages": self.stages}
        self.manifest = tree.scan(pristine)
        self.root = self.places.tree
        tree.copy(pristine, self.root)
        self.workspace = Workspace(self.plan, self.places, self.manifest)

    def after(self, does: Callable[[Path], object], number: int = 0) -> Aftermath:
        """What is found when a stage has done this; the next one finds the commit's tree."""
        self.workspace.begin()
        does(self.root)
        done = self.workspace.end(self.stages[number])
        assert {path: tree.entry_of(self.root / path) for path in self.manifest} == self.manifest
        return done


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


def sh(command: str) -> Callable[[Path], object]:
    return lambda root: subprocess.run(["bash", "-ec", command], cwd=root, check=True, capture_output=True)


def test_a_stage_that_does_nothing(ground: Ground) -> None:
    assert ground.after(lambda root: None) == Aftermath()


@pytest.mark.parametrize(
    "command",
    [
        "touch a.py pkg/*.py",
        "touch -d 2001-01-01 a.py",
        "find . -exec touch {} +",
        "chmod -R g+rwx,o+w . && chmod -R go-rwx . && chmod +x run",
        "chmod -R a-w pkg data",
        "ln a.py b.py && rm b.py",
        "ln pkg/core.py pkg/copy.py",
        "cp -p a.py copied; rm copied; cat pkg/core.py",
        'python3 -c \'open("a.py", "a").close()\'',
        "sed -n s/1/2/p a.py",
        "cp -r pkg other && sed -i s/1/2/ other/core.py",
    ],
)
def test_times_modes_and_links_are_no_change(ground: Ground, command: str) -> None:
    done = ground.after(sh(command))
    assert (done.changed, done.rewritten, done.set_back, done.stuck) == ([], [], [], [])


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("cp a.py old; echo B = 1 > a.py; cp old a.py", "a.py"),
        ("cp -p a.py old; echo B = 1 > a.py; cp -p old a.py", "a.py"),
        ("cp -p a.py old; sed -i s/1/2/ a.py; cp -p old a.py", "a.py"),
        ("mv a.py old; echo > a.py; mv old a.py", "a.py"),
        ("mv pkg old; cp -r old pkg; echo > pkg/core.py; rm -r pkg; mv old pkg", "pkg/core.py"),
        ("cp -pr pkg old; rm -r pkg; mv old pkg", "pkg/core.py"),
        ("cp run old; echo exit >> run; cat old > run", "run"),
    ],
)
def test_code_that_is_rewritten_and_set_back(ground: Ground, command: str, named: str) -> None:
    done = ground.after(sh(command))
    assert done.changed == [] and named in done.rewritten
    assert ground.after(lambda root: None) == Aftermath(), "the next stage begins anew"


def test_data_that_is_rewritten_and_set_back_is_a_note(ground: Ground) -> None:
    done = ground.after(sh("echo '[]' > data/snapshot.json; echo '{}' > data/snapshot.json"))
    assert (done.changed, done.rewritten, done.set_back) == ([], [], ["data/snapshot.json"])


def test_without_events_the_time_of_the_last_write_tells(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FileWatch, "take", lambda self: None)
    assert ground.after(sh("cp a.py old; echo > a.py; cp old a.py")).rewritten == ["a.py"]
    assert ground.after(sh("chmod -R a-w . && chmod -R u+w . && ln a.py c.py")).rewritten == []


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("echo '#' >> a.py", ["a.py"]),
        ("rm -r pkg", ["pkg/__init__.py", "pkg/core.py"]),
        ("rm -r pkg; ln -s /tmp pkg", ["pkg/__init__.py", "pkg/core.py"]),
        ("rm a.py; mkdir -p a.py/b; touch a.py/b/c", ["a.py"]),
        ("chmod -x run", ["run"]),
        ("rm 'odd\nname.txt'", ["odd\nname.txt"]),
        ("ln -sfn data link", ["link"]),
        ("rm -rf .git", [".git/HEAD"]),
        ("find . -mindepth 1 -delete", [*sorted([*FILES, "link"]), ".git/HEAD"]),
    ],
)
def test_what_is_changed_is_named_and_restored(ground: Ground, command: str, named: list[str]) -> None:
    assert ground.after(sh(command)).changed == named
    assert ground.after(lambda root: None) == Aftermath()


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("mkdir -p pkg/__pycache__ && touch pkg/__pycache__/core.pyc .coverage", [".coverage", "pkg/__pycache__/"]),
        ("mkdir -p build/deep/er && touch build/deep/er/x && chmod -R a-rwx build", ["build/"]),
        ("mkdir empty", ["empty/"]),
        ("ln -s /etc pkg/etc", ["pkg/etc"]),
        ("mkfifo pipe", ["pipe"]),
        ("touch $'new\\nline' $'\\xff'", ["new\nline", "\udcff"]),
        ("chmod a-w pkg; touch x", ["x"]),
    ],
)
def test_what_is_left_is_removed(ground: Ground, command: str, named: list[str]) -> None:
    done = ground.after(sh(command))
    assert (done.left, done.changed, done.stuck) == (named, [], [])
    assert sorted(p.name for p in ground.root.iterdir()) == sorted({".git", "link", *(n.split("/")[0] for n in FILES)})
    assert stat_mode(ground.root / "pkg") == stat_mode(ground.root / "data")


def stat_mode(path: Path) -> int:
    return path.stat().st_mode


def test_what_is_left_is_told_in_bounds(ground: Ground) -> None:
    done = ground.after(sh("touch junk{1..100}"))
    assert done.told_left["count"] == 100 and len(done.told_left["first"]) == 20


def test_builds_survive_stages_that_spoil_them_and_a_resume(tmp_path: Path) -> None:
    build = stage("build", ["true"], builds=["pkg/*.so", "out"])
    ground = Ground(tmp_path, build, stage("use", ["true"]))
    done = ground.after(sh("mkdir -p out/deep tmp; touch out/deep/a tmp/b; echo 1 > pkg/c.so; ln -s c.so pkg/d.so"))
    assert sorted(done.built) == ["out/deep/a", "pkg/c.so", "pkg/d.so"] and done.left == ["tmp/"]
    spoiled = ground.after(sh("rm -r out; echo 2 > pkg/c.so; touch pkg/e.so"), 1)
    assert (spoiled.changed, spoiled.left, spoiled.built) == ([], ["pkg/e.so"], {})
    assert (ground.root / "pkg/c.so").read_text() == "1\n" and (ground.root / "out/deep/a").exists()

    shutil.rmtree(ground.root)
    tree.copy(ground.places.pristine("t"), ground.root)
    Workspace(ground.plan, ground.places, ground.manifest)
    assert (ground.root / "pkg/d.so").read_text() == "1\n" and (ground.root / "out/deep/a").exists()
    assert done.told_built and done.told_built["tree"] == tree.tree_hash(tree.scan(ground.places.builds / "build"))


def test_a_later_stage_may_build_the_same_again(tmp_path: Path) -> None:
    ground = Ground(tmp_path, *(stage(name, ["true"], builds=["*.so"]) for name in ("one", "two", "three")))
    ground.after(sh("echo 1 > c.so"))
    assert list(ground.after(sh("echo 2 > c.so"), 1).built) == ["c.so"]
    ground.after(sh("rm c.so"), 2)
    assert (ground.root / "c.so").read_text() == "2\n"


def test_what_is_owed_in_the_tree_stays(tmp_path: Path) -> None:
    owes = stage("s", ["true"], expect={"artifacts": [artifact("o.txt", from_="tree:out/[a].txt")]})
    ground = Ground(tmp_path, owes)
    done = ground.after(sh("mkdir out; touch 'out/[a].txt' out/a.txt"))
    assert (list(done.built), done.left) == (["out/[a].txt"], ["out/a.txt"])


def test_what_may_not_be_kept_is_left(tmp_path: Path) -> None:
    ground = Ground(tmp_path, stage("s", ["true"], builds=["*.so"]))
    ground.workspace.begin()
    (ground.root / "secret.so").touch()
    done = ground.workspace.end(ground.stages[0], lambda path: False)
    assert (done.built, done.left) == ({}, ["secret.so"])


def test_too_much_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspaces, "_MOST_BUILT_BYTES", 10)
    ground = Ground(tmp_path, stage("s", ["true"], builds=["*.so"]))
    done = ground.after(sh("truncate -s 1T a.so"))
    assert (done.built, done.left) == ({}, ["a.so"])


def test_many_files_cost_little(tmp_path: Path) -> None:
    pristine = tmp_path / "trees" / "t"
    for number in range(3000):
        folder = pristine / f"d{number % 100}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"f{number}.py").write_text(str(number))
    ground = Ground(tmp_path)
    began = time.process_time()  # of the cores, whoever else uses them
    assert ground.after(sh("mkdir b; touch b/{1..3000}")).left == ["b/"]
    assert time.process_time() - began < 1  # it takes a sixth of that
