"""Stages that hang, flood, crash or leave daemons: limits hold, nothing stays behind, the next stage runs."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent.host import processes
from orchestrator.agent.run.logs import Log
from orchestrator.agent.run.supervise import GATHER_S, Command, Limits, Supervisor
from tests.support import proc
from tests.support.agent_pod import Pod, Run, said, script
from tests.support.waiting import wait_for

MARK = f"nsa-pod-test-daemon-{os.getpid()}-"  # of these tests, whoever else runs them beside
DAEMON = f"""
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp("sh", ["sh", "-c", "trap '' TERM; while true; do sleep 0.2; done #{MARK}"])
    os._exit(0)
time.sleep(0.3)
print("started it")
"""
NEXT = said("next", ["echo", "still here"])


def wait_for_its_end() -> None:
    """A kill takes effect a moment after it was sent."""
    wait_for(lambda: not proc.saying(MARK), "the daemon's end")


def beside_ours(wakeup_fd: int) -> Supervisor:
    """In the tests' own process, whose other children (an sshd, say) it would end as what the command left running."""
    return Supervisor(wakeup_fd, lambda: None, own=processes.descendants(os.getpid()))


def first_of(pod: Pod, argv: list[str], **limits: Any) -> tuple[Run, dict[str, Any]]:
    """Run a stage with these limits and one after it, which must pass; the first one's record."""
    run = pod.run({}, said("first", argv, limits=limits), NEXT)
    assert run.judge()["next"].status == "passed"
    return run, run.records["first"]


def test_wall_limit_with_a_stack_dump(pod: Pod) -> None:
    slow = "import time\ndef deep_inside():\n    while True: time.sleep(0.05); print('.', flush=True)\ndeep_inside()"
    run, record = first_of(pod, script(slow), wall=1.0)
    judgement = run.judge()["first"]
    assert (judgement.status, judgement.reason) == ("timed_out", "still running at its limit of 1 s")
    assert 1.0 <= record["seconds"] < 3.5
    assert "in deep_inside" in run.text("stages/first/stderr")


def test_silence_limit(pod: Pod) -> None:
    run, record = first_of(pod, ["sh", "-c", "echo begin; sleep 60"], silence=0.7)
    assert (run.judge()["first"].status, run.judge()["first"].reason) == ("stalled", "no output for 0.7 s")
    assert record["seconds"] < 3


def test_output_on_either_stream_is_no_silence(pod: Pod) -> None:
    talk = "for i in 1 2 3 4; do sleep 0.3; echo $i >&2; sleep 0.3; echo $i; done"
    run, record = first_of(pod, ["sh", "-c", talk], silence=1.0)
    assert run.judge()["first"].status == "passed" and record["seconds"] > 2


def test_sigterm_ignored_with_all_children(pod: Pod) -> None:
    stubborn = f"trap '' TERM; (trap '' TERM; sleep 300; echo {MARK}) & while true; do sleep 0.1; echo x; done"
    run, record = first_of(pod, ["sh", "-c", stubborn], wall=0.5, grace=0.5)
    assert run.judge()["first"].status == "timed_out" and record["signal"] == "SIGKILL"
    assert record["seconds"] < 4
    wait_for_its_end()


def test_a_group_that_ends_at_sigterm_is_not_killed(pod: Pod) -> None:
    polite = "trap 'echo bye; exit 0' TERM; while true; do sleep 0.1; done"
    run, record = first_of(pod, ["sh", "-c", polite], wall=0.5, grace=5.0)
    assert (record["exit_code"], record["signal"], run.judge()["first"].status) == (0, None, "timed_out")
    assert run.text("stages/first/stdout") == "bye\n"


def test_a_daemon_in_a_session_of_its_own_is_ended_and_named(pod: Pod) -> None:
    run, record = first_of(pod, script(DAEMON))
    assert run.judge()["first"].status == "passed"
    assert any(MARK in leftover["command"] for leftover in record["leftovers"])
    wait_for_its_end()


def test_a_child_that_keeps_the_pipes_open_does_not_hold_the_run(pod: Pod) -> None:
    start = time.monotonic()
    run, record = first_of(pod, ["sh", "-c", "sleep 300 & echo done"])
    assert run.judge()["first"].status == "passed" and time.monotonic() - start < 15
    assert record["leftovers"][0]["command"] == "sleep 300"


def test_closed_streams(pod: Pod) -> None:
    quiet = "import os, time; print('said', flush=True); os.close(1); os.close(2); time.sleep(0.5)"
    run, record = first_of(pod, script(quiet))
    assert run.judge()["first"].status == "passed" and record["seconds"] >= 0.5


def test_a_flood_is_bounded_on_disk_and_in_memory(pod: Pod) -> None:
    # Shared memory in the agent's zipapp Python is about 15 MB; the flood must not add to it.
    flood = "import sys\nfor i in range(800): sys.stdout.write('%07d\\n' % i * 8192)\nprint('the end')"
    watch = said("watch", ["sh", "-c", "grep VmHWM /proc/$PPID/status"])
    run = pod.run({}, said("first", script(flood), limits={"log_bytes": 1 << 20}), watch)
    record = run.records["first"]
    log = run.text("stages/first/stdout")
    assert record["truncated"]["stdout"] + (1 << 20) == 800 * 8192 * 8 + len("the end\n")
    assert len(log) < (1 << 20) + 100 and log.startswith("0000000\n") and log.endswith("the end\n")
    assert f"[nsa-pod: {record['truncated']['stdout']} bytes are cut here]" in log
    assert int(run.text("stages/watch/stdout").split()[1]) < 60_000, "kB at the most"


@pytest.mark.slow
def test_both_streams_full_at_once_do_not_block(pod: Pod) -> None:
    both = "import sys\nfor _ in range(300): sys.stdout.write('o' * 4096); sys.stderr.write('e' * 4096)"
    run, _ = first_of(pod, script(both), log_bytes=4 << 20)
    assert len(run.text("stages/first/stdout")) == len(run.text("stages/first/stderr")) == 300 * 4096


def test_bytes_that_are_no_text_are_harmless_in_the_journal(pod: Pod) -> None:
    nasty = r"\x1b]0;owned\x07\x1b[31mred\x1b[0m \xff\xfe \xe2\x80\xae caf\xc3\xa9 50%\r100%\n"
    run, _ = first_of(pod, script(f"import sys, time; sys.stdout.buffer.write(b'{nasty}'); time.sleep(0.3)"))
    assert run.judge()["first"].status == "passed"
    lines = [e["last_line"] for e in run.events if e["event"] == "output" and e["stage"] == "first"]
    assert lines and all(line.isprintable() for line in lines) and lines[0] == "100%"
    assert b"\xff\xfe" in (run.path / "stages/first/stdout").read_bytes()


def test_progress_is_told_at_most_once_a_second(pod: Pod) -> None:
    run, _ = first_of(
        pod, ["sh", "-c", "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do echo line $i; sleep 0.1; done"]
    )
    told = [e for e in run.events if e["event"] == "output" and e["stage"] == "first"]
    assert 2 <= len(told) <= 3
    assert told[0]["last_line"] == "line 1" and told[-1]["bytes"] > told[0]["bytes"]


@pytest.mark.parametrize("signum", [6, 9, 11])
def test_signals_are_named(pod: Pod, signum: int) -> None:
    run, record = first_of(pod, script(f"import os; os.kill(os.getpid(), {signum})"))
    name = {6: "SIGABRT", 9: "SIGKILL", 11: "SIGSEGV"}[signum]
    assert (record["signal"], run.judge()["first"].status) == (name, "crashed")
    assert run.judge()["first"].reason == f"ended by {name}"


def test_a_file_that_is_no_program(pod: Pod) -> None:
    run = pod.run(
        {"run.sh!": "no interpreter line\0", "plain.sh": "echo"}, said("a", ["./run.sh"]), said("b", ["./plain.sh"])
    )
    judged = run.judge()
    assert [j.status for j in judged.values()] == ["blocked", "blocked"]
    assert "./run.sh cannot be started: Exec format error" in judged["a"].reason


@pytest.mark.process
def test_a_failing_observer_ends_the_command(tmp_path: Path) -> None:
    """The agent's own failure (its journal cannot be written) must not leave the stage running."""

    def fail(stream: str, elapsed: float, log: Log) -> None:
        raise RuntimeError(f"{stream} at {elapsed}, {log.total} bytes")

    wakeup, _ = os.pipe()
    command = Command(
        ["sh", "-c", f"echo 1; sleep 300 #{MARK}"], tmp_path, os.environ, tmp_path / "o", tmp_path / "e", 99
    )
    with pytest.raises(RuntimeError, match="stdout at"):
        beside_ours(wakeup).run(command, Limits(9, 9, 1), fail)
    wait_for_its_end()


@pytest.mark.process
def test_what_comes_line_by_line_is_left_to_gather(tmp_path: Path) -> None:
    """A reader that is woken for each line costs the stage more than the line."""
    code = "import os, time\nfor n in range(400): os.write(int(os.environ['FD']), b'x'); time.sleep(0.001)"
    pieces: list[bytes] = []
    paths = [tmp_path / name for name in ("o", "e")]
    command = Command(
        [sys.executable, "-c", code], tmp_path, os.environ, *paths, 99, tmp_path / "events", "FD", pieces.append
    )
    wakeup, _ = os.pipe()
    ending = beside_ours(wakeup).run(command, Limits(60, 60, 1), lambda *_: None)
    assert (ending.exit_code, b"".join(pieces)) == (0, b"x" * 400)
    assert len(pieces) <= ending.seconds / GATHER_S + 2


def test_a_place_that_is_taken_blocks_the_stage(pod: Pod) -> None:
    code = "import os; os.makedirs(os.path.dirname(os.environ['NSA_POD_ARTIFACTS']) + '/stages/second'); print(1)"
    judged = pod.run({}, said("first", script(code)), said("second", ["echo", "1"]), NEXT).judge()
    assert [j.status for j in judged.values()] == ["passed", "blocked", "passed"]
    assert "no place for the stage" in judged["second"].reason
