"""Repeated launches go to the compiled kernel of the first one, unless something differs that the compiler asks for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from nsa.kernels.common import launch
from nsa.kernels.common.tma import TensorDescriptor
from nsa.kernels.tuning import lookup


class Compiled:
    """What Triton gives back for a launch; it notes what it is launched with later."""

    def __init__(self) -> None:
        self.launches: list[tuple[Any, ...]] = []

    def __getitem__(self, grid: tuple[int, ...]):  # type: ignore[no-untyped-def]
        return lambda *arguments: self.launches.append((grid, arguments))


class Kernel:
    """A kernel k(x, y, n, scale, BLOCK, FLAG) that notes how often it is asked to compile."""

    arg_names = ("x", "y", "n", "scale", "BLOCK", "FLAG")

    def __init__(self) -> None:
        self.compiled: list[Compiled] = []

    def __getitem__(self, grid: tuple[int, ...]):  # type: ignore[no-untyped-def]
        def compile_and_launch(*arguments: Any, **constants: Any) -> Compiled:
            self.compiled.append(Compiled())
            return self.compiled[-1]

        return compile_and_launch


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> launch.Launched:
    monkeypatch.setattr(launch, "driver", SimpleNamespace(active=SimpleNamespace(get_current_device=lambda: 0)))
    found = launch.Launched(Kernel())
    found._remembers = True  # as for a kernel that is not interpreted
    return found


X = torch.zeros(64)


def test_the_second_launch_goes_to_the_compiled_kernel(launched: launch.Launched) -> None:
    for grid in ((3,), (5, 2)):
        launched[grid](X, None, 64, 0.5, FLAG=True, BLOCK=32, num_warps=4)
    (compiled,) = launched.kernel.compiled
    assert compiled.launches == [((5, 2, 1), (X.data_ptr(), None, 64, 0.5, 32, True))]


@pytest.mark.parametrize(
    ("arguments", "constants"),
    [
        ((X.half(), None, 64, 0.5), {}),
        ((X[1:], None, 64, 0.5), {}),  # at another alignment
        ((X, X, 64, 0.5), {}),
        ((X, None, 1, 0.5), {}),
        ((X, None, 64, 0.25), {}),
        ((X, None, 64, 0.5), {"BLOCK": 64}),
        ((X, None, 64, 0.5), {"num_warps": 8}),
        ((X, None, 64, 0.5), {"maxnreg": 128}),
    ],
    ids=["dtype", "alignment", "none", "number", "float", "constant", "option", "one option more"],
)
def test_other_launches_are_compiled(
    arguments: tuple[Any, ...], constants: dict[str, int], launched: launch.Launched
) -> None:
    usual = {"BLOCK": 32, "FLAG": True, "num_warps": 4}
    launched[(1,)](X, None, 64, 0.5, **usual)
    launched[(1,)](*arguments, **{**usual, **constants})
    assert [len(compiled.launches) for compiled in launched.kernel.compiled] == [0, 0]


@pytest.mark.skipif(TensorDescriptor is None, reason="this Triton has no tensor descriptors")
def test_boxes_tell_descriptors_apart(launched: launch.Launched) -> None:
    x = torch.zeros(8, 64)
    for rows in (2, 4, 2):
        launched[(1,)](TensorDescriptor.from_tensor(x, [rows, 64]), None, 64, 0.5, BLOCK=32, FLAG=True)
    assert [len(compiled.launches) for compiled in launched.kernel.compiled] == [1, 0]


def test_what_is_compiled_for_another_device_is_not_remembered(launched: launch.Launched) -> None:
    token = lookup.COMPILING_FOR.set("sm_90")
    try:
        for _ in range(2):
            launched[(1,)](X, None, 64, 0.5, BLOCK=32, FLAG=True)
    finally:
        lookup.COMPILING_FOR.reset(token)
    assert len(launched.kernel.compiled) == 2


def test_sizes_that_never_return_do_not_pile_up(launched: launch.Launched) -> None:
    launched._remembered.most = 4
    for n in range(10):
        launched[(1,)](X, None, n, 0.5, BLOCK=32, FLAG=True)
        assert len(launched._remembered) <= 4
