"""A package without a wheel is compiled on the pod, when that is asked for, within its limits, and only once.

flash-attn itself takes hours: a small C extension with the same build steps stands in for it.
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent.env import source
from orchestrator.agent.env.progress import Progress, read_progress
from orchestrator.agent.env.source import Recipe
from orchestrator.agent.host import machine
from orchestrator.config.runbook import EnvironmentSpec
from orchestrator.pairing.choose import choose
from orchestrator.pairing.environment import Environment
from orchestrator.pairing.table import table
from tests.support import proc
from tests.support.env_pod import EnvPod, python, request
from tests.support.rented_pods import named
from tests.support.source_package import make_source
from tests.support.waiting import wait_for
from tests.support.wheels import make_wheel

pytestmark = pytest.mark.slow


HOW = table().flash_attn.from_source
LABEL = "src.torch2.15.0.cu132.sm89"


def flash(required: bool = False, **more: Any) -> dict[str, Any]:
    """flash-attn as the laptop asks for it where it has no wheel."""
    source = {
        "version": f"{HOW.version}+{LABEL}",
        "variables": HOW.filled([89], LABEL),
        "tools": HOW.tools,
        "job_bytes": 1 << 20,
        **more,
    }
    return {"name": "flash-attn", "version": HOW.version, "url": None, "required": required, "source": source}


def asked(*requirements: str, allow: bool = True, limit_s: float = 100, **wheel: Any) -> dict[str, Any]:
    how = {"allow_source_build": allow, "source_build_s": limit_s}
    return request(*requirements, wheels=[flash(**wheel)], **how)


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The build tools' wheels, from this machine's own index."""
    folder = tmp_path_factory.mktemp("tools")
    command = [sys.executable, "-m", "pip", "download", "-q", "--only-binary", ":all:", "-d", str(folder), *HOW.tools]
    subprocess.run(command, check=True)
    make_wheel(folder, "tool", "1.0")
    make_wheel(folder, "part", "1.5")
    return folder


@pytest.fixture
def bench(tmp_path: Path, pod: EnvPod, tools: Path) -> EnvPod:
    """A pod that has the build tools' wheels and the source, and no index."""
    make_source(tmp_path / "sources")
    pod.variables = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": f"{tools} {tmp_path / 'sources'}"}
    return pod


def test_it_is_compiled_once_and_kept_for_later_environments(bench: EnvPod, tmp_path: Path) -> None:
    ended = bench.wait(bench.start(asked("tool")))
    assert ended["state"] == "built", ended
    said = [line["text"] for line in ended["progress"] if line["phase"] == "compile-source"]
    assert any(text.startswith("[3/3]") for text in said), said
    environment = bench.check(asked("tool"))["environment"]
    assert environment["key"].endswith("-src")
    assert environment["packages"]["flash-attn"] == f"2.8.3+{LABEL}"
    # 8.9 runs 8.0's code, which is how flash-attn's setup calls it.
    jobs = machine.usable_cpus()
    assert python(environment, "import flash_attn; print(*flash_attn.told())") == f"80 {jobs} 42"
    made = environment["built"]["flash-attn"]
    source = (tmp_path / "sources" / "flash_attn-2.8.3.tar.gz").read_bytes()
    assert made["source_sha256"] == hashlib.sha256(source).hexdigest()
    assert (made["variables"]["TORCH_CUDA_ARCH_LIST"], made["variables"]["MAX_JOBS"]) == ("8.9", str(jobs))
    assert set(made["with"]) >= {"ninja", "setuptools", "pip"}
    assert f"--hash=sha256:{made['sha256']}" in environment["lock"]

    # Another environment, without the flag and without the source: the wheel is kept.
    (tmp_path / "sources" / "flash_attn-2.8.3.tar.gz").unlink()
    other = bench.build(asked("tool", "part", allow=False))
    assert other["packages"]["flash-attn"] == f"2.8.3+{LABEL}"
    assert other["key"] != environment["key"] and other["built"] == environment["built"]

    # Its wheel gone, an environment that was removed is made without it, and says so.
    subprocess.run(["rm", "-rf", other["root"], str(bench.workdir / "built")], check=True)
    last = bench.build(asked("tool", "part", allow=False))
    assert "flash-attn" not in last["packages"] and not last["key"].endswith("-src")


def test_without_the_flag_there_are_only_wheels(bench: EnvPod) -> None:
    environment = bench.build(asked("tool", allow=False))
    assert environment["packages"] == {"tool": "1.0"}
    assert "--allow-source-build compiles it" in environment["notes"][0]
    assert "--allow-source-build compiles it" in bench.refused(asked("tool", allow=False, required=True))
    assert kept(bench) == []


def test_the_wheel_of_the_project_comes_first(bench: EnvPod, tools: Path) -> None:
    wheel = make_wheel(tools / "published", "flash-attn", "2.8.3")
    published = {**asked("tool"), "wheels": [{**flash(), "url": wheel.as_uri()}]}
    assert bench.build(published)["packages"]["flash-attn"] == "2.8.3"
    missing = {**asked("tool"), "wheels": [{**flash(), "url": f"{wheel.as_uri()}.not-there"}]}
    assert bench.build(missing)["packages"]["flash-attn"] == f"2.8.3+{LABEL}"


def test_a_compiler_error_is_shown_and_nothing_is_left(bench: EnvPod, tmp_path: Path) -> None:
    make_source(tmp_path / "sources", broken=True)
    sentence = bench.refused(asked("tool"))
    assert sentence.startswith("flash-attn 2.8.3: it cannot be had: ")
    assert "undeclared" in sentence
    assert bench.leftovers() == [] and kept(bench) == []
    assert bench.check(asked("tool"))["state"] == "absent", "whoever asks for it gets no environment without it"


def test_it_is_ended_with_all_its_compilers_when_its_time_is_over(bench: EnvPod) -> None:
    bench.variables["STEP_S"] = step = proc.a_sleep()
    sentence = bench.refused(asked("tool", limit_s=8))
    assert "did not end within 8 s" in sentence
    assert not proc.sleeping(step) and kept(bench) == []


def test_the_compilers_of_a_killed_builder_end_with_it(bench: EnvPod) -> None:
    bench.variables["STEP_S"] = step = proc.a_sleep()
    job = bench.start(asked("tool"))
    wait_for(lambda: proc.sleeping(step))
    builders = bench.builders()
    (builder,) = (pid for pid in builders if proc.parent(pid) not in builders)
    os.kill(builder, signal.SIGKILL)
    assert bench.wait(job)["state"] == "lost"
    wait_for(lambda: not proc.sleeping(step))
    # The process that saw to that may be killed too: then the next builder ends what goes on.
    bench.start(asked("tool"))
    wait_for(lambda: proc.sleeping(step))
    for pid in bench.builders():
        os.kill(pid, signal.SIGKILL)
    bench.variables["STEP_S"] = "0"
    assert bench.build(asked("tool"))["key"].endswith("-src")
    assert not proc.sleeping(step)
    assert bench.leftovers() == [] and len(kept(bench)) == 1


def test_a_silent_compiler_is_no_silence_for_whoever_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "_NEWS_S", 0.05)
    with source._News(Progress(tmp_path / "progress.jsonl"), "flash-attn", 7200) as news:
        news.say("[12/72] nvcc ...")
        wait_for(lambda: len(read_progress(tmp_path / "progress.jsonl", 0)[0]) >= 3)
    said = [line["text"] for line in read_progress(tmp_path / "progress.jsonl", 0)[0]]
    assert said[1].startswith("compiling flash-attn: 12 of 72 files, 0 s of at most 7200 s")


def test_there_are_no_more_compilers_than_fit_into_the_memory(bench: EnvPod) -> None:
    environment = bench.build(asked("tool", job_bytes=1 << 60))
    assert environment["built"]["flash-attn"]["variables"]["MAX_JOBS"] == "1"


@pytest.mark.parametrize(("has", "says"), [("12.9", "the pod has 12.9 in "), (None, "a CUDA 99 toolkit (nvcc)")])
def test_a_pod_without_torchs_own_toolkit_is_told_so(bench: EnvPod, tmp_path: Path, has: str | None, says: str) -> None:
    if has:
        toolkit(tmp_path / "cuda", has)
        bench.variables["CUDA_HOME"] = str(tmp_path / "cuda")
    assert says in bench.refused({**asked("tool"), "cuda": "99.0"})


def test_the_toolkit_of_torchs_own_major_version_is_used(bench: EnvPod, tmp_path: Path) -> None:
    toolkit(tmp_path / "cuda", "13.4")
    bench.variables["CUDA_HOME"] = str(tmp_path / "cuda")
    assert bench.build({**asked("tool"), "cuda": "13.0"})["key"].endswith("-src")


def test_the_recipe_is_known_by_all_that_decides_what_comes_out() -> None:
    plain = {"name": "f", "version": "1", "variables": {"A": "1"}, "python": "3.11", "torch": "abc"}
    others = {"name": "g", "version": "2", "variables": {"A": "2"}, "python": "3.12", "torch": "def"}
    keys = {Recipe(**{**plain, name: value}).key for name, value in others.items()}  # type: ignore[arg-type]
    assert len({Recipe(**plain).key, *keys}) == 6  # type: ignore[arg-type]


SPEC = EnvironmentSpec(requires=["torch", "triton"], optional=["flash-attn"])


def chosen(name: str, **more: Any) -> Environment:
    pod = named(name)
    return choose(table(), type(pod.facts)(**{**vars(pod.facts), "from_source": True}), SPEC, more.get("pin", pod.pin))


@pytest.mark.parametrize(
    ("name", "pin", "archs", "capabilities"),
    [
        ("H100, the newest asked for", "newest", "90", "9.0"),
        ("H200, driver 580", "newest", "90", "9.0"),
        ("B200", "newest", "100", "10.0"),
        ("RTX 5090, driver 580", "newest", "120", "12.0"),
        ("4090, driver 570.169", "newest-cuda12", "80", "8.9"),
        ("GH200, driver 550", None, "90", "9.0"),
    ],
)
def test_the_pods_own_architecture_is_compiled_as_flash_attn_names_it(
    name: str, pin: str | None, archs: str, capabilities: str
) -> None:
    (wheel,) = chosen(name, pin=pin).wheels
    assert wheel["url"] is None and wheel["source"] is not None
    variables: Mapping[str, str] = wheel["source"]["variables"]
    assert (variables["FLASH_ATTN_CUDA_ARCHS"], variables["TORCH_CUDA_ARCH_LIST"]) == (archs, capabilities)
    assert wheel["source"]["version"] == f"2.8.3+{variables['FLASH_ATTN_LOCAL_VERSION']}"


def test_a_published_wheel_stays_the_choice_where_compiling_is_allowed() -> None:
    environment = chosen("H100")
    assert environment.profile == "torch28"
    assert environment.wheels[0]["url"] is not None


def test_what_flash_attn_does_not_know_is_not_compiled() -> None:
    assert chosen("T4").wheels == ()


def kept(pod: EnvPod) -> list[str]:
    """Everything that compiling has left, but for its locks."""
    return [path.name for path in (pod.workdir / "built").iterdir() if path.is_dir()]


def toolkit(folder: Path, release: str) -> None:
    """A CUDA toolkit as far as its version goes."""
    nvcc = folder / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {release}, V{release}.1'\n")
    nvcc.chmod(0o755)


def test_progress_of_another_build_is_read_from_its_beginning(tmp_path: Path) -> None:
    """Whoever waits knows an offset of the build before."""
    path = tmp_path / "progress.jsonl"
    path.write_text('{"text": "one"}\n{"text": "half')
    assert read_progress(path, 0) == ([{"text": "one"}], 16)
    path.write_text('{"text": "another one"}\n')
    for offset in (16, 500):
        assert read_progress(path, offset) == ([{"text": "another one"}], 24)
    assert read_progress(path, 24) == ([], 24)
