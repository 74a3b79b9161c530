"""What the shell completes, by the command line's own parameters."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from orchestrator.cli import cli
from orchestrator.commands import VERBS
from orchestrator.results import Seen
from tests.support.project import Project
from tests.support.run_files import ended_run


def complete(*words: str) -> list[str]:
    *before, incomplete = words
    found = ShellComplete(cli, {}, "nsa-pod", "_NSA_POD_COMPLETE").get_completions(before, incomplete)
    return [item.value for item in found]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, laptop: Path) -> Path:
    (tmp_path / "pods.yaml").write_text("pods: {pi-4090: {host: h}, pi-2: {host: h}, local: {transport: local}}\n")
    (tmp_path / "runbooks").mkdir()
    (tmp_path / "runbooks" / "mine.yaml").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NSA_POD_INVENTORY", raising=False)
    return tmp_path


def test_pods_and_runbooks(here: Path) -> None:
    assert complete("validate", "--pod", "pi") == ["pi-4090", "pi-2"] and complete("ssh", "lo") == ["local"]
    assert complete("validate", "--runbook", "m") == ["mine"] and "cpu-smoke" in complete("run", "--runbook", "")


def test_verbs_and_their_options() -> None:
    assert complete("pr") == ["prune"] and complete("validate", "--no-s") == ["--no-sabotage"]
    assert complete("") == list(VERBS) and complete("--v") == ["--version"]


def test_runs_and_their_stages(here: Path) -> None:
    run = ended_run(here)
    run.settle(Seen("ended"))
    assert complete("report", "2") == [run.path.name]
    assert complete("logs", "") == ["latest", run.path.name]
    assert complete("logs", run.path.name, "") == ["one"] == complete("logs", "latest", "o")
    assert complete("logs", "no-such", "") == []


def test_what_cannot_be_read_completes_nothing(here: Path) -> None:
    (here / "pods.yaml").write_text("pods: [")
    assert complete("validate", "--pod", "") == []


@pytest.mark.process
def test_commits_branches_and_tags(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = project.commit({"a": "1"}, "A subject")
    project.git("tag", "v1")
    monkeypatch.chdir(project.root)
    found = complete("validate", "--commit", "")
    assert complete("fetch", "--commit", "v") == ["v1"]
    monkeypatch.setenv("PATH", str(project.home))
    assert complete("validate", "--commit", "") == []  # without git
    assert {"main", "v1", commit[:7]} <= {name[:7] for name in found}
