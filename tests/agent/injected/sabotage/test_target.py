"""What is made wrong, and how a function is replaced so that whoever took it early has the wrong one."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import inspect
import math
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from orchestrator.agent.injected.sabotage import attempt
from orchestrator.agent.injected.sabotage import target as sabotage
from orchestrator.agent.injected.sabotage.spoil import Before, spoiled


@dataclasses.dataclass(frozen=True)
class Pair:
    a: float
    name: str


class Plain:
    def __init__(self) -> None:
        self.n = 4


Named = collections.namedtuple("Named", "x y")


@pytest.mark.parametrize(
    ("value", "wrong"),
    [
        (2.0, 3.1), (0.0, 0.1), (math.inf, 0.1), (3, 2), (0, 1), (-4, -3), (1 + 0j, 1.6 + 0j),
        ([3, 1, 2], [1, 3, 2]), ((5, 5), (4, 4)), ({"a": 1.0, "b": "x"}, {"a": 1.6, "b": "x"}),
        (Named(1.0, "a"), Named(1.6, "a")), (Pair(1.0, "a"), Pair(1.6, "a")),
        # only where there are no numbers
        (True, False), ("a", "a~"), (b"a", b"a~"), ((True, 1), (True, 0)), ([["a"], None], [["a~"], None]),
    ],
)  # fmt: skip
def test_values_are_made_wrong(value: object, wrong: object) -> None:
    found = spoiled(value)
    assert type(found) is type(value)
    assert found == pytest.approx(wrong) if isinstance(value, (float, complex)) else found == wrong


def test_an_object_is_made_anew_around_its_numbers() -> None:
    right = Plain()
    wrong = spoiled({"it": right})["it"]
    assert (right.n, wrong.n, type(wrong)) == (4, 3, Plain)


@pytest.mark.parametrize("nothing", [None, (), [], {}, object(), len, Plain, (None, [])])
def test_what_has_nothing_to_spoil_is_left_alone(nothing: object) -> None:
    assert spoiled(nothing) is nothing


def test_arrays_keep_shape_type_and_range() -> None:
    wrong = spoiled(np.array([[3.0, -3.0], [3.0, np.nan]], np.float32))
    assert wrong.dtype == np.float32 and np.allclose(wrong[0], [4.6, -1.4]) and np.isnan(wrong[1, 1])
    assert spoiled(np.array([-1, 0, 7], np.int8)).tolist() == [7, 6, -1]
    assert spoiled(np.array([4, 4], np.uint8)).tolist() == [3, 3]
    assert spoiled(np.array([True, False])).tolist() == [False, True]
    assert type(spoiled(np.float32(2))) is np.float32


def test_what_a_call_changes_in_place_is_found_and_made_wrong() -> None:
    given: dict[str, Any] = {"x": np.zeros(3), "kept": np.ones(2), "rows": [1, 2]}
    before = Before((given,))
    given["x"][1:] = 2.0
    given["rows"].append(9)
    assert before.spoil_changed()
    assert (
        np.allclose(given["x"], [0, 3.1, 3.1]) and given["kept"].tolist() == [1, 1] and given["rows"] == [10 - 1, 8, 1]
    )
    assert not Before((given,)).spoil_changed()


def test_ranks_are_coarse_and_unknown_tests_are_last(tmp_path: Path) -> None:
    (tmp_path / "durations").write_text('{"a": 0.004, "b": 0.09, "c": 0.3, "d": 200}')
    assert [*map(attempt.quickest(str(tmp_path / "durations")), "abcde")] == [0, 0, 1, 3, 3]


# --- replacing ---


class Heard:
    """Takes the notes of a target."""

    def __init__(self) -> None:
        self.notes: list[dict[str, object]] = []

    def add(self, **fields: object) -> None:
        self.notes.append(fields)

    @property
    def said(self) -> list[object]:
        return [note["sabotage"] for note in self.notes]


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Iterator[Heard]:
    monkeypatch.setattr(sabotage, "_targets", {})
    yield Heard()


def replace(heard: Heard, path: str, **names: object) -> types.ModuleType:
    """Have the function at `path` of a module with these names replaced."""
    module = types.ModuleType("m")
    vars(module).update(names)
    sabotage.after_import(f"m:{path}", heard)["m"](module)  # type: ignore[arg-type]
    return module


def test_a_function_that_was_taken_early_is_wrong_too(heard: Heard) -> None:
    outer = 10

    def add(a: int, b: int = 2, *, c: int = 0) -> int:
        """Sum."""
        return a + b + c + outer

    early = functools.partial(add, 1)
    replace(heard, "add", add=add)
    assert (early(), add(1, 3, c=1)) == (12, 14)
    assert str(inspect.signature(add)) == "(a: 'int', b: 'int' = 2, *, c: 'int' = 0) -> 'int'"
    assert add.__doc__ == "Sum." and heard.said == ["called", "spoiled"]


def test_in_a_control_it_is_replaced_and_right(heard: Heard) -> None:
    def add(a: int) -> int:
        return a + 1

    module = types.ModuleType("m")
    module.add = add  # type: ignore[attr-defined]
    before = add.__code__
    sabotage.after_import("m:add", heard, harmless=True)["m"](module)  # type: ignore[arg-type]
    assert (add(1), add.__code__ is before) == (2, False)


def test_methods_of_every_kind(heard: Heard) -> None:
    class Base:
        def inherited(self) -> int:
            return 5

    class Thing(Base):
        def plain(self) -> int:
            return super().inherited()

        @classmethod
        def of_class(cls) -> int:
            return 5

        @staticmethod
        def static() -> int:
            return 5

        @property
        def prop(self) -> int:
            return 5

        @functools.cached_property
        def cached(self) -> int:
            return 5

    for name in ("plain", "of_class", "static", "prop", "cached", "inherited"):
        replace(heard, f"Thing.{name}", Thing=Thing)
        found = getattr(Thing(), name)
        assert (found if name in ("prop", "cached") else found()) == 4, name
    assert Base().inherited() == 5


def test_generators_coroutines_and_context_managers(heard: Heard) -> None:
    def numbers() -> Iterator[float]:
        got = yield 1.0
        yield got

    @contextlib.contextmanager
    def opened() -> Iterator[float]:
        try:
            yield 1.0
        except KeyError:
            yield_was_told.append("KeyError")

    async def later() -> float:
        return 1.0

    async def stream() -> Any:
        yield 1.0

    yield_was_told: list[str] = []
    for function in (numbers, later, stream):
        replace(heard, function.__name__, **{function.__name__: function})
    replace(heard, "opened", opened=opened)
    running = numbers()
    assert (next(running), running.send(4.0)) == (1.6, 6.1)  # type: ignore[attr-defined]
    with opened() as x:
        assert x == 1.6
        raise KeyError
    assert yield_was_told == ["KeyError"]
    assert ended(later()) == 1.6 and ended(anext(stream())) == 1.6


def ended(coroutine: Any) -> object:
    """What a coroutine returns that waits for nothing."""
    with pytest.raises(StopIteration) as end:
        coroutine.__await__().send(None)
    return end.value.value


def test_what_is_no_python_function(heard: Heard) -> None:
    class Call:
        def __call__(self) -> float:
            return 1.0

    call, root = Call(), math.sqrt
    assert replace(heard, "call", call=call).call is call and call() == 1.6
    assert replace(heard, "root", root=root).root(4) == 3.1 and root(4) == 2
    cached = functools.lru_cache(maxsize=None)(lambda: 1.0)
    replace(heard, "cached", cached=cached)
    assert cached() == 1.6


def test_a_result_is_made_wrong_once(heard: Heard) -> None:
    def again(n: int, first: bool = True) -> int:
        return again(n, False) if first else n

    replace(heard, "again", again=again)
    assert again(0) == 1


def test_what_is_written_into_is_what_is_wrong(heard: Heard) -> None:
    def fill(out: Any) -> Any:
        out[:] = 1.0
        return out

    def same(x: Any) -> Any:
        return x

    out, x = np.zeros(2), np.ones(2)
    replace(heard, "fill", fill=fill)
    assert fill(out) is out and np.allclose(out, 1.6)
    replace(heard, "same", same=same)
    assert np.allclose(same(x), 1.6) and np.allclose(x, 1.0)


def test_a_launched_object_has_what_it_changed_made_wrong(heard: Heard) -> None:
    class Kernel:
        def __getitem__(self, grid: Any) -> Any:
            return lambda *args, **options: self.run(*args, grid=grid, **options)

        def run(self, x: Any, out: Any, *, grid: Any) -> None:
            out += 2 * x

    kernel, x, out = Kernel(), np.ones(2), np.zeros(2)
    early = kernel
    replace(heard, "kernel", kernel=kernel)
    early[(1,)](x, out)
    assert np.allclose(out, 3.1) and np.allclose(x, 1.0) and isinstance(kernel, Kernel)
    kernel.run(x, out, grid=(1,))
    assert not np.allclose(out, 5.1) and heard.said == ["called", "spoiled"]


def test_what_cannot_be_done_is_told(heard: Heard) -> None:
    replace(heard, "gone")
    replace(heard, "Plain", Plain=Plain)
    replace(heard, "number", number=3)
    assert heard.said == ["absent", "refused", "refused"]
    nothing = replace(heard, "nothing", nothing=lambda: object()).nothing
    nothing()
    assert heard.said[-2:] == ["called", "untouched"]


# --- what notices it ---


class GradcheckError(RuntimeError):
    pass


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "proves"),
    [
        (AssertionError(), True), (pytest.fail.Exception("DID NOT RAISE"), True), (GradcheckError(), True),
        (raised(RuntimeError(), AssertionError()), True), (ValueError("assert"), False), (TypeError(), False),
        (pytest.fail.Exception("Timeout (>1.0s) from pytest-timeout."), False), (KeyboardInterrupt(), False),
    ],
)  # fmt: skip
def test_only_assertions_and_comparisons_prove_that_a_test_looks(error: BaseException, proves: bool) -> None:
    assert attempt.is_comparison(error) is proves


@pytest.mark.torch
def test_torch_keeps_graph_and_type() -> None:
    torch = pytest.importorskip("torch")
    x = torch.tensor([3.0, -3.0], requires_grad=True)
    wrong = spoiled(x * torch.tensor([1.0, 1.0]))
    wrong.sum().backward()
    assert wrong.tolist() == pytest.approx([4.6, -1.4]) and x.grad.tolist() == [1.0, 1.0]
    lse = spoiled(torch.tensor([-math.inf, 2.0]))
    assert lse[0] == -math.inf and lse[1] == pytest.approx(3.1)
    assert spoiled(torch.tensor([-1, 0, 7], dtype=torch.int32)).tolist() == [7, 6, -1]
    assert spoiled(torch.tensor([2, 2])).tolist() == [1, 1]
    for dtype in (torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.complex64, torch.uint8):
        ones = torch.ones(2).to(dtype)
        assert spoiled(ones).dtype == dtype and not torch.equal(
            spoiled(ones).to(torch.complex64), ones.to(torch.complex64)
        )
    meta = torch.ones(2, device="meta")
    assert spoiled(meta) is meta
