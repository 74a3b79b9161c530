"""The table is complete and agrees with itself; its rows are checked against the index by a command."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.version import Version

from orchestrator.config.yamlfile import loads
from orchestrator.errors import InputError
from orchestrator.pairing import audit as pairing_check
from orchestrator.pairing.table import CPU, PATH, Table, table

MINORS = [f"2.{minor}" for minor in range(2, 16)]


def test_every_torch_from_2_2_on_has_a_row() -> None:
    releases = [torch for row in table().torch for torch in row.releases]
    assert {".".join(torch.split(".")[:2]) for torch in releases} == set(MINORS)
    assert len(releases) == len(set(releases))


def test_rows_are_newest_first() -> None:
    releases = [Version(torch) for row in table().torch for torch in row.releases]
    assert releases == sorted(releases, reverse=True)


def test_plain_pypi_serves_a_build_that_the_row_has() -> None:
    for row in table().torch:
        for machine, plain in row.pypi.items():
            builds = {build.cuda for build in row.builds if build.machine == machine}
            assert plain == CPU or plain in builds, (list(row.releases), machine)


def test_architectures_fit_their_cuda() -> None:
    for row in table().torch:
        for build in row.builds:
            code, cuda = table().architectures[build.sm], Version(build.cuda)
            assert (max(code) >= 100) == (cuda >= Version("12.8")), (list(row.releases), build)
            assert min(code) >= 75 or cuda < Version("13"), (list(row.releases), build)


def test_drivers_grow_with_cuda() -> None:
    rows = table().cuda
    assert [row.version for row in rows] == sorted((row.version for row in rows), key=Version)
    for field in ("driver", "own_driver"):
        drivers = [Version(getattr(row, field)) for row in rows]
        assert drivers == sorted(drivers)
    assert all(Version(row.driver) <= Version(row.own_driver) for row in rows)


def test_flash_attn_has_wheels_for_torch_that_is_there() -> None:
    for release in table().flash_attn.releases:
        assert set(release.torch) <= set(MINORS)
    every = [minor for release in table().flash_attn.releases for minor in release.torch]
    assert len(every) == len(set(every))


def test_profiles_have_their_flash_attn_for_every_python() -> None:
    flash = {minor: release for release in table().flash_attn.releases for minor in release.torch}
    for name in ("torch28", "rtx4090-torch24", "torch23"):
        pair = table().profile(name)
        assert set(pair.row.pythons) <= set(flash[".".join(pair.torch.split(".")[:2])].pythons)


@pytest.mark.parametrize(
    ("name", "sm"),
    [
        ("RTX 4090", 89),
        ("NVIDIA GeForce RTX 3090", 86),
        ("NVIDIA A100-PCIE-40GB", 80),
        ("NVIDIA A10G", 86),
        ("A10", 86),
        ("NVIDIA L4", 89),
        ("NVIDIA L40S", 89),
        ("NVIDIA H100 80GB HBM3", 90),
        ("NVIDIA GH200 480GB", 90),
        ("NVIDIA RTX 6000 Ada Generation", 89),
        ("NVIDIA RTX A6000", 86),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 120),
        ("Quadro RTX 6000", 75),
        ("NVIDIA B200", 100),
        ("Voodoo 2", None),
    ],
)
def test_a_gpu_is_known_by_its_name(name: str, sm: int | None) -> None:
    assert table().sm_of(name) == sm


@pytest.mark.slow
def test_the_whole_lock_of_a_cuda_profile_is_one_command(
    uv: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Needs a package index; nothing is installed."""
    monkeypatch.setenv("PATH", str(uv.parent), prepend=os.pathsep)
    assert pairing_check.main(["--lock", "rtx4090-torch24", "--python", "3.10"]) == 0
    *wheels, flash = capsys.readouterr().out.splitlines()[1:]
    assert all(re.fullmatch(r"\S+ @ \S+\.whl --hash=sha256:[0-9a-f]{64}", line) for line in wheels)
    files = {line.split(" @ ")[0]: line.rpartition("/")[2].split(" ")[0] for line in wheels}
    assert files["torch"].startswith("torch-2.4.0-cp310-cp310-")
    assert re.match(r"triton-3\.0\.0-(1-)?cp310-cp310-", files["triton"])
    assert files["nvidia-cuda-runtime-cu12"].startswith("nvidia_cuda_runtime_cu12-12.1.")
    assert flash.endswith("/flash_attn-2.8.3+cu12torch2.4cxx11abiFALSE-cp310-cp310-linux_x86_64.whl")


def _unknown_runtime(data: dict[str, Any]) -> None:
    data["torch"][0]["builds"][0]["cuda"] = "14.0"


def _unknown_list(data: dict[str, Any]) -> None:
    data["torch"][0]["builds"][0]["sm"] = "to_hoper"


def _unknown_release(data: dict[str, Any]) -> None:
    data["profiles"]["torch28"]["torch"] = "2.8.9"


def _build_that_is_none(data: dict[str, Any]) -> None:
    data["profiles"]["torch28"]["cuda"] = "13.2"


def _no_source(data: dict[str, Any]) -> None:
    del data["cuda"][0]["source"]


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (_unknown_runtime, "unknown CUDA '14.0'"),
        (_unknown_list, "unknown architecture list 'to_hoper': did you mean to_hopper"),
        (_unknown_release, "torch 2.8.9: expected a release that a row has"),
        (_build_that_is_none, "profile 'torch28': expected a CUDA build that torch 2.8.0 has"),
        (_no_source, "key 'cuda.0.source': is missing"),
    ],
)
def test_a_wrong_row_is_refused_with_what_was_expected(spoil: Callable[[dict[str, Any]], None], says: str) -> None:
    data = yaml.safe_load(PATH.read_text())
    spoil(data)
    with pytest.raises(InputError) as refused:
        loads(yaml.safe_dump(data), "pairing.yaml", Table)
    assert says in str(refused.value)
