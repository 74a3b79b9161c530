"""Whether anything is done between two reads of a clock."""

from __future__ import annotations

import sys
import timeit
from pathlib import Path
from types import FrameType, ModuleType

import pytest

from orchestrator.agent.injected.programs.timed import Spans

pytestmark = pytest.mark.unit

NAMES = """
import contextlib, functools, itertools, math, time
x = [1, 2]
def f(v=x): return sum(v)
class Data:
    def run(self): return sum(x)
    @property
    def value(self): return sum(x)
    @functools.cached_property
    def kept(self): return sum(x)
    def __getattr__(self, name): return sum(x)
    def __matmul__(self, other): return self
    def repeat(self, n): return sum(x)
    def synchronize(self): return sum(x)
data = Data()
def repeat(n):
    for i in range(n): yield sum(x)
def sleep(n): return sum(x)
@contextlib.contextmanager
def timer():
    now()
    yield
    now()
class Timer:
    def __enter__(self): now()
    def __exit__(self, *_): now()
async def work(): return sum(x)
def made(fn): return lambda *given: fn(*given)
@functools.lru_cache(None)
def kept(n): return sum(x)
kept(3), kept(3)
fresh = functools.lru_cache(None)(lambda n: sum(x))
fib = functools.lru_cache(None)(lambda n: n if n < 2 else fib(n - 1) + fib(n - 2))
paths = functools.lru_cache(None)(lambda n, m: paths(n - 1, m) + paths(n, m - 1) + paths(n, m - 1) if n and m else 1)
none = 0
class Compiled:
    __code__ = (lambda: None).__code__
    def __call__(self): return sum(x)
compiled = Compiled()
"""


def is_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> bool:
    found: list[bool] = []
    file = tmp_path / "its_bench.py"
    file.write_text(NAMES + source)

    def read_by(frame: FrameType) -> None:
        if frame.f_code.co_filename in (str(file), "<timeit-src>"):
            found.append(spans.read_at(frame))

    def now() -> float:
        read_by(sys._getframe(1))
        return 0.0

    spans = Spans(("now",), lambda: {id(now)})
    module = ModuleType("its_bench")
    vars(module).update(
        __file__=str(file), now=now, timeit=lambda *args: timeit.Timer(*args, now, vars(module)).timeit(2)
    )
    monkeypatch.setitem(sys.modules, "its_bench", module)
    exec(compile(file.read_text(), file, "exec"), vars(module))
    return any(found)


@pytest.mark.parametrize(
    "work",
    [
        "f(x)", "data @ data", "[v + v for v in x]", "next(iter(x))",
        "functools.partial(data.run)()", "math.factorial(9)",
        "data.value", "data.kept; data.kept", "for _ in range(3): data.value", "data.made_for_it", "x[0]",
        "for _ in repeat(3): pass", "list(repeat(3))", "data.repeat(3)", "made(f)(x)", "fresh(3)", "compiled()",
        "fib(30)", "paths(9, 9)", "kept(4)",
        "for _ in range(9): kept(4)", "for _ in range(len(x)): f()", "for _ in range(2): f()", "data.synchronize()",
        "sleep(3)", "for _ in map(f, [x]): pass",
    ],
)  # fmt: skip
def test_what_is_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: str) -> None:
    assert is_timed(tmp_path, monkeypatch, f"now()\n{work}\nnow()\n")


@pytest.mark.parametrize(
    "source",
    [
        "with timer(): f(x)", "with Timer(): f(x)", "for _ in x:\n    f(x)\n    now()", "t = now(); f(x); t = now()",
        "timeit(lambda: f(x), 'pass')", "timeit('f(x)', 'pass')", "timeit('data.value', 'pass')",
        "all = [\n    (now(),\n     f(x),\n     now()),\n]", "t = now()\nout, t = data @ data, now()",
        "async def main():\n    made = work()\n    now()\n    await made\n    now()\nlist(main().__await__())",
    ],
)  # fmt: skip
def test_what_is_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    assert is_timed(tmp_path, monkeypatch, f"{source}\n")


@pytest.mark.parametrize(
    "nothing",
    [
        "f", "data.run", "math.factorial", "pass", "out = f", "time.sleep(0)", "for _ in range(3): f",
        "for _ in itertools.repeat(None, 3): data.run", "n = 3", "repeat(3)", "out = repeat(3)", "made(f)",
        "kept(3)", "for _ in range(0): f()", "for _ in range(none): data.run()",
    ],
)  # fmt: skip
def test_what_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nothing: str) -> None:
    source = f"for _ in range(2):\n    t = now()\n    {nothing}\n    print((now() - t) * 1e3 / 3)\n"
    assert not is_timed(tmp_path, monkeypatch, source)


def test_what_a_function_is_given_to_time_counts_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    took = "def took(fn):\n    now()\n    fn()\n    now()\n"
    assert is_timed(tmp_path, monkeypatch, f"{took}took(lambda: None)\ntook(lambda: sum(x))\n")
    assert not is_timed(tmp_path, monkeypatch, f"{took}took(lambda: None)\ntook(lambda: x)\n")


def test_timeit_of_a_name_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_timed(tmp_path, monkeypatch, "timeit('f', 'pass')\n")


def test_timeit_of_a_function_that_names_another_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_timed(tmp_path, monkeypatch, "timeit(lambda: f, 'pass')\n")


@pytest.mark.parametrize(
    ("span", "is_work"),
    [
        ("for _ in range(none): f(x)\nprint((now() - t) / max(none, 1))", False),
        ("for _ in range(2): f(x)\nprint((now() - t) / max(none, 1))", True),
        ("made = [f(x), now() - t]", True),
        ("made = [now() - t, f(x)]", False),
    ],
)
def test_what_is_made_of_a_time_is_no_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, span: str, is_work: bool
) -> None:
    assert is_timed(tmp_path, monkeypatch, f"t = now()\n{span}\n") is is_work
