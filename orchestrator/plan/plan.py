"""Runbook x Pod x tree x Environment -> Plan: everything that the agent needs, and what the laptop judges by."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orchestrator.config.inventory import Pod, PodName
from orchestrator.config.runbook import (
    Expect,
    Limits,
    Name,
    Runbook,
    RunbookFile,
    Stage,
    Tests,
    named_paths,
    named_programs,
)
from orchestrator.config.variables import Variables, resolve
from orchestrator.errors import InputError, IntegrityError
from orchestrator.home import who
from orchestrator.plan.limits import NO_HISTORY, Estimate, History, RunLimit, estimate
from orchestrator.shared import planfile
from orchestrator.shared.redaction import Redactor

_HASH_DIGITS = 8
# How a run id begins.
_STAMP, _STAMP_LENGTH = "%Y%m%d-%H%M%S", 15
# A plan from a pod becomes paths here.
ObjectName = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
# What a run does; the rest of a plan says who launched it, from where and on what.
_WORK = {"commit", "tree", "submodules", "requires", "promises", "left_out", "stages"}


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
    """A stage as the agent runs it: `argv` still has its placeholders, `env` is complete but for the allow-list and for
    `secrets`, the variables whose values the launch hands over beside the plan.
    """

    name: Name
    argv: list[str]
    env: dict[str, str]
    secrets: list[str] = []
    paths: list[str]
    needs: list[str]
    required: bool
    cuda: bool
    pytest: bool
    exclusive: Literal["gpu"] | None = None
    limits: Limits
    expect: Expect
    blocked: str | None = None


class Plan(_Model):
    """plan.json. The run id ends with the hash of all the rest."""

    format: Literal[1] = 1
    run_id: Annotated[str, Field(pattern=r"^(\d{8}-\d{6}-[0-9a-f]{7}-[0-9a-f]{8})?$")] = ""
    created: str
    nonce: str
    pod: PodName
    who: str
    commit: ObjectName
    commit_object: str
    tree: ObjectName
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
    limit: RunLimit | None = None
    estimate: Estimate | None = None

    def asks_the_same_as(self, other: Plan) -> bool:
        """Whether both run the same stages on the same tree, within the same limit, whoever launched them and when."""
        limits = [plan.limit and plan.limit.seconds for plan in (self, other)]
        return limits[0] == limits[1] and self.model_dump(include=_WORK) == other.model_dump(include=_WORK)

    @property
    def surroundings(self) -> dict[str, Any]:
        """environment.json: the environment and the host; driver, driver_cuda and torch_cuda are separate fields."""
        return {**self.environment, **self.facts, "cost_per_hour": self.cost_per_hour}

    def canonical(self) -> bytes:
        """The bytes that the run id's hash is of: all but the run id, keys sorted."""
        content = self.model_dump(mode="json", by_alias=True, exclude={"run_id"})
        return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()

    @property
    def sha256(self) -> str:
        """Of all but the run id, which ends with its first digits."""
        return hashlib.sha256(self.canonical()).hexdigest()

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
    """What conditions are judged by: `sm` as 89 for 8.9 (None without a GPU, 0 where the driver does not tell it),
    packages of the environment's lock.
    """

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
            untold = "a CUDA GPU whose compute capability the driver does not tell"
            return f"{condition}: the pod has {f'SM {have.sm}' if have.sm else untold if have.cuda else 'no CUDA GPU'}"
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
    limit: RunLimit | None = None,
    history: History = NO_HISTORY,
    after: str | None = None,
) -> Plan:
    """The plan of one run.

    `facts` are the probe's; `path` is how the runbook's place is recorded, `committed` whether its bytes are the
    commit's; the run's estimate is by `history`; its id is later than `after`, the id of the newest run that is known.
    """
    runbook = file.runbook
    variables = variables_of(runbook, pod)
    left_out = _left_out(runbook, have)
    gone = {stage.name for stage in left_out}
    missing = unmet(runbook.requires, have)
    stages = [_planned(s, runbook, variables[s.name], tree, missing) for s in runbook.stages if s.name not in gone]
    plan = Plan(
        created=_moment(after).strftime("%Y-%m-%dT%H:%M:%SZ"),
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
        stages=stages,
        limit=limit,
        estimate=estimate(stages, history, pod.cost_per_hour),
    )
    _refuse_exposed(plan, variables.values())
    stamp = datetime.fromisoformat(plan.created.rstrip("Z")).strftime(_STAMP)
    return plan.model_copy(update={"run_id": f"{stamp}-{tree.commit[:7]}-{plan.sha256[:_HASH_DIGITS]}"})


def _moment(after: str | None) -> datetime:
    """Now; where this clock was put back, the second after that of the run `after`: ids keep the order of launches."""
    now = datetime.now(timezone.utc)
    try:
        newest = datetime.strptime((after or "")[:_STAMP_LENGTH], _STAMP).replace(tzinfo=timezone.utc)
        return max(now, newest + timedelta(seconds=1))
    except (ValueError, OverflowError):  # there is none
        return now


def variables_of(runbook: Runbook, pod: Pod, environ: Mapping[str, str] = os.environ) -> dict[str, Variables]:
    """Each stage's variables: the runbook's, over these the pod's, over these its own. InputError for what is unset."""
    return {
        stage.name: resolve({**runbook.env, **pod.env, **stage.env}, f"env of stage {stage.name!r}", environ)
        for stage in runbook.stages
    }


def secret_values(plan: Plan, variables: Mapping[str, Variables]) -> dict[str, dict[str, str]]:
    """By stage, the values that the plan only names. InputError if one of them is not among the `variables`."""
    found: dict[str, dict[str, str]] = {}
    for stage in plan.stages:
        known = variables[stage.name].secret if stage.name in variables else {}
        unknown = sorted(set(stage.secrets) - set(known))
        if unknown:
            raise InputError(
                f"stage {stage.name!r} of run {plan.run_id} needs the secret {unknown[0]}: it is not in env"
            )
        if stage.secrets:
            found[stage.name] = {name: known[name] for name in stage.secrets}
    return found


def _refuse_exposed(plan: Plan, variables: Iterable[Variables]) -> None:
    """A secret that also stands in an argv, say, would be seen by everybody on the pod."""
    secrets = Redactor([item for found in variables for item in found.secret.items()])
    exposed = secrets.names_in(io.BytesIO(plan.canonical()))
    if exposed:
        raise InputError(
            f"the value of the secret {exposed[0]} also stands in another part of the plan (a command, a path, another "
            "variable), where it would be written down: expected it nowhere but in env"
        )


def read_plan(text: str, source: str) -> Plan:
    """A plan whose content is the one its run id was made from; IntegrityError otherwise."""
    try:
        plan = Plan.model_validate_json(text)
    except ValidationError as e:
        first = e.errors()[0]
        raise IntegrityError(f"{source}: not a plan: {'.'.join(map(str, first['loc']))}: {first['msg']}") from e
    if not plan.run_id.endswith("-" + planfile.plan_hash(json.loads(text))[:_HASH_DIGITS]):
        raise IntegrityError(f"{source}: its content is not what run {plan.run_id} was launched with")
    return plan


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


def _planned(stage: Stage, runbook: Runbook, variables: Variables, tree: Tree, missing: str | None) -> PlannedStage:
    paths = named_paths(stage)
    programs = named_programs(stage)
    elsewhere = [p for p in paths if p.startswith("{") or (p.startswith("/") and p not in programs)]
    absent = next((p for p in paths if p not in elsewhere and not tree.has(p)), None)
    blocked = f"requires {missing}" if missing else f"{absent} is not in the commit" if absent else None
    expect = stage.expect
    if stage.is_pytest and expect.tests is None:
        expect = expect.model_copy(update={"tests": Tests()})
    return PlannedStage(
        name=stage.name,
        argv=list(stage.run),
        env=dict(variables.plain),
        secrets=sorted(variables.secret),
        paths=paths,
        needs=list(stage.needs),
        required=stage.required,
        cuda=_is_cuda(stage, runbook),
        pytest=stage.is_pytest,
        exclusive=stage.exclusive,
        limits=runbook.limits_of(stage),
        expect=expect,
        blocked=blocked,
    )


def _is_cuda(stage: Stage, runbook: Runbook) -> bool:
    return any(c == "cuda" or c.startswith("sm>=") for c in (*stage.when, *runbook.requires))


def _canonical_name(package: str) -> str:
    return package.lower().replace("_", "-").replace(".", "-")
