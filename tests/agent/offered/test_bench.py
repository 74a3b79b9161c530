"""The bench protocol: samples kept, inputs fresh, results checked, wrong ones refused."""

from __future__ import annotations

import itertools
import json
import math
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.agent.offered import nsa_pod_bench
from orchestrator.agent.offered.nsa_pod_bench import Bench, WrongResult
from orchestrator.verdict.artifacts import asked as asking
from tests.support.agent_pod import artifact

FIGURES = {"keys": ["n"], "measures": {"ms": {"unit": "ms", "better": "lower"}}, "flags": "flags"}


class Tensor:
    """What the protocol asks of a tensor, and no more."""

    def __init__(self, value: float) -> None:
        self.value = value

    def is_floating_point(self) -> bool:
        return True

    def detach(self) -> Tensor:
        return self

    def fill_(self, value: float) -> None:
        self.value = value

    def isnan(self) -> Any:
        return type("Any", (), {"any": lambda _: math.isnan(self.value)})()


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setenv("NSA_POD_ARTIFACTS", str(tmp_path))
    yield Bench("a.jsonl", seconds=0.01, least=20)


def test_a_row_is_what_a_runbook_reads(bench: Bench, tmp_path: Path) -> None:
    made: list[list[int]] = []

    def make() -> tuple[list[int]]:
        made.append(list(range(100)))
        return (made[-1],)

    bench.time({"n": 100}, make, sum, check=lambda result, data: None)
    bench.time({"n": 200}, make, sum)
    assert len({id(each) for each in made}) == 6, "each row has several sets of inputs, each at its own address"
    asked = artifact("a.jsonl", kind="jsonl", figures=FIGURES, min_rows=2)
    with (tmp_path / "a.jsonl").open("rb") as f:
        assert asking.findings(asked, f) == []
    with (tmp_path / "a.jsonl").open("rb") as f:
        first, second = asking.kind_of(asked).figures(asked, f, lambda path: None)
    assert (first.row, second.row) == ((("n", "100"),), (("n", "200"),))
    assert len(first.samples) >= 20 and min(first.samples) > 0
    row = json.loads((tmp_path / "a.jsonl").read_text().splitlines()[0])
    assert len(row["wall_ms"]) == len(row["cpu_ms"]) == len(row["turns"]) == len(row["ms"])


class Clock:
    """One that only work moves on, whatever else runs here."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now

    process_time = monotonic = perf_counter


class Machine(Clock):
    """What a turn costs changes from sample to sample, not within one."""

    def __init__(self) -> None:
        super().__init__()
        self._turn_s = (cost for cost in itertools.cycle((1e-7, 3e-7, 2e-7, 9e-7)) for _ in ("loop", "call", "loop"))

    def work(self, turns: int) -> float:
        """Returns how many ms it took."""
        took = turns * next(self._turn_s)
        self.now += took
        return took * 1e3


def test_turns_do_not_depend_on_the_machines_speed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice the work is twice the turns."""
    machine = Machine()
    monkeypatch.setattr(nsa_pod_bench, "time", machine)
    monkeypatch.setattr(nsa_pod_bench._WallClock, "_loop", lambda clock: machine.work(clock._turns))

    def turns(n: int) -> set[int]:
        samples, _ = bench._samples(lambda: machine.work(n), [()])
        return {round(sample.turns) for sample in samples}

    assert turns(5_000) == {5_000} and turns(10_000) == {10_000}


def test_a_turn_is_a_turn_of_a_loop_in_plain_python(bench: Bench) -> None:
    def loop(turns: int) -> int:
        total = 0
        for turn in range(turns):
            total += turn * turn % 7
        return total

    turns = bench.time({"n": 5_000}, lambda: (5_000,), loop)["turns"]
    assert 2_500 < statistics.median(turns) < 10_000  # wide: the machine changes its speed between a loop and a call


def test_a_result_that_is_not_written_is_noticed(bench: Bench) -> None:
    kept: dict[int, Tensor] = {}

    def lazy(number: int) -> Tensor:  # computes each result once, and hands it out again
        return kept.setdefault(number, Tensor(1.0))

    numbers = iter(range(100))
    with pytest.raises(WrongResult, match="did not write it"):
        bench.time({"n": 1}, lambda: (next(numbers),), lazy)
    bench.time({"n": 1}, lambda: (next(numbers),), lambda number: [{"out": Tensor(1.0)}])


def test_a_wrong_result_has_no_row(bench: Bench, tmp_path: Path) -> None:
    calls = iter(range(10_000))

    def check(result: int) -> None:
        assert result < 10

    with pytest.raises(AssertionError):
        bench.time({"n": 1}, lambda: (), lambda: next(calls), check)
    assert (tmp_path / "a.jsonl").read_text() == ""


def test_faster_than_the_roofline_is_impossible(bench: Bench) -> None:
    assert bench.time({"n": 1}, lambda: (), lambda: None, floor_ms=1000.0)["flags"] == ["impossible"]
    assert bench.time({"n": 1}, lambda: (), lambda: None, floor_ms=0.0)["flags"] == []


class Device(Clock):
    """What the protocol asks of PyTorch on a GPU whose memory takes FILL_S to be filled, whenever it comes to that."""

    FILL_S = 0.0002

    def __init__(self) -> None:
        super().__init__()
        self.queued = 0
        self.cuda = SimpleNamespace(
            is_available=lambda: True,
            current_device=lambda: 0,
            get_device_properties=lambda index: SimpleNamespace(L2_cache_size=1 << 20),
            synchronize=self._wait,
            Event=lambda enable_timing: SimpleNamespace(record=lambda: None, elapsed_time=lambda end: 0.5),
        )

    def empty(self, size: int, dtype: object, device: str) -> SimpleNamespace:
        return SimpleNamespace(zero_=self._fill)

    int8 = object()

    def _fill(self) -> None:
        self.queued += 1

    def _wait(self) -> None:
        self.now += self.queued * self.FILL_S
        self.queued = 0


def test_launches_are_queued_behind_work_that_takes_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device()
    monkeypatch.setitem(sys.modules, "torch", device)
    monkeypatch.setattr(nsa_pod_bench, "time", device)
    launch_s, queued = 0.002, []

    def call() -> None:
        queued.append(device.queued)
        device.now += launch_s

    row = Bench(str(tmp_path / "a.jsonl"), seconds=0.01, least=20).time({"n": 1}, tuple, call)
    timed = queued[3:]  # after those that are checked
    assert not any(timed[0::2]), "alone, by the wall clock"
    assert min(timed[1::2]) * device.FILL_S > launch_s
    assert set(row["ms"]) == {0.5} and min(row["wall_ms"]) >= launch_s * 1e3 and row["flags"] == ["host_bound"]


def test_inputs_that_are_no_tuple_are_refused_in_a_sentence(tmp_path: Path) -> None:
    bench = Bench(str(tmp_path / "b.jsonl"))
    with pytest.raises(TypeError, match=r"make gives a Tensor: expected a tuple of what call takes, such as \(x,\)"):
        bench.time({"n": 1}, make=lambda: Tensor(1.0), call=lambda x: x)  # type: ignore[arg-type, return-value]
