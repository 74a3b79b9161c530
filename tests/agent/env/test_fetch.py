"""What several builders fetch at once."""

from __future__ import annotations

import os
import platform
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from orchestrator.agent.env.fetch import fetch_uv
from orchestrator.agent.env.progress import Progress
from orchestrator.shared.wheels.settings import Settings


def test_builders_that_fetch_uv_at_once_all_have_it(tmp_path: Path) -> None:
    links, tools = tmp_path / "links", tmp_path / "tools"
    links.mkdir()
    machine = platform.machine()
    with zipfile.ZipFile(links / f"uv-0.9.0-py3-none-manylinux_2_17_{machine}.manylinux2014_{machine}.whl", "w") as x:
        x.writestr("uv-0.9.0.data/scripts/uv", os.urandom(4_000_000))
    settings, progress = Settings.of_folders([str(links)]), Progress(tmp_path / "progress.jsonl")
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda _: fetch_uv(settings, tools, progress), range(18)))
    assert set(found) == {tools / "uv"} and os.listdir(tools) == ["uv"] and os.access(tools / "uv", os.X_OK)
