"""Which of the items that share a node id are several tests, and which are one."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.agent.injected.runners.items import Names
from tests.support.collecting import collected

# Two items of one name for each file that it is given, made of `first` and `second`.
_COLLECTOR = """
import functools, itertools, types, pytest
def pytest_collect_file(parent, file_path):
    if file_path.suffix == ".two":
        return File.from_parent(parent, path=file_path)
class Spec:
    def __init__(self, of, said=""): self.of, self.said, self.itself = of, said, self
class Item(pytest.Item):
    def __init__(self, *, what, **more):
        super().__init__(**more)
        self.what = what
    def runtest(self): self.what()
class File(pytest.File):
    def collect(self):
        for what in ({first}, {second}):
            yield {make}
def a(n=0): assert n or a
def b(n=0): assert n or b
def closed(n):
    def inner(): assert n
    return inner
"""
_ITEM = "Item.from_parent(self, name='x', what=what)"
_FUNCTION = "pytest.Function.from_parent(Module.from_parent(self, path=self.path), name='x', callobj=what)"


def names(folder: Path, first: str, second: str, *, make: str = _ITEM, times: int = 1) -> list[str]:
    (folder / "x.two").write_text("")
    named = ["--keep-duplicates", *[str(folder / "x.two")] * times]
    conftest = _COLLECTOR.format(first=first, second=second, make=make)
    conftest += "class Module(pytest.Module):\n    obj = types.ModuleType('made')\n"
    items = collected(folder, "def test(): assert 1\n", *named, conftest=conftest)
    named_by = Names()
    return [named_by.of(item) for item in items if item.name == "x"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("a", "b"),
        ("1", "2"),
        ("{'n': [1]}", "{'n': [2]}"),
        ("functools.partial(a, 1)", "functools.partial(a, 2)"),
        ("closed(1)", "closed(2)"),
        ("lambda: 1", "lambda: 2"),
        ("Spec(a)", "Spec(b)"),
        ("Spec(Spec(a, 'x'))", "Spec(Spec(a, 'y'))"),
        ("Spec(a).__init__", "Spec(b).__init__"),
        ("a", "None"),
        ("(1, 2)", "(1, 2, 3)"),
        ("int", "float"),
    ],
)
def test_what_is_seen_to_differ_is_another_test(tmp_path: Path, first: str, second: str) -> None:
    (found, other) = names(tmp_path, first, second)
    assert other == f"{found} (2)"
    assert names(tmp_path, first, second, times=2) == [found, other] * 2


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("a", "a"),
        ("{'n': [1]}", "{'n': [1]}"),
        ("float('nan')", "float('nan')"),
        ("functools.partial(a, 1)", "functools.partial(a, 1)"),
        ("closed(1)", "closed(1)"),
        ("Spec(a)", "Spec(a)"),
        ("object()", "object()"),
        ("itertools.count(1)", "itertools.count(2)"),  # nothing looks into it
    ],
)
def test_what_is_not_is_one(tmp_path: Path, first: str, second: str) -> None:
    (found, again) = names(tmp_path, first, second)
    assert again == found


def test_functions_of_pytest_are_known_by_their_own_and_by_parameters(tmp_path: Path) -> None:
    assert len({*names(tmp_path, "a", "b", make=_FUNCTION)}) == 2
    assert len({*names(tmp_path, "a", "a", make=_FUNCTION)}) == 1


def test_a_module_that_is_collected_twice_holds_each_test_once(tmp_path: Path) -> None:
    source = "import pytest\n@pytest.mark.parametrize('n', [1, 2])\ndef test(n):\n    '''\n    >>> 1\n    1\n    '''\n"
    again = str(tmp_path / f"test_{tmp_path.name}.py")
    items = collected(tmp_path, source, "--keep-duplicates", "--doctest-modules", again)
    named_by = Names()
    found = [named_by.of(item) for item in items]
    assert len(found) == 6 and [*{*found}] and len({*found}) == 3
    assert {*found} == {item.nodeid for item in items}
