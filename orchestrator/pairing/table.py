"""pairing.yaml as typed rows, checked on load."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated

from packaging.version import Version
from pydantic import BaseModel, ConfigDict, Field, model_validator

from orchestrator.config.yamlfile import load
from orchestrator.text import nearest

PATH = Path(__file__).with_name("pairing.yaml")
MACHINES = ("x86_64", "aarch64")
CPU = "cpu"

Dotted = Annotated[str, Field(pattern=r"^\d+(\.\d+)*(\.post\d+)?$")]
Address = Annotated[str, Field(pattern=r"^https://")]


class _Row(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class CudaRow(_Row):
    """A CUDA runtime: `driver` by minor-version compatibility, `own_driver` the one it was released with."""

    version: Dotted
    driver: Dotted
    own_driver: Dotted
    source: Address


class Build(_Row):
    """A build of torch for one machine; `sm` names a list of compute capabilities, `abi` is the C++11 ABI."""

    cuda: Dotted
    machine: str
    sm: str
    abi: bool


class TorchRow(_Row):
    """torch releases that agree in everything but the triton that they require."""

    releases: dict[str, str]
    pythons: list[str]
    glibc: Dotted
    pypi: dict[str, str]
    builds: list[Build]
    companions: list[str] = []
    source: Address


class FlashRelease(_Row):
    """A flash-attn release and the torch minor versions that it has wheels for."""

    version: Dotted
    cuda_major: int
    torch: list[str]
    pythons: list[str]
    source: Address


class FlashSource(_Row):
    """How flash-attn is compiled: with `tools` beside torch, told by `variables` (which have {archs}, ... open)."""

    version: Dotted
    tools: list[str]
    archs: list[int]
    job_gib: int
    variables: dict[str, str]
    source: Address

    def filled(self, sms: Iterable[int], label: str) -> dict[str, str]:
        """The variables for GPUs of these compute capabilities; `label` becomes the local part of the version."""
        capabilities = sorted(set(sms))
        archs = sorted({max(a for a in self.archs if a // 10 == sm // 10 and a <= sm) for sm in capabilities})
        words = {
            "archs": ";".join(map(str, archs)),
            "capabilities": ";".join(f"{sm // 10}.{sm % 10}" for sm in capabilities),
            "label": label,
            "number": str(len(archs)),
        }
        return {name: value.format(**words) for name, value in self.variables.items()}


class FlashTable(_Row):
    url: str
    requires: list[str]
    sm: int
    releases: list[FlashRelease]
    from_source: FlashSource


class TorchVarlen(_Row):
    """From which torch minor version on torch has a varlen attention of its own."""

    since: Dotted
    source: Address


class Profile(_Row):
    """A named pair; `cuda: null` is the build without CUDA."""

    torch: Dotted
    cuda: Dotted | None
    about: str


class GpuRow(_Row):
    sm: int
    names: list[str]
    source: Address


@dataclass(frozen=True)
class Pair:
    """One build of one torch release with its triton; `cuda` None is the CPU build."""

    name: str
    torch: str
    triton: str
    cuda: str | None
    row: TorchRow

    def build(self, machine: str) -> Build | None:
        """The CUDA build for `machine`, if there is one."""
        return next((b for b in self.row.builds if b.cuda == self.cuda and b.machine == machine), None)

    @property
    def tag(self) -> str:
        """How torch's indexes and local versions call this build: cpu, cu128."""
        return CPU if self.cuda is None else "cu" + self.cuda.replace(".", "")


class Table(_Row):
    """All of pairing.yaml."""

    index: Annotated[str, Field(pattern=r"^https://.*\{build\}$")]
    architectures: dict[str, list[int]]
    cuda: list[CudaRow]
    torch: list[TorchRow]
    flash_attn: FlashTable
    torch_varlen: TorchVarlen
    preference: list[str]
    profiles: dict[str, Profile]
    gpus: list[GpuRow]

    @model_validator(mode="after")
    def _consistent(self) -> Table:
        runtimes = {row.version for row in self.cuda}
        for row in self.torch:
            for machine, plain in row.pypi.items():
                _known("machine", machine, MACHINES)
                _known("CUDA", plain, {*runtimes, CPU})
            for build in row.builds:
                _known("CUDA", build.cuda, runtimes)
                _known("machine", build.machine, MACHINES)
                _known("architecture list", build.sm, self.architectures)
        for name in self.preference:
            _known("profile", name, self.profiles)
        for name, profile in self.profiles.items():
            row = self._row(profile.torch)
            if profile.cuda and not any(b.cuda == profile.cuda for b in row.builds):
                raise ValueError(f"profile {name!r}: expected a CUDA build that torch {profile.torch} has")
        return self

    def _row(self, torch: str) -> TorchRow:
        found = next((row for row in self.torch if torch in row.releases), None)
        if found is None:
            raise ValueError(f"torch {torch}: expected a release that a row has")
        return found

    def profile(self, name: str) -> Pair:
        """The pair that `name` stands for; KeyError for an unknown one."""
        profile = self.profiles[name]
        row = self._row(profile.torch)
        return Pair(name, profile.torch, row.releases[profile.torch], profile.cuda, row)

    def pairs(self) -> Iterator[Pair]:
        """Every CUDA pair, newest torch first and newest CUDA first within it."""
        for row in self.torch:
            for torch, triton in row.releases.items():
                for cuda in dict.fromkeys(build.cuda for build in row.builds):
                    pair = Pair("", torch, triton, cuda, row)
                    yield Pair(f"torch{torch}+{pair.tag}", torch, triton, cuda, row)

    def pythons(self) -> list[str]:
        """Every Python that some row has wheels for, oldest first."""
        return sorted({python for row in self.torch for python in row.pythons}, key=Version)

    def cpu_pairs(self) -> Iterator[Pair]:
        """Every pair without CUDA, newest first."""
        for row in self.torch:
            for torch, triton in row.releases.items():
                yield Pair(f"torch{torch}+{CPU}", torch, triton, None, row)

    def runtime(self, cuda: str) -> CudaRow:
        return next(row for row in self.cuda if row.version == cuda)

    def sm_of(self, gpu: str) -> int | None:
        """Compute capability (89 for 8.9) of a GPU by its name, as vendors and inventories write it."""
        words = f" {' '.join(re.findall(r'[a-z0-9]+', gpu.lower()))} "
        known = [(name, row.sm) for row in self.gpus for name in row.names]
        found = [(len(name), sm) for name, sm in known if f" {name.lower()} " in words]
        return max(found)[1] if found else None


def newer(torch: str, than: str) -> bool:
    """Whether release `torch` is newer than `than`."""
    return Version(torch) > Version(than)


@cache
def table() -> Table:
    """The packaged pairing.yaml."""
    return load(PATH, Table)


def _known(kind: str, name: str, names: Iterable[str]) -> None:
    known = list(names)
    if name not in known:
        raise ValueError(f"unknown {kind} {name!r}{nearest(name, known)}")
