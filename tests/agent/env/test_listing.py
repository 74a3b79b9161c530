"""A list of environments while others remove them, or write in them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent.env import commands
from orchestrator.agent.env.store import Store


def environments(workdir: Path) -> Store:
    store = Store(workdir)
    for key in ("goes", "stays"):
        root = store.environment(key)
        root.mkdir(parents=True)
        (root / "file").write_bytes(bytes(10_000))
        (root / "env.json").write_text(json.dumps({"key": key}))
    return store


def test_an_environment_that_goes_while_it_is_read_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = environments(tmp_path)

    def read(path: Path, read_json: Any = commands.read_json) -> Any:
        if path.parent.name == "goes":
            shutil.rmtree(path.parent)
        return read_json(path)

    monkeypatch.setattr(commands, "read_json", read)
    assert [found["key"] for found in commands._summaries(store)] == ["stays"]


def test_a_file_that_goes_while_it_is_counted_has_no_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = environments(tmp_path)

    def walk(root: Path, walk: Any = commands.walk) -> Any:
        for name, entry in walk(root):
            if name == "file":
                (root / name).unlink()
            yield name, entry

    monkeypatch.setattr(commands, "walk", walk)
    assert all(0 < found["bytes"] < 10_000 for found in commands._summaries(store))
