"""Many commands over one conversation with the agent: none that crashes, hangs or floods harms another."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from orchestrator.errors import CommandTimeout, ContactLost, PodError, PodFull
from orchestrator.pod.client import Agent
from orchestrator.pod.dialogue import Dialogue
from orchestrator.shared import frames
from orchestrator.shared.answers import Runs
from tests.support import proc
from tests.support.saying import Saying
from tests.support.waiting import wait_for


def servers(agent: Agent) -> list[int]:
    """Those that serve this laptop, once one was needed; while one answers, its copy too."""
    agent.runs()
    return serving(agent)


def serving(agent: Agent) -> list[int]:
    found = proc.saying(b"\0serve\0", agent.workdir)
    return [pid for pid in found if proc.command(pid).startswith(agent.python.encode())]  # not the shell before it


def test_all_commands_share_one_process(agent: Agent) -> None:
    [server] = servers(agent)
    for _ in range(3):
        assert agent.runs() == []
    assert agent.transport.output(["cat"], input=b"x" * 3_000_000) == b"x" * 3_000_000
    assert servers(agent) == [server]


def test_a_command_that_crashes_or_hangs_is_one_answer(agent: Agent) -> None:
    [server] = servers(agent)
    assert agent.transport.run(["sh", "-c", "kill -SEGV $$"]).exit_code == 128 + signal.SIGSEGV
    assert agent.transport.run(["no-such-program"]).exit_code == 127
    assert agent.transport.run(["sh", "-c", "echo no >&2; exit 7"]).complaint() == "no"
    name = proc.a_sleep()
    with pytest.raises(CommandTimeout, match="did not end within 0"):
        agent.transport.run(["sh", "-c", f"trap '' TERM; sleep {name} & sleep {name}"], timeout=0.5)
    wait_for(lambda: not proc.sleeping(name), "the end of its whole group", 5)
    assert agent.runs() == [] and servers(agent) == [server]


def test_a_daemon_does_not_hold_its_starter(agent: Agent) -> None:
    began = time.monotonic()
    assert agent.transport.output(["sh", "-c", "setsid sleep 7 & echo started"]) == b"started\n"
    assert time.monotonic() - began < 6


def test_what_prints_without_end_is_refused_and_stopped(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.pod.dialogue.OUTPUT_LIMIT", 1 << 20)
    line = proc.a_sleep()
    with pytest.raises(PodError, match="prints more than"):
        agent.transport.run(["yes", line])
    assert agent.runs() == []
    wait_for(lambda: not proc.saying(f"yes\0{line}\0"), "its end on the pod too", 10)


def test_a_server_that_is_gone_is_contact_lost_and_the_next_question_starts_another(agent: Agent) -> None:
    [server] = servers(agent)
    os.kill(server, signal.SIGKILL)
    with pytest.raises(ContactLost):
        agent.runs()
    assert servers(agent) not in ([], [server])


def test_a_server_that_hangs_is_given_up(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.pod.dialogue._GRACE_S", 0.5)
    [server] = servers(agent)
    os.kill(server, signal.SIGSTOP)
    try:
        with pytest.raises(CommandTimeout, match="may still be running there"):
            agent.call(Runs, "runs", agent.workdir, timeout=0.5)
        assert agent.runs() == []
    finally:
        with suppress(ProcessLookupError):
            os.kill(server, signal.SIGKILL)


def test_an_agent_whose_file_is_gone_does_not_answer_from_memory(agent: Agent) -> None:
    agent.runs()
    [archive] = Path(agent.workdir).glob("agent-*.pyz")
    archive.unlink()
    with pytest.raises(PodError, match="its disk was cleared"):
        agent.runs()


def test_the_server_goes_with_its_laptop_and_lets_end_what_was_asked(agent: Agent, tmp_path: Path) -> None:
    """What nobody has to stop ends by itself; what goes on for as long as somebody listens does not."""
    [first] = servers(agent)
    archive = proc.command(first).split(b"\0")[2].decode()
    late, forever = tmp_path / "late", proc.a_sleep()
    channel = agent.transport.converse([agent.python, "-I", archive, "serve"])
    for number, limit, argv in ((1, 30.0, ["sh", "-c", f"sleep 1; touch '{late}'"]), (2, None, ["sleep", forever])):
        assert channel.send(frames.frame(frames.ASK, number, frames.question({"argv": argv, "limit": limit}, b"")))
    wait_for(lambda: proc.sleeping(forever), "both under way")
    channel.close()
    wait_for(late.exists, "the end of what was asked")
    wait_for(lambda: not proc.sleeping(forever) and serving(agent) == [first], "the end of the server", 15)


@pytest.mark.parametrize(
    "said",
    [
        [],
        [b"\xff" * 100],
        [frames.frame(frames.END, 1, b"nought")],
        [frames.frame(frames.END, 1, b"")],
        [frames.frame(frames.OUT, 1, b"x"), frames.frame(77, 1), frames.frame(frames.END, 2, b"0")],
    ],
)
def test_a_hostile_server_is_one_sentence(said: list[bytes]) -> None:
    with pytest.raises((PodError, ContactLost)) as caught:
        Dialogue(Saying(*said), "p").run(["x"], b"", 1.0, "x")
    assert str(caught.value).isprintable()


class _Full(Saying):
    """An agent that has died: it could not even take what it was asked."""

    def complaint(self) -> str:
        return "OSError: [Errno 28] No space left on device"


def test_an_agent_that_dies_of_a_full_disk_is_said_to_have_one() -> None:
    with pytest.raises(PodFull, match="pod 'p': its disk is full"):
        Dialogue(_Full(), "p").run(["x"], b"", 1.0, "x")
