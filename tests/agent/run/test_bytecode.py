"""What the agent brings into stages is compiled once, by the agent itself where its Python is the stages'."""

from __future__ import annotations

import errno
import importlib.util
import json
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent.env.interpreter import Interpreter, inspect
from orchestrator.agent.injected.marks import truths
from orchestrator.agent.layout import Layout
from orchestrator.agent.run import bytecode
from orchestrator.agent.run.bytecode import Bytecode
from tests.support.agent_pod import Pod, make_environment, said


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The directory of a run."""
    return tmp_path / "workdir" / "runs" / "one"


def _bytecode(run: Path, python: str = "/no/python", form: str = bytecode.FORM) -> Bytecode:
    """Of a run's stages, whose environment has a `python` that compiles to the `form`."""
    interpreter = Interpreter(python, "system", None, "3.9", "/usr", python, False, "lib", (), frozenset(), form)
    return Bytecode(interpreter, Layout(run))


def _copies(run: Path) -> dict[Path, str]:
    """A copy of a module of the agent's among what it brings, and beside it a module that is none."""
    injected = Layout(run).injected
    copy = injected / "nsa_pod_injected" / "truths.py"
    copy.parent.mkdir(parents=True)
    copy.write_bytes(Path(truths.__file__).read_bytes())
    (injected / "sitecustomize.py").write_text("here = __file__\n")
    return {copy: truths.__name__}


def _loaded(path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The code that an import of `path` takes; it fails where it would have to compile."""
    monkeypatch.setattr(SourceFileLoader, "source_to_code", lambda *_, **__: pytest.fail("it was not compiled"))
    return SourceFileLoader(path.stem, str(path)).get_code(path.stem)


def test_the_agent_compiles_for_the_python_that_it_runs_under(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copies = _copies(run)
    _bytecode(run).keep_injected(copies)  # no process: a unit test starts none
    for path in (*copies, Layout(run).injected / "sitecustomize.py"):
        assert _loaded(path, monkeypatch).co_filename == str(path)


def test_what_is_written_later_is_compiled_anew(run: Path) -> None:
    copies = _copies(run)
    _bytecode(run).keep_injected(copies)
    (copy,) = copies
    copy.write_text("changed = True\n")
    assert "changed" in SourceFileLoader("truths", str(copy)).get_code("truths").co_names


def test_no_half_of_a_file_is_left_by_a_full_disk(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, data: bytes) -> int:
        with path.open("wb") as file:
            file.write(data[:10])
        raise OSError(errno.ENOSPC, "no space")

    copies = _copies(run)
    monkeypatch.setattr(Path, "write_bytes", full)
    _bytecode(run).keep_injected(copies)
    assert not [path for path in run.rglob("*") if path.suffix in (".pyc", ".part")]


def test_code_that_is_none_is_left_to_those_who_import_it(run: Path) -> None:
    Layout(run).injected.mkdir(parents=True)
    (Layout(run).injected / "broken.py").write_text("def (\n")
    (Layout(run).injected / "whole.py").write_text("x = 1\n")
    _bytecode(run).keep_injected({})
    assert [path.name.partition(".")[0] for path in run.rglob("*.pyc")] == ["whole"]


@pytest.mark.process
def test_what_cannot_be_compiled_is_left_to_the_stages(run: Path) -> None:
    _bytecode(run, form="another").keep_injected(_copies(run))
    assert not list(run.rglob("*.pyc"))


@pytest.mark.process
def test_a_python_of_another_form_compiles_for_itself(run: Path) -> None:
    copies = _copies(run)
    _bytecode(run, sys.executable, "another").keep_injected(copies)
    assert all(Path(importlib.util.cache_from_source(str(path))).exists() for path in copies)


@pytest.mark.process
def test_a_python_says_in_which_form_it_compiles() -> None:
    assert inspect({"python": sys.executable, "kind": "system"}, []).bytecode == bytecode.FORM


def _tell(kept: Bytecode, *files: Path) -> None:
    """As a process of a stage does."""
    kept.report.parent.mkdir(parents=True, exist_ok=True)
    with kept.report.open("a") as report:
        report.write(json.dumps({"files": [str(file) for file in files]}) + "\n")


def _module(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "made.py").write_text("x = 1\n")
    return folder / "made.py"


def _kept(kept: Bytecode) -> list[str]:
    """The folders of the modules whose bytecode is kept, as a Python names them."""
    return sorted(f"/{path.parent.relative_to(kept.folder)}" for path in kept.folder.rglob("*.pyc"))


@pytest.mark.process
def test_what_processes_had_to_compile_is_kept_for_the_next(run: Path, tmp_path: Path) -> None:
    kept = _bytecode(run, sys.executable)
    installed = _module(tmp_path / "site-packages")
    _tell(kept, installed, tmp_path / "gone.py")
    _tell(kept, installed)
    assert kept.variables() == {}
    kept.take_told()
    assert kept.variables() == {bytecode.VARIABLE: str(kept.folder)}
    assert _kept(kept) == [str(installed.parent)]
    assert not kept.report.exists()
    assert [path.name for path in installed.parent.iterdir()] == ["made.py"]  # nothing is written beside it


@pytest.mark.process
def test_nothing_of_the_run_is_kept_but_what_the_agent_brings(run: Path) -> None:
    places, kept = Layout(run), _bytecode(run, sys.executable)
    own = [places.tree, places.venv / "lib", places.tmp(1), places.artifacts, places.cache("key") / "inductor"]
    _tell(kept, *map(_module, own), _module(places.injected))
    kept.take_told()
    assert _kept(kept) == [str(places.injected)]


@pytest.mark.process
def test_what_a_stage_wrote_itself_is_taken_out(run: Path, tmp_path: Path) -> None:
    """Its own modules' bytecode, which may be stale by the next, and what it put in the place of the agent's."""
    kept = _bytecode(run, sys.executable)
    installed = [_module(tmp_path / name) for name in ("one", "two", "three")]
    _tell(kept, *installed)
    kept.take_told()
    one, three, two = sorted(kept.folder.rglob("*.pyc"))
    one.write_bytes(two.read_bytes())
    two.rename(two.with_name("m.pyc"))
    _module(kept.folder.joinpath(*Layout(run).tree.parts[1:]))
    kept.renew()
    assert [path for path in kept.folder.rglob("*") if path.is_file()] == [three]
    _tell(kept, *installed)
    kept.take_told()
    assert sorted(kept.folder.rglob("*.pyc")) == [one, three, two]


def test_a_folder_that_a_stage_linked_elsewhere_is_left_alone(run: Path, tmp_path: Path) -> None:
    kept, other = _bytecode(run), _module(tmp_path / "other")
    run.mkdir(parents=True)
    kept.folder.symlink_to(other.parent)
    kept.renew()
    assert other.exists() and not kept.folder.is_symlink()


@pytest.mark.process
def test_nothing_is_left_for_other_runs(run: Path, tmp_path: Path) -> None:
    kept = _bytecode(run, sys.executable)
    _tell(kept, _module(tmp_path / "one"))
    kept.take_told()
    _tell(kept, tmp_path / "one" / "made.py")
    again = _bytecode(run, sys.executable)  # of the same run, gone on with
    again.renew()
    assert again.variables() == {}
    assert not kept.folder.exists() and not kept.report.exists()


@pytest.mark.parametrize("lines", ["not JSON\n", '{"files": 7}\n', '{"files": [7, "relative.py"]}\n', "[]\n"])
def test_a_report_that_no_process_was_to_write_is_not_believed(run: Path, lines: str) -> None:
    kept = _bytecode(run)
    kept.report.parent.mkdir(parents=True)
    kept.report.write_text(lines)
    kept.take_told()
    assert kept.variables() == {}


MANY = 1100
USES_ALL = f"""
import importlib, os, sys

for number in range({MANY}):
    module = importlib.import_module(f"many.m{{number}}")
import ours

compiled = [name for name in ("many.m7", "json", "nsa_pod_injected", "ours") if name in sys.modules]
print(*(f"{{name}} {{os.path.exists(sys.modules[name].__spec__.cached)}}" for name in compiled))
"""


@pytest.mark.process
def test_stages_in_an_environment_without_bytecode_compile_it_once(pod: Pod, tmp_path: Path) -> None:
    python = make_environment(tmp_path / "own")["python"]
    (site,) = (tmp_path / "own").glob("lib/python*/site-packages")
    (site / "many").mkdir()
    for number in range(MANY):
        (site / "many" / f"m{number}.py").write_text("x = 1\n")
    pod.environment = {"kind": "system", "python": python, "packages": {}}
    stages = [said(name, ["python", "uses.py"]) for name in ("first", "second")]
    files = {"uses.py": "import json\n" + USES_ALL, "ours.py": "y = 1\n"}
    run = pod.run(files, *stages)
    assert run.text("stages/first/stdout").split()[:2] == ["many.m7", "False"]
    assert run.text("stages/second/stdout") == "many.m7 True json True nsa_pod_injected True ours False\n"
    assert not (run.path / "bytecode").exists()
    assert not list(site.rglob("many/__pycache__"))
