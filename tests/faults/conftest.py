"""Pods that may be broken, small disks, and a laptop's home for each test."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.faults import box
from tests.support.faults.box import Box
from tests.support.project import Project, local_pod, new_project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """An empty repository with one pod, `p`: this machine."""
    return new_project(tmp_path, {"p": local_pod(tmp_path)})


@pytest.fixture
def boxed(tmp_path: Path) -> Iterator[Box]:
    """A pod that can be rebooted, replaced, and lose its /tmp."""
    missing = box.why_not()
    if missing:
        pytest.skip(missing)
    pod = Box(tmp_path / "pod")
    yield pod
    pod.power_off()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Makes file systems of a given size, which end with the test."""
    if os.geteuid() != 0 or not shutil.which("mount"):
        pytest.skip("only root can make a small file system (mount)")
    with ExitStack() as mounted:

        def make(name: str, options: str) -> Path:
            place = tmp_path / name
            place.mkdir()
            subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], check=True)
            mounted.callback(subprocess.run, ["umount", "-l", str(place)], check=True)
            return place

        yield make
