"""What the documents name exists: links, modules to run, paths of the repository, settings, tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support import ROOT

DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), ROOT / "orchestrator/pairing/pairing.yaml"])
# Where a path of a document may begin.
_HOMES = ("", "orchestrator", "orchestrator/agent", "nsa", "nsa/kernels", "tests/support")
_PATH = re.compile(r"(?:[\w-]+/)+[\w.-]*|[\w-]+\.py")
_OTHERS = re.compile(
    r"python|pytest|unittest|of|[A-Z]+|conftest\.py"
)  # installed modules; placeholders; a file of the user's tests
# What a run leaves, and what lies on a pod.
_NOT_OURS = re.compile(
    r"(stages|artifacts|interrupted|wheelhouses|built|tree)/|stages/NAME/.*|(src|lib|python)/|runbooks/NAME\.yaml|artifacts/runner/.*"
)


def named_ids(path: Path) -> str:
    return path.name


def is_there(path: str) -> bool:
    """A file, a folder, a module, or what a module defines (`room/module.name`)."""
    module, _, name = path.partition(".")
    for home in (ROOT / home for home in _HOMES):
        if (home / path).exists() or (home / f"{path}.py").exists():
            return True
        if name and (home / f"{module}.py").exists():
            return re.search(rf"^(class |def )?{name}\b", (home / f"{module}.py").read_text(), re.M) is not None
    return False


def is_module(name: str) -> bool:
    path = ROOT / name.replace(".", "/")
    return path.with_suffix(".py").exists() or (path / "__main__.py").exists()


@pytest.mark.parametrize("document", DOCUMENTS, ids=named_ids)
def test_what_a_document_names_exists(document: Path) -> None:
    text = document.read_text()
    links = [link for link in re.findall(r"\]\(([^)#]+)", re.sub(r"`[^`]*`", "", text)) if not link.startswith("http")]
    assert not [link for link in links if not (document.parent / link).exists()]
    modules = re.findall(r"python -m ([\w.]+)", text)
    assert not [name for name in modules if not (is_module(name) or _OTHERS.fullmatch(name))]
    paths = [word for word in re.findall(r"`([^`\s]+)`", text) if _PATH.fullmatch(word)]
    assert not [p for p in paths if not (is_there(p) or _OTHERS.fullmatch(p) or _NOT_OURS.fullmatch(p))]


def test_every_test_that_the_table_of_faults_names_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "docs/faults.md").read_text())
    assert len(named) > 30
    missing = [f"{file}::{test}" for file, test in named if f"def {test}(" not in (ROOT / file).read_text()]
    assert not missing, missing


def test_every_room_is_in_the_drawing() -> None:
    rooms = {path.name.removesuffix(".py") for path in (ROOT / "orchestrator").iterdir() if path.name[0] not in "._"}
    drawn = set(re.findall(r"`(\w+)/?`", (ROOT / "docs/architecture.md").read_text()))
    assert not rooms - drawn - {"errors", "files", "home", "text", "ui", "py.typed"}, rooms - drawn


@pytest.mark.parametrize(("path", "there"), [("verdict/rules", True), ("tasks/", True), ("verdict/rule", False)])
def test_a_path_that_is_not_there_is_noticed(path: str, there: bool) -> None:
    assert is_there(path) == there
    assert is_there("transports/base.Transport") and not is_there("transports/base.Carrier")
