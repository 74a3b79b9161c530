"""What a project's files say that its tests need."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import pytest

from orchestrator.config.metadata import Metadata
from orchestrator.config.read import text_of
from tests.support.files import write_files

NOX = "import nox\n@nox.session\ndef tests(session):\n    session.install({})\n"
PROJECT = '[project]\nname = "own-thing"\n'
POETRY = """
[tool.poetry]
name = "own-thing"
[tool.poetry.dev-dependencies]
pytest-a = "^1.2.3"
pytest-b = "~1.2"
pytest-c = "^0.8.1"
pytest-d = "*"
pytest-e = "2.0"
pytest-f = "^7.0 || ^8.0"
pytest-g = {version = "^3", extras = ["more"], markers = "sys_platform == 'linux'"}
pytest-h = [{version = "^1", python = "<3.9"}, {version = "^2", python = ">=3.9"}]
pytest-i = ">=7.5,<9"
[tool.poetry.group.test.dependencies]
yet = ">=1"
"""
TOX = """
[tox]
envlist = py312
[testenv]
deps =
    plain>=1  # why
    -r deps/some.txt
    -cconstraints.txt
    low: numpy==1.0
    {[other]deps}
extras =
    more
    docs: docs
[testenv:docs]
deps = sphinx
[testenv:tests]
dependency_groups = grouped
"""
NOXFILE = """
import nox
@nox.session
def tests(session):
    session.install("--upgrade", "a>=1", "-r", "deps/some.txt", "-e.[more]", "--group=grouped", *session.posargs)
    session.install("-r", str(requirements), "b")
    if windows:
        session.install("never")
@nox.session
def docs(session):
    session.install("sphinx")
"""
GROUPS = (
    PROJECT
    + """
[project.optional-dependencies]
more = ["extra-one"]
docs = ["sphinx"]
[dependency-groups]
grouped = ["group-one", {include-group = "inner"}]
inner = ["group-two", {include-group = "grouped"}]
"""
)


def named(name: str) -> bool:
    """By the tests: they speak of all but what makes documents."""
    return name != "sphinx"


@pytest.mark.parametrize(
    ("files", "plain"),
    [
        (
            {"pyproject.toml": POETRY},
            "yet>=1 pytest-a==1.*,>=1.2.3 pytest-b==1.2.*,>=1.2 pytest-c==0.8.*,>=0.8.1 pytest-d "
            "pytest-e==2.0 pytest-f pytest-g[more]==3.*,>=3 pytest-h pytest-i<9,>=7.5",
        ),
        (
            {"pyproject.toml": GROUPS, "tox.ini": TOX, "deps/some.txt": "some\n"},
            "plain>=1 some extra-one group-one group-two",
        ),
        (
            {"pyproject.toml": GROUPS, "noxfile.py": NOXFILE, "deps/some.txt": "some\n"},
            "a>=1 some extra-one group-one group-two b",
        ),
        (
            {
                "pyproject.toml": GROUPS,
                "requirements.txt": "-e .[more]\n-r more/them.txt\n-r ../outside.txt\n--pre\n",
                "more/them.txt": "one\n-r more.txt",
                "more/more.txt": "two \\\n --hash=sha256:00\n-r them.txt",
                "../outside.txt": "never",
            },
            "extra-one one two",
        ),
        ({"test-requirements.in": "written", "test-requirements.txt": "made==1\nof==1"}, "written"),
        (
            {
                "setup.py": """
extras = {}
extras["docs"] = extras["more"] = ["sphinx"]
extras["base"] = ["one"]
extras["test"] = extras["base"] + ["two"] + listed()
extras[name()] = others[0] = ["never"]
setup(extras_require=extras)
"""
            },
            "one two",
        ),
        ({"requirements/_tests.txt": "one", "requirements/docs.txt": "two", "requirements-conda-test.txt": "3"}, "one"),
        (
            {"setup.cfg": "[options.extras_require]\ntest =\n one\n two; sys_platform == 'win32'\n"},
            "one",
        ),
    ],
)
def test_where_requirements_stand(tmp_path: Path, files: dict[str, str], plain: str) -> None:
    write_files(tmp_path / "r", files)
    needs = Metadata(tmp_path / "r").requirements(named)
    assert (list(needs.plain.values()), needs.unread) == (plain.split(" "), [])


@pytest.mark.parametrize(
    ("configuration", "plain"),
    [
        ("addopts = -q -n auto --cov=pkg --timeout 5", "pytest-xdist pytest-cov pytest-timeout"),
        ("addopts = -nauto --benchmark-skip", "pytest-xdist pytest-benchmark"),
        ("required_plugins = pytest-xdist>=3 pytest-mock\naddopts = -n4", "pytest-xdist>=3 pytest-mock"),
        ("addopts = -p xdist -p pytest_cov -p no:randomly -p pytester", "pytest-xdist pytest-cov"),
        ("timeout = 10\nasyncio_mode = auto\nlog_cli = true", "pytest-timeout pytest-asyncio"),
        ("addopts = -p own -p tests.plugin --strict-markers --no-header -ra -k 'not slow", ""),
    ],
)
def test_plugins_that_pytest_is_told_to_use(tmp_path: Path, configuration: str, plain: str) -> None:
    files = {"pytest.ini": f"[pytest]\n{configuration}\n", "own.py": "", "tests/plugin.py": ""}
    write_files(tmp_path, files)
    assert list(Metadata(tmp_path).requirements(lambda _: False).plain.values()) == plain.split()


def test_what_is_on_no_index(tmp_path: Path) -> None:
    poetry = '[tool.poetry.group.dev.dependencies]\na = {git = "https://example.org/a"}\nb = {path = "../b"}\n'
    write_files(tmp_path, {"pyproject.toml": poetry, "requirements.txt": "-e git+https://example.org/c\n-e ."})
    needs = Metadata(tmp_path).requirements(named)
    assert not needs.plain
    assert needs.unread == ["a @ https://example.org/a", "b @ ../b", "-e git+https://example.org/c"]


def test_what_developers_get_is_there_for_tests_that_name_it(tmp_path: Path) -> None:
    extras = '[project.optional-dependencies]\nfast = ["numba"]\n'
    groups = '[dependency-groups]\ntest = ["lazily"]\ndev = ["pytest-cov", "hypothesis", "mkdocs", "lazily>=2"]\n'
    write_files(tmp_path, {"pyproject.toml": PROJECT + extras + groups})
    write_files(tmp_path, {"requirements.txt": "-e .[fast]\ntwine\nhypothesis==6"})
    needs = Metadata(tmp_path).requirements(lambda name: name == "hypothesis")
    assert [*needs.plain.values()] == ["numba", "lazily", "pytest-cov", "hypothesis"]
    assert needs.unnamed == ["mkdocs", "twine"]


@pytest.mark.parametrize(
    "files",
    [
        {"pyproject.toml": "[tool.pytest.ini_options]\npythonpath = ['a', './b/']\n"},
        {"pyproject.toml": "[tool.pytest]\npythonpath = ['a', 'b']\n"},
        {"setup.cfg": "[tool:pytest]\npythonpath = a b\n"},
        {"tox.ini": "[pytest]\npythonpath = a b c*\n"},
        {"pytest.ini": "[pytest]\npythonpath = a\n  b\n", "setup.cfg": "[tool:pytest]\npythonpath = c\n"},
    ],
)
def test_where_pytest_is_configured(tmp_path: Path, files: dict[str, str]) -> None:
    write_files(tmp_path, files)
    assert Metadata(tmp_path).pytest_paths("pythonpath") == ["a", "b"]


@pytest.mark.parametrize("text", ["a = " + " + ".join(["[]"] * 5000), "a = ['x']\n" + "a = a + a\n" * 60])
def test_sums_without_end_say_little(tmp_path: Path, text: str) -> None:
    write_files(tmp_path, {"setup.py": f"{text}\nsetup(name='x', install_requires=a)\n"})
    assert set(Metadata(tmp_path).requirements(named).plain) <= {"x"}


@pytest.mark.parametrize(
    ("files", "plain"),
    [
        ({"tox.ini": "[testenv]\ndeps = -r{toxinidir}/deps/ci.txt\n", "deps/ci.txt": "a\tfirst"}, []),
        ({"tox.ini": "[testenv]\ndeps = -r{toxinidir}/deps/ci.txt\n", "deps/ci.txt": "a>=1\t# why\n#b\n"}, ["a>=1"]),
        ({"noxfile.py": NOX.format('"-c", "c.txt", "-i", "https://x", "-e", ".[more]"'), "pyproject.toml": GROUPS},
         ["extra-one"]),
        ({"noxfile.py": NOX.format('"--index-url=https://x", "a"')}, ["a"]),
        ({"setup.py": "x = '\\d'\nsetup(extras_require={'test': ['a']})\n"}, ["a"]),
        ({"setup.py": "not " * 20000 + "1"}, []),
        ({"requirements-dev.txt": "-r " + "x" * 5000 + "\n-r \0\na\n"}, ["a"]),
    ],
)  # fmt: skip
def test_odd_files_say_what_they_can(tmp_path: Path, files: dict[str, str], plain: list[str]) -> None:
    write_files(tmp_path, files)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(Metadata(tmp_path).requirements(named).plain.values()) == plain


def test_includes_without_end_say_little(tmp_path: Path) -> None:
    chain = {f"r{number}.txt": f"-r r{number + 1}.txt\n" for number in range(1200)}
    write_files(tmp_path, {**chain, "requirements-dev.txt": "-r r0.txt\n-r loop/x.txt\na\n"})
    (tmp_path / "loop").symlink_to("loop")
    assert list(Metadata(tmp_path).requirements(named).plain) == ["a"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_text_is_read_as_its_first_bytes_say(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "x").write_text("a>=1\n", encoding=encoding)
    assert text_of(tmp_path / "x") == "a>=1\n"


def test_of_what_does_not_end_the_beginning_is_read(tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as large:
        large.truncate(1 << 40)
    os.mkfifo(tmp_path / "pipe")
    assert len(text_of(tmp_path / "large")) == 1 << 20
    assert text_of(tmp_path / "pipe") == text_of(tmp_path / "none") == ""


@pytest.mark.parametrize(
    "files",
    [
        {"pyproject.toml": PROJECT + "[project.optional-dependencies]\nfast = ['msgpack>=1']\nother = ['orjson']\n"},
        {"setup.cfg": "[options.extras_require]\nfast = msgpack>=1\nother = orjson\n"},
        {"setup.py": "setup(extras_require={'fast': ['msgpack>=1'], 'other': ['orjson']})\n"},
    ],
)
def test_of_extras_those_that_the_tests_name(tmp_path: Path, files: dict[str, str]) -> None:
    write_files(tmp_path, files)
    needs = Metadata(tmp_path).requirements(lambda name: name == "msgpack")
    assert [*needs.plain.values()] == ["msgpack>=1"] and not needs.unnamed


def test_an_extra_for_one_version_of_torch_is_left_out(tmp_path: Path) -> None:
    """What it holds belongs with that version, of another device's build as a rule."""
    extras = 'npu = ["torch==2.7.1", "triton-ascend==3.2.1"]\ncpu = ["torch>=2.7", "tilelang"]\n'
    write_files(tmp_path, {"pyproject.toml": f"{PROJECT}[project.optional-dependencies]\n{extras}"})
    needs = Metadata(tmp_path).requirements(lambda name: name in ("triton-ascend", "tilelang"))
    assert "tilelang" in needs.plain and "triton-ascend" not in needs.plain
