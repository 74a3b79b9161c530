"""What the documents name exists: links, modules to run, paths of the repository, settings, tests."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel

from orchestrator.commands import VERBS, load
from orchestrator.config.inventory import Pod, load_inventory
from orchestrator.config.runbook import EnvironmentSpec, Limits, Runbook, Stage, find_runbook
from orchestrator.results import Result, StageResult
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
    r"(stages|artifacts|interrupted|wheelhouses|built|tree)/|stages/NAME/.*|(src|lib|python)/|runbooks/(NAME|validate)\.yaml|artifacts/runner/.*"
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


@cache
def anchors(document: Path) -> set[str]:
    """Of its headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(), re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", [path for path in DOCUMENTS if path.suffix == ".md"], ids=named_ids)
def test_every_anchor_is_a_heading(document: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]*)#([^)]+)\)", re.sub(r"`[^`]*`", "", document.read_text()))
    places = [(document.parent / file if file else document, anchor) for file, anchor in links if "://" not in file]
    assert not [(file.name, anchor) for file, anchor in places if anchor not in anchors(file)]


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


# --- what can be copied from a document ---


def blocks(document: Path) -> Iterator[tuple[str, str]]:
    """The indented blocks of a document, each with the heading that it stands below."""
    heading, block = document.stem, ""
    for line in [*document.read_text().splitlines(), "# "]:
        if line.startswith("    ") or (block and not line.strip()):
            block += line[4:] + "\n"
            continue
        if block.strip():
            yield heading, block
        block = ""
        if line.startswith("#"):
            heading = line.strip("# `")


def snippets(*keys: str) -> list[object]:
    """Blocks of all documents that begin with one of the keys."""
    found = []
    for document in DOCUMENTS:
        if document.suffix == ".md":
            for number, (heading, block) in enumerate(blocks(document)):
                if re.match(rf"(#.*\n)*(- )?({'|'.join(keys)}):", block):
                    found.append(pytest.param(block, id=f"{document.name}-{number}-{heading}"))
    return found


@pytest.mark.parametrize("text", snippets("name", "env"))
def test_every_runbook_in_the_documents_is_read(text: str, tmp_path: Path) -> None:
    if text.startswith("- "):
        text = "name: a\nstages:\n" + text
    if text.startswith("env:"):
        text = "name: a\nstages: [{name: a, run: [a]}]\n" + text
    (tmp_path / "a.yaml").write_text(text)
    assert find_runbook(str(tmp_path / "a.yaml"), tmp_path).runbook.stages


@pytest.mark.parametrize("text", snippets("pods", "default"))
def test_every_inventory_in_the_documents_is_read(text: str, tmp_path: Path) -> None:
    (tmp_path / "pods.yaml").write_text(text)
    assert load_inventory(str(tmp_path / "pods.yaml")).pods


@pytest.mark.parametrize("path", sorted(ROOT.glob("docs/github/*.yml")), ids=named_ids)
def test_what_a_workflow_runs_are_verbs_with_their_options(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text())
    (job,) = workflow["jobs"].values()
    assert "head.repo.full_name == github.repository" in job["if"] and "pull_request_target" not in path.read_text()
    lines = [line for step in job["steps"] for line in step.get("run", "").splitlines() if "nsa-pod " in line]
    commands = [re.findall(r"nsa-pod (\w+) (.*)", line)[0] for line in lines if "install" not in line]
    assert len(commands) >= 2
    for verb, words in commands:
        known = {name for option in load(verb).params for name in option.opts}
        assert set(re.findall(r"(?<!\S)--[\w-]+", words)) <= known, (verb, words)


def test_the_cookbook_has_a_runbook_for_each_kind() -> None:
    named = [
        yaml.safe_load(block)["name"] for _, block in blocks(ROOT / "docs/cookbook.md") if block.startswith("name:")
    ]
    wanted = {"tests", "c-extension", "cuda-extension", "bench", "training-smoke", "script"}
    assert wanted <= set(named) and len(named) == len(set(named))


# --- what exists is in the reference ---


@pytest.mark.parametrize("model", [Pod, Runbook, EnvironmentSpec, Stage, Limits, Result, StageResult])
def test_every_key_is_in_the_reference(model: type[BaseModel]) -> None:
    named = words_in_code(ROOT / "docs/reference.md")
    assert not [key for key, field in model.model_fields.items() if not field.exclude and key not in named]


def test_every_verb_and_option_is_in_the_reference() -> None:
    named = words_in_code(ROOT / "docs/reference.md")
    for verb in VERBS:
        options = [max(option.opts, key=len) for option in load(verb).params if option.opts[0].startswith("-")]
        assert not [name for name in (verb, *options) if name not in named], verb


@pytest.mark.parametrize("option", ["--inventory", "--json"])
def test_the_reference_names_the_verbs_that_lack_an_option(option: str) -> None:
    (row,) = re.findall(rf"^\| `{option}[^|]*\| all but ([^|]*)\|", (ROOT / "docs/reference.md").read_text(), re.M)
    lacking = {verb for verb in VERBS if not any(option in param.opts for param in load(verb).params)}
    assert set(re.findall(r"`(\w+)`", row)) == lacking


def words_in_code(document: Path) -> set[str]:
    """Whatever stands between backquotes, and its words."""
    return {word for code in re.findall(r"`([^`]+)`", document.read_text()) for word in re.findall(r"[\w-]+", code)}


# --- the sentences that are explained are those that are printed ---


@cache
def printed() -> str:
    """All texts of the tool's code, with … for what is put into them."""
    found = []
    for path in ROOT.glob("orchestrator/**/*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                found.append("".join(v.value if isinstance(v, ast.Constant) else "…" for v in node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return "\n".join(found)


def test_symptoms_quotes_what_the_tool_says() -> None:
    rows = re.findall(r"^\| (`[^|]+`[^|]*) \|", (ROOT / "docs/symptoms.md").read_text(), re.M)
    sentences = [sentence for row in rows for sentence in re.findall(r"`([^`]+)`", row)]
    assert len(sentences) > 60
    pieces = {piece.strip(" :") for sentence in sentences for piece in sentence.split("…")}
    assert not [piece for piece in pieces if piece not in printed()]
