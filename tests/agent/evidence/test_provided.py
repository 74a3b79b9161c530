"""Which modules a commit provides: by where its packages are, and by what its metadata says."""

from __future__ import annotations

import pytest

from orchestrator.agent.evidence.provided import Provided


def provided(files: dict[str, str]) -> Provided:
    return Provided(files, lambda path: files[path].encode())


@pytest.mark.parametrize(
    "file",
    [
        "widget.py", "widget/__init__.py", "src/widget/__init__.py", "lib/widget/__init__.py",
        "python/widget/__init__.py", "bindings/python/widget/__init__.py", "packages/w/widget/__init__.py",
        "packages/w/src/widget/__init__.py",
    ],
)  # fmt: skip
def test_packages_are_found_where_they_usually_are(file: str) -> None:
    found = provided({file: ""})
    assert "widget" in found.names
    assert found.holds("widget")
    assert not found.holds("widget.core")


@pytest.mark.parametrize("folder", ["widget", "src/widget", "lib/widget", "bindings/python/widget", "packages/widget"])
def test_a_folder_that_is_absent_counts_as_a_package_where_packages_are(folder: str) -> None:
    found = Provided([], str.encode, [folder, "third_party/other"])
    assert found.holds("widget")
    assert not found.holds("other")
    assert found.and_below(["third_party"]).holds("other")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pyproject.toml", "[tool.setuptools.package-dir]\n'' = 'odd/place'"),
        ("pyproject.toml", "[tool.setuptools.packages.find]\nwhere = ['odd/place']"),
        ("pyproject.toml", "[tool.hatch.build.targets.wheel]\npackages = ['odd/place/widget']"),
        ("pyproject.toml", "[tool.poetry]\nname = 'w'\npackages = [{include = 'widget', from = 'odd/place'}]"),
        ("pyproject.toml", "[project]\nname = 'Widget'\n"),
        ("pyproject.toml", "[tool.setuptools]\npackages = ['widget', 'widget.inner']\n"),
        ("pyproject.toml", "[tool.setuptools.package-dir]\nwidget = 'odd/place/widget'"),
        ("pyproject.toml", "[tool.flit.module]\nname = 'widget'"),
        ("pyproject.toml", "[tool.maturin]\nmodule-name = 'widget'"),
        ("pyproject.toml", "[tool.pdm.build]\npackage-dir = 'odd/place'"),
        ("setup.cfg", "[options]\npackages = find:\n[options.packages.find]\nwhere = odd/place"),
        ("setup.cfg", "[options]\npackage_dir =\n  = odd/place\n"),
        ("setup.cfg", "[metadata]\nname = widget"),
        ("setup.py", "from setuptools import *\nsetup(packages=find_packages('odd/place'))"),
        ("setup.py", "import setuptools\nsetuptools.setup(package_dir={'': 'odd/place'})"),
        ("setup.py", "setup(py_modules=['widget'])"),
        ("setup.py", "setup(ext_modules=[CUDAExtension(name='widget', sources=sources())])"),
    ],
)
@pytest.mark.parametrize("folder", ["", "deep/in/"])
def test_metadata_says_where_packages_are(folder: str, name: str, text: str) -> None:
    found = provided({f"{folder}{name}": text, f"{folder}odd/place/widget/__init__.py": ""})
    assert {name.casefold() for name in found.names} >= {"widget"}
    assert found.holds("widget") or found.holds("Widget")


def test_an_extension_module_is_provided_by_its_declaration() -> None:
    found = provided(
        {"setup.py": "setup(ext_modules=[Extension('widget._core', ['core.c'])])", "widget/__init__.py": ""}
    )
    assert found.holds("widget._core")
    assert found.holds("widget")


def test_a_folder_of_a_name_is_no_package() -> None:
    """Such as kernels in `triton/`: the installed package of that name is another thing."""
    found = provided(
        {"triton/softmax.py": "", "numpy/readme.txt": "", "docs/conf.py": "", "third_party/src/torch/__init__.py": ""}
    )
    assert not found.holds("torch")
    assert not found.holds("triton")
    assert not found.holds("numpy")
    assert "docs" not in found.names


def test_beside_a_project_that_names_its_packages_others_are_folders() -> None:
    pyproject = "[project]\nname = 'my-kernels'\n"
    found = provided({"pyproject.toml": pyproject, "my_kernels/__init__.py": "", "triton/__init__.py": ""})
    assert found.holds("my_kernels")
    assert not found.holds("triton")


def test_a_pyproject_that_only_configures_tools_names_nothing() -> None:
    found = provided({"pyproject.toml": "[tool.pytest.ini_options]\naddopts = ''", "nsa/__init__.py": "", "x/y.py": ""})
    assert found.holds("nsa")


@pytest.mark.parametrize("beside", ["tests", "docs", "examples", "benchmarks", "data"])
def test_what_stands_beside_packages_is_provided_only_if_metadata_says_so(beside: str) -> None:
    files = {f"{beside}/__init__.py": ""}
    assert not provided(files).holds(beside)
    assert provided({**files, "pyproject.toml": f"[tool.setuptools]\npackages = ['{beside}']"}).holds(beside)


def test_a_namespace_is_provided_by_its_modules() -> None:
    found = provided({"google/mine/__init__.py": ""})
    assert found.holds("google.mine")
    assert not found.holds("google.protobuf")
    assert not found.holds("google")


def test_a_stage_s_own_path_counts() -> None:
    found = provided({"code/widget/__init__.py": ""})
    assert not found.holds("widget")
    assert found.and_below(["code"]).holds("widget")
    assert "widget" in found.and_below(["code"]).names


@pytest.mark.parametrize("text", ["[project", "", "project = 1", "[project]\nname = 3", "[tool]\nsetuptools = 1"])
def test_metadata_that_cannot_be_understood_says_nothing(text: str) -> None:
    assert provided({"pyproject.toml": text, "nsa/__init__.py": ""}).holds("nsa")
    assert provided({"setup.py": text, "setup.cfg": text, "nsa/__init__.py": ""}).holds("nsa")


@pytest.mark.parametrize(
    ("metadata", "module", "place"),
    [
        ("[project]\nname = 'my-kernels'\n", "my_kernels", "src/my_kernels/__init__.py"),
        ("[tool.setuptools]\npackages = ['fast']\n", "fast", "fast/__init__.py"),
        ("[tool.setuptools.packages.find]\nwhere = ['src']\n", "my_kernels", "src/my_kernels/__init__.py"),
        ("[tool.setuptools.packages.find]\nwhere = ['src']\n", "both", "src/both/__init__.py"),
        ("[tool.setuptools.packages.find]\nwhere = ['.']\n", "fast", None),
        ("[project]\nname = 'my-kernels'\n", "utils", None),
        ("[tool.setuptools]\npackages = ['fast', 'tests']\n", "tests", None),
        ("", "my_kernels", None),
    ],
)
def test_metadata_says_which_package_of_a_name_it_is(metadata: str, module: str, place: str | None) -> None:
    files = dict.fromkeys(
        ["src/my_kernels/__init__.py", "old/my_kernels/__init__.py", "fast/__init__.py", "old/fast/__init__.py",
         "src/both/__init__.py", "both/__init__.py", "utils.py", "tests/utils.py", "tests/__init__.py"], "",
    )  # fmt: skip
    files |= {"pyproject.toml": metadata, "old/pyproject.toml": metadata.replace("src", "."), "old/utils.py": ""}
    assert provided(files).places_of(module) == ({place} if place else set())


def test_without_metadata_the_usual_folders_and_the_stages_path_are_where_it_is() -> None:
    files = {"src/widget/__init__.py": "", "src/widget/core.py": "", "old/widget/__init__.py": "", "widget.py": ""}
    found = provided(files)
    assert found.usual_places_of("widget") == {"src/widget/__init__.py"}
    assert found.usual_places_of("widget.core") == {"src/widget/core.py"}
    assert found.and_below(["old"]).usual_places_of("widget") == {"src/widget/__init__.py", "old/widget/__init__.py"}
    flat = provided({"widget/__init__.py": "", "old/widget/__init__.py": "", "tests/__init__.py": "", "gadget.py": ""})
    assert flat.usual_places_of("widget") == {"widget/__init__.py"}
    assert not flat.usual_places_of("tests") and not flat.usual_places_of("gadget")
    told = provided({**files, "pyproject.toml": "[project]\nname = 'widget'\n"})
    assert not told.usual_places_of("widget") and not told.usual_places_of("widget.core")
