"""Patterns of files in a tree."""

from __future__ import annotations

import pytest

from orchestrator.shared.globs import matcher, wrong_pattern


@pytest.mark.parametrize(
    ("pattern", "matched", "not_matched"),
    [
        ("src/*.so", ["src/a.so", "src/a.so/inner"], ["src/b/a.so", "a.so", "xsrc/a.so", "src/a.so.x"]),
        ("**/*.so", ["a.so", "b/a.so", "c/b/a.so"], ["a.sox"]),
        ("src/**/a", ["src/a", "src/b/c/a", "src/a/b"], ["src/ab"]),
        ("build", ["build", "build/a/b"], ["builds", "a/build"]),
        ("build/", ["build/a"], ["builds/a"]),
        ("src/**", ["src/a", "src/a/b"], ["srcs"]),
        ("a?c[!0-9].[ch]", ["abcd.c"], ["abc1.c", "a/cd.c", "abcd.x"]),
        ("odd\n(name)+.txt", ["odd\n(name)+.txt"], ["odd\nname.txt"]),
        ("*", ["a", "a/b"], []),
        ("[[&&~~||a]", ["[", "&", "~", "|", "a"], ["b", "]"]),
    ],
)
@pytest.mark.filterwarnings("error")
def test_what_matches(pattern: str, matched: list[str], not_matched: list[str]) -> None:
    matches = matcher([pattern])
    assert [p for p in matched if not matches(p)] == [] and [p for p in not_matched if matches(p)] == []


def test_any_of_several_is_enough() -> None:
    assert matcher(["a", "b"])("b") and not matcher([])("b")


@pytest.mark.parametrize("pattern", ["", " ", "/etc/*", "../x", "a/../b", "./a", "a//b", "/"])
def test_what_is_no_pattern(pattern: str) -> None:
    assert "inside the tree" in str(wrong_pattern(pattern))


def test_a_range_that_is_none_is_said_on_load() -> None:
    assert wrong_pattern("a/[z-a]") == "expected a pattern of paths: bad character range z-a, in 'a/[z-a]'"


@pytest.mark.parametrize("pattern", ["a", "a/", "**", "a/**/b", "[", "a..b"])
def test_what_is_one(pattern: str) -> None:
    assert (wrong_pattern(pattern) is None and not matcher([pattern])("elsewhere/zzz")) or pattern == "**"
