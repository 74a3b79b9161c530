"""Through the real command line: a repository's own package, built from the commit's tree into a layer of its own."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.project import Outcome, Project, local_pod, new_project, with_pod
from tests.support.toy import toy

SYSTEM = """
    name: own
    environment: {python: system}
    install: ["."]
    stages:
      - name: tests
        run: [python, -m, pytest, -q, tests]
      - name: script
        run: [say-toy]
        expect: {artifacts: [{path: said.txt, from: stdout}]}
"""
# Over an environment that is built of the tiny index.
BUILT = """
    name: own
    environment: {extra: ["tool<2"]}
    install: ["."]
    stages:
      - name: use
        run: [python, -c, "import tool, toy; print(tool.__version__, toy.value())"]
        expect: {artifacts: [{path: said.txt, from: stdout, contains: ["1.0 1"]}]}
"""
TIMED = """
    name: own
    environment: {python: system}
    install: ["."]
    stages:
      - name: tests
        run: [python, -m, pytest, -q, tests]
      - name: bench
        shell: |
          python -c "import toy; print('ms'); print(toy.value())"
        expect:
          artifacts:
            - path: b.csv
              from: stdout
              kind: csv
              reproducible: true
              figures: {measures: {ms: {unit: ms, better: lower}}}
"""


@pytest.fixture
def project(tmp_path: Path, uv: Path, index: str) -> Project:
    env = {"PIP_INDEX_URL": index, "PATH": f"{uv.parent}:/usr/bin:/bin"}
    return new_project(tmp_path, {"local": {**local_pod(tmp_path), "env": env}})


def validate(project: Project, exit_code: int = 0, commit: str = "HEAD") -> Outcome:
    outcome = project.validate("--runbook", "own", "--commit", commit)
    assert outcome.exit_code == exit_code, outcome.stderr + outcome.stdout
    return outcome


def layer_of(project: Project, outcome: Outcome) -> dict[str, Any]:
    environment = json.loads((project.root / outcome.json["path"] / "environment.json").read_text())
    found: dict[str, Any] = environment["layer"]
    return found


def layers(project: Project) -> list[str]:
    return sorted(path.name for path in (project.root.parent / "workdir" / "layers").glob("[!.]*"))


@pytest.mark.slow
def test_a_comparison_times_each_commit_as_it_is_built(project: Project) -> None:
    first = project.commit({**toy(1), "runbooks/own.yaml": TIMED})
    project.commit(toy(2))
    done = project.run("compare", first, "HEAD", "--pod", "local", "--blocks", "6", "--harness", "own", "--json")
    assert done.exit_code == 0, done.stderr
    (row,) = done.json["rows"]
    assert (row["answer"], row["a"], row["b"], row["control"]["ratio"]) == ("slower", 1.0, 2.0, 1.0)
    assert len(layers(project)) == 2, "the control is installed from the layer of its commit"


@pytest.mark.slow
def test_each_commit_is_tested_as_it_is_built_and_built_once(project: Project) -> None:
    first = project.commit({**toy(1), "runbooks/own.yaml": SYSTEM})
    one = validate(project)
    assert "jobs " in one.stderr, "the build's log is shown"
    artifacts = project.root / one.json["path"] / "artifacts"
    assert (artifacts / "said.txt").read_text() == "toy 1\n"
    second = project.commit(toy(2))
    assert second != first
    two = validate(project)
    assert (project.root / two.json["path"] / "artifacts" / "said.txt").read_text() == "toy 2\n"
    assert layers(project) == sorted(layer_of(project, outcome)["key"] for outcome in (one, two))
    again = validate(project, commit=first)
    assert f"of {first[:7]}: already there" in " ".join(again.stderr.split())
    assert layer_of(project, again) == layer_of(project, one)


@pytest.mark.slow
def test_another_copy_of_the_package_is_not_the_commits(project: Project, tmp_path: Path) -> None:
    stale = tmp_path / "stale" / "toy"
    stale.mkdir(parents=True)
    (stale / "__init__.py").write_text("def value():\n    return 1\n")
    elsewhere = SYSTEM.replace("install:", f"env: {{PYTHONPATH: {stale.parent}}}\n    install:")
    project.commit({**toy(), "runbooks/own.yaml": elsewhere})
    stage = validate(project, 1).stage("tests")
    assert stage["status"] == "invalid" and "stale/toy/__init__.py" in stage["reason"]


@pytest.mark.slow
def test_tests_inside_the_package_are_watched_where_it_is_installed(project: Project) -> None:
    """`--pyargs` takes the installed package, not the tree's folder of its name; its tests are the commit's."""
    own = SYSTEM.partition("      - name: script")[0].replace("[python, -m, pytest, -q, tests]", "[pytest, -q, PYARGS]")
    own += "        cwd: src\n"
    files = {
        **toy(),
        "src/toy/tests/__init__.py": "",
        "src/toy/tests/test_it.py": "import toy\ndef test_a(): assert toy.value() == 1\n",
        "src/toy/tests/test_b.py": "import toy\ndef test_b(): assert toy.value() < 2\n",
    }
    for named in ("--pyargs, toy", "--pyargs, toy.tests.test_it, toy.tests.test_b"):
        project.commit({**files, "runbooks/own.yaml": own.replace("PYARGS", named)})
        assert validate(project).stage("tests")["tests"]["passed"] == 2
    project.commit(
        {
            "src/toy/tests/test_it.py": files["src/toy/tests/test_it.py"] + "def tset_c(): assert toy.value() == 2\n",
            "src/toy/tests/test_b.py": "import toy\ndef test_b():\n    if toy.value() > 1: assert toy.value() == 2\n",
            "src/toy/tests/test_d.py": "import pytest\npytest.importorskip('none_such')\ndef test_d(): assert 0\n",
            "runbooks/own.yaml": own.replace("PYARGS", "--pyargs, toy"),
        }
    )
    tests = validate(project, 3).stage("tests")["tests"]
    assert (tests["passed"], tests["unasserted"], tests["skipped"], tests["deselected"]) == (2, 1, 1, 1)
    assert "src/toy/tests/test_it.py::tset_c" in [each["id"] for each in tests["not_passed"]]


@pytest.mark.slow
def test_a_mutant_of_the_tree_is_one_of_what_is_installed_from_it(project: Project) -> None:
    """Its tests import the layer, where the patch of a file in src/ changed nothing."""
    patch = "--- a/src/toy/{0}\n+++ b/src/toy/{0}\n@@ -1,3 +1,4 @@\n{1}"
    python = patch.format("__init__.py", " from toy._c import value\n+value = lambda: 7\n \n \n")
    c = toy()["src/toy/_c.c"].splitlines()
    compiled = patch.format("_c.c", f" \n {c[1]}\n+#include <errno.h>\n {c[2]}\n")
    own = SYSTEM.partition("      - name: script")[0] + "        expect: {mutants: [{patch: python.patch}]}\n"
    project.commit({**toy(), "python.patch": python, "c.patch": compiled, "runbooks/own.yaml": own})
    assert validate(project).stage("tests")["kills"] == {"killed": 1, "of": 1, "survivors": [], "why": []}
    project.commit({"runbooks/own.yaml": own.replace("python.patch", "c.patch")})
    assert (
        "src/toy/_c.c is compiled into the repository's installation" in validate(project, 1).stage("tests")["reason"]
    )


@pytest.mark.slow
def test_what_does_not_compile_is_said_by_the_compiler_and_leaves_nothing(project: Project) -> None:
    project.commit({**toy("nobody_declared_it"), "runbooks/own.yaml": SYSTEM})
    outcome = validate(project, 4)
    assert "src/toy/_c.c:3:" in outcome.json["error"] and "nobody_declared_it" in outcome.json["error"]
    assert list((project.root.parent / "workdir" / "layers").glob(".building-*")) == layers(project) == []


@pytest.mark.slow
def test_a_layer_changed_by_hand_is_built_anew_and_that_is_said(project: Project) -> None:
    project.commit({**toy(), "runbooks/own.yaml": SYSTEM})
    layer = layer_of(project, validate(project))
    module = next(Path(layer["root"]).glob("lib/python*/site-packages/toy/__init__.py"))
    module.write_text("def value():\n    return 1\n")
    again = validate(project)
    assert "other content in toy/__init__.py; it is rebuilt" in " ".join(again.stderr.split())
    assert "_c import" in module.read_text()


@pytest.mark.slow
def test_what_only_the_build_tells_is_installed_too(project: Project) -> None:
    """What setup.py says that it requires, and what a build system asks for when it runs."""
    project.commit(
        {**toy(requires=("part>=1; python_version>'3'",), build_requires=("tool",)), "runbooks/own.yaml": BUILT}
    )
    validate(project)
    assert "already there" in validate(project).stderr


def test_a_system_python_has_to_have_what_the_package_requires(project: Project) -> None:
    project.commit({**toy(requires=("no-such-package",)), "runbooks/own.yaml": SYSTEM})
    assert "toy needs no-such-package, which its own Python does not have" in validate(project, 4).json["error"]


@pytest.mark.slow
def test_a_pod_without_network_builds_with_what_was_carried_there_and_prune_knows_it(
    project: Project, tmp_path: Path, uv: Path, index: str
) -> None:
    nowhere = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0", "UV_HTTP_RETRIES": "0"}
    with_pod(project, env={**nowhere, "PATH": f"{uv.parent}:/usr/bin:/bin"})
    files = toy()
    files["pyproject.toml"] = files["pyproject.toml"].replace("requires = []", 'requires = ["tool"]')
    project.commit({**files, "runbooks/own.yaml": BUILT})
    house = str(tmp_path / "house")
    here = {"PIP_EXTRA_INDEX_URL": index, "PATH": f"{uv.parent}:{os.environ['PATH']}"}
    options = ("--pod", "local", "--runbook", "own")
    filled = project.run("bootstrap", *options, "--download-wheelhouse", house, "--json", **here)
    # What the environment has of it, and the newest, which the isolated build gets.
    assert filled.json["wheels"] == 4, filled.stderr
    carried = project.run("bootstrap", *options, "--wheelhouse", house)
    assert carried.exit_code == 0, carried.stderr
    layer = layer_of(project, validate(project))

    pruned = project.run("prune", "--pod", "local", "--keep", "0", "--json").json["removed"]
    assert ("layer", layer["key"]) in [(found["kind"], found["name"]) for found in pruned] and layers(project) == []


@pytest.mark.parametrize(
    ("install", "said"),
    [
        ('["kernels/"]', "own.yaml:4: install: kernels: there is no project in commit"),
        ('["../other"]', "expected a folder of the repository"),
        ('[".", "./"]', "expected each folder once"),
    ],
)
def test_what_cannot_be_installed_is_said_before_a_pod_is_contacted(project: Project, install: str, said: str) -> None:
    project.commit({**toy(), "runbooks/own.yaml": SYSTEM.replace('["."]', install)})
    assert said in validate(project, 2).json["error"]
    assert not (project.root.parent / "workdir").exists()


@pytest.mark.slow
def test_setuptools_builds_over_a_built_environment(tmp_path: Path, uv: Path) -> None:
    """As people have it: an isolated build with setuptools; the environment has what the project requires."""
    path = {"PATH": f"{uv.parent}:/usr/bin:/bin"}
    project = new_project(tmp_path, {"local": {**local_pod(tmp_path), "env": path}})
    pyproject = """
        [build-system]
        requires = ["setuptools>=74.1"]
        build-backend = "setuptools.build_meta"
        [project]
        name = "toy"
        version = "1.0"
        dependencies = ["iniconfig"]
        optional-dependencies = {test = ["pytest"]}
        scripts = {say-toy = "toy:main"}
        [tool.setuptools]
        ext-modules = [{name = "toy._c", sources = ["src/toy/_c.c"]}]
    """
    runbook = SYSTEM.replace("environment: {python: system}", "").replace('"."', '".[test]"')
    project.commit({**toy(), "pyproject.toml": pyproject, "runbooks/own.yaml": runbook})
    assert [stage["status"] for stage in validate(project).json["stages"]] == ["passed", "passed"]
