"""Runbook x Pod x tree x Environment -> Plan: everything that the agent needs, and what the laptop judges by."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from orchestrator.errors import IntegrityError
from orchestrator.inventory import Pod
from orchestrator.runbook import Expect, Limits, Runbook, RunbookFile, Stage, Tests, named_paths
from orchestrator.state import who

_HASH_DIGITS = 8


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class PlannedSubmodule(_Model):
    path: str
    commit: str
    tree: str


class RunbookOrigin(_Model):
    """Where the runbook came from; `committed` says whether the commit holds the same bytes at that path."""

    name: str
    source: Literal["repository", "packaged", "file"]
    path: str
    sha256: str
    committed: bool


class LeftOut(_Model):
    """A stage of the runbook that does not apply to this pod."""

    name: str
    reason: str
    cuda: bool


class PlannedStage(_Model):
    """A stage as the agent runs it: `env` is complete but for the allow-list, `argv` still has its placeholders."""

    name: str
    argv: list[str]
    env: dict[str, str]
    paths: list[str]
    needs: list[str]
    required: bool
    cuda: bool
    pytest: bool
    limits: Limits
    expect: Expect
    blocked: str | None = None


class Plan(_Model):
    """plan.json. The run id ends with the hash of all the rest."""

    format: Literal[1] = 1
    run_id: str = ""
    created: str
    nonce: str
    pod: str
    who: str
    commit: str
    commit_object: str
    tree: str
    submodules: list[PlannedSubmodule]
    dirty: bool
    runbook: RunbookOrigin
    requires: list[str]
    environment: dict[str, Any]
    promises: dict[str, bool]
    facts: dict[str, Any]
    cost_per_hour: float | None
    workdir: str
    left_out: list[LeftOut]
    stages: list[PlannedStage]

    def canonical(self) -> bytes:
        """The bytes that the run id's hash is of: all but the run id, keys sorted."""
        content = self.model_dump(mode="json", by_alias=True, exclude={"run_id"})
        return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()

    def to_json(self) -> str:
        return json.dumps(self.model_dump(mode="json", by_alias=True), indent=1, sort_keys=True) + "\n"


@dataclass(frozen=True)
class Tree:
    """What the plan needs to know of the commit: `files` are the paths of its tree, submodules' files included."""

    commit: str
    commit_object: bytes
    tree: str
    submodules: Sequence[PlannedSubmodule]
    dirty: bool
    files: frozenset[str]

    def has(self, path: str) -> bool:
        """Whether `path` is a file or a directory of the tree."""
        clean = path.removeprefix("./").rstrip("/")
        return clean in ("", ".") or clean in self.files or any(f.startswith(clean + "/") for f in self.files)


@dataclass(frozen=True)
class Capabilities:
    """What conditions are judged by: `sm` as 89 for 8.9 (None without a GPU), packages of the environment's lock."""

    sm: int | None
    packages: frozenset[str]

    @property
    def cuda(self) -> bool:
        return self.sm is not None


def unmet(conditions: Iterable[str], have: Capabilities) -> str | None:
    """The first condition that `have` does not meet, as a clause; None if it meets all."""
    for condition in conditions:
        if condition == "cuda" and not have.cuda:
            return "cuda: the pod has no CUDA GPU"
        if condition.startswith("sm>=") and (have.sm is None or have.sm < int(condition[4:])):
            return f"{condition}: the pod has {f'SM {have.sm}' if have.sm else 'no CUDA GPU'}"
        if condition.startswith("has:") and _canonical_name(condition[4:]) not in have.packages:
            return f"{condition}: the environment does not have it"
    return None


def make_plan(
    file: RunbookFile,
    pod: Pod,
    tree: Tree,
    environment: Mapping[str, Any],
    have: Capabilities,
    *,
    facts: Mapping[str, Any],
    workdir: str,
    path: str,
    committed: bool,
) -> Plan:
    """The plan of one run.

    `facts` are the probe's; `path` is how the runbook's place is recorded, `committed` whether its bytes are the
    commit's.
    """
    runbook = file.runbook
    left_out = _left_out(runbook, have)
    gone = {stage.name for stage in left_out}
    missing = unmet(runbook.requires, have)
    plan = Plan(
        created=datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        nonce=secrets.token_hex(8),
        pod=pod.name,
        who=who(),
        commit=tree.commit,
        commit_object=base64.b64encode(tree.commit_object).decode(),
        tree=tree.tree,
        submodules=list(tree.submodules),
        dirty=tree.dirty,
        runbook=RunbookOrigin(
            name=runbook.name, source=file.source, path=path, sha256=file.sha256, committed=committed
        ),
        requires=list(runbook.requires),
        environment=dict(environment),
        promises={"cuda": have.cuda},
        facts=dict(facts),
        cost_per_hour=pod.cost_per_hour,
        workdir=workdir,
        left_out=left_out,
        stages=[_planned(s, runbook, pod, tree, missing) for s in runbook.stages if s.name not in gone],
    )
    stamp = plan.created.replace("-", "").replace(":", "").replace("T", "-").rstrip("Z")
    return plan.model_copy(update={"run_id": f"{stamp}-{tree.commit[:7]}-{_short_hash(plan)}"})


def read_plan(text: str, source: str) -> Plan:
    """A plan whose content is the one its run id was made from; IntegrityError otherwise."""
    try:
        plan = Plan.model_validate_json(text)
    except ValidationError as e:
        first = e.errors()[0]
        raise IntegrityError(f"{source}: not a plan: {'.'.join(map(str, first['loc']))}: {first['msg']}") from e
    if not plan.run_id.endswith("-" + _short_hash(plan)):
        raise IntegrityError(f"{source}: its content is not what run {plan.run_id} was launched with")
    return plan


def _short_hash(plan: Plan) -> str:
    return hashlib.sha256(plan.canonical()).hexdigest()[:_HASH_DIGITS]


def _left_out(runbook: Runbook, have: Capabilities) -> list[LeftOut]:
    """Stages whose `when` is not met, and those that need them."""
    left: dict[str, LeftOut] = {}
    for stage in runbook.stages:
        reason = unmet(stage.when, have)
        needed = next((need for need in stage.needs if need in left), None)
        if reason or needed:
            text = f"when {reason}" if reason else f"needs {needed}, which is left out"
            left[stage.name] = LeftOut(name=stage.name, reason=text, cuda=_is_cuda(stage, runbook))
    return list(left.values())


def _planned(stage: Stage, runbook: Runbook, pod: Pod, tree: Tree, missing: str | None) -> PlannedStage:
    paths = named_paths(stage)
    absent = next((p for p in paths if not p.startswith(("/", "{")) and not tree.has(p)), None)
    blocked = f"requires {missing}" if missing else f"{absent} is not in the commit" if absent else None
    expect = stage.expect
    if stage.is_pytest and expect.tests is None:
        expect = expect.model_copy(update={"tests": Tests()})
    return PlannedStage(
        name=stage.name,
        argv=list(stage.run),
        env={**runbook.env, **pod.env, **stage.env},
        paths=paths,
        needs=list(stage.needs),
        required=stage.required,
        cuda=_is_cuda(stage, runbook),
        pytest=stage.is_pytest,
        limits=runbook.limits_of(stage),
        expect=expect,
        blocked=blocked,
    )


def _is_cuda(stage: Stage, runbook: Runbook) -> bool:
    return any(c == "cuda" or c.startswith("sm>=") for c in (*stage.when, *runbook.requires))


def _canonical_name(package: str) -> str:
    return package.lower().replace("_", "-").replace(".", "-")
