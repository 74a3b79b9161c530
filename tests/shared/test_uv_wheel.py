"""Which wheel of uv a machine gets, and what is taken for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.shared.failure import Failure
from orchestrator.shared.wheels import uv_wheel
from orchestrator.shared.wheels.settings import Settings
from orchestrator.shared.wheels.uv_wheel import Machine
from orchestrator.shared.wheels.web import NotThere
from tests.support.local_agent import Told
from tests.support.wheels import make_index

BOTH = "manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64"
# As an index has them.
NEWEST = [
    "uv-0.13.9-py3-none-linux_armv6l.whl",
    "uv-0.13.9-py3-none-macosx_10_12_x86_64.whl",
    "uv-0.13.9-py3-none-macosx_11_0_arm64.whl",
    f"uv-0.13.9-py3-none-{BOTH}.whl",
    "uv-0.13.9-py3-none-manylinux_2_17_ppc64le.manylinux2014_ppc64le.whl",
    "uv-0.13.9-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
    "uv-0.13.9-py3-none-manylinux_2_28_aarch64.whl",
    "uv-0.13.9-py3-none-musllinux_1_1_x86_64.whl",
    "uv-0.13.9-py3-none-win_amd64.whl",
    "uv-0.13.9.tar.gz",
]
OLDER = [name.replace("0.13.9", "0.9.21") for name in NEWEST]


def an_index(folder: Path, names: list[str]) -> Settings:
    """An index of files with these names, whose content is their name."""
    folder.mkdir()
    for name in names:
        (folder / name).write_text(name)
    return Settings({"index-url": make_index(folder / "simple", [folder / name for name in names])})


@pytest.mark.parametrize(
    ("machine", "ending"),
    [
        (Machine("Linux", "x86_64", "glibc", "2.36"), "manylinux_2_17_x86_64.manylinux2014_x86_64"),
        (Machine("Linux", "x86_64", "glibc", "2.12"), "musllinux_1_1_x86_64"),
        (Machine("Linux", "x86_64", "", ""), "musllinux_1_1_x86_64"),
        (Machine("Linux", "aarch64", "glibc", "2.26"), BOTH),
        (Machine("Linux", "aarch64", "", ""), BOTH),
        (Machine("Linux", "ppc64le", "glibc", "2.17"), "manylinux_2_17_ppc64le.manylinux2014_ppc64le"),
        (Machine("Darwin", "arm64", "", ""), "macosx_11_0_arm64"),
        (Machine("Darwin", "x86_64", "", ""), "macosx_10_12_x86_64"),
    ],
)  # fmt: skip
def test_each_machine_gets_the_newest_that_runs_there(machine: Machine, ending: str, tmp_path: Path) -> None:
    settings = an_index(tmp_path / "index", OLDER + NEWEST)
    found = uv_wheel.fetch(settings, machine, [], tmp_path / "here", Told())
    assert found.name == f"uv-0.13.9-py3-none-{ending}.whl" and found.read_text() == found.name


@pytest.mark.parametrize(
    "machine",
    [
        Machine("Linux", "ppc64le", "", ""),
        Machine("Linux", "mips", "glibc", "2.36"),
        Machine("Windows", "amd64", "", ""),
    ],
)
def test_where_none_runs_that_is_said(machine: Machine, tmp_path: Path) -> None:
    settings = an_index(tmp_path / "index", NEWEST)
    with pytest.raises(NotThere, match=f"a wheel of uv for {machine.system} on {machine.arch}"):
        uv_wheel.fetch(settings, machine, [], tmp_path / "here", Told())


def test_what_lies_at_hand_is_taken_before_an_index_is_asked_unless_it_is_too_old(tmp_path: Path) -> None:
    machine = Machine("Linux", "x86_64", "glibc", "2.36")
    settings = an_index(tmp_path / "index", NEWEST)
    near = tmp_path / "near"
    near.mkdir()
    old, fitting = (
        near / NEWEST[5].replace("0.13.9", version) for version in (f"0.{uv_wheel.LEAST[1] - 1}.9", "0.8.1")
    )
    old.touch()
    assert uv_wheel.fetch(settings, machine, [near], tmp_path / "one", Told()).name == NEWEST[5]
    fitting.touch()
    assert uv_wheel.fetch(settings, machine, [near], tmp_path / "two", Told()).name == fitting.name
    by_pip = Settings({"no-index": "1", "find-links": str(near)})
    assert uv_wheel.fetch(by_pip, machine, [], tmp_path / "three", Told()).name == fitting.name


def test_a_wheel_that_is_not_what_its_index_says_is_refused(tmp_path: Path) -> None:
    settings = an_index(tmp_path / "index", NEWEST)
    (tmp_path / "index" / NEWEST[5]).write_text("something else")
    with pytest.raises(Failure, match="is not what its index says"):
        uv_wheel.fetch(settings, Machine("Linux", "x86_64", "glibc", "2.36"), [], tmp_path / "here", Told())
    assert list((tmp_path / "here").iterdir()) == []


def test_what_is_no_wheel_of_uv_is_named(tmp_path: Path) -> None:
    (tmp_path / "uv.whl").write_bytes(b"<html>")
    with pytest.raises(Failure, match=r"uv\.whl is no wheel of uv"):
        uv_wheel.unpack(tmp_path / "uv.whl", tmp_path / "uv")
