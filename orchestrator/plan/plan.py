"""Runbook x Pod x tree x Environment -> Plan: everything that the agent needs, and what the laptop judges by."""

from __future__ import annotations

import base64
import io
import json
import os
import secrets
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any, cast

from packaging.utils import canonicalize_name

from orchestrator.config.inventory import Pod, is_pod_name
from orchestrator.config.runbook import Runbook
from orchestrator.config.runbook import Stage as RunbookStage
from orchestrator.config.variables import Variables, values_of
from orchestrator.errors import InputError, IntegrityError
from orchestrator.home import who
from orchestrator.plan.absent import Tree, absences, named_in_tree
from orchestrator.plan.limits import NO_HISTORY, History, estimate
from orchestrator.shared.failure import Failure
from orchestrator.shared.plan import (
    FORMAT,
    HASH_DIGITS,
    Environment,
    LeftOut,
    Limits,
    Machine,
    Mutant,
    Plan,
    RunbookOrigin,
    RunLimit,
    canonical,
    plan_hash,
    read,
)
from orchestrator.shared.plan import Stage as PlannedStage
from orchestrator.shared.redaction import Redactor
from orchestrator.shared.run_ids import STAMP, is_ahead, launched_at
from orchestrator.shared.text import with_commit
from orchestrator.verdict.expect import wrong as wrong_expectations

ANY_SM = 999
"""Of a GPU that was only promised: a preview assumes that it meets each condition."""

# Of `created`.
_CREATED = "%Y-%m-%dT%H:%M:%SZ"


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


def _is_of(sm: int | None, condition: str) -> bool:
    """Whether a GPU meets `sm>=NN` or `sm==NN`."""
    needed = int(condition[len("sm>=") :])
    return sm == ANY_SM or (sm is not None and (sm == needed or (sm > needed and condition.startswith("sm>="))))


def unmet(conditions: Iterable[str], have: Capabilities) -> str | None:
    """The first condition that `have` does not meet, as a clause; None if it meets all."""
    for condition in conditions:
        if condition == "cuda" and not have.cuda:
            return "cuda: the pod has no CUDA GPU"
        if condition.startswith("sm") and not _is_of(have.sm, condition):
            untold = "a CUDA GPU whose compute capability the driver does not tell"
            return f"{condition}: the pod has {f'SM {have.sm}' if have.sm else untold if have.cuda else 'no CUDA GPU'}"
        if condition.startswith("has:") and canonicalize_name(condition[4:]) not in have.packages:
            return f"{condition}: the environment does not have it"
    return None


@dataclass(frozen=True)
class Mutation:
    """What a patch makes of the tree's files (None: removed), or what is `wrong` with it."""

    files: Mapping[str, bytes | None]
    wrong: str | None = None


@dataclass(frozen=True)
class Work:
    """What is to be run: the runbook and where it came from, on which pod, the commit's tree, and within which limit;
    `history` is what its estimate is made by, `mutants` are the runbook's by the path of the patch; without `sabotage`
    no stage is asked what its tests notice; the runbook of a `command` has it as its only stage.
    """

    runbook: Runbook
    origin: RunbookOrigin
    pod: Pod
    tree: Tree
    limit: RunLimit | None = None
    history: History = NO_HISTORY
    mutants: Mapping[str, Mutation] = field(default_factory=dict)
    sabotage: bool = True
    command: bool = False


@dataclass(frozen=True)
class Place:
    """Where it is to be run: the environment, what conditions are judged by, the machine's facts, the workdir."""

    environment: Environment
    have: Capabilities
    facts: Machine
    workdir: str


def make_plan(work: Work, place: Place, after: str | None = None) -> Plan:
    """The plan of one run; its id is later than `after`, the id of the newest run that is known."""
    runbook, pod, tree, have = work.runbook, work.pod, work.tree, place.have
    variables = variables_of(runbook, pod)
    broken, unsupported = _broken_promise(pod, have), unmet(runbook.requires, have)
    missing = broken or (unsupported and f"requires {unsupported}")
    left_out = [] if missing else _left_out(runbook, have)  # with something missing all are blocked, and none left out
    gone = {stage["name"] for stage in left_out}
    stages = [_planned(s, work, variables[s.name], missing) for s in runbook.stages if s.name not in gone]
    parts = tree.parts
    plan = Plan(
        format=FORMAT,
        run_id="",
        created=_moment(after).strftime(_CREATED),
        nonce=secrets.token_hex(8),
        pod=pod.name,
        who=who(),
        commit=parts["commit"],
        commit_object=parts["commit_object"],
        ancestry=parts["ancestry"],
        tree=parts["tree"],
        submodules=parts["submodules"],
        dirty=tree.dirty,
        runbook=work.origin,
        requires=list(runbook.requires),
        environment=place.environment,
        promises={"cuda": have.cuda},
        facts=place.facts,
        cost_per_hour=pod.cost_per_hour,
        workdir=place.workdir,
        left_out=left_out,
        stages=stages,
        limit=work.limit,
        estimate=estimate(stages, work.history, pod.cost_per_hour),
        sabotage=work.sabotage,
        command=work.command,
    )
    _refuse_exposed(plan, variables.values())
    return with_id(plan)


def with_id(plan: Plan) -> Plan:
    """The plan under the run id that its content gives it."""
    stamp = datetime.strptime(plan["created"], _CREATED).strftime(STAMP)
    return {**plan, "run_id": f"{stamp}-{plan['commit'][:7]}-{plan_hash(plan)[:HASH_DIGITS]}"}


def do_the_same(one: Plan, other: Plan) -> bool:
    """Whether both run the same stages on the same tree, within the same limit, whoever launched them and when."""
    return _work_of(one) == _work_of(other)


def _work_of(plan: Plan) -> tuple[object, ...]:
    limit = plan["limit"] and plan["limit"]["seconds"]
    machine = plan["requires"], plan["promises"], plan["left_out"]
    return plan["commit"], plan["tree"], plan["submodules"], plan["stages"], plan.get("beside"), machine, limit


def to_json(value: Mapping[str, object]) -> str:
    """As the files of a run are written, the plan among them."""
    return json.dumps(value, indent=1, sort_keys=True) + "\n"


class EnvironmentRecord(Environment, Machine, total=False):
    """environment.json: the environment and the machine; driver, driver_cuda and torch_cuda are separate fields."""

    cost_per_hour: float | None


def environment_record(plan: Plan) -> EnvironmentRecord:
    """Of the run of this plan."""
    return {**plan["environment"], **plan["facts"], "cost_per_hour": plan["cost_per_hour"]}


def _moment(after: str | None) -> datetime:
    """Now; where this clock was put back, the second after that of the run `after`: ids keep the order of launches."""
    now = datetime.now(timezone.utc)
    newest = launched_at(after or "")
    return max(now, newest + timedelta(seconds=1)) if newest and not is_ahead(after or "") else now


def variables_of(runbook: Runbook, pod: Pod) -> dict[str, Variables]:
    """Each stage's variables: the runbook's, over these the pod's, over these its own. InputError for what is unset."""
    return {
        stage.name: values_of({**runbook.env, **pod.env, **stage.env}, f"env of stage {stage.name!r}", os.environ)
        for stage in runbook.stages
    }


def secret_values(plan: Plan, variables: Mapping[str, Variables]) -> dict[str, dict[str, str]]:
    """By stage, the values that the plan only names. InputError if one of them is not among the `variables`."""
    found: dict[str, dict[str, str]] = {}
    for stage in plan["stages"]:
        name = stage["name"]
        known = variables[name].secret if name in variables else {}
        unknown = sorted(set(stage["secrets"]) - set(known))
        if unknown:
            raise InputError(f"stage {name!r} of run {plan['run_id']} needs the secret {unknown[0]}: it is not in env")
        if stage["secrets"]:
            found[name] = {secret: known[secret] for secret in stage["secrets"]}
    return found


def _refuse_exposed(plan: Plan, variables: Iterable[Variables]) -> None:
    """A secret that also stands in an argv, say, would be seen by everybody on the pod."""
    secrets = Redactor([item for found in variables for item in found.secret.items()])
    exposed = secrets.names_in(io.BytesIO(canonical(plan)))
    if exposed:
        raise InputError(
            f"the value of the secret {exposed[0]} also stands in another part of the plan (a command, a path, another "
            "variable), where it would be written down: expected it nowhere but in env"
        )


def read_plan(text: str, source: str) -> Plan:
    """A plan whose content is the one its run id was made from; IntegrityError otherwise."""
    try:
        plan = read(text, source)
    except Failure as e:
        raise IntegrityError(str(e)) from e
    for stage in plan["stages"]:
        wrong = next(wrong_expectations(stage["expect"], closed=False), None)
        if wrong:
            place = ".".join(map(str, ("expect", *wrong.at)))
            raise IntegrityError(f"{source} is not a plan: {place} of stage {stage['name']!r}: {wrong.sentence}")
    if not is_pod_name(plan["pod"]):
        raise IntegrityError(f"{source} is not a plan: its pod is called {plan['pod']!r}")
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


def _planned(stage: RunbookStage, work: Work, variables: Variables, missing: str | None) -> PlannedStage:
    runbook = work.runbook
    planned = PlannedStage(
        name=stage.name,
        argv=stage.argv,
        env=dict(variables.plain),
        secrets=sorted(variables.secret),
        paths=named_in_tree(stage, work.tree),
        needs=list(stage.needs),
        required=stage.required,
        cuda=_is_cuda(stage, runbook),
        pytest=stage.is_pytest,
        exclusive=stage.exclusive,
        limits=cast(Limits, runbook.limits_of(stage).model_dump()),
        expect=_expect(stage, runbook, work.tree.commit),
        builds=list(stage.builds),
        cwd=stage.cwd,
        blocked=missing or next(absences(stage, runbook, work.tree), None),
    )
    asked = stage.expect.get("mutants", ()) if work.sabotage else ()
    if asked:
        planned["mutants"] = [_mutant(mutant, work.mutants[mutant["patch"]]) for mutant in asked]
    return planned


def _broken_promise(pod: Pod, have: Capabilities) -> str | None:
    """A GPU that the inventory promises and the pod does not have: nothing is judged there by what it has instead."""
    return f"the pod promises {pod.gpu}, and nvidia-smi lists no GPU" if pod.gpu and not have.cuda else None


def _mutant(asked: Mapping[str, str], made: Mutation) -> Mutant:
    files = {
        path: None if content is None else base64.b64encode(zlib.compress(content, 9)).decode()
        for path, content in made.files.items()
    }
    return Mutant(patch=asked["patch"], tests=asked.get("tests", ""), files=files, wrong=made.wrong)


def _expect(stage: RunbookStage, runbook: Runbook, commit: str) -> dict[str, Any]:
    """What the stage is asked for: of tests, one pass where it does not say; artifacts as named for this commit; the
    device of one that is for CUDA.
    """
    expect = dict(stage.expect)
    if "artifacts" in expect:
        expect["artifacts"] = [_named_for(artifact, commit) for artifact in expect["artifacts"]]
    if stage.is_pytest:
        expect["tests"] = {"min_passed": 1, **expect.get("tests", {})}
    if _needs_cuda(stage.when) or ((stage.is_pytest or stage.exclusive) and _needs_cuda(runbook.requires)):
        expect.setdefault("device", "cuda")
    outside = [*runbook.outside, *stage.outside, *expect.get("outside", ())]
    if outside:
        expect["outside"] = outside
    return expect


def _named_for(artifact: Mapping[str, Any], commit: str) -> dict[str, Any]:
    names = {key: with_commit(artifact[key], commit) for key in ("path", "from") if artifact.get(key)}
    phrases = {key: [with_commit(x, commit) for x in artifact[key]] for key in ("contains", "lacks") if key in artifact}
    return {**artifact, **names, **phrases}


def _is_cuda(stage: RunbookStage, runbook: Runbook) -> bool:
    return _needs_cuda([*stage.when, *runbook.requires]) or stage.expect.get("device") == "cuda"


def _needs_cuda(conditions: Iterable[str]) -> bool:
    return any(condition == "cuda" or condition.startswith("sm") for condition in conditions)
