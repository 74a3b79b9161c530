"""Marks are kept for all sessions of a stage, by what a file holds; what warns is made anew."""

from __future__ import annotations

import builtins
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.agent.injected.checks import kept, marking
from orchestrator.agent.injected.checks.marking import Marking
from orchestrator.agent.injected.marks import assertions
from orchestrator.agent.injected.marks.facts import Facts
from orchestrator.agent.injected.marks.nodes import ISINSTANCE, SEEN
from orchestrator.agent.injected.stage import Config, config_text

SOURCE = "def test_a():\n    assert len('ab') == 2\n\n\ndef helper(x):\n    if x: assert x > 1\n"


class Seen:
    pass


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(builtins, SEEN, Seen, raising=False)
    monkeypatch.setattr(builtins, ISINSTANCE, isinstance, raising=False)
    monkeypatch.setattr(marking, "runs_pytest", lambda: True)
    file = tmp_path / "tree" / "test_it.py"
    file.parent.mkdir()
    file.write_text(SOURCE)
    return file


def session(tmp_path: Path) -> Marking:
    """Of another process of the run."""
    folder = str(tmp_path / "kept" / ".marked")
    return Marking(Config(config_text({"tree": str(tmp_path / "tree"), "name": "pkg", "marked": folder})))


def never(*_: Any, **__: Any) -> Facts:
    raise AssertionError("it is marked once more")


def test_what_one_session_has_marked_all_others_take(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, other = session(tmp_path), session(tmp_path)
    made = first.marked(str(file))
    monkeypatch.setattr(assertions, "mark", never)
    assert other.marked(str(file)) == made
    assert other.facts[str(file)].parts() == first.facts[str(file)].parts()
    assert other.facts[str(file)].holds(1) and len(other.facts[str(file)].all_assertions()) == 2


def test_a_file_that_changes_is_marked_anew(tmp_path: Path, file: Path) -> None:
    session(tmp_path).marked(str(file))
    file.write_text(SOURCE.replace("assert len('ab') == 2", "pass"))
    other = session(tmp_path)
    other.marked(str(file))
    assert not other.facts[str(file)].holds(1)


def test_another_python_of_the_run_has_other_code(tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session(tmp_path).marked(str(file))
    monkeypatch.setattr(kept, "_FORM", b"cpython-39")
    monkeypatch.setattr(assertions, "mark", never)
    with pytest.raises(AssertionError, match="once more"):
        session(tmp_path).marked(str(file))


def test_what_a_plugin_rewrites_otherwise_is_of_its_own_sessions(
    tmp_path: Path, file: Path, pytestconfig: pytest.Config
) -> None:
    made: list[Path] = []
    rewriter = type("AssertionRewriter", (), {"visit_Assert": lambda *_: None})
    rewrite = SimpleNamespace(rewrite_asserts=None, AssertionRewriter=rewriter)

    def rewritten(path: Path, config: object) -> tuple[None, Any]:
        made.append(path)
        marking.marked(str(path))
        return None, compile(path.read_text(), str(path), "exec")

    marking = session(tmp_path)
    through = marking._rewriting(rewrite, rewritten)
    through(file, pytestconfig)
    through(file, pytestconfig)
    assert len(made) == 1
    setattr(rewriter, "visit_Assert", lambda *_: [])  # noqa: B010
    through(file, pytestconfig)
    assert len(made) == 2


def test_what_is_damaged_is_made_anew(tmp_path: Path, file: Path) -> None:
    made = session(tmp_path).marked(str(file))
    (entry,) = (tmp_path / "kept" / ".marked").iterdir()
    for content in (b"", b"\0damaged", entry.read_bytes()[:-20]):
        entry.write_bytes(content)
        assert session(tmp_path).marked(str(file)) == made


def test_where_nothing_can_be_kept_files_are_marked_all_the_same(tmp_path: Path, file: Path) -> None:
    (tmp_path / "kept").write_text("no folder")
    assert session(tmp_path).marked(str(file)) == session(tmp_path).marked(str(file))


def test_a_file_that_warns_does_so_in_each_session(tmp_path: Path, file: Path) -> None:
    file.write_text(SOURCE + "assert (1 == 2, 'a tuple')\n")
    for _ in range(3):
        with pytest.warns(SyntaxWarning, match="assertion is always true"):
            assert session(tmp_path).marked(str(file)) is not None


def test_what_is_installed_of_a_helper_is_the_trees(tmp_path: Path, file: Path) -> None:
    written, site = tmp_path / "tree" / "src" / "pkg" / "tests" / "same.py", tmp_path / "site"
    copies = {site / "pkg" / "tests" / "same.py": SOURCE, site / "pkg" / "tests" / "other.py": SOURCE}
    for path, source in {written: SOURCE, written.with_name("other.py"): "", **copies}.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    tree = str(tmp_path / "tree")
    told = {"tree": tree, "name": "pkg", "installed": str(site), "root": [tree, f"{tree}/src"]}
    marking = Marking(Config(config_text(told)))
    assert marking.place_in_tree(str(written)) == str(written)
    assert [marking.place_in_tree(str(copy)) for copy in copies] == [str(written), ""]
    assert marking.place_in_tree(str(site / "pkg" / "core.py")) == ""
