"""Launches are counted whatever Triton's version, and whatever a program does with its hooks."""

from __future__ import annotations

import importlib
import mmap
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent.injected.kernels.cuda import CudaWork, has_context
from orchestrator.agent.injected.kernels.launches import Launches
from orchestrator.verdict.execution import Execution
from tests.support import simulated_gpu
from tests.support.files import write_files

VERSIONS = ("3.0", "3.3", "3.4", "3.5", "3.7")


class Told:
    """The notes of a process, folded as the agent does."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def add(self, **fields: Any) -> None:
        self.lines.append(fields)

    @property
    def folded(self) -> Execution:
        found = Execution()
        for line in self.lines:
            found.fold(line)
        return found


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Import simulated packages from files; what was imported before comes back afterwards."""
    before = {name: m for name, m in sys.modules.items() if name.partition(".")[0] in ("triton", "torch")}
    for name in before:
        del sys.modules[name]

    def made(files: dict[str, str], name: str) -> Any:
        write_files(tmp_path, files)
        monkeypatch.syspath_prepend(tmp_path)
        importlib.invalidate_caches()
        return importlib.import_module(name)

    yield made
    for name in [name for name in sys.modules if name.partition(".")[0] in ("triton", "torch")]:
        del sys.modules[name]
    sys.modules.update(before)


@pytest.fixture
def watched(install: Any, told: Told, request: pytest.FixtureRequest) -> tuple[Any, Launches]:
    """The simulated Triton of the version asked for, watched."""
    launches = Launches(told, lambda: "t")  # type: ignore[arg-type]
    triton = install(simulated_gpu.triton(request.param), "triton")
    launches.after_import["triton"](triton)
    return triton, launches


every_version = pytest.mark.parametrize("watched", VERSIONS, indirect=True)


def hook_place(triton: Any) -> Any:
    return triton.knobs.runtime if hasattr(triton, "knobs") else triton.compiler.CompiledKernel


@every_version
def test_each_launch_is_counted_by_name_and_device(watched: tuple[Any, Launches], told: Told) -> None:
    triton, launches = watched
    for name in ("fwd", "bwd", "fwd"):
        triton.compiler.CompiledKernel(name)[(1,)]()
    assert told.lines[0] == {"ran": {"cuda:0": {"fwd": 1}}, "test": "t"}, "at once: the process may be killed"
    launches.note("t")
    assert told.folded.of("t").launches == {"cuda:0": {"fwd": 2, "bwd": 1}}


@every_version
def test_a_grid_of_nothing_launches_nothing(watched: tuple[Any, Launches], told: Told) -> None:
    kernel = watched[0].compiler.CompiledKernel("fwd")
    kernel[(0,)](), kernel[(4, 0, 1)](), kernel[(1,)](), kernel[(0,)](), kernel[(4, 2)]()
    watched[1].note("t")
    assert told.folded.of("t").launches == {"cuda:0": {"fwd": 2}}


@every_version
def test_a_hook_that_is_set_later_does_not_drop_ours_nor_ours_it(watched: tuple[Any, Launches], told: Told) -> None:
    triton, _ = watched
    theirs: list[str] = []
    place = hook_place(triton)
    before = place.launch_enter_hook
    place.launch_enter_hook = lambda metadata: theirs.append(metadata.data["name"])
    triton.compiler.CompiledKernel("a")[(1,)]()
    place.launch_enter_hook = None
    triton.compiler.CompiledKernel("b")[(1,)]()
    place.launch_enter_hook = before
    triton.compiler.CompiledKernel("c")[(1,)]()
    assert theirs == ["a"]
    assert told.folded.whole.launches == {"cuda:0": {"a": 1, "b": 1, "c": 1}}


@pytest.mark.parametrize("watched", ["3.0", "3.3", "3.4"], indirect=True)
def test_a_profiler_that_begins_only_where_no_hook_is_finds_none(watched: tuple[Any, Launches]) -> None:
    assert hook_place(watched[0]).launch_enter_hook is None


@every_version
def test_what_cannot_be_counted_does_not_fail_the_launch(watched: tuple[Any, Launches], told: Told) -> None:
    triton, _ = watched
    triton.runtime.driver.active = None
    triton.compiler.CompiledKernel("fwd")[(1,)]()
    assert told.lines == []


@every_version
def test_a_forked_child_begins_anew(watched: tuple[Any, Launches], told: Told) -> None:
    triton, launches = watched
    kernel = triton.compiler.CompiledKernel("fwd")[(1,)]
    kernel(), kernel()
    launches.forget()
    kernel()
    launches.note(None)
    assert told.folded.whole.launches == {"cuda:0": {"fwd": 2}}, "the first of each process"


def test_torchs_work_is_told_where_it_was_done_and_not_where_only_asked(install: Any, told: Told) -> None:
    work = CudaWork(told)  # type: ignore[arg-type]
    work.note("before")
    torch = install(simulated_gpu.torch(), "torch")
    work.note("imported")
    torch.started = True
    work.note("asked which GPUs there are")
    torch.work()
    work.note("a")
    work.note("b")
    torch.work()
    work.note("c")
    assert [line["test"] for line in told.lines] == ["a", "c"]


@pytest.mark.parametrize("has", [True, False])
def test_without_an_account_the_context_tells(
    has: bool, install: Any, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An allocator may keep none; nor does a torch without CUDA of which a conftest says that it has it."""
    monkeypatch.setattr("orchestrator.agent.injected.kernels.cuda.has_context", lambda pid: has)
    torch = install(simulated_gpu.torch(), "torch")
    torch.work()
    del torch._C._cuda_memoryStats
    CudaWork(told).note("a")  # type: ignore[arg-type]
    assert told.lines == ([{"cuda": "used", "test": "a"}] if has else [])


def test_who_has_a_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What maps the device; who only has it open asks."""
    device = tmp_path / "nvidia-uvm"
    device.write_text("pages")
    monkeypatch.setattr("orchestrator.agent.injected.kernels.cuda.MAPPED", str(device))
    with device.open("rb") as opened:
        assert not has_context(os.getpid()) and not has_context(1 << 30)
        with mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ):
            assert has_context(os.getpid()) and has_context("self")
