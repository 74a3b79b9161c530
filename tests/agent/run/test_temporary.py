"""A stage's TMPDIR: short enough for the sockets of its programs, in the workdir, and gone with the stage."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.agent.host import processes
from orchestrator.agent.layout import PREFIX, Layout
from orchestrator.agent.run import temporary
from tests.support.agent_pod import Pod, said, script
from tests.support.waiting import wait_for

SHOWS_IT = ["sh", "-c", "echo $TMPDIR; touch $TMPDIR/file; sleep 60"]


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Layout]:
    """A run of a workdir whose path leaves too little room."""
    places = Layout(tmp_path / ("deep" * 12) / "runs" / "20261121-101500-4106f1b-5f9c4a6e")
    places.run_dir.mkdir(parents=True)
    yield places
    if places.short.is_dir() and not places.short.is_symlink():
        places.short.rmdir()


def test_a_deep_workdir_has_a_short_name(deep: Layout) -> None:
    with temporary.place(deep, 12) as tmp:
        tmp.mkdir()
        (tmp / "file").touch()
        assert len(str(tmp)) < 40 and deep.short.is_symlink() and not tmp.is_symlink()
        assert (deep.workdir / "tmp" / "5f9c4a6e-12" / "file").exists()
    assert not os.path.lexists(deep.short) and not deep.tmp(12).exists()


@pytest.mark.parametrize("put", ["touch", "symlink_to"])
def test_what_a_stage_puts_in_its_place_is_gone_too(deep: Layout, put: str) -> None:
    with temporary.place(deep, 0) as tmp:
        getattr(tmp, put)(*([deep.run_dir] if put == "symlink_to" else []))
    assert not os.path.lexists(deep.tmp(0)) and deep.run_dir.is_dir()


def test_a_workdir_that_is_not_deep_has_its_own() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        places = Layout(Path(folder, "runs", "20261121-101500-4106f1b-5f9c4a6e"))
        with temporary.place(places, 0) as tmp:
            assert tmp == places.tmp(0) and not os.path.lexists(places.short)


def test_the_name_of_a_killed_run_is_taken_over(deep: Layout) -> None:
    deep.short.symlink_to("/nowhere")
    with temporary.place(deep, 0) as tmp:
        assert tmp.parent == deep.short and deep.short.samefile(deep.workdir / "tmp")
    assert not os.path.lexists(deep.short)


def test_a_name_that_is_somebody_elses_stays_and_is_not_used(deep: Layout) -> None:
    deep.short.mkdir()
    with temporary.place(deep, 0) as tmp:
        assert tmp == deep.tmp(0)
    assert deep.short.is_dir()


def test_workdirs_have_names_of_their_own(deep: Layout, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    assert Layout(tmp_path / "other" / "runs" / deep.run_dir.name).short != deep.short


def test_names_of_workdirs_that_are_no_more_go_after_a_day(deep: Layout, tmp_path: Path) -> None:
    names = {age: Path("/tmp", f"{PREFIX}{tmp_path.stat().st_ino}-{age}") for age in ("old", "new", "lasting")}
    for age, name in names.items():
        name.symlink_to(tmp_path if age == "lasting" else tmp_path / "gone")
    try:
        for age in ("old", "lasting"):
            os.utime(names[age], (0, 0), follow_symlinks=False)
        with temporary.place(deep, 0):
            assert [age for age, name in names.items() if name.is_symlink()] == ["new", "lasting"]
    finally:
        for name in names.values():
            temporary.forget(name)


@pytest.mark.process
def test_a_stage_makes_sockets_in_a_deep_workdir(pod: Pod) -> None:
    served = "from multiprocessing.connection import Listener; Listener(family='AF_UNIX').close(); print('served')"
    removes = said("removes", ["sh", "-c", "rm ${TMPDIR%/*}; echo removed"])
    run = pod.run({}, said("serves", script(served)), removes, said("serves_again", script(served)))
    assert {judged.status for judged in run.judge().values()} == {"passed"}
    assert not os.path.lexists(Layout(run.path).short)


@pytest.mark.process
@pytest.mark.parametrize("reaper", ["works", "is killed too"])
def test_of_a_run_that_is_killed_nothing_stays(pod: Pod, reaper: str) -> None:
    run = pod.launch({}, [said("s", SHOWS_IT)])
    agent, short = run.wait_for("run_started")["pid"], Layout(run.path).short
    wait_for(lambda: list(short.glob("*/file")))
    helpers = processes.descendants(agent) if reaper == "is killed too" else []
    processes.send(signal.SIGKILL, [agent, *helpers])
    if reaper == "is killed too":
        assert short.is_symlink()
        assert pod.run({}, said("next", ["echo", "1"])).only().status == "passed"
    wait_for(lambda: not os.path.lexists(short))
