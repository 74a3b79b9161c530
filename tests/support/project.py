"""Tiny git repositories with a runbook, and the real command line run on them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest.mock import patch

from orchestrator.pod import bundle
from tests.support import ROOT
from tests.support.agent_pod import small_python
from tests.support.compiled import compiled_agent, content_of
from tests.support.files import write_files
from tests.support.in_process import command

_GIT_ENV = {
    "GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.org", "GIT_COMMITTER_NAME": "A",
    "GIT_COMMITTER_EMAIL": "a@example.org", "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null",
}  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """How one command ended; `json` is its stdout, parsed."""

    exit_code: int
    stdout: str
    stderr: str

    @cached_property
    def json(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self.stdout)
        return content

    def stage(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = next(s for s in self.json["stages"] if s["name"] == name)
        return found


@dataclass(frozen=True)
class Project:
    """A git repository, an inventory and a laptop's home of its own."""

    root: Path
    inventory: Path
    home: Path

    def write(self, files: Mapping[str, str]) -> None:
        write_files(self.root, {name: textwrap.dedent(text) for name, text in files.items()})

    def commit(self, files: Mapping[str, str] | None = None, message: str = "c") -> str:
        """Write `files`, commit all there is; the commit's full hash."""
        self.write(files or {})
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")

    def git(self, *arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments],
            cwd=self.root,
            env={**os.environ, **_GIT_ENV},
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout.strip()

    def environment(self, **extra: str) -> dict[str, str]:
        # Others are set and taken away by the tests of other threads meanwhile.
        kept = {k: os.environ[k] for k in os.environ if not k.startswith(("NSA_", "PYTEST_"))}
        return {**kept, "NSA_POD_HOME": str(self.home), "NSA_POD_INVENTORY": str(self.inventory), **extra}

    def popen(self, *arguments: str, **extra: str) -> subprocess.Popen[str]:
        """Start the command line; the caller ends it."""
        return subprocess.Popen(
            [sys.executable, "-m", "tests.support.command_line", str(compiled_agent()), *arguments],
            cwd=self.root,
            env=self.environment(PYTHONPATH=str(ROOT), **extra),
            stdin=subprocess.DEVNULL,
            # A test run in the background ignores SIGINT, and would hand that on.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, timeout: float = 280, **extra: str) -> Outcome:
        """Run the command line to its end."""
        process = self.popen(*arguments, **extra)
        try:
            stdout, stderr = process.communicate(timeout=timeout)
        finally:
            process.kill()
        return Outcome(process.returncode, stdout, stderr)

    def here(self, *arguments: str, **extra: str) -> Outcome:
        """As `run`, in this process: for what starts no run, and is soon done."""
        before = os.getcwd()
        shipped = content_of(compiled_agent())
        environment = patch.dict(os.environ, self.environment(**extra), clear=True)
        with environment, patch.object(bundle, "build", lambda: shipped):
            os.chdir(self.root)
            try:
                return Outcome(*command(*arguments))
            finally:
                os.chdir(before)

    def validate(self, *arguments: str, pod: str = "local", **extra: str) -> Outcome:
        """`nsa-pod validate --json` on this repository."""
        return self.run("validate", "--pod", pod, "--json", *arguments, **extra)


def new_project(folder: Path, pods: Mapping[str, Mapping[str, Any]]) -> Project:
    """An empty repository at `folder`/repo and an inventory of `pods`; JSON is YAML."""
    project = Project(folder / "repo", folder / "pods.yaml", folder / "home")
    project.root.mkdir(parents=True)
    project.inventory.write_text(json.dumps({"pods": pods}))
    project.git("init", "-q", "-b", "main")
    return project


def local_pod(folder: Path) -> dict[str, Any]:
    """The local pod, working under `folder`."""
    return {"transport": "local", "workdir": str(folder / "workdir"), "python": small_python()}


def with_pod(project: Project, name: str = "local", **keys: Any) -> None:
    """Lay `keys` over the inventory's entry of the pod `name`, which is new if there is none."""
    pods = json.loads(project.inventory.read_text())["pods"]
    pods.setdefault(name, {}).update(keys)
    project.inventory.write_text(json.dumps({"pods": pods}))
