"""What others do at the same moment: a second follower, a refused launch, another builder, an agent that just ends."""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
import shutil
import subprocess
import threading
import zipfile
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import paramiko
import pytest

from orchestrator.agent import commands
from orchestrator.agent.env import uv
from orchestrator.agent.env.progress import Progress
from orchestrator.agent.env.store import Store
from orchestrator.agent.host import processes
from orchestrator.agent.run import runs
from orchestrator.home import home
from orchestrator.pod.download import Downloader
from orchestrator.results import Seen
from orchestrator.shared.wheels.settings import Settings
from orchestrator.store import launches
from orchestrator.store.run_directory import RunDirectory
from orchestrator.tasks.carry import _MAKE_ROOM
from orchestrator.tasks.runs import kept_here
from orchestrator.transports.ssh import connection
from tests.support import proc
from tests.support.run_files import make_run, record, write_journal
from tests.support.waiting import wait_for


@pytest.fixture(autouse=True)
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NSA_POD_HOME", str(tmp_path / "home"))


def ended_run(folder: Path) -> RunDirectory:
    run, plan = make_run(folder, {"one": True})
    write_journal(run, plan, [record(run, "one")])
    return run


def settle_often(run: RunDirectory) -> str:
    for _ in range(30):
        Downloader(run.path)
        verdict = run.settle(Seen("ended")).verdict
    return verdict


# --- on the laptop ---


def test_an_older_view_of_a_run_does_not_replace_its_end(tmp_path: Path) -> None:
    run = ended_run(tmp_path)
    assert run.settle(Seen("ended")).verdict == "passed"
    before = {path.name: path.read_bytes() for path in run.path.iterdir() if path.is_file()}
    seen = len(run.journal_file.read_bytes().split(b"\n", 1)[0]) + 1
    assert run.settle(Seen("running", journal_bytes=seen)).verdict == "passed"
    assert {path.name: path.read_bytes() for path in run.path.iterdir() if path.is_file()} == before
    (run.path / "manifest.json").write_text("damaged")
    assert run.settle(Seen("running", journal_bytes=seen)).verdict == "incomplete"


def test_followers_settle_one_after_the_other(tmp_path: Path) -> None:
    run = ended_run(tmp_path)
    (run.path / ".result.json.1").write_text("left by one who was killed")

    with ProcessPoolExecutor(3, multiprocessing.get_context("fork")) as pool:  # they write aside under their pids
        assert set(pool.map(settle_often, [run] * 3)) == {"passed"}
    files = json.loads((run.path / "manifest.json").read_bytes())["files"]
    assert [file["path"] for file in files] == ["artifacts/one.txt", "environment.json", "journal.jsonl", "plan.json"]


def test_a_launch_that_is_refused_meanwhile_is_not_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = ended_run(tmp_path)
    run.settle(Seen("ended"))
    launches.remember(launches.Launch("r", "p", "c", "/repo", "/d"))
    (home() / "runs" / "gone.json").symlink_to("nowhere")  # listed, and then not there
    assert [launch.run_id for launch in launches.launches()] == ["r"]
    assert [kept["verdict"] for kept in kept_here(tmp_path / "artifacts", tmp_path)] == ["passed"]

    def rejudge(directory: RunDirectory) -> None:
        shutil.rmtree(directory.path)
        directory.plan()

    monkeypatch.setattr(RunDirectory, "rejudge", rejudge)
    assert kept_here(tmp_path / "artifacts", tmp_path) == []


def test_a_connection_that_breaks_before_a_heartbeat_is_sent_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []

    def closed(kind: str, wait: bool) -> None:
        seen.append(kind)
        raise EOFError

    monkeypatch.setattr(threading, "excepthook", seen.append)
    monkeypatch.setattr(connection, "_PROBE_EVERY_S", 0.01)
    transport = SimpleNamespace(is_active=lambda: not seen, global_request=closed)
    heartbeat = connection.Heartbeat(cast(paramiko.Transport, transport))
    heartbeat._thread.join(10)
    assert seen == ["keepalive@openssh.com"] and not heartbeat.stalled


# --- on the pod ---


def test_a_run_that_is_removed_while_it_is_looked_at_is_not_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "plan.json").write_text("{}")
    looked_at = runs.state_of

    def remove(run_dir: Path) -> dict[str, object]:
        if run_dir.name == "a":
            shutil.rmtree(run_dir)
        return looked_at(run_dir)

    monkeypatch.setattr(runs, "state_of", remove)
    assert [run["run_id"] for run in runs.list_runs(tmp_path)] == ["b"]


def test_an_agent_that_ends_before_the_signal_was_not_signalled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    monkeypatch.setattr(runs, "living_agent", lambda run_dir: ended.pid)
    assert commands.main(["cancel", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out)["signalled"] is False


def test_a_process_that_nobody_reaps_is_not_alive() -> None:
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    assert processes.is_alive(child.pid) and proc.is_alive(child.pid)
    child.stdin.close()  # type: ignore[union-attr]
    wait_for(lambda: not proc.is_alive(child.pid))
    assert not processes.is_alive(child.pid) and child.poll() == 0


def test_builders_that_fetch_uv_at_once_all_have_it(tmp_path: Path) -> None:
    links, tools = tmp_path / "links", tmp_path / "tools"
    links.mkdir()
    machine = platform.machine()
    with zipfile.ZipFile(links / f"uv-0.9.0-py3-none-manylinux_2_17_{machine}.manylinux2014_{machine}.whl", "w") as x:
        x.writestr("uv-0.9.0.data/scripts/uv", os.urandom(4_000_000))
    settings, progress = Settings.of_folders([str(links)]), Progress(tmp_path / "progress.jsonl")
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda _: uv._put(tools / "uv", Store(tmp_path), settings, progress), range(18)))
    assert os.listdir(tools) == ["uv"] and os.access(tools / "uv", os.X_OK)


def test_what_goes_while_room_is_made_for_a_wheelhouse_does_not_matter(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "find").write_text('#!/bin/sh\necho "find: incoming/other: No such file or directory" >&2\nexit 1\n')
    (programs / "find").chmod(0o755)
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    command = ["sh", "-c", _MAKE_ROOM, "sh", str(tmp_path / "incoming" / "mine"), str(tmp_path / "wheels")]
    done = subprocess.run(command, env=environment, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"") and (tmp_path / "incoming" / "mine").is_dir()
    (tmp_path / "file").touch()
    assert subprocess.run([*command[:-1], str(tmp_path / "file" / "x")], capture_output=True).returncode == 1
