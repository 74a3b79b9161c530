"""What the agent brings into stages is compiled once, by the agent itself where its Python is the stages'."""

from __future__ import annotations

import errno
import importlib.util
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent.env.interpreter import Interpreter, inspect
from orchestrator.agent.injected.marks import truths
from orchestrator.agent.run import bytecode


def _interpreter(python: str, form: str) -> Interpreter:
    return Interpreter(python, "system", None, "3.9", "/usr", python, False, "lib", (), frozenset(), bytecode=form)


def _copies(folder: Path) -> dict[Path, str]:
    """A copy of a module of the agent's, and in `folder` a module that is none."""
    copy = folder / "nsa_pod_injected" / "truths.py"
    copy.parent.mkdir()
    copy.write_bytes(Path(truths.__file__).read_bytes())
    (folder / "sitecustomize.py").write_text("here = __file__\n")
    return {copy: truths.__name__}


def _loaded(path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The code that an import of `path` takes; it fails where it would have to compile."""
    monkeypatch.setattr(SourceFileLoader, "source_to_code", lambda *_, **__: pytest.fail("it was not compiled"))
    return SourceFileLoader(path.stem, str(path)).get_code(path.stem)


def test_the_agent_compiles_for_the_python_that_it_runs_under(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copies = _copies(tmp_path)
    bytecode.keep(_interpreter("/no/python", bytecode.FORM), tmp_path, copies)  # no process: a unit test starts none
    for path in (*copies, tmp_path / "sitecustomize.py"):
        assert _loaded(path, monkeypatch).co_filename == str(path)


def test_what_is_written_later_is_compiled_anew(tmp_path: Path) -> None:
    copies = _copies(tmp_path)
    bytecode.keep(_interpreter("/no/python", bytecode.FORM), tmp_path, copies)
    (copy,) = copies
    copy.write_text("changed = True\n")
    assert "changed" in SourceFileLoader("truths", str(copy)).get_code("truths").co_names


def test_no_half_of_a_file_is_left_by_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, data: bytes) -> int:
        with path.open("wb") as file:
            file.write(data[:10])
        raise OSError(errno.ENOSPC, "no space")

    copies = _copies(tmp_path)
    monkeypatch.setattr(Path, "write_bytes", full)
    bytecode.keep(_interpreter("/no/python", bytecode.FORM), tmp_path, copies)
    assert not [path for path in tmp_path.rglob("*") if path.suffix in (".pyc", ".part")]


def test_code_that_is_none_is_left_to_those_who_import_it(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def (\n")
    (tmp_path / "whole.py").write_text("x = 1\n")
    bytecode.keep(_interpreter("/no/python", bytecode.FORM), tmp_path, {})
    assert [path.name.partition(".")[0] for path in tmp_path.rglob("*.pyc")] == ["whole"]


@pytest.mark.process
def test_what_cannot_be_compiled_is_left_to_the_stages(tmp_path: Path) -> None:
    bytecode.keep(_interpreter("/no/python", "another"), tmp_path, _copies(tmp_path))
    assert not list(tmp_path.rglob("*.pyc"))


@pytest.mark.process
def test_a_python_of_another_form_compiles_for_itself(tmp_path: Path) -> None:
    copies = _copies(tmp_path)
    bytecode.keep(_interpreter(sys.executable, "another"), tmp_path, copies)
    assert all(Path(importlib.util.cache_from_source(str(path))).exists() for path in copies)


@pytest.mark.process
def test_a_python_says_in_which_form_it_compiles() -> None:
    assert inspect({"python": sys.executable, "kind": "system"}, []).bytecode == bytecode.FORM
