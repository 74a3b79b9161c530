"""One run of the agent: launch, lock, cancel, death; what a stage finds around it."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from orchestrator.agent.layout import Layout
from orchestrator.shared import journal
from tests.support import proc
from tests.support.agent_pod import COMMIT, LIMITS, Pod, pytest_stage, said, script, stage
from tests.support.waiting import wait_for

SLEEP = said("sleeps", ["sleep", "30"])


def state(pod: Pod, run_id: str) -> str:
    return str(pod.ask("status", str(pod.workdir / "runs" / run_id))["state"])


def test_launch_returns_at_once_and_the_run_goes_on(pod: Pod, tmp_path: Path) -> None:
    """A launch that waited for the run would wait for ever: the run waits for what comes after the launch."""
    gate = tmp_path / "gate"
    run = pod.prepare({}, [said("s", ["sh", "-c", f"until [ -e {gate} ]; do sleep 0.05; done; echo done"])])
    answer = pod.ask("launch", str(run.path))
    assert state(pod, run.run_id) == "running" and answer["run_id"] == run.run_id
    gate.touch()
    assert run.wait().only().status == "passed"
    wait_for(lambda: not proc.is_alive(answer["pid"]))
    status = pod.ask("status", str(run.path))
    last = (run.path / "journal.jsonl").read_bytes()
    assert status["state"] == "ended" and status["reason"] == "completed"
    assert status["head"] == journal.head(last) and status["bytes"] == len(last)


def test_the_agent_is_detached(pod: Pod) -> None:
    run = pod.launch({}, [SLEEP])
    pid = run.wait_for("run_started")["pid"]
    assert os.getsid(pid) != os.getsid(0)
    os.kill(pid, signal.SIGHUP)
    os.kill(pid, signal.SIGINT)
    run.wait_for("stage_started")
    assert {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in (0, 1)} == {"/dev/null", str(run.path / "agent.log")}
    pod.ask("cancel", str(run.path))
    assert run.wait().ending == "cancelled"


def test_events_come_in_their_order(pod: Pod) -> None:
    run = pod.run({}, said("a", ["echo", "1"]), said("b", ["echo", "2"]))
    assert [e["event"] for e in run.events if e["event"] != "output"] == [
        "run_started", "tree_checked", "environment_checked",
        "stage_started", "stage_ended", "stage_started", "stage_ended", "run_ended",
    ]  # fmt: skip
    assert run.events[0]["agent"] == pod.agent.stem.partition("-")[2]
    assert [e["t"] for e in run.events] == sorted(e["t"] for e in run.events)


def test_one_run_at_a_time(pod: Pod) -> None:
    first = pod.launch({}, [SLEEP])
    second = pod.prepare({}, [SLEEP])
    refused = pod.call("launch", str(second.path), check=False)
    answer = json.loads(refused.stdout)
    assert refused.returncode == 1 and answer["busy"]["run_id"] == first.run_id
    assert answer["busy"]["holder"] == "user@laptop" and "user@laptop" in answer["error"]
    pod.ask("cancel", str(first.path))
    first.wait()
    pod.call("launch", str(second.path))
    pod.ask("cancel", str(second.path))
    second.wait()


def test_a_run_is_launched_once(pod: Pod) -> None:
    run = pod.run({}, said("s", ["true"]))
    again = pod.call("launch", str(run.path), check=False)
    assert again.returncode == 1 and "was launched before" in json.loads(again.stdout)["error"]


def test_cancel(pod: Pod) -> None:
    run = pod.launch({}, [said("a", ["echo", "1"]), SLEEP, said("c", ["echo", "3"])])
    run.wait_for("stage_started", stage="sleeps")
    assert pod.ask("cancel", str(run.path), "--by", "me@desk")["signalled"]
    run.wait()
    judged = run.judge()
    assert run.ending == "cancelled" and run.events[-2]["event"] == "cancelled" and run.events[-2]["by"] == "me@desk"
    assert {name: j.status for name, j in judged.items()} == {"a": "passed", "sleeps": "cancelled"}
    assert not pod.ask("cancel", str(run.path))["signalled"]


def test_a_killed_agent_leaves_neither_lock_nor_processes(pod: Pod) -> None:
    seconds = proc.a_sleep()
    run = pod.launch({}, [said("s", ["sh", "-c", f"setsid sleep {seconds} & sleep {seconds}"])])
    pid = run.wait_for("run_started")["pid"]
    run.wait_for("stage_started")
    wait_for(lambda: len(proc.saying(seconds)) >= 2)
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: state(pod, run.run_id) == "lost")
    wait_for(lambda: not proc.saying(seconds))
    wait_for(lambda: pod.ask("runs", str(pod.workdir))["holder"] is None)
    assert not pod.ask("cancel", str(run.path))["signalled"]
    assert pod.run({}, said("next", ["echo", "1"])).only().status == "passed"


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
def test_a_stage_that_kills_the_agent(pod: Pod, signum: int) -> None:
    run = pod.launch({}, [said("s", ["sh", "-c", f"kill -{int(signum)} $PPID; sleep 30"])])
    wait_for(lambda: state(pod, run.run_id) != "running")
    assert (state(pod, run.run_id), run.ending) == {
        signal.SIGKILL: ("lost", None),
        signal.SIGTERM: ("ended", "cancelled"),
    }[signal.Signals(signum)]


def test_needs(pod: Pod) -> None:
    stages = [
        said("fails", ["false"]),
        said("after", ["true"], needs=["fails"]),
        said("after_that", ["true"], needs=["after"]),
        said("free", ["echo", "1"]),
    ]
    judged = pod.run({}, *stages).judge()
    assert [j.status for j in judged.values()] == ["failed", "blocked", "blocked", "passed"]
    assert judged["after_that"].reason == "needs after, which is blocked"


def test_cuda_is_a_promise(pod: Pod) -> None:
    judgement = pod.run({}, said("s", ["true"], cuda=True)).only()
    assert (judgement.status, judgement.reason) == ("blocked", "needs a CUDA GPU, and the pod has none")


# The plan and the tree --------------------------------------------------------------------------------------------


def test_a_changed_plan_is_refused(pod: Pod) -> None:
    run = pod.prepare({}, [said("s", ["true"])])
    (run.path / "plan.json").write_text(json.dumps({**run.plan, "stages": []}))
    refused = pod.call("launch", str(run.path), check=False)
    assert refused.returncode == 1 and "was changed" in json.loads(refused.stdout)["error"]
    assert not (run.path / "journal.jsonl").exists() and pod.ask("runs", str(pod.workdir))["holder"] is None


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "is not JSON"),
        ("[]", "is not a plan of format 1 or 2"),
        ('{"format": 3}', "is not a plan of format 1 or 2"),
        ('{"format": 2}', "was changed"),
    ],
)
def test_a_plan_that_is_none_is_refused(pod: Pod, text: str, sentence: str) -> None:
    run = pod.prepare({}, [said("s", ["true"])])
    (run.path / "plan.json").write_text(text)
    answer = json.loads(pod.call("launch", str(run.path), check=False).stdout)
    assert sentence in answer["error"]


def test_a_tree_that_is_not_the_commits_runs_nothing(pod: Pod) -> None:
    run = pod.prepare({"a.py": "1\n"}, [said("s", ["echo", "1"])])
    (pod.workdir / "trees" / run.plan["tree"] / "a.py").write_text("2\n")
    pod.ask("launch", str(run.path))
    run.wait()
    (error,) = [e["error"] for e in run.events if e["event"] == "agent_error"]
    assert run.ending == "agent error" and "is not the commit's tree" in error and not run.records


def test_a_missing_tree_or_python_is_an_error_in_one_sentence(pod: Pod) -> None:
    missing = {"kind": "system", "python": "/nowhere/python3", "packages": {}}
    for over, sentence in (
        ({"environment": missing}, "/nowhere/python3 cannot be run: No such file or directory"),
        ({"tree": "0" * 40}, "is not on the pod"),
    ):
        run = pod.run({}, said("s", ["true"]), **over)
        (event,) = [e for e in run.events if e["event"] == "agent_error"]
        assert sentence in event["error"] and event["traceback"] == ""


def test_the_pristine_tree_is_never_touched(pod: Pod) -> None:
    run = pod.run({"a.txt": "1\n"}, said("s", ["sh", "-c", "echo 2 > a.txt; echo done"]))
    pristine = pod.workdir / "trees" / run.plan["tree"] / "a.txt"
    assert pristine.read_text() == "1\n" and run.only().status == "invalid"
    assert not os.path.samefile(pristine, run.path / "tree/a.txt")


# What a stage finds -----------------------------------------------------------------------------------------------


def test_git_says_the_commit(pod: Pod) -> None:
    commands = "git rev-parse HEAD; git rev-parse --short HEAD; git rev-parse --show-toplevel"
    run = pod.run({}, said("s", ["sh", "-c", commands]))
    assert run.text("stages/s/stdout").split() == [COMMIT, COMMIT[:7], str(run.path / "tree")]


def test_git_log_works_with_the_commit_object(pod: Pod) -> None:
    import base64
    import hashlib

    lines = "tree {}\nparent {}\nauthor A <a@b> 1 +0000\ncommitter A <a@b> 1 +0000\n\nwhy\n"
    content = lines.format(pod.add_tree({}), "8" * 40).encode()
    commit = hashlib.sha1(b"commit %d\0" % len(content) + content).hexdigest()
    encoded = base64.b64encode(content).decode()
    run = pod.run({}, said("s", ["git", "log", "-1", "--format=%H %s"]), commit=commit, commit_object=encoded)
    assert run.text("stages/s/stdout") == f"{commit} why\n"
    wrong = pod.run({}, said("s", ["true"]), commit_object=encoded)
    assert wrong.ending == "agent error"
    other = pod.run({"a": "1"}, said("s", ["true"]), commit=commit, commit_object=encoded)
    assert other.ending == "agent error"
    assert f"is not that of its commit {commit}" in other.trouble()


def test_placeholders(pod: Pod) -> None:
    show = script("import os, sys; print(sys.argv[1], sys.argv[2], sys.argv[3], os.environ['WHERE'])")
    run = pod.run({}, said("s", [*show, "{artifacts}", "{commit}", "{python}"], env={"WHERE": "{artifacts}/x"}))
    artifacts = str(run.path / "artifacts")
    python = str(run.path / "venv/bin/python")
    assert run.text("stages/s/stdout").split() == [artifacts, COMMIT, python, artifacts + "/x"]


def test_a_path_that_an_earlier_stage_makes(pod: Pod) -> None:
    make = stage("make", script("import os; open(os.environ['NSA_POD_ARTIFACTS'] + '/a', 'w').write('1')"))
    read = said("read", ["cat", "{artifacts}/a"], paths=["{artifacts}/a"])
    lacks = said("lacks", ["cat", "{artifacts}/b"], paths=["{artifacts}/b"])
    judged = pod.run({}, make, read, lacks).judge()
    assert (judged["read"].status, judged["lacks"].status) == ("passed", "blocked")


def test_the_environment_of_a_stage(pod: Pod) -> None:
    pod.env = {
        "PYTHONPATH": "/elsewhere", "PYTEST_ADDOPTS": "--co", "VIRTUAL_ENV": "/v", "TRITON_INTERPRET": "1",
        "NSA_USE_TRITON": "0", "AWS_SECRET": "x", "LC_TIME": "C", "CUDA_VISIBLE_DEVICES": "0", "https_proxy": "http://u:pw@p",
    }  # fmt: skip
    show = script("import json, os, sys; print(json.dumps([dict(os.environ), sys.prefix, sys.stdin.read()]))")
    run = pod.run({}, said("s", show, env={"NSA_X": "1", "PYTHONPATH": "src:.", "TRITON_CACHE_DIR": "/mine"}))
    env, prefix, stdin = json.loads(run.text("stages/s/stdout"))
    for name in ("PYTEST_ADDOPTS", "VIRTUAL_ENV", "TRITON_INTERPRET", "NSA_USE_TRITON", "AWS_SECRET"):
        assert name not in env
    assert (env["LC_TIME"], env["CUDA_VISIBLE_DEVICES"], env["https_proxy"]) == ("C", "0", "***https_proxy***")
    assert (
        env["PYTHONPATH"] == f"{run.path}/injected:src:." and env["NSA_X"] == "1" and env["TRITON_CACHE_DIR"] == "/mine"
    )
    venv, path = str(run.path / "venv"), env["PATH"].split(":")
    assert path[0] == f"{venv}/bin" and os.path.dirname(pod.environment["python"]) in path[1:3] and prefix == venv
    assert os.path.dirname(env["TMPDIR"]) in (f"{pod.workdir}/tmp", str(Layout(run.path).short))
    assert not os.path.lexists(env["TMPDIR"])
    assert env["TORCH_EXTENSIONS_DIR"].startswith(f"{pod.workdir}/cache/")
    assert [env[name] for name in ("PYTHONNOUSERSITE", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "TERM")] == [
        "1", "1", "1", "dumb",
    ]  # fmt: skip
    assert stdin == ""
    assert "u:pw" not in str(run.wait_for("stage_started")), "inherited values may hold passwords"


def test_caches_are_shared_by_tree_and_environment_only(pod: Pod) -> None:
    show = said("s", ["sh", "-c", "echo $TRITON_CACHE_DIR"])
    one, same, other = (pod.run(files, show).text("stages/s/stdout") for files in ({"a": "1"}, {"a": "1"}, {"a": "2"}))
    assert one == same != other


def test_stages_do_not_hold_the_lock_or_the_journal(pod: Pod) -> None:
    run = pod.run({}, said("s", ["sh", "-c", "ls -l /proc/self/fd"]))
    listed = run.text("stages/s/stdout")
    assert "journal" not in listed and "lock" not in listed and listed.count("->") <= 4


def test_a_python_has_no_more_open_than_without_the_agent(pod: Pod) -> None:
    """What the agent has in it opens a file only while it writes; programs, and tests of them, count what is open."""
    count = "import os; print(len(os.listdir('/proc/self/fd')))"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {count!r}], check=True)"
    asked = f"subprocess.check_output([sys.executable, '-c', {count!r}])"
    files = {"test_it.py": f"import subprocess, sys\ndef test_it():\n    assert {asked}.strip() == b'4'\n"}
    run = pod.run(files, said("own", ["python", "-c", f"{count}; {child}"]), pytest_stage("test", "test_it.py"))
    assert run.text("stages/own/stdout").split() == ["4", "4"]
    assert [judgement.status for judgement in run.judge().values()] == ["passed", "passed"]


def test_the_plan_works_under_another_python(pod: Pod) -> None:
    """The agent and the stages may run under different Pythons; the oldest here is tried."""
    old = next((p for p in _pythons() if p != os.path.realpath(sys.executable)), None)
    if old is None:
        pytest.skip("there is only one Python here")
    environment = {"kind": "system", "python": old, "packages": {}}
    pod.python = old
    imports = said("s", ["python", "-c", "import sys; print(sys.version_info[:2])"])
    run = pod.run({}, imports, environment=environment)
    assert run.only().status == "passed", run.trouble()


def _pythons() -> list[str]:
    """Pythons from 3.8 on, the oldest first."""
    roots = [Path("/usr/bin"), Path("/usr/local/bin"), *Path.home().glob(".pyenv/versions/*/bin")]
    found = {m: p for r in roots for m in range(20, 7, -1) for p in r.glob(f"python3.{m}") if os.access(p, os.X_OK)}
    return [os.path.realpath(found[minor]) for minor in sorted(found)]


def test_overhead(pod: Pod) -> None:
    """Launch to end, besides the stages: about 0.4 s on an idle machine; the limit here leaves room for a busy one."""
    files = {f"d{i % 10}/f{i}.txt": "x" * 1000 for i in range(300)}
    taken = []
    for nonce in ("1", "2", "3"):
        run = pod.prepare(files, [said("s", ["sh", "-c", "sleep 0.3; echo 1"], limits=LIMITS)], nonce=nonce)
        start = time.monotonic()
        pod.ask("launch", str(run.path))
        run.wait()
        taken.append(time.monotonic() - start - run.records["s"]["seconds"])
    assert min(taken) < 3


def test_many_files(pod: Pod) -> None:
    """A list of files that would make too long a line goes ahead in lines of its own."""
    many = (
        "import os\nfor i in range(5003): open(f\"{os.environ['NSA_POD_ARTIFACTS']}/{i:0120}\", 'w').close()\nprint(1)"
    )
    run = pod.run({}, said("s", script(many)))
    (ahead,) = [e for e in run.events if e["event"] == "stage_files"]
    assert 4000 < len(ahead["files"]) < 5003 and ahead["stage"] == "s"
    assert {f["path"] for f in run.records["s"]["files"]} >= {f"artifacts/{i:0120}" for i in range(5003)}
    assert run.only().status == "passed"


def test_pytest_timeouts_show_where_it_hung(pod: Pod) -> None:
    hang = "import threading\ndef test_hangs():\n    threading.Event().wait()\n"
    run = pod.run({"test_h.py": hang}, pytest_stage("s", "test_h.py", limits={"silence": 1.0}))
    assert run.only().status == "stalled"
    assert "in test_hangs" in run.text("stages/s/stderr"), "though pytest captures the output"


def test_a_stage_that_kills_the_agents_helper(pod: Pod) -> None:
    """The run still ends by itself; only the sweep after a killed agent is lost."""
    kill = "for p in $(pgrep -P $PPID); do [ $p != $$ ] && kill -9 $p; done; echo done"
    run = pod.run({}, said("s", ["sh", "-c", kill]), said("next", ["echo", "1"]))
    assert [j.status for j in run.judge().values()] == ["passed", "passed"]


def test_a_stage_that_removes_the_runs_directory(pod: Pod) -> None:
    code = "import os, shutil; shutil.rmtree(os.path.dirname(os.environ['NSA_POD_ARTIFACTS'])); print(1)"
    run = pod.launch({}, [said("s", script(code)), said("next", ["echo", "1"])])
    wait_for(lambda: pod.ask("runs", str(pod.workdir))["holder"] is None)
    assert not run.events and not (run.path / "journal.jsonl").exists(), "nothing is left to be believed"
