"""A pod without uv comes by one: from its own index or directories, or the laptop is told that it cannot."""

from __future__ import annotations

import base64
import os
import platform
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from orchestrator.agent.env.progress import Progress
from orchestrator.agent.env.store import Store
from orchestrator.agent.env.uv import _put
from orchestrator.shared.wheels.settings import Settings
from tests.support.env_pod import EnvPod, request
from tests.support.web import Quiet, served
from tests.support.wheels import make_index, make_uv_wheel, make_wheel


def says_no(pod: EnvPod) -> str:
    """The sentence of a build that ends because there is no uv."""
    ended = pod.wait(pod.start(request("tool")))
    assert (ended["state"], ended["lacks"]) == ("failed", "uv")
    return str(ended["error"])


def test_uv_comes_from_the_pods_own_index(pod_without_uv: EnvPod, uv: Path, tmp_path: Path) -> None:
    pod_without_uv.variables["PIP_EXTRA_INDEX_URL"] = make_index(tmp_path / "extra", [make_uv_wheel(tmp_path, uv)])
    environment = pod_without_uv.build(request("tool<2"))
    assert environment["packages"] == {"part": "1.5", "tool": "1.0"}
    assert (pod_without_uv.workdir / "tools" / "uv").is_file()
    # It stays there: the index is not asked for it again.
    del pod_without_uv.variables["PIP_EXTRA_INDEX_URL"]
    assert pod_without_uv.build(request("part"))["packages"] == {"part": "1.5"}


def test_uv_comes_from_a_directory_of_wheels_without_any_network(
    pod_without_uv: EnvPod, uv: Path, tmp_path: Path
) -> None:
    make_uv_wheel(tmp_path / "house", uv)
    make_wheel(tmp_path / "house", "tool", "0.5")
    pod_without_uv.variables = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple"}
    asked = request("tool", wheelhouse=str(tmp_path / "house"))
    assert pod_without_uv.build(asked)["packages"] == {"tool": "0.5"}


def test_an_index_behind_a_password_has_uv_too(pod_without_uv: EnvPod, guarded: str) -> None:
    pod_without_uv.variables = {"PIP_INDEX_URL": guarded.replace("://", "://me:open%40sesame@") + "/simple"}
    environment = pod_without_uv.build(request("tool"))
    assert environment["packages"] == {"tool": "3.0"} and "sesame" not in environment["lock"]


def test_a_pod_that_cannot_get_uv_says_why(pod_without_uv: EnvPod, uv: Path, tmp_path: Path, guarded: str) -> None:
    assert "no index or directory has a wheel of uv" in says_no(pod_without_uv)
    pod_without_uv.variables = {"PIP_INDEX_URL": f"{guarded.replace('://', '://me:wrong@')}/simple"}
    sentence = says_no(pod_without_uv)
    assert sentence.endswith("/simple/uv/ cannot be read: HTTP 401") and "wrong" not in sentence
    make_uv_wheel(tmp_path / "links", tmp_path / "not" / "there")
    pod_without_uv.variables = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "links")}
    assert says_no(pod_without_uv) == "the pod has no uv, and the fetched one does not run there"
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "uv").write_text("#!/bin/sh\necho uv 0.4.30\n")
    (tmp_path / "old" / "uv").chmod(0o755)
    pod_without_uv.uv = tmp_path / "old" / "uv"
    assert says_no(pod_without_uv).startswith("the pod has no uv")


@pytest.fixture
def guarded(tmp_path: Path, uv: Path) -> Iterator[str]:
    """An HTTP server that wants a password, with an index of uv and `tool` 3.0."""
    wheels = [make_uv_wheel(tmp_path / "files", uv), make_wheel(tmp_path / "files", "tool", "3.0")]
    make_index(tmp_path / "simple", wheels)
    for page in (tmp_path / "simple").glob("*/index.html"):
        page.write_text(page.read_text().replace(tmp_path.as_uri(), ""))
    with served(tmp_path, _Guarded) as url:
        yield url


class _Guarded(Quiet):
    def do_GET(self) -> None:
        expected = "Basic " + base64.b64encode(b"me:open@sesame").decode()
        if self.headers["Authorization"] == expected:
            super().do_GET()
        else:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="index"')
            self.send_header("Content-Length", "0")
            self.end_headers()


def test_builders_that_fetch_uv_at_once_all_have_it(tmp_path: Path) -> None:
    links, tools = tmp_path / "links", tmp_path / "tools"
    links.mkdir()
    machine = platform.machine()
    with zipfile.ZipFile(links / f"uv-0.9.0-py3-none-manylinux_2_17_{machine}.manylinux2014_{machine}.whl", "w") as x:
        x.writestr("uv-0.9.0.data/scripts/uv", os.urandom(4_000_000))
    settings, progress = Settings.of_folders([str(links)]), Progress(tmp_path / "progress.jsonl")
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda _: _put(tools / "uv", Store(tmp_path), settings, progress), range(18)))
    assert os.listdir(tools) == ["uv"] and os.access(tools / "uv", os.X_OK)
