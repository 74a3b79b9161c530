"""Recorded launches go to the compiled function that Triton's launcher calls, with other addresses."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from nsa.kernels import recorded
from nsa.kernels.common import direct
from nsa.kernels.common.launch import Launched
from nsa.kernels.common.tma import TensorDescriptor
from nsa.kernels.tuning import lookup
from nsa.tests.replaying import replayed

pytestmark = pytest.mark.triton


class Launcher:
    """As Triton's of a compiled kernel: asks for no scratch, and calls a compiled function at last.

    Triton 3.6 gives that function each argument, later ones all in one; it makes tensor maps of descriptors before.
    """

    global_scratch_size = profile_scratch_size = 0

    def __init__(self, launches: list[Any], flat: bool) -> None:
        self.flat, self.launch = flat, _mapping(lambda *given: launches.append(given))

    def __call__(self, x: int, y: int, z: int, stream: int, function: str, *others: Any) -> None:
        packed, metadata, enter, leave, *values = others
        arguments = values if self.flat else [tuple(values)]
        self.launch(x, y, z, stream, function, packed, metadata, enter, leave, *arguments)


def _mapping(launcher: Callable[..., None]) -> Callable[..., None]:
    make_tensordesc_arg = _mapped

    def inner(*given: Any) -> None:
        *before, values = given if isinstance(given[-1], tuple) else (*given[:9], given[9:])
        wide = [y for x in values for y in (make_tensordesc_arg(x, "tiled") if _described(x) else [x])]
        launcher(*before, *(wide if len(given) > 10 else [wide]))

    return inner


def _described(x: Any) -> bool:
    return isinstance(x, direct.Described) or hasattr(x, "block_shape")


def _mapped(x: Any, how: str) -> list[Any]:
    return [(how, x.base.data_ptr(), tuple(x.block_shape)), *x.shape, *x.strides]


class Compiled:
    """What Triton gives back for a launch; it notes what it is launched with later."""

    function, packed_metadata = "kernel 1", (1, 2)
    src = SimpleNamespace(fn=SimpleNamespace(launch_metadata=None))

    def __init__(self, flat: bool) -> None:
        self.launches: list[Any] = []
        self.run = Launcher(self.launches, flat)

    def launch_metadata(self, grid: tuple[int, ...], stream: int) -> tuple[object, ...]:
        return "metadata", grid, stream


class Compiling:
    """A kernel k(x, y, n, scale, BLOCK, FLAG) that notes how often it is asked to compile."""

    arg_names = ("x", "y", "n", "scale", "BLOCK", "FLAG")

    def __init__(self, flat: bool = True) -> None:
        self.compiled: list[Compiled] = []
        self.flat = flat

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., Compiled]:
        def compile_and_launch(*arguments: Any, **constants: Any) -> Compiled:
            self.compiled.append(Compiled(self.flat))
            return self.compiled[-1]

        return compile_and_launch


def launching(grid: tuple[int, ...] = (3,)) -> tuple[Callable[..., Any], Compiling]:
    """A replayed function of tensors x and y and settings n, scale, BLOCK and options, and its kernel."""
    kernel = Launched(Compiling())
    kernel.repeats = True  # as for a kernel that is not interpreted

    def function(x: Tensor, y: Tensor | None, n: int, scale: float, block: int, *options: tuple[str, int]) -> tuple[()]:
        kernel[grid](x, y, n, scale, FLAG=True, BLOCK=block, **dict(options))
        return ()

    return replayed(function)[0], kernel.kernel


X = torch.zeros(64)
USUAL = 64, 0.5, 32, ("num_warps", 4)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The current stream, and what listens before and after launches."""
    found = [7, None, None]
    monkeypatch.setattr(direct, "now", lambda device: found)
    return found


@pytest.mark.parametrize("listening", [False, True])
def test_a_replay_goes_to_the_compiled_kernel(now: list[Any], listening: bool) -> None:
    call, kernel = launching((5, 2))
    if listening:
        now[1:] = "before", "after"
    for x in (X, X.clone(), (other := X.clone())):
        call((x, X), USUAL)
    assert len(kernel.compiled) == 2
    told = (("metadata", (5, 2, 1), 7), "before", "after") if listening else (None, None, None)
    values = other.data_ptr(), X.data_ptr(), 64, 0.5, 32, True
    assert kernel.compiled[1].launches == [(5, 2, 1, 7, "kernel 1", (1, 2), *told, *values)]


@pytest.mark.parametrize(
    ("tensors", "settings"),
    [
        ((X.half(), X), USUAL),
        ((X[1:], X), USUAL),  # at another alignment
        ((X, X[:8]), USUAL),
        ((X, X), (1, *USUAL[1:])),
        ((X, X), (64, 0.25, *USUAL[2:])),
        ((X, X), (64, 0.5, 64, USUAL[3])),
        ((X, X), (64, 0.5, 32, ("num_warps", 8))),
        ((X, X), (*USUAL, ("maxnreg", 128))),
    ],
    ids=["dtype", "alignment", "size", "number", "float", "constant", "option", "one option more"],
)
def test_other_launches_are_compiled(now: list[Any], tensors: tuple[Tensor, ...], settings: tuple[Any, ...]) -> None:
    call, kernel = launching()
    for _ in range(3):
        call((X, X), USUAL)
    (usual,) = [compiled for compiled in kernel.compiled if compiled.launches]
    call(tensors, settings)
    assert len(kernel.compiled) == 3 and len(usual.launches) == 1


@pytest.mark.parametrize(("small", "places"), [(recorded.SMALL, 3), (300, 2), (-1, 0)])
def test_small_tensors_that_only_launches_name_have_places_in_one_allocation(
    now: list[Any], small: int, places: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is larger, what an operation reads and what the caller gets are allocated each."""
    allocated: list[Tensor] = []

    def empty(shape: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        allocated.append(torch.empty_strided(shape, stride, dtype=dtype))
        return allocated[-1]

    monkeypatch.setattr(recorded, "SMALL", small)
    monkeypatch.setattr(recorded, "_empty_on", lambda device: empty)
    kernel = Launched(Compiling())
    kernel.repeats = True

    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        one, two, many, read, given = (x.new_empty(size) for size in (20, 50, 200, 8, 9))
        for y, z in ((one, two[10:]), (many, read), (given, one)):
            kernel[(1,)](y, z, 64, 0.5, BLOCK=32, FLAG=True)
        return given, read + 1

    call, _ = replayed(function)
    for _ in range(2):
        call((X,), ())
    allocated.clear()
    given, _ = call((X,), ())
    launched = [compiled.launches[-1][9:11] for compiled in kernel.kernel.compiled if compiled.launches]
    (one, two), (many, read), (other, again) = launched
    assert one == again and other == given.data_ptr() and read in {x.data_ptr() for x in allocated}
    sizes = {x.data_ptr(): x.untyped_storage().nbytes() for x in allocated}
    found = [one, two - 10 * X.element_size(), many]
    first = min(found[:places], default=0)
    assert found[:places] == [first + 512 * at for at in range(places)] and sizes.get(first, 0) >= 512 * places
    assert [sizes[address] for address in found[places:]] == [80, 200, 800][places:]


@pytest.mark.skipif(TensorDescriptor is None, reason="this Triton has no tensor descriptors")
@pytest.mark.parametrize("flat", [True, False])
def test_descriptors_are_filled_with_the_new_tensors(now: list[Any], flat: bool) -> None:
    kernel = Launched(Compiling(flat))
    kernel.repeats = True

    def function(x: Tensor) -> tuple[()]:
        rows = x.view(8, 8)[2:]
        kernel[(1,)](TensorDescriptor.from_tensor(rows, [2, 8]), None, 64, 0.5, BLOCK=32, FLAG=True)
        return ()

    call, _ = replayed(function)
    held = []
    for _ in range(2):
        x = torch.zeros(64)
        held.append(weakref.ref(x))
        call((x,), ())
        del x
    assert [x() for x in held] == [None, None], "what is kept of a descriptor is not its tensor"
    (launches,) = [compiled.launches for compiled in kernel.kernel.compiled[1:]]
    call((X,), ())
    call(((other := X.clone()),), ())
    for x, given in zip((X, other), launches, strict=True):
        values = given[9:] if flat else tuple(given[9])
        assert values == (("tiled", x[16:].data_ptr(), (2, 8)), 6, 8, 8, 1, None, 64, 0.5, 32, True)


@pytest.mark.parametrize("change", [{"global_scratch_size": 8}, {"__call__": lambda self, stream: None}])
def test_what_is_not_launched_as_is_known_is_launched_by_triton(
    monkeypatch: pytest.MonkeyPatch, change: dict[str, object]
) -> None:
    call, kernel = launching()
    for name, x in change.items():
        monkeypatch.setattr(Launcher, name, x)
    for _ in range(3):
        call((X, X), USUAL)
    assert len(kernel.compiled) == 3 and not any(compiled.launches for compiled in kernel.compiled)


def test_what_is_compiled_for_another_device_is_not_repeated() -> None:
    call, kernel = launching()
    token = lookup.COMPILING_FOR.set("sm_90")
    try:
        for _ in range(4):
            call((X, X), USUAL)
    finally:
        lookup.COMPILING_FOR.reset(token)
    assert len(kernel.compiled) == 4
