"""Cases that are one, of a session that collects them."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.agent.injected.runners.parameters import same_cases
from tests.support.collecting import collected

_BEGIN = "import pytest\ncases = pytest.mark.parametrize\n"


def told(folder: Path, source: str, conftest: str = "") -> list[str]:
    items = collected(folder, _BEGIN + source, conftest=conftest)
    return [said.replace(f"test_{folder.name}.py", "it.py") for said in same_cases(items, str(folder))]


@pytest.mark.parametrize(
    "source",
    [
        "@cases('x', ['a', 'b'])\ndef test(x): assert 1",
        "@cases('x', ['a', 'b'])\ndef test(x):\n    x = 'a'\n    assert x",
        "@cases('x', [128, 256])\nclass TestOf:\n    def test(self, x): assert self",
        "@pytest.fixture\ndef y(): return 1\n@cases('x', ['a', 'b'])\ndef test(x, y): assert y",
        "@cases('x', ['a', 'b'])\ndef test(x): assert 1\n@cases('x', ['a', 'b'])\ndef test_b(x): assert x",
        "@pytest.fixture(params=['a', 'b'])\ndef x(request): return 'a'\ndef test(x): assert x",
        "@pytest.fixture(params=['a', 'b'])\ndef x(): return 'a'\n@pytest.fixture\ndef y(x): return x\n"
        "def test(y): assert y",
    ],
)
def test_a_parameter_that_nothing_uses(tmp_path: Path, source: str) -> None:
    (said,) = told(tmp_path, source)
    assert said.startswith("2 cases of it.py::test") or said.startswith("2 cases of it.py::TestOf::test")
    assert said.endswith(" are 1: it does not use its parameter x")


def test_those_that_another_parameter_tells_apart_are_no_less(tmp_path: Path) -> None:
    source = "@cases('n', [1, 2, 4])\n@cases('x', ['a', 'b'])\ndef test(x, n): assert n"
    assert told(tmp_path, source) == ["6 cases of it.py::test are 3: it does not use its parameter x"]


@pytest.mark.parametrize(
    "source",
    [
        "@cases('x', ['a', 'b'])\ndef test(x): assert x",
        "@cases('x', ['a', 'b'])\ndef test(x): assert (lambda: x)()",
        "@cases('x', ['a', 'b'])\ndef test(x): assert f'{x}'",
        "@cases('x, y', [('a', 3), ('b', 4)])\ndef test(x, y): assert y",  # a name for each case
        "@cases('x', range(3))\ndef test(x): assert 1",  # three times
        "@cases('_x', ['a', 'b'])\ndef test(_x): assert 1",
        "@cases('x', ['a'])\ndef test(x): assert 1",
        "@cases('x', ['a', 'b'])\ndef test(x):\n    if test is None: x = 'a'\n    assert x",
        "@cases('x', ['a', 'b'])\ndef test(x):\n    x = x + 'a'\n    assert x",
        "@cases('x', ['a', 'b'])\ndef test(x): assert locals()['x']",
        "@cases('x', ['a', 'b'])\ndef test(x, request): assert request.node.callspec",
        "@pytest.fixture\ndef y(x): return x\n@cases('x', ['a', 'b'])\ndef test(x, y): assert y",
        "@pytest.fixture\ndef x(request): return request.param\n"
        "@cases('x', ['a', 'b'], indirect=True)\ndef test(x): assert 1",
        "@pytest.fixture(autouse=True)\ndef y(request): return request.node.callspec\n"
        "@cases('x', ['a', 'b'])\ndef test(x): assert 1",
        "@pytest.fixture\ndef y(request): return request.getfixturevalue('x')\n"
        "@cases('x', ['a', 'b'])\ndef test(x, y): assert y",
        "@pytest.fixture\ndef y(request): return request.getfixturevalue('x')\n@pytest.mark.usefixtures('y')\n"
        "@cases('x', ['a', 'b'])\ndef test(x): assert 1",
        "class TestOf:\n    @pytest.fixture(autouse=True)\n    def seeds(self, x): self.x = x\n"
        "    @cases('x', ['a', 'b'])\n    def test(self, x): assert self.x",
        "@cases('x', ['a', 'b'])\ndef test(x, request): assert request.getfixturevalue('x')",
        "@pytest.fixture(params=['a', 'b'])\ndef x(request): return request.param\ndef test(x): assert 1",
        "@cases('x, y', [('a', [3]), ('b', [3])])\ndef test(x, y): assert y",
        "@cases('x', ['a', 'b'])\ndef test(x):\n    del x\n    assert 1",
        "@cases('x', ['a', 'b'])\ndef test(x): assert 'x' in dir()",
        "@cases('x', ['a', pytest.param('b', marks=pytest.mark.skipif('True', reason='r'))])\ndef test(x): assert 1",
        "@cases('x', [128, 256])\nclass TestOf:\n    def test(self, x): assert x\n    def test_b(self, x): assert self",
        "pytestmark = cases('y, x', [(1, 'a'), (1, 'b')])\ndef test(x, y): assert y\ndef test_b(x, y): assert x + y",
        "@pytest.fixture(params=[0, 1])\ndef x(): return 'a'\ndef test(x): assert x",  # twice
        "@pytest.fixture(params=['a', 'b'])\ndef x(request): return made(request)\ndef made(r): return r.param\n"
        "def test(x): assert x",
        "@pytest.fixture(params=['a'])\ndef x(): return 'a'\ndef test(x): assert x",
        "def test(): assert 1",
    ],
)
def test_cases_that_differ_or_repeat_one_on_purpose(tmp_path: Path, source: str) -> None:
    assert told(tmp_path, source) == []


@pytest.mark.parametrize(
    ("conftest", "said"),
    [
        ("def pytest_runtest_setup(item): print(item.callspec.params['x'])", 0),
        ("def seed(item): print(item.funcargs)\ndef pytest_runtest_call(item): seed(item)", 0),
        ("def pytest_runtest_setup(item): print(item.nodeid)", 1),
        (
            "class Seeds:\n    def pytest_runtest_setup(self, item): print(item.callspec)\n"
            "def pytest_configure(config): config.pluginmanager.register(Seeds())",
            0,
        ),
    ],
)
def test_a_hook_of_the_tree_that_reads_parameters(tmp_path: Path, conftest: str, said: int) -> None:
    assert len(told(tmp_path, "@cases('x', ['a', 'b'])\ndef test(x): assert 1", conftest)) == said


def test_a_fixture_that_another_one_overrides_may_read_them(tmp_path: Path) -> None:
    source = "@pytest.fixture\ndef y(y): return y + y\n@cases('x', ['a', 'b'])\ndef test(x, y): assert y"
    assert told(tmp_path, source, "import pytest\n@pytest.fixture\ndef y(x): return x") == []
