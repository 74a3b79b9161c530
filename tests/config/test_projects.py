"""What a repository's own files say that it needs is taken over as it is written, or refused by its place."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

import pytest

from orchestrator.config.locks import read_lock
from orchestrator.config.projects import Read, read_pyproject, read_requirements
from orchestrator.config.runbook import EnvironmentSpec, Runbook
from orchestrator.errors import InputError
from orchestrator.pairing.wanted import is_python
from orchestrator.tasks.needs import Needs, find_needs

PYPROJECT = """
    [build-system]
    requires = ["setuptools>=64"]
    [project]
    name = "My.Toy"
    dependencies = ["six", "torch>=2.4; sys_platform == 'linux'", "triton; sys_platform == 'win32'"]
    [project.optional-dependencies]
    test = ["pytest>=7"]
    all = ["my-toy[test]", "numpy"]
    [dependency-groups]
    lint = ["ruff"]
    dev = ["mypy", {include-group = "lint"}]
"""
HASH = "sha256:" + "0" * 64
STAGE = {"name": "s", "run": ["true"]}


def commit(**files: str) -> Read:
    """Reads these files, whose names have __ for a slash and _ for a dot."""
    return reading({name.replace("__", "/").replace("_", "."): text for name, text in files.items()})


def reading(files: Mapping[str, str]) -> Read:
    return lambda path: textwrap.dedent(files[path]).encode() if path in files else None


def needs(read: Read, install: object = (), **environment: object) -> Needs:
    runbook = {"name": "r", "environment": environment, "install": [*install], "stages": [STAGE]}  # type: ignore[misc]
    return find_needs(Runbook.model_validate(runbook), read, "0123456789")


def test_requirements_files_are_taken_over_with_those_that_they_include() -> None:
    read = reading(
        {
            "a.txt": "-r more/b.txt\nsix>=1 \\\n  , <2  # why\n\n# nothing\n",
            "more/b.txt": "-r ../a.txt\nPySocks ; python_version > '3'\n",
        }
    )
    assert read_requirements("a.txt", read) == ['PySocks; python_version > "3"', "six<2,>=1"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("-e .", "a project of the repository is named under `install:`"),
        ("--index-url https://example.org", "the pod's own matter"),
        ("-c limits.txt", "stand where the packages are named"),
        (f"six==1 --hash={HASH}", "name it as `lock:`"),
        ("six=1", "expected a package with or without a version range"),
        ("-r nowhere.txt", "nowhere.txt is not in the commit"),
    ],
)
def test_a_line_that_a_runbook_cannot_take_over_is_named(line: str, said: str) -> None:
    with pytest.raises(InputError) as refused:
        read_requirements("r.txt", reading({"r.txt": line}))
    assert said in str(refused.value)


def test_extras_and_groups_bring_what_they_include() -> None:
    project = read_pyproject(".", commit(pyproject_toml=PYPROJECT))
    assert project and (project.extra("all"), project.group("dev")) == (["pytest>=7", "numpy"], ["mypy", "ruff"])
    with pytest.raises(InputError, match="expected one of dependencies, test, all, lint, dev"):
        project.named("tests")


def test_a_runbooks_packages_are_those_of_the_files_that_it_names() -> None:
    found = needs(commit(pyproject_toml=PYPROJECT), pyproject=["dependencies", "dev"], extra=["einops"]).spec
    assert found.extra == ["einops", "six", "torch>=2.4", "mypy", "ruff"]
    with pytest.raises(InputError, match=r"pyproject.toml is not in the commit"):
        needs(commit(), pyproject=["dependencies"])


def test_what_is_installed_brings_its_dependencies_and_not_its_neighbours() -> None:
    kernels = """
        [build-system]
        requires = ["setuptools", "torch"]
        [project]
        name = "kernels"
        dependencies = ["my_toy", "einops"]
    """
    read = reading({"pyproject.toml": PYPROJECT, "kernels/pyproject.toml": kernels, "old/setup.py": ""})
    found = needs(read, install=[".[test]", "kernels/", "old"])
    assert found.spec.extra == ["six", "torch>=2.4", "pytest>=7", "einops", "torch"]
    own, inner, old = found.installations
    assert (own.isolated(False), inner.isolated(False), own.isolated(True)) == (True, False, False)
    assert (old.project.name, old.project.requires) == (None, ("setuptools>=40.8.0",))
    with pytest.raises(InputError, match="has no extra 'tests'"):
        needs(read, install=[".[tests]"])
    with pytest.raises(InputError, match=r"docs: there is no project in commit 0123456: expected docs/pyproject"):
        needs(read, install=["docs"])


PYLOCK = f"""
    lock-version = "1.0"
    requires-python = ">=3.11,<3.13"
    [[packages]]
    name = "own"
    directory = {{path = "."}}
    [[packages]]
    name = "six"
    version = "1.16"
    marker = "python_version > '3'"
    wheels = [{{url = "https://example.org/six-1.16-py3-none-any.whl", hashes = {{sha256 = "{"0" * 64}"}}}}]
    [[packages]]
    name = "torch"
    version = "2.8.0+cu128"
    wheels = [{{url = "https://example.org/torch.whl", hashes = {{sha256 = "{"1" * 64}"}}}}]
    [[packages]]
    name = "nvidia-cublas-cu12"
    version = "12.8"
    wheels = [{{url = "https://example.org/nvidia.whl", hashes = {{sha256 = "{"2" * 64}"}}}}]
"""


def test_what_is_installed_says_for_which_pythons_it_is() -> None:
    project = '[project]\nname = "{0}"\nrequires-python = "{1}"\n'
    read = reading(
        {"a/pyproject.toml": project.format("a", ">=3.12"), "b/pyproject.toml": project.format("b", "<3.14")}
    )
    assert needs(read, ["a", "b"]).spec.python == ">=3.12,<3.14"
    assert needs(read, ["a"], python="3.13").spec.python == "3.13"
    assert needs(read, ["a"], python="system").spec.python == "system"
    assert needs(reading({"setup.py": ""}), ["."]).spec.python is None
    with pytest.raises(InputError, match=r"install: a is for Python >=3\.12, not for 3\.11"):
        needs(read, ["a"], python="3.11")
    old = reading({"a/pyproject.toml": project.format("a", ">=3.12"), "b/pyproject.toml": project.format("b", "<3.11")})
    with pytest.raises(
        InputError, match=r"expected projects that share a Python, but a is for >=3\.12, b is for <3\.11"
    ):
        needs(old, ["a", "b"])
    with pytest.raises(InputError, match=r"c/pyproject\.toml cannot be read: .*3\+"):
        needs(reading({"c/pyproject.toml": project.format("c", "3+")}), ["c"])


def test_a_lock_names_versions_and_hashes_and_leaves_torchs_build_to_the_pod() -> None:
    found = needs(commit(pylock_toml=PYLOCK), lock="pylock.toml").spec
    assert found.extra == ['six==1.16; python_version > "3"', "torch==2.8.0"]
    assert (found.python, found.hashes) == (">=3.11,<3.13", {"six": ["0" * 64]})  # type: ignore[attr-defined]
    lines = f"six==1.16 \\\n    --hash={HASH} \\\n    --hash=sha256:{'1' * 64}\n"
    assert read_lock("lock.txt", reading({"lock.txt": lines})).hashes == {"six": ["0" * 64, "1" * 64]}


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("pylock.toml", "x = 1", "expected a pylock.toml, with a lock-version"),
        ("pylock.toml", "lock-version = ", "cannot be read"),
        ("pylock.toml", "lock-version='1.0'\npackages=[{name='x', vcs={url='u'}}]", "x is of no package index"),
        ("lock.txt", "six==1.16", "expected NAME==VERSION with hashes"),
        ("lock.txt", f"six>=1 --hash={HASH}", "expected NAME==VERSION with hashes"),
    ],
)
def test_what_is_no_lock_is_refused(name: str, text: str, said: str) -> None:
    with pytest.raises(InputError) as refused:
        read_lock(name, reading({name: text}))
    assert said in str(refused.value) and name in str(refused.value)


def test_a_lock_for_another_python_is_refused_before_a_pod_is_asked() -> None:
    with pytest.raises(InputError, match=r"pylock.toml is for Python >=3.11,<3.13, not for 3.13"):
        needs(commit(pylock_toml=PYLOCK), lock="pylock.toml", python="3.13")
    assert [is_python(version, ">=3.11.4,<3.13") for version in ("3.10", "3.11", "3.12.1", "3.13")] == [
        False, True, True, False,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"python": 3.12}, 'expected a version in quotes, such as "3.12", got 3.12'),
        ({"python": "2.7"}, "expected system or a version"),
        ({"python": "system", "lock": "uv.lock"}, "only of an environment that is built"),
        ({"lock": "uv.lock", "pyproject": ["dependencies"]}, "expected 'lock' or what it was made from"),
    ],
)
def test_keys_that_do_not_go_together_are_refused(environment: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        EnvironmentSpec.model_validate(environment)
