"""The workdir is this user's alone, and only the agent that was meant is run from it."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.config.inventory import Pod
from orchestrator.errors import NsaPodError, PodError
from orchestrator.pod import boot
from orchestrator.pod.client import Agent, install_agent
from orchestrator.transports import open_transport
from tests.support.project import Project, with_pod

SOMEBODY = 12345
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can make files of another user")


def refused(path: Path) -> str | None:
    return boot.wrong_way(str(path)) or boot.wrong_workdir(str(path))


def test_a_workdir_is_made_and_one_that_others_could_read_is_closed(tmp_path: Path) -> None:
    made = tmp_path / "a" / "b" / "w"
    assert refused(made) is None and stat.S_IMODE(made.stat().st_mode) == 0o700
    made.chmod(0o755)
    assert refused(made) is None and stat.S_IMODE(made.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    "traces", [[], ["lost+found"], ["agent-0.pyz", "x"], ["agent-0.pyz.7.part"], ["holds", "x"], ["runs/r/plan.json"]]
)
def test_an_open_folder_is_closed_if_it_is_empty_or_was_a_workdir(tmp_path: Path, traces: list[str]) -> None:
    for name in traces:
        (tmp_path / "w" / name).mkdir(parents=True)
    (tmp_path / "w").mkdir(exist_ok=True)
    (tmp_path / "w").chmod(0o755)
    assert refused(tmp_path / "w") is None and stat.S_IMODE((tmp_path / "w").stat().st_mode) == 0o700


def test_a_folder_of_other_things_is_not_taken_from_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`workdir: /` would close the whole machine to everybody else; what lies in a home may bear names of ours."""
    shared, home = tmp_path / "shared", tmp_path / "home"
    for folder in (shared / "runs", home):
        folder.mkdir(parents=True)
        folder.parent.chmod(0o755)
    with pytest.raises(OSError, match="runs lies there, which is not nsa-pod's"):
        refused(shared)
    assert stat.S_IMODE(shared.stat().st_mode) == 0o755
    monkeypatch.setenv("HOME", str(home))
    home.chmod(0o700)
    with pytest.raises(OSError, match="it is the user's home"):
        refused(home)
    assert refused(home / ".nsa-pod") is None
    (tmp_path / "link").symlink_to(home / "volume" / "nsa-pod")
    assert refused(tmp_path / "link") is None and (home / "volume" / "nsa-pod").is_dir()


@pytest.mark.parametrize("mode", [0o777, 0o757, 0o1777])
@pytest.mark.parametrize("where", ["parent", "itself"])
def test_what_others_can_write_is_refused(tmp_path: Path, where: str, mode: int) -> None:
    parent, workdir = tmp_path / "p", tmp_path / "p" / "w"
    workdir.mkdir(parents=True)
    if where == "parent" and mode == 0o1777:
        parent.chmod(mode)  # as /tmp: nobody else can rename what is mine
        assert (refused(workdir) is None) == (os.getuid() == 0)
        return
    (parent if where == "parent" else workdir).chmod(mode)
    assert f"other users can write {parent if where == 'parent' else workdir} (mode" in str(refused(workdir))


def test_a_group_of_the_users_own_is_nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w").chmod(0o770)
    for own in (True, False):
        monkeypatch.setattr(boot, "is_own_group", lambda gid, own=own: own)
        assert (refused(tmp_path / "w") is None) == own
        (tmp_path / "w").chmod(0o770)


@as_root
def test_what_another_user_owns_is_refused(tmp_path: Path) -> None:
    workdir = tmp_path / "theirs" / "w"
    workdir.mkdir(parents=True, mode=0o700)
    os.chown(workdir, SOMEBODY, SOMEBODY)
    assert refused(workdir) == f"{workdir} belongs to another user (uid {SOMEBODY})"
    os.chown(workdir, 0, 0)
    os.chown(workdir.parent, SOMEBODY, SOMEBODY)
    assert refused(workdir) == f"{workdir.parent} belongs to another user (uid {SOMEBODY})"


@as_root
def test_so_is_a_link_of_theirs_and_what_a_link_leads_through(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    link = tmp_path / "link"
    link.symlink_to("real")
    assert refused(link / "w") is None
    os.lchown(link, SOMEBODY, SOMEBODY)
    assert "is a link of another user" in str(refused(link / "w"))
    os.lchown(link, 0, 0)
    real.chmod(0o777)
    assert f"other users can write {real}" in str(refused(link / "w"))


def test_a_link_that_leads_nowhere_else_is_no_endless_way(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    assert "too many" in str(boot.wrong_way(str(tmp_path / "loop" / "w")))


@pytest.mark.parametrize("damage", [b"", b"\0" * 9, b"another"])
def test_only_the_whole_agent_is_there(tmp_path: Path, damage: bytes) -> None:
    digest = hashlib.sha256(b"the agent").hexdigest()
    (tmp_path / "agent").write_bytes(b"the agent")
    assert boot.is_whole(str(tmp_path / "agent"), digest)
    (tmp_path / "agent").write_bytes(damage)
    assert not boot.is_whole(str(tmp_path / "agent"), digest) and not (tmp_path / "agent").exists()


@pytest.mark.parametrize("plant", [os.mkfifo, lambda path: os.symlink("/etc/passwd", path)], ids=["fifo", "link"])
def test_what_is_planted_in_its_place_is_neither_read_nor_waited_for(
    tmp_path: Path, plant: Callable[[Path], None]
) -> None:
    plant(tmp_path / "agent")
    assert not boot.is_whole(str(tmp_path / "agent"), "0" * 64) and not os.path.lexists(tmp_path / "agent")


# --- over a connection ---


def opened(pod: Pod, workdir: Path) -> Agent:
    transport = open_transport(pod.model_copy(update={"workdir": str(workdir)}))
    transport.connect()
    return install_agent(transport)


def test_a_damaged_agent_is_brought_again(pod_of: Callable[..., Pod], tmp_path: Path) -> None:
    workdir = tmp_path / "w"
    first = opened(pod_of(), workdir)
    [archive] = workdir.glob("agent-*.pyz")
    content, status = archive.read_bytes(), archive.stat()
    archive.write_bytes(content[:5000] + b"\0" * 4096 + content[9096:])
    os.utime(archive, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(NsaPodError, match="the agent there is damaged: repeat the command, which brings another"):
        first.runs()
    first.transport.close()
    again = opened(pod_of(), workdir)
    assert archive.read_bytes() == content and stat.S_IMODE(archive.stat().st_mode) == 0o600
    assert again.runs() == []
    again.transport.close()


def test_a_workdir_that_others_can_write_is_one_sentence(pod_of: Callable[..., Pod], tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w").chmod(0o777)
    with pytest.raises(PodError, match=r"other users can write .*/w \(mode 777\), so what lies .*: give that folder"):
        opened(pod_of(), tmp_path / "w")
    assert list((tmp_path / "w").iterdir()) == []


def test_a_workdir_that_cannot_be_made_is_one_sentence(pod_of: Callable[..., Pod], tmp_path: Path) -> None:
    (tmp_path / "w").write_text("a file")
    with pytest.raises(PodError, match=r"its `workdir` cannot be used: .*/w: File exists: set another one$"):
        opened(pod_of(), tmp_path / "w")


FILES = {
    "runbooks/r.yaml": """\
        name: r
        environment: {python: system}
        stages:
          - name: s
            run: [python, t.py]
            expect: {artifacts: [{path: umask.txt, from: stdout, contains: ["0o27"]}]}
        """,
    "t.py": "import os\nopen('made', 'w').close()\nprint(oct(os.umask(0)))\n",
}


def test_all_is_private_whatever_the_umask_and_stages_have_their_own(project: Project, tmp_path: Path) -> None:
    with_pod(project, workdir=str(tmp_path / "private"))
    project.commit(FILES)
    before = os.umask(0o027)
    try:
        done = project.validate("--runbook", "r")
    finally:
        os.umask(before)
    assert done.exit_code == 0, done.stderr
    workdir = tmp_path / "private"
    of_the_repository = ("trees/", "/tree/", "/tree", "/venv/", "/venv", "/injected")
    for path in (workdir, *workdir.rglob("*")):
        name = "/" + str(path.relative_to(workdir))
        if not path.is_symlink() and not any(part in name for part in of_the_repository):
            assert not path.stat().st_mode & 0o077, (name, oct(path.stat().st_mode))
