"""Whether a process waited for what it launched on CUDA."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from orchestrator.agent.injected.kernels import waits
from orchestrator.agent.injected.stage import Config


class Told:
    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def add(self, **line: Any) -> None:
        self.lines.append(line)


def torch_cuda() -> Any:
    class Stream:
        def synchronize(self) -> None: ...

    class Event:
        def elapsed_time(self, end: Event) -> float:
            return 1.5

    return SimpleNamespace(synchronize=lambda: None, streams=SimpleNamespace(Stream=Stream, Event=Event))


CLOCKED = "import time\nt = time.perf_counter()\nx @ x\nprint(time.perf_counter() - t)\n"


@pytest.mark.parametrize(
    ("source", "waits_by", "told"),
    [
        (CLOCKED, lambda cuda: None, [{"unwaited": True}]),
        (CLOCKED, lambda cuda: cuda.synchronize(), []),
        (CLOCKED, lambda cuda: cuda.streams.Stream().synchronize(), []),
        (CLOCKED, lambda cuda: cuda.streams.Event().elapsed_time(cuda.streams.Event()), []),
        (CLOCKED + "print(x.sum().item())\n", lambda cuda: None, []),
        (CLOCKED + "torch.testing.assert_close(x, y)\n", lambda cuda: None, []),
    ],
)
def test_who_times_and_never_waits_is_told_of(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: str, waits_by: Any, told: list[dict[str, Any]]
) -> None:
    program = ModuleType("a_program_of_the_tree")
    program.__file__ = str(tmp_path / "bench.py")
    (tmp_path / "bench.py").write_text(source)
    monkeypatch.setitem(sys.modules, program.__name__, program)
    monkeypatch.setattr(waits, "has_allocated", lambda: True)
    notes, cuda = Told(), torch_cuda()
    looking = waits.Waits(Config(f"tree={tmp_path}\n"), notes)  # type: ignore[arg-type]
    looking.after_import["torch.cuda"](cuda)
    looking.after_import["torch.cuda.streams"](cuda.streams)
    waits_by(cuda)
    looking.tell()
    assert notes.lines == told


def test_who_has_no_torch_has_not_used_cuda(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    notes = Told()
    waits.Waits(Config(f"tree={tmp_path}\n"), notes).tell()  # type: ignore[arg-type]
    assert notes.lines == []
