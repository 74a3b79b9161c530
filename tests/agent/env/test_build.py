"""Environments are built by the agent as it is shipped, with the real uv, and are what their locks say."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.agent.env.build import Builder, Unusable
from orchestrator.agent.env.progress import Progress
from orchestrator.agent.env.store import Store, find, identity
from orchestrator.agent.holds import Hold
from orchestrator.shared.failure import Failure
from orchestrator.shared.wheels.lockfile import Lockfile
from tests.support.env_pod import WITH_PIP, EnvPod, python, request
from tests.support.files import write_tar
from tests.support.web import served
from tests.support.wheels import make_index, make_sdist, make_wheel

REAL = {name: os.environ[name] for name in os.environ if name.startswith(("PIP_", "SSL_")) or name.endswith("_PROXY")}

# What uv looks into in each Python that it fetches.
_SYSCONFIG = """\
# system configuration generated and used by the sysconfig module
build_time_vars = {
    "CC": "cc"
}
"""


def test_an_environment_is_what_was_asked_for(pod: EnvPod) -> None:
    environment = pod.build(request("tool<2"))
    assert environment["installer"].split()[0] == "uv"
    assert environment["packages"] == {"part": "1.5", "tool": "1.0"}
    assert python(environment, "import tool, part; print(tool.__version__)") == "1.0"
    assert environment["verified"]["checks"] == ["versions"]
    assert pod.leftovers() == []


def test_the_lock_names_every_wheel_with_address_and_hash(pod: EnvPod, index: str) -> None:
    environment = pod.build(request("tool"))
    lines = [line for line in environment["lock"].splitlines() if not line.startswith("#")]
    assert [line.split(" ")[0] for line in lines] == ["part", "tool"]
    for line in lines:
        match = re.fullmatch(r"\S+ @ file://(\S+\.whl) --hash=sha256:([0-9a-f]{64})", line)
        assert match and hashlib.sha256(Path(match[1]).read_bytes()).hexdigest() == match[2]
    assert hashlib.sha256(environment["lock"].encode()).hexdigest() == environment["lock_sha256"]


@pytest.mark.slow
def test_a_release_that_is_older_for_want_of_a_wheel_is_said_with_both_versions(
    tmp_path: Path, agent: Path, uv: Path
) -> None:
    """hydra-core 0.11.3 was taken without a word: the newest needs a package that has only a source distribution."""
    files = tmp_path / "files"
    wheels = [
        make_wheel(files, "hydra", "0.11"),
        make_wheel(files, "hydra", "1.3", requires=["antlr==4.9"]),
        make_wheel(files, "fixed", "1.0"),
        make_wheel(files, "fixed", "2.0", requires=["hydra>=9"]),  # not for want of a wheel
    ]
    index = make_index(tmp_path / "simple", [*wheels, make_sdist(files, "antlr", "4.9")])
    pod = EnvPod(tmp_path / "w", agent, uv, {"PIP_INDEX_URL": index})
    environment = pod.build(request("hydra", "fixed"))
    assert environment["packages"] == {"fixed": "1.0", "hydra": "0.11"}
    assert environment["notes"] == [
        "hydra 0.11 is installed, and not 1.3, the newest that is asked for: antlr has no wheel; `sdists: [antlr]` has "
        "it built from source"
    ]
    built = pod.build(request("hydra", sdists=["antlr"]))
    assert (built["packages"], built["notes"]) == ({"antlr": "4.9", "hydra": "1.3"}, [])
    assert python(built, "import antlr; print(antlr.BUILT)") == "True"


def test_a_package_that_a_lock_names_has_one_of_its_hashes(pod: EnvPod) -> None:
    lines = [line for line in pod.build(request("part"))["lock"].splitlines() if line.startswith("part")]
    known = lines[0].rpartition(":")[2]
    assert pod.build(request("part==1.5", hashes={"part": ["0" * 64, known]}))["packages"] == {"part": "1.5"}
    assert "has a hash that the lock knows" in pod.refused(request("part==1.5", hashes={"part": ["0" * 64]}))


def test_console_scripts_work_where_the_environment_ends_up(pod: EnvPod) -> None:
    environment = pod.build(request("tool"))
    assert subprocess.check_output([f"{environment['root']}/bin/tool"], text=True).strip() == "tool runs"
    for script in Path(environment["root"], "bin").iterdir():
        assert b".building-" not in script.read_bytes()


def test_imports_need_no_bytecode_to_be_written(pod: EnvPod) -> None:
    root = Path(pod.build(request("tool"))["root"])
    sources = sorted(p for p in root.glob("lib/python*/site-packages/tool/*.py"))
    compiled = sorted(p.name.split(".")[0] for p in root.glob("lib/python*/site-packages/tool/__pycache__/*.pyc"))
    assert compiled == [p.stem for p in sources]


def test_real_packages_from_the_machines_own_index(pod: EnvPod) -> None:
    pod.variables = REAL
    environment = pod.build(request("pytest", "pyyaml", python=WITH_PIP))
    assert {"pytest", "pyyaml", "pluggy"} <= set(environment["packages"])
    shown = subprocess.check_output([f"{environment['root']}/bin/pytest", "--version"], text=True)
    assert environment["packages"]["pytest"] in shown


def test_a_second_time_asks_no_network_and_no_installer(pod: EnvPod) -> None:
    pod.build(request("tool"))
    cut_off = EnvPod(pod.workdir, pod.agent, None, {"PIP_INDEX_URL": "http://127.0.0.1:9/simple"})
    assert cut_off.check(request("tool"))["state"] == "ready"


def test_another_request_that_comes_to_the_same_wheels_uses_the_same_environment(pod: EnvPod) -> None:
    first = pod.build(request("tool"))
    built = (Path(first["root"]) / "env.json").read_bytes()
    assert pod.build(request("tool>=2", "part"))["root"] == first["root"]
    assert (Path(first["root"]) / "env.json").read_bytes() == built


@pytest.mark.slow
def test_environments_share_files_and_do_not_disturb_each_other(pod: EnvPod) -> None:
    first = pod.build(request("tool"))
    pod.build(request("part"))
    module = next(Path(first["root"]).glob("lib/python*/site-packages/part/inner.py"))
    assert module.stat().st_nlink >= 3, "one link each for two environments and the cache"
    assert pod.check(request("tool"))["state"] == "ready"


def test_the_pods_find_links_are_uvs_too(pod: EnvPod, tmp_path: Path) -> None:
    make_wheel(tmp_path / "links", "local-only", "3.0")
    make_wheel(tmp_path / "more links", "more-local", "4.0")
    pod.variables["PIP_FIND_LINKS"] = f"{tmp_path / 'links'}"
    assert pod.build(request("local-only", "tool"))["packages"]["local-only"] == "3.0"


def test_the_pods_pip_configuration_file_is_uvs_too(pod: EnvPod, tmp_path: Path, index: str) -> None:
    extra = make_index(tmp_path / "extra", [make_wheel(tmp_path / "files", "tool", "9.0")])
    config = tmp_path / "pip.conf"
    config.write_text(f"[global]\nindex-url = {index}\nextra-index-url =\n    {extra}\n[install]\nuser = true\n")
    pod.variables = {"PIP_CONFIG_FILE": str(config)}
    # As pip would: the best version from all indexes, not from the first that knows the name.
    asked = request("tool", "part", python=WITH_PIP)
    assert pod.build(asked)["packages"] == {"part": "1.5", "tool": "9.0"}


def test_the_tables_index_is_asked_only_for_what_the_pods_own_lacks(pod: EnvPod, tmp_path: Path) -> None:
    builds = make_index(tmp_path / "builds", [make_wheel(tmp_path / "files", "special", "2.0+cpu")])
    asked = request("special==2.0+cpu", "tool", indexes=[builds], pins={"special": "2.0+cpu"})
    ended = pod.wait(pod.start(asked))
    assert ended["state"] == "built"
    assert any("adding " + builds[:70] in line["text"] for line in ended["progress"])  # long ones are cut
    assert pod.check(asked)["environment"]["packages"] == {"part": "1.5", "special": "2.0+cpu", "tool": "2.0"}


def test_the_tables_index_is_not_asked_for_what_it_is_not_for(pod: EnvPod) -> None:
    nowhere = "http://127.0.0.1:9/simple"
    sentence = pod.refused(request("part==1.5", "tool==7", indexes=[nowhere], pins={"part": "1.5"}))
    assert sentence.startswith("nothing fits: ") and "tool==7" in sentence and nowhere not in sentence


@pytest.mark.parametrize("has_build", [True, False])
def test_what_is_built_for_torch_is_of_its_build_where_that_can_be_had(
    pod: EnvPod, tmp_path: Path, has_build: bool
) -> None:
    """The pod's own index has torch's build, and beside it torchvision's for another one."""
    files, tell = tmp_path / "files", "import importlib.metadata as m\nraise ImportError(m.version('torchvision'))\n"
    torch = make_wheel(files, "torch", "2.13.0+cpu", files={"torch/__init__.py": tell})
    pod.variables["PIP_EXTRA_INDEX_URL"] = make_index(
        tmp_path / "own", [torch, make_wheel(files, "torchvision", "0.28.0")]
    )
    built = [make_wheel(files, "torchvision", "0.28.0+cpu")] if has_build else []
    asked = {"indexes": [make_index(tmp_path / "builds", built)], "pins": {"torch": "2.13.0+cpu"}}
    sentence = pod.refused(request("torch==2.13.0+cpu", "torchvision", **asked))
    assert sentence.endswith(f"torch cannot be imported: 0.28.0{'+cpu' if has_build else ''}")


def test_a_cuda_build_for_a_pod_without_cuda_is_refused_before_it_is_installed(pod: EnvPod, tmp_path: Path) -> None:
    runtime = make_wheel(tmp_path / "files", "nvidia-cuda-runtime", "13.0")
    torch = make_wheel(tmp_path / "files", "torch", "2.13.0", requires=["nvidia-cuda-runtime"])
    pod.variables["PIP_EXTRA_INDEX_URL"] = make_index(tmp_path / "cuda", [runtime, torch])
    sentence = pod.refused(request("torch==2.13.0", pins={"torch": "2.13.0"}))
    assert "serves a CUDA build of torch for an environment without CUDA" in sentence
    assert "nvidia-cuda-runtime" in sentence
    assert pod.leftovers() == []


def test_what_others_need_of_cuda_is_no_build_of_torch(pod: EnvPod, tmp_path: Path) -> None:
    files = tmp_path / "files"
    bindings = make_wheel(files, "cuda-bindings", "13.0")
    needs_it = make_wheel(files, "dsl", "4.7", requires=["cuda-bindings"])
    torch = make_wheel(files, "torch", "2.13.0", files={"torch/__init__.py": "raise ImportError('as far as that')\n"})
    pod.variables["PIP_EXTRA_INDEX_URL"] = make_index(tmp_path / "own", [bindings, needs_it, torch])
    sentence = pod.refused(request("torch==2.13.0", "dsl", pins={"torch": "2.13.0"}))
    assert sentence.endswith("torch cannot be imported: as far as that")


def test_what_does_not_exist_is_named(pod: EnvPod) -> None:
    sentence = pod.refused(request("tool==7"))
    assert sentence.startswith("nothing fits: ")
    assert "tool==7" in sentence
    assert pod.leftovers() == []


def test_an_index_that_cannot_be_reached_is_named(pod: EnvPod) -> None:
    pod.variables = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0", "UV_HTTP_RETRIES": "0"}
    sentence = pod.refused(request("tool"))
    assert "127.0.0.1:9" in sentence or "No matching distribution" in sentence


def test_passwords_in_addresses_stay_out_of_locks_progress_and_sentences(pod: EnvPod, server: str) -> None:
    with_password = server.replace("://", "://me:secret@")
    pod.variables["PIP_EXTRA_INDEX_URL"] = f"{with_password}/simple"
    environment = pod.build(request("served"))
    assert "served @ http://127.0.0.1" in environment["lock"]
    ended = pod.wait(pod.start(request("served==9")))
    assert "secret" not in json.dumps([environment, ended])


def published(version: str, url: str, required: bool = False) -> dict[str, Any]:
    """A wheel of flash-attn that its project has, as it is asked for."""
    return {"name": "flash-attn", "version": version, "url": url, "required": required, "source": None}


def test_a_wheel_outside_the_index_is_locked_by_its_hash(pod: EnvPod, server: str) -> None:
    asked = request(
        "tool",
        wheels=[published("2.8.3", f"{server}/flash_attn-2.8.3-py3-none-any.whl")],
    )
    environment = pod.build(asked)
    assert environment["packages"]["flash-attn"] == "2.8.3"
    assert re.search(r"flash-attn @ http://\S+ --hash=sha256:[0-9a-f]{64}", environment["lock"])
    assert environment["notes"] == []


@pytest.mark.parametrize("required", [False, True])
def test_a_wheel_that_is_not_there_is_left_out_or_refused(pod: EnvPod, server: str, required: bool) -> None:
    asked = request("tool", wheels=[published("9", f"{server}/flash_attn-9-py3-none-any.whl", required)])
    if required:
        assert "flash-attn 9: its project has no such wheel: HTTP 404" in pod.refused(asked)
    else:
        environment = pod.build(asked)
        assert "flash-attn" not in environment["packages"]
        assert environment["notes"] == [f"flash-attn is left out: HTTP 404 for {server}/flash_attn-9-py3-none-any.whl"]


def test_a_wheelhouse_needs_no_network(pod: EnvPod, tmp_path: Path) -> None:
    make_wheel(tmp_path / "house", "tool", "1.0", requires=["part"], script=True)
    make_wheel(tmp_path / "house", "part", "0.1")
    pod.variables = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple"}
    environment = pod.build(request("tool", wheelhouse=str(tmp_path / "house")))
    assert environment["packages"] == {"part": "0.1", "tool": "1.0"}


def test_an_optional_package_that_does_not_work_is_left_out_and_said(
    pod: EnvPod, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**pod.variables, "PATH": f"{pod.uv and pod.uv.parent}:/usr/bin:/bin"}.items():
        monkeypatch.setenv(name, value)
    url = f"{server}/flash_attn-2.8.3-py3-none-any.whl"
    whole = Builder._verify

    def verify(builder: Builder, root: Path, lockfile: Lockfile) -> dict[str, object]:
        if "flash-attn" in lockfile.packages:
            raise Unusable("flash_attn cannot be imported: undefined symbol: _ZN3c105Error", "flash-attn")
        return whole(builder, root, lockfile)

    monkeypatch.setattr(Builder, "_verify", verify)
    store = Store(pod.workdir)
    for required in (True, False):
        asked = request("tool", wheels=[published("2.8.3", url, required)])
        store.job(identity(asked)).mkdir(parents=True)
        builder = Builder(store, asked, Progress(store.job(identity(asked)) / "progress.jsonl"), Hold())
        if required:
            with pytest.raises(Unusable, match="undefined symbol: _ZN3c105Error"):
                builder.build()
        else:
            builder.build()
    environment = find(store, asked, Hold())["environment"]
    assert environment["packages"] == {"part": "1.5", "tool": "2.0"}
    assert environment["notes"] == [
        "flash-attn is left out: flash_attn cannot be imported: undefined symbol: _ZN3c105Error"
    ]
    assert pod.leftovers() == []


def test_a_wheelhouse_serves_a_lock_that_was_made_with_a_network(pod: EnvPod, server: str, tmp_path: Path) -> None:
    pod.variables["PIP_EXTRA_INDEX_URL"] = f"{server}/simple"
    asked = request("served")
    environment = pod.build(asked)
    subprocess.run(["rm", "-rf", environment["root"], str(pod.workdir / "cache")], check=True)
    make_wheel(tmp_path / "house", "served", "1.0")
    pod.variables = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple"}
    assert pod.build({**asked, "wheelhouse": str(tmp_path / "house")})["key"] == environment["key"]


def test_offline_builds_again_what_was_there_and_asks_nobody(pod: EnvPod, server: str) -> None:
    pod.variables["PIP_EXTRA_INDEX_URL"] = f"{server}/simple"
    environment = pod.build(request("served"))
    subprocess.run(["rm", "-rf", environment["root"]], check=True)
    pod.variables = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "ALL_PROXY": "http://127.0.0.1:9"}
    offline = {"offline": True}
    assert pod.build({**request("served"), **offline})["key"] == environment["key"]
    assert pod.refused({**request("part"), **offline}).startswith("nothing fits")


def test_too_little_room_is_said_before_anything_is_fetched(pod: EnvPod, monkeypatch: pytest.MonkeyPatch) -> None:
    sentence = pod.refused(request("tool", disk_bytes=1 << 60))
    assert sentence.startswith("the environment needs 1073741824.00 GiB of disk below")
    little = Builder(Store(pod.workdir), request(disk_bytes=1 << 28), Progress(pod.workdir / "progress.jsonl"), Hold())
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=1 << 27))
    with pytest.raises(Failure, match=r"needs 0\.25 GiB of disk below \S+, 0\.12 GiB are free"):
        little.build()


def test_it_is_tried_with_the_variables_that_stages_get(pod: EnvPod, tmp_path: Path) -> None:
    tell = "import os\nraise ImportError(' '.join(sorted(n for n in os.environ if n.endswith('_SEEN'))))\n"
    torch = make_wheel(tmp_path / "files", "torch", "2.13.0", files={"torch/__init__.py": tell})
    pod.variables.update(
        PIP_EXTRA_INDEX_URL=make_index(tmp_path / "torch", [torch]), TRITON_SEEN="1", NVIDIA_SEEN="1", CC_SEEN="1"
    )
    asked = request("torch", pins={"torch": "2.13.0"}, variables={"OF_THE_POD_SEEN": "1"})
    assert pod.refused(asked).endswith("torch cannot be imported: NVIDIA_SEEN OF_THE_POD_SEEN")


def test_a_managed_python_stays_below_the_workdir(pod: EnvPod, tmp_path: Path) -> None:
    minor = ".".join(map(str, sys.version_info[:2]))
    name = f"cpython-{platform.python_version()}-linux-{platform.machine()}-gnu"
    distribution = {
        f"python/bin/python{minor}": f'#!/bin/sh\nexec {sys.executable} "$@"\n',
        f"python/lib/python{minor}/_sysconfigdata__linux_.py": _SYSCONFIG,
    }
    write_tar(tmp_path / f"{name}.tar.gz", distribution, mode=0o755)
    major, number, patch = sys.version_info[:3]
    known = {
        "name": "cpython", "arch": {"family": platform.machine(), "variant": None}, "os": "linux", "libc": "gnu",
        "major": major, "minor": number, "patch": patch, "prerelease": "", "sha256": None, "variant": None,
        "build": None, "url": (tmp_path / f"{name}.tar.gz").as_uri(),
    }  # fmt: skip
    (tmp_path / "known.json").write_text(json.dumps({name: known}))
    pod.variables["UV_PYTHON_DOWNLOADS_JSON_URL"] = (tmp_path / "known.json").as_uri()
    environment = pod.build(request("tool", python={"version": minor, "path": None}))
    assert environment["packages"]["tool"] == "2.0"
    assert list((pod.workdir / "python").glob(f"cpython-{minor}*"))
    assert not (pod.workdir / "home" / ".local" / "bin").exists(), "the user's own directory is left alone"


def test_a_python_that_does_not_run_or_is_another_is_named(pod: EnvPod, tmp_path: Path) -> None:
    shim = tmp_path / "python3.9"
    shim.write_text("#!/bin/sh\necho 'command not found' >&2\nexit 127\n")
    shim.chmod(0o755)
    assert "command not found" in pod.refused(request("tool", python={"version": "3.9", "path": str(shim)}))
    assert "cannot be run" in pod.refused(request("tool", python={"version": "3.9", "path": "/nowhere/python"}))
    assert "expected 3.9" in pod.refused(request("tool", python={"version": "3.9", "path": sys.executable}))


def test_a_download_that_is_not_what_the_lock_says_is_refused(pod: EnvPod, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "files", "fickle", "1.0")
    pod.variables["PIP_EXTRA_INDEX_URL"] = make_index(tmp_path / "fickle", [wheel])
    asked = request("fickle")
    environment = pod.build(asked)
    make_wheel(tmp_path / "files", "fickle", "1.0", files={"fickle/evil.py": "1\n"})
    (Path(environment["root"]) / "bin" / "fickle").write_text("touched")
    assert pod.check(asked)["state"] == "changed"
    assert "a download is not what the lock says" in pod.refused(asked)


def test_a_request_is_known_by_what_it_asks_not_by_where_things_lie() -> None:
    moved = {**request("tool"), "python": {**request()["python"], "path": "/elsewhere/python"}, "disk_bytes": 5}
    assert identity(moved) == identity(request("tool"))
    url = "https://example.org/flash_attn-1-py3-none-any.whl"
    optional, required = (request("tool", wheels=[published("1", url, value)]) for value in (False, True))
    others = [request("tool", pins={"torch": "1"}), optional, required]
    assert len({identity(asked) for asked in (request("tool"), *others)}) == 4


def test_an_empty_request_is_a_bare_environment(pod: EnvPod) -> None:
    environment = pod.build(request())
    assert environment["packages"] == {}
    assert python(environment, "print(1)") == "1"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An HTTP server with a wheel of flash-attn, and an index of `served`."""
    folder = tmp_path_factory.mktemp("server")
    make_wheel(folder, "flash-attn", "2.8.3", requires=["tool"])
    wheel = make_wheel(folder / "simple" / "served", "served", "1.0")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (wheel.parent / "index.html").write_text(f'<a href="{wheel.name}#sha256={digest}">{wheel.name}</a>')
    with served(folder) as url:
        yield url
