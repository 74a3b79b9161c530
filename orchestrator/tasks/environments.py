"""The environments on a pod: set one up, list them."""

from __future__ import annotations

from functools import partial
from typing import TypedDict, cast

from orchestrator.config.runbook import EnvironmentSpec
from orchestrator.pod.client import Agent
from orchestrator.pod.retry import before_launch
from orchestrator.pod.session import PodSession
from orchestrator.shared.answers import Environments, EnvironmentSummary
from orchestrator.shared.plan import Environment
from orchestrator.tasks.bootstrap import Options, bootstrap, explain, is_system, overruled_pin
from orchestrator.tasks.layers import asked_of_system, tools_of
from orchestrator.tasks.needs import Needs

_SHOWN = (
    "kind",
    "profile",
    "key",
    "python",
    "python_version",
    "torch_cuda",
    "packages",
    "built",
    "notes",
    "lock_sha256",
)


class _Why(TypedDict):
    profile: str | None
    reasons: list[str]
    rejected: list[str]


class Reasons(_Why, total=False):
    """Why an environment fits a pod, and what it is; of the pod's own Python nothing is chosen."""

    python: str
    requirements: list[str]
    indexes: list[str]
    wheels: list[str]


def set_up(session: PodSession, needs: Needs, options: Options) -> Environment:
    """Bootstrap the pod for `needs`, and for the builds over it; what is there now."""
    with session.open() as agent:
        environment = before_launch(agent, session.progress, partial(_set_up, session, needs, options))
    return cast(Environment, {name: value for name, value in environment.items() if name in _SHOWN})


def _set_up(session: PodSession, needs: Needs, options: Options, agent: Agent) -> Environment:
    facts = session.facts(agent)
    environment = bootstrap(agent, facts, needs.spec, session.progress, options, asked_of_system(needs))
    tools_of(agent, facts, needs, environment, session.progress, options)
    return environment


def reasons(session: PodSession, spec: EnvironmentSpec, options: Options) -> Reasons:
    """Which environment fits the pod, why, and why the preferred and newer ones do not. Nothing is installed."""
    if is_system(session.pod, spec):
        rejected = [*filter(None, [overruled_pin(session.pod, spec)])]
        return {"profile": "system", "reasons": ["the pod's own Python is asked for"], "rejected": rejected}
    with session.open() as agent:
        chosen = explain(agent, session.facts(agent), spec, options)
    return {
        "profile": chosen.profile,
        "python": chosen.python,
        "requirements": list(chosen.requirements),
        "indexes": list(chosen.indexes),
        "wheels": [wheel["url"] or f"{wheel['name']} {wheel['version']} from source" for wheel in chosen.wheels],
        "reasons": list(chosen.reasons),
        "rejected": list(chosen.rejected),
    }


def on_pod(session: PodSession) -> list[EnvironmentSummary]:
    """The environments on the pod, the last used first: key, profile, packages, bytes, age_s (since the last use)."""
    with session.open() as agent:
        return agent.call(Environments, "env", "list", "--workdir", agent.workdir)["environments"]
