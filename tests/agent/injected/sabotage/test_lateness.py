"""Which failures come of nothing but the time that a test took."""

from __future__ import annotations

import linecache
import time
import timeit
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.agent.injected.sabotage.lateness import is_late
from orchestrator.agent.injected.sabotage.spoil import spoiled
from orchestrator.agent.injected.sabotage.times import Times, plain

pytestmark = pytest.mark.unit

_BEGIN = """\
import statistics, time, timeit, unittest
import pytest
check = unittest.TestCase()
def took(seconds=0.02):
    begin = time.perf_counter()
    time.sleep(seconds)
    return time.perf_counter() - begin
"""


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Times]:
    for name in ("time", "perf_counter", "monotonic", "process_time", "thread_time"):
        for clock in (name, f"{name}_ns"):
            monkeypatch.setattr(time, clock, getattr(time, clock))
    monkeypatch.setattr(timeit, "default_timer", timeit.default_timer)
    monkeypatch.setattr(timeit.Timer, "timeit", timeit.Timer.timeit)
    found = Times({str(tmp_path / "test_it.py")})
    found.start()
    yield found


def failed(source: str, tmp_path: Path) -> BaseException:
    """How a test fails that stands in a file of its own."""
    file = tmp_path / "test_it.py"
    file.write_text(_BEGIN + source)
    linecache.checkcache()
    with pytest.raises((AssertionError, pytest.fail.Exception)) as error:
        exec(compile(file.read_text(), str(file), "exec"), {"__name__": "test_it"})
    return error.value


@pytest.mark.parametrize(
    "source",
    [
        "assert took() < 0.01",
        "assert 0 < took() <= 0.01",
        "assert not took() > 0.01",
        "t = took()\nif t > 0.01:\n    pytest.fail('slow')",
        "t = took()\nif t < 0.01:\n    pass\nelse:\n    raise AssertionError",
        "t = took()\nassert round(t * 1e3, 2) < 10",
        "is_fast = took() < 0.01\nassert is_fast",
        "is_slow = took() > 0.01\nassert not is_slow",
        "check.assertLess(took(), 0.01)",
        "check.assertFalse(took() > 0.01)",
        "check.assertGreater(0.01, took())",
        "check.assertTrue(took() < 0.01)",
        "assert 1 / took() > 100",
        "assert 0.01 - took() > 0",
        "assert took() < took(0.001)",
        "assert took() / took(0.01) < 1.5",
        "assert all(t < 0.01 for t in [took()])",
        "assert min(took(), took()) < 0.01",
        "assert statistics.mean([took(), took()]) < 0.01",
        "assert timeit.timeit(lambda: time.sleep(0.02), number=1) < 0.01",
        "t = took()\nis_fast = t < 0.01\nif not is_fast:\n    pytest.fail('slow')",
        "is_fast = took() < 0.01\nif not is_fast: pytest.fail('slow')",
        "assert took() == pytest.approx(0.001, abs=0.01)",
        "assert abs(0.001 - took()) < 0.01",
        "assert round(took(), 2) == 0.0",
        "assert divmod(took(), 0.01)[0] == 0",
        "import math\nassert math.floor(took() / 0.01) == 0",
        "import math\nassert math.ceil(took() / 0.01) == 1",
        "assert round(took() * 1e3) == 0",
        "end = time.time() + 0.01\ntook()\nassert time.time() < end",
        "end = 0.01 + time.time()\ntook()\nleft = end - time.time()\nassert left > 0",
        "begin = time.monotonic_ns()\ntook()\nassert (time.monotonic_ns() - begin) / 1e6 < 10",
    ],
)
def test_it_is_late_if_a_time_was_found_too_long(times: Times, tmp_path: Path, source: str) -> None:
    assert is_late(failed(source, tmp_path), times)


@pytest.mark.parametrize(
    "source",
    [
        "assert took() > 0 and 2 + 2 == 5",
        "assert took() < 1\nassert 2 + 2 == 5",
        "assert took() > 1",  # that something waits is what it does
        "assert took() == pytest.approx(1, abs=0.01)",
        "assert abs(1 - took()) < 0.01",
        "assert round(took(), 2) == 3",
        "assert divmod(took(), 0.01)[0] == 9",
        "import math\nassert math.floor(took() / 0.01) == 9",
        "assert took() in ('a', None)",
        "assert {took()} == {}",
        "begin = time.time()\ntook()\nassert time.time() - (begin + 0.01) > 1",
        "assert took() > 0\nif took() > 0:\n    t = 3\nassert t == 4",
        "begin = time.time()\nassert begin - 1 < time.time() and 3 == 4",
    ],
)
def test_it_is_not_late_if_something_else_failed(times: Times, tmp_path: Path, source: str) -> None:
    assert not is_late(failed(source, tmp_path), times)


def test_a_time_is_a_number_to_others_and_can_be_spoiled(times: Times, tmp_path: Path) -> None:
    file = str(tmp_path / "test_it.py")
    found: Any = SimpleNamespace()
    exec(compile("import time\nfound.now = time.time()", file, "exec"), {"found": found})
    assert isinstance(found.now, float) and type(found.now) is not float
    assert type(plain(found.now)) is float and type(found.now + 1) is float, "no test has asked for this"
    assert type(time.time()) is float and spoiled(found.now) > found.now
