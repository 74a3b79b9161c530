"""Pods that cannot be used: one sentence, exit code 4, and nothing that could pass for a run."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.project import Project, local_pod, new_project
from tests.support.sshd import Sshd, new_sshd
from tests.support.two_stages import FILES

Entry = Callable[[Sshd, Path], dict[str, Any]]


def closed_port(sshd: Sshd, folder: Path) -> dict[str, Any]:
    return sshd.entry(port=1)


def wrong_key(sshd: Sshd, folder: Path) -> dict[str, Any]:
    other = new_sshd(folder / "other")
    return sshd.entry(identity_file=str(other.key))


def unknown_host_key(sshd: Sshd, folder: Path) -> dict[str, Any]:
    return {key: value for key, value in sshd.entry().items() if key != "host_key"}


def changed_host_key(sshd: Sshd, folder: Path) -> dict[str, Any]:
    return sshd.entry(host_key=new_sshd(folder / "other").fingerprint)


def no_python(sshd: Sshd, folder: Path) -> dict[str, Any]:
    return sshd.entry(python="python3.7")


def name_without_address(sshd: Sshd, folder: Path) -> dict[str, Any]:
    return sshd.entry(host="no-such-host.invalid")


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        (closed_port, "refused"),
        (wrong_key, "key"),
        (unknown_host_key, "--accept-new-host-key"),
        (changed_host_key, "SHA256:"),
        (no_python, "no Python 3.8"),
        (name_without_address, "no-such-host.invalid"),
    ],
)
def test_one_sentence_and_exit_code_4(sshd: Sshd, tmp_path: Path, entry: Entry, sentence: str) -> None:
    project = new_project(tmp_path, {"p": {**entry(sshd, tmp_path), "workdir": str(tmp_path / "workdir")}})
    project.commit(FILES)
    outcome = project.here("validate", "--pod", "p", "--json", "--runbook", "r")
    assert (outcome.exit_code, outcome.json["verdict"]) == (4, "error"), outcome.stderr
    assert sentence in outcome.json["error"]
    assert "\n" not in outcome.json["error"] and "Traceback" not in outcome.stderr
    assert not (project.root / "artifacts").exists()


def test_accepting_a_new_host_key_pins_it(sshd: Sshd, tmp_path: Path) -> None:
    entry = {**unknown_host_key(sshd, tmp_path), "workdir": str(tmp_path / "workdir")}
    project = new_project(tmp_path, {"p": entry})
    project.commit(FILES)
    first = project.validate("--runbook", "r", "--accept-new-host-key", pod="p")
    assert first.exit_code == 0 and sshd.fingerprint in first.stderr
    assert project.validate("--runbook", "r", pod="p").exit_code == 0


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB: room for the agent, with the modules that its Python compiles, and little else."""
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)], check=True)
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


_small = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("mount"), reason="only root can make a small file system"
)


@_small
def test_a_full_disk_is_said(full_disk: Path, tmp_path: Path) -> None:
    project = new_project(tmp_path, {"local": {**local_pod(tmp_path), "workdir": str(full_disk / "workdir")}})
    project.commit({**FILES, "big": "x" * 2**21})
    outcome = project.validate("--runbook", "r")
    assert outcome.exit_code == 4
    assert "No space left" in outcome.json["error"] or "full" in outcome.json["error"]


@pytest.mark.slow
@_small
def test_a_disk_that_is_full_before_an_environment_is_built_is_said(full_disk: Path, tmp_path: Path) -> None:
    project = new_project(tmp_path, {"local": {**local_pod(tmp_path), "workdir": str(full_disk / "workdir")}})
    needs = FILES["runbooks/r.yaml"].replace("python: system", "extra: [no-such-package]")
    project.commit({**FILES, "runbooks/r.yaml": needs})
    assert project.here("envs", "--pod", "local").exit_code == 0, "the agent is there"
    with contextlib.suppress(OSError), (full_disk / "fill").open("wb", buffering=0) as f:
        while f.write(bytes(4096)):
            pass
    outcome = project.run("bootstrap", "--pod", "local", "--runbook", "r", "--json")
    assert outcome.exit_code == 4
    assert "its disk is full" in outcome.json["error"]


def test_another_gpu_than_promised_is_not_used_silently(project: Project) -> None:
    pods = project.inventory.read_text().replace('"transport": "local"', '"transport": "local", "gpu": "RTX 4090"')
    project.inventory.write_text(pods)
    project.commit(
        {**FILES, "runbooks/r.yaml": FILES["runbooks/r.yaml"].replace("name: r\n", "name: r\nrequires: [cuda]\n")}
    )
    outcome = project.validate("--runbook", "r")
    assert (outcome.exit_code, outcome.json["verdict"]) == (3, "incomplete")
    assert {stage["status"] for stage in outcome.json["stages"]} == {"blocked"}
    assert "RTX 4090" in outcome.stderr
