"""What is made of modules, shared objects, tests and interpreters, by where they lie."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent.env import editable
from orchestrator.agent.env.fingerprint import system_fingerprint
from orchestrator.agent.evidence.provenance import Homes, Seen, StageOrigins, compiled_in
from orchestrator.agent.evidence.provided import Provided
from orchestrator.shared.tree import entry_of
from tests.support.files import write_files

SITE = "venv/lib/python3.11/site-packages"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    package = tmp_path / "tree" / "src" / "widget"
    package.mkdir(parents=True)
    for name in ("__init__.py", "core.py", "_version.py", "test_core.py"):
        (package / name).write_text(f"# {name}\n")
    return tmp_path / "tree"


def sources_of(tree: Path) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for path in tree.rglob("*.py"):
        found.setdefault(path.name, {})[str(path.relative_to(tree))] = entry_of(path)[1]
    return found


@pytest.fixture
def origins(tmp_path: Path, tree: Path) -> StageOrigins:
    homes = Homes(
        tree=str(tree),
        built=[str(tmp_path / "tmp"), str(tmp_path / "venv")],
        caches=[str(tmp_path / "cache")],
        base="/usr/bin/python3.11",
        others=[str(tmp_path / "env")],
        blobs=frozenset(entry_of(path)[1] for path in tree.rglob("*.py")),
        sources=sources_of(tree),
    )
    return StageOrigins(Provided.by_tree(tree), homes)


def seen(*lines: dict[str, Any]) -> Seen:
    found = Seen()
    for line in lines:
        found.fold(line)
    return found


def install(tmp_path: Path, site: str, url: str | None, name: str = "widget") -> None:
    """What pip leaves of a package that it has installed, from `url` (PEP 610) or from an index."""
    info = tmp_path / site / f"{name}-1.dist-info"
    info.mkdir(parents=True)
    (info / "RECORD").write_text(f"{name}/__init__.py,,\n{name}/test_core.py,,\n")
    if url:
        (info / "direct_url.json").write_text(json.dumps({"url": url, "dir_info": {}}))


@pytest.mark.parametrize(
    ("site", "url", "foreign"),
    [
        (SITE, "file://{tree}", False),
        (SITE, "file://{tree}/dist/widget-1-py3-none-any.whl", False),
        (SITE, "file://{root}/tmp/widget.whl", False),
        (SITE, "file:///home/me/widget", True),
        (SITE, "file://{tree}-of-another", True),
        (SITE, "https://example.org/widget.whl", True),
        (SITE, None, True),
        ("tmp/target", "file://{tree}", False),
        ("tmp/target", None, True),
        ("tree/.tox/py/lib/python3.11/site-packages", "file://{tree}/.tox/dist/widget.tar.gz", False),
        ("tree/.tox/py/lib/python3.11/site-packages", None, True),
        ("env/lib/python3.11/site-packages", "file://{tree}", True),
    ],
)
def test_what_was_installed_has_to_be_of_the_tree(
    tmp_path: Path, tree: Path, origins: StageOrigins, site: str, url: str | None, foreign: bool
) -> None:
    install(tmp_path, site, url and url.format(tree=tree, root=tmp_path))
    found = seen({"module": "widget", "file": str(tmp_path / site / "widget" / "__init__.py")})
    assert bool(origins.foreign_modules(found)) is foreign
    assert not origins.elsewhere(found)


@pytest.mark.parametrize(
    ("file", "foreign"),
    [("tmp/widget/__init__.py", False), ("cache/widget.so", False), ("env/widget.so", True), ("other/widget.py", True)],
)
def test_a_module_of_the_trees_name(tmp_path: Path, origins: StageOrigins, file: str, foreign: bool) -> None:
    assert bool(origins.foreign_modules(seen({"module": "widget", "file": str(tmp_path / file)}))) is foreign


@pytest.mark.parametrize(
    ("name", "text", "foreign"),
    [
        ("core.py", "# core.py\n", False),
        ("core.py", "# patched\n", True),
        ("made.py", "# by the build\n", False),
        ("_version.py", "# by versioneer\n", False),
    ],
)
def test_a_built_copy_has_the_commits_sources(
    tmp_path: Path, tree: Path, origins: StageOrigins, name: str, text: str, foreign: bool
) -> None:
    copy = tmp_path / "tmp" / "lib" / "widget"
    copy.mkdir(parents=True)
    (copy / "__init__.py").write_text("# __init__.py\n")
    (copy / name).write_text(text)
    found = seen({"module": "widget", "file": str(copy / "__init__.py")})
    assert bool(origins.foreign_modules(found)) is foreign


@pytest.mark.parametrize(
    ("file", "text", "foreign"),
    [
        ("src/widget/__init__.py", "# __init__.py\n", False),
        ("build/lib/widget/__init__.py", "# __init__.py\n", False),
        ("build/lib/widget/__init__.py", "# of yesterday\n", True),
        ("tests/stubs/widget.py", "# a stub\n", True),
        ("build/lib/widget.so", "compiled", False),
    ],
)
@pytest.mark.parametrize("told", [True, False])
def test_another_package_of_the_tree_with_the_name_of_its_own(
    tree: Path, origins: StageOrigins, file: str, text: str, foreign: bool, told: bool
) -> None:
    if told:
        (tree / "pyproject.toml").write_text("[project]\nname = 'widget'\n")
        origins = StageOrigins(Provided.by_tree(tree), origins._homes)
    write_files(tree, {file: text})
    found = origins.foreign_modules(seen({"module": "widget", "file": str(tree / file)}))
    assert bool(found) is (foreign and told)


@pytest.mark.parametrize("added", ["core/__init__.py", "patches.py", "_version.py"])
@pytest.mark.parametrize("committed", [True, False])
def test_what_a_copy_adds_was_made_by_a_build(tree: Path, origins: StageOrigins, added: str, committed: bool) -> None:
    """In a copy that the commit holds nobody has built anything."""
    (tree / "pyproject.toml").write_text("[project]\nname = 'widget'\n")
    copy = tree / "old" / "widget"
    shutil.copytree(tree / "src" / "widget", copy)
    (copy / added).parent.mkdir(exist_ok=True)
    (copy / added).write_text("# patched\n")
    homes = origins._homes
    if committed:
        homes = replace(homes, sources=sources_of(tree))
    found = seen({"module": "widget", "file": str(copy / "__init__.py")})
    assert bool(StageOrigins(Provided.by_tree(tree), homes).foreign_modules(found)) is committed


def test_a_link_that_leads_out_of_the_tree_is_foreign(origins: StageOrigins, tree: Path) -> None:
    line = {"module": "tool", "file": "/home/me/tool.py", "link": str(tree / "tool.py")}
    assert origins.foreign_modules(seen(line)) == [{"name": "tool", "file": "/home/me/tool.py"}]


@pytest.mark.parametrize(
    ("line", "elsewhere"),
    [
        ({"module": "helper", "file": "/home/me/helper.py"}, True),
        ({"module": "helper", "file": "/usr/lib/python3/dist-packages/helper.py"}, False),
        ({"module": "helper", "file": "{root}/env/helper.py"}, False),
        ({"module": "helper", "file": "{root}/tmp/helper.py"}, False),
        ({"module": "widget.plugin", "file": "{root}/env/widget/plugin.py"}, False),
        ({"mapped": "/home/me/libwidget.so"}, True),
        ({"mapped": "/opt/vendor/libx.so.1"}, False),
        ({"mapped": "{root}/cache/kernel.so"}, False),
        ({"mapped": "{root}/env/lib/libx.so"}, False),
    ],
)
def test_other_code(tmp_path: Path, origins: StageOrigins, line: dict[str, str], elsewhere: bool) -> None:
    found = seen({key: value.format(root=tmp_path) for key, value in line.items()})
    assert [where["what"] for where in origins.elsewhere(found)] == (["code"] if elsewhere else [])


def test_tests_count_from_the_tree_or_as_they_are_there(tmp_path: Path, tree: Path, origins: StageOrigins) -> None:
    install(tmp_path, SITE, f"file://{tree}")
    copied, changed = tmp_path / "tmp" / "test_core.py", tmp_path / "tmp" / "test_other.py"
    copied.parent.mkdir()
    copied.write_text("# test_core.py\n")
    changed.write_text("# another\n")
    installed = tmp_path / SITE / "widget" / "test_core.py"
    files = [copied, changed, installed, tmp_path / "env" / "widget" / "test_core.py"]
    found = origins.elsewhere(seen(*({"tests": str(file)} for file in files)))
    assert [where["file"] for where in found] == [str(changed), str(files[-1])]


@pytest.mark.parametrize(
    ("prefix", "base", "other"),
    [
        ("/usr", "/usr/bin/python3.11", True),
        ("{root}/tmp/v", "/usr/bin/python3.11", False),
        ("{root}/tree/.tox/py", "/usr/bin/python3.11", False),
        ("{root}/tmp/v", "/usr/bin/python3.12", True),
    ],
)
def test_interpreters(tmp_path: Path, origins: StageOrigins, prefix: str, base: str, other: bool) -> None:
    python = {"program": "python", "prefix": prefix.format(root=tmp_path), "base": base}
    found = origins.elsewhere(seen({"imported": str(tmp_path / "tree" / "tool.py"), "python": python}))
    assert [where["what"] for where in found] == (["interpreter"] if other else [])


@pytest.mark.parametrize(
    ("more", "program", "other"),
    [
        ({"test": "test_a"}, "tmp/python-copied", False),
        ({"test": "test_a"}, "elsewhere/python", True),
        ({"test": "test_a", "base": "/usr/bin/python3.12"}, "tmp/python-copied", True),
        ({"test": "test_a", "packages": "/usr/lib/python3/dist-packages/numpy/__init__.py"}, "tmp/python-copied", True),
        ({"test": None}, "tmp/python-copied", True),
        ({}, "tmp/python-copied", True),  # as earlier agents told of it
    ],
)
def test_the_same_interpreter_under_a_name_that_a_test_gave_it(
    tmp_path: Path, origins: StageOrigins, more: dict[str, Any], program: str, other: bool
) -> None:
    python = {"program": str(tmp_path / program), "prefix": "/usr", "base": "/usr/bin/python3.11", **more}
    line = {"imported": str(tmp_path / "tree" / "tool.py"), "python": python}
    clean = {**line, "python": {**python, "packages": None}}  # another process of the same, which says nothing of it
    found = {where["what"] for where in origins.elsewhere(seen(line, clean))}
    assert found == ({"interpreter"} if other else set())


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A project outside of any environment."""
    (tmp_path / "checkout" / "src" / "gadget").mkdir(parents=True)
    (tmp_path / "checkout" / "src" / "gadget" / "__init__.py").write_text("VALUE = 1\n")
    return tmp_path / "checkout"


def _editable(site: Path, checkout: Path, way: str) -> None:
    site.mkdir(parents=True)
    if way == "pep610":
        (site / "gadget-1.dist-info").mkdir()
        told = {"url": checkout.as_uri(), "dir_info": {"editable": True}}
        (site / "gadget-1.dist-info" / "direct_url.json").write_text(json.dumps(told))
    elif way == "pth":
        (site / "__editable__.gadget.pth").write_text(f"import nothing\n{checkout}/src\n")
    elif way == "egg-link":
        (site / "gadget.egg-link").write_text(f"{checkout}\n.")
    else:
        (site / "gadget").symlink_to(checkout / "src" / "gadget")


@pytest.mark.parametrize("way", ["pep610", "pth", "egg-link", "link"])
def test_an_editable_installation_leads_out_and_is_fingerprinted(tmp_path: Path, checkout: Path, way: str) -> None:
    site = tmp_path / "env" / "lib" / "site-packages"
    _editable(site, checkout, way)
    (target,) = editable.targets([str(site)])
    assert target.startswith(str(checkout))
    before = system_fingerprint([str(site)], [target])
    (checkout / "src" / "gadget" / "notes.txt").write_text("")
    (checkout / "src" / "gadget" / "__pycache__").mkdir()
    (checkout / "src" / "gadget" / "__pycache__" / "x.py").write_text("")
    assert system_fingerprint([str(site)], [target]) == before
    (checkout / "src" / "gadget" / "__init__.py").write_text("VALUE = 23\n")
    assert system_fingerprint([str(site)], [target]) != before


def test_a_project_with_its_environment_inside_is_a_target_too(tmp_path: Path, checkout: Path) -> None:
    site = checkout / ".venv" / "lib" / "site-packages"
    _editable(site, checkout, "pep610")
    assert editable.targets([str(site)]) == [str(checkout)]
    assert editable.packages(str(checkout)) >= {"gadget"}


def test_paths_within_the_environment_lead_nowhere(tmp_path: Path) -> None:
    site = tmp_path / "env" / "lib" / "site-packages"
    (site / "vendored").mkdir(parents=True)
    (site / "a.pth").write_text(f"{site}/vendored\n{tmp_path}/absent\nimport x\n")
    (site / "gadget-1.dist-info").mkdir()
    (site / "gadget-1.dist-info" / "direct_url.json").write_text("[]")
    assert editable.targets([str(site)]) == []


@pytest.mark.parametrize(
    ("file", "text", "foreign"),
    [
        ("vendor/widget/__init__.py", "def load(): return 2\n", True),
        ("scripts/widget.py", "class Store: pass\n", True),
        ("vendor/widget/__init__.py", "def load(): return 1\nclass Store: pass\n", False),
        ("tests/widget.py", "def make(): return 1\n", False),
        ("tests/widget.py", "def (\n", False),
        ("vendor/widget.pyc", "def load(): return 1\n", True),
        ("vendor/made.pyc", "", False),
        ("vendor/widget.whl/widget/__init__.py", "", False),
    ],
)
def test_a_version_of_what_lies_where_packages_usually_do(
    tree: Path, origins: StageOrigins, file: str, text: str, foreign: bool
) -> None:
    (tree / "src/widget/__init__.py").write_text("def load(): return 1\nclass Store: pass\n")
    write_files(tree, {file: text})
    committed = frozenset(entry_of(path)[1] for path in tree.rglob("*.py*"))
    homes = replace(origins._homes, sources=sources_of(tree), blobs=committed)
    found = seen({"module": Path(file).stem.replace("__init__", "widget"), "file": str(tree / file)})
    assert bool(StageOrigins(Provided.by_tree(tree), homes).foreign_modules(found)) is foreign


@pytest.mark.parametrize(
    ("built", "says"),
    [
        ("def scale(x, n=2): return n * x\n", False),
        ("def scale(x, n=3): return n * x\n", True),
        ("def scale(x, n=2): return x\n", True),
    ],
)
def test_a_build_may_take_types_away(tmp_path: Path, tree: Path, origins: StageOrigins, built: str, says: bool) -> None:
    (tree / "src" / "widget" / "core.py").write_text("def scale(x: int, n: int = 2) -> int: return n * x\n")
    packages = tmp_path / "layer" / "lib" / "python3.11" / "site-packages"
    shutil.copytree(tree / "src" / "widget", packages / "widget")
    (packages / "widget" / "core.py").write_text(built)
    layered = StageOrigins(Provided.by_tree(tree), replace(origins._homes, layer=[str(tmp_path / "layer")]))
    found = seen({"module": "widget", "file": str(packages / "widget" / "__init__.py")})
    assert bool(list(layered.altered(found))) is says


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("# core.py\n", False),
        ("# core.py\n__version__ = '1.2.3'\n", False),
        ("# core.py, made on Monday\n__commit__ = 'abc'\nBUILD_DATE = 3.5\n", False),
        ("# core.py\nSIZE = 4\n", True),
        ("# core.py\nversion = open(__file__)\n", True),
        ("# core.py\nstamped = version = 3\n", True),
    ],
)
def test_what_a_build_has_made_of_a_module_is_told(
    tmp_path: Path, tree: Path, origins: StageOrigins, text: str, says: bool
) -> None:
    packages = tmp_path / "layer" / "lib" / "python3.11" / "site-packages"
    shutil.copytree(tree / "src" / "widget", packages / "widget")
    (packages / "widget" / "core.py").write_text(text)
    (packages / "widget" / "_version.py").write_text("made = 1\n")
    (packages / "widget" / "made.py").write_text("made = 1\n")
    layered = StageOrigins(Provided.by_tree(tree), replace(origins._homes, layer=[str(tmp_path / "layer")]))
    found = seen({"module": "widget", "file": str(packages / "widget" / "__init__.py")})
    said = "widget was installed with other code than the commit's: core.py"
    assert list(layered.altered(found)) == ([said] if says else [])
    assert not layered.foreign_modules(found)


@pytest.mark.parametrize(
    ("ran", "beside", "says"),
    [
        ("k.so", ["csrc/k.cu"], True),
        ("k.cpython-311-x86_64-linux-gnu.so", ["k.c"], True),
        ("k.so", [], False),  # of sources that are elsewhere
        ("built.so", ["k.c"], False),  # by the run
    ],
)
def test_what_the_commit_holds_compiled_is_told(
    tree: Path, origins: StageOrigins, ran: str, beside: list[str], says: bool
) -> None:
    for name in ("built.so", ran):
        (tree / name).write_text(name)
    digest = entry_of(tree / ran)[1] if ran != "built.so" else "0" * 40
    manifest = dict.fromkeys((ran, *beside), ("100644", digest))
    compiled = StageOrigins(Provided.by_tree(tree), replace(origins._homes, compiled=compiled_in(manifest)))
    said = f"it ran {ran} as the commit holds it compiled: whether of its sources, nobody knows"
    found = seen({"mapped": str(tree / ran)})
    assert list(compiled.prebuilt(found)) == ([said] if says else [])
    assert not compiled.elsewhere(found)
