"""Why a test failed, as the plugin tells it: where in the tree, which line, what was said."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.agent.injected.runners.why import why

HELPER = "def check(a, b):\n    assert a == b, 'they differ'\n"
TEST = """
    import json
    from fractions import Fraction
    from helper import check

    def in_helper(): check(1, 2)
    def in_library(): json.loads("{")
    def says_much(): raise ValueError("first\\n\\nsecond\\n" + "x" * 5000)
    def begins_below(): raise AssertionError("\\nNot equal\\nby 3")
    def rewritten(): raise AssertionError("assert 1 == 2\\n +  where 1 = f()")
    def tells():
        within = "Traceback (most recent call last):\\n  File x\\n"
        raise RuntimeError(f"\\n\\n-- Process 1 ended with:\\n{within}KeyError: 1\\n{within}OSError: b\\n")
    def not_sayable():
        class Odd(Exception):
            def __str__(self): raise RuntimeError("no")
        raise Odd
"""


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], dict[str, Any]]:
    """What is told of the failure of a function of TEST."""
    tree = tmp_path / "tree"
    (tree / "tests").mkdir(parents=True)
    (tree / "helper.py").write_text(HELPER)
    file = tree / "tests" / "test_it.py"
    file.write_text(textwrap.dedent(TEST))
    scope: dict[str, Any] = {}
    helper: dict[str, Any] = {}
    exec(compile(HELPER, str(tree / "helper.py"), "exec"), helper)
    monkeypatch.setitem(__import__("sys").modules, "helper", SimpleNamespace(**helper))
    exec(compile(file.read_text(), str(file), "exec"), scope)

    def of(function: str) -> dict[str, Any]:
        report = SimpleNamespace(nodeid="tests/test_it.py::test", location=("tests/test_it.py", 3, "test"))
        with pytest.raises(Exception) as caught:
            scope[function]()
        return why(caught.value, report, str(tree))

    return of


def test_the_place_is_in_the_tree_and_the_test_s_own_line_beside_it(told: Callable[[str], dict[str, Any]]) -> None:
    assert told("in_helper") == {
        "error": ["AssertionError: they differ"],
        "place": "helper.py:2",
        "line": "assert a == b, 'they differ'",
        "called_from": "tests/test_it.py:6",
    }
    library = told("in_library")
    assert (library["place"], library["line"]) == ("tests/test_it.py:7", 'def in_library(): json.loads("{")')
    assert library["called_from"] is None and library["error"][0].startswith("json.decoder.JSONDecodeError: Expecting")


@pytest.mark.parametrize(
    ("function", "error"),
    [
        ("says_much", ["ValueError: first", "second", "x" * 200]),
        ("begins_below", ["AssertionError: Not equal", "by 3"]),
        ("tells", ["RuntimeError: -- Process 1 ended with: OSError: b"]),
        ("rewritten", ["assert 1 == 2", " +  where 1 = f()"]),
    ],
)
def test_what_was_said_is_short_and_begins_with_the_reason(
    told: Callable[[str], dict[str, Any]], function: str, error: list[str]
) -> None:
    assert told(function)["error"] == error


def test_an_error_that_cannot_be_said_is_one_all_the_same(told: Callable[[str], dict[str, Any]]) -> None:
    assert "Odd" in told("not_sayable")["error"][0]


def test_a_syntax_error_behind_a_collection_is_told_where_it_stands(tmp_path: Path) -> None:
    broken = tmp_path / "core" / "x.py"
    broken.parent.mkdir()
    broken.write_text("a = 1\ndef f(:\n")
    wrapped = type("CollectError", (Exception,), {})()
    try:
        compile(broken.read_text(), str(broken), "exec")
    except SyntaxError as e:
        wrapped.__cause__ = e
    found = why(wrapped, SimpleNamespace(nodeid="tests/test_x.py"), str(tmp_path))
    assert (found["place"], found["line"]) == ("core/x.py:2", "def f(:")
    assert found["error"] == ["SyntaxError: invalid syntax"]


def test_where_no_code_of_the_tree_raised_it_pytest_s_own_lines_are_told(tmp_path: Path) -> None:
    text = "file /a/test_it.py, line 5\n  def test(nope):\nE       fixture 'nope' not found\n>       available: a, b\n"
    report = SimpleNamespace(nodeid="t.py::test", location=("t.py", 4, "test"), longreprtext=text)
    assert why(LookupError("x"), report, str(tmp_path)) == {
        "error": ["fixture 'nope' not found"], "place": "t.py:5", "line": ""
    }  # fmt: skip
