"""What can be completed: names of pods, runbooks, runs and stages, and revisions. Nothing is contacted for it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click

from orchestrator.config.inventory import load_inventory
from orchestrator.config.runbook import examples, names_in
from orchestrator.git.repository import Repository, top_of
from orchestrator.store.launches import launches
from orchestrator.store.run_directory import LATEST, find, kept

# (name, what a shell may show beside it)
Candidates = Iterable[tuple[str, str]]

_MOST_COMMITS = 50
_REFS = ("for-each-ref", "--format=%(refname:short)%09%(contents:subject)", "refs/heads", "refs/tags")
_COMMITS = ("log", f"-{_MOST_COMMITS}", "--format=%h%x09%s")


def pods(ctx: click.Context) -> Candidates:
    found = load_inventory(ctx.params.get("inventory")).pods.values()
    return [(pod.name, pod.gpu or pod.transport) for pod in found]


def runbooks(ctx: click.Context) -> Candidates:
    folders = (_repo(ctx) / "runbooks", examples() / "runbooks")
    return [(name, "") for name in sorted(set().union(*map(names_in, folders)))]


def runs(ctx: click.Context) -> Candidates:
    """Those that are kept here or were launched from here, newest first."""
    here = {run.path.name for run in kept(_artifacts(ctx), _repo(ctx))}
    launched = {launch.run_id for launch in launches()}
    return [(LATEST, "the newest one"), *((name, "") for name in sorted(here | launched, reverse=True))]


def stages(ctx: click.Context) -> Candidates:
    plan = find(_artifacts(ctx), _repo(ctx), ctx.params.get("run")).plan()
    return [(stage["name"], "") for stage in plan["stages"]]


def commits(ctx: click.Context) -> Candidates:
    """Branches, tags, and the commits before HEAD."""
    repo = Repository.open(_repo(ctx))
    lines = [
        line for asked in (_REFS, _COMMITS) for line in (repo.said(*asked) or b"").decode(errors="replace").split("\n")
    ]
    return [(name, subject) for name, _, subject in (line.partition("\t") for line in lines if line)]


def _repo(ctx: click.Context) -> Path:
    return top_of(Path(ctx.params.get("repo") or "."))


def _artifacts(ctx: click.Context) -> Path:
    return Path(ctx.params.get("artifacts") or _repo(ctx) / "artifacts")
