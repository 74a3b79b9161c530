"""Give a pod the environment that a runbook needs, and over it the repository's own installation of one commit."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from typing import Literal, cast

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from orchestrator.config.variables import values_of
from orchestrator.errors import EnvironmentFailed
from orchestrator.pod.client import Agent
from orchestrator.pod.facts import PodFacts
from orchestrator.shared.answers import BuiltLayer, LayerFound
from orchestrator.shared.layer_request import AskedProject, LayerRequest
from orchestrator.shared.plan import CommitParts, Environment, Layer
from orchestrator.tasks.bootstrap import Options, bootstrap, bootstrap_tools, built, is_system, meets, system_packages
from orchestrator.tasks.needs import Installation, Needs
from orchestrator.text import listing, plain, seconds
from orchestrator.ui import Progress

# A build may tell only when it runs what else it needs, as CMake's front ends do; a second answer is its last.
_BUILDS = 3
_TOLD: tuple[Literal["kind", "python", "root", "key", "torch_cuda"], ...] = (
    "kind",
    "python",
    "root",
    "key",
    "torch_cuda",
)


def environment_of(agent: Agent, facts: PodFacts, needs: Needs, commit: CommitParts, progress: Progress) -> Environment:
    """The plan's `environment`, with the layer of `commit` if the runbook installs something of it.

    What only the built packages tell of their requirements is installed into the environment, and the layer built over
    that one. Raises EnvironmentFailed, as `bootstrap` does, and for what does not build.
    """
    options = Options()
    environment = bootstrap(agent, facts, needs.spec, progress, options, asked_of_system(needs))
    if not needs.installations:
        return environment
    layers = _Layers(agent, facts, commit, progress, options)
    layer = layers.over(environment, needs.installations)
    lacking = _unmet(layer, needs, environment, agent)
    if lacking and is_system(agent.pod, needs.spec):
        raise EnvironmentFailed(
            f"pod {agent.pod.name!r}: {listing(layer['packages'])} needs {listing(map(str, lacking))}, which its own "
            f"Python does not have: install it there, or have an environment built"
        )
    if lacking:
        progress.say(f"{listing(layer['packages'])} needs {listing(map(str, lacking))} too")
        needs = needs.adding(lacking)
        environment = bootstrap(agent, facts, needs.spec, progress, options, asked_of_system(needs))
        layer = layers.over(environment, needs.installations)
    return {**environment, "layer": _of_plan(layer)}


def tools_of(
    agent: Agent, facts: PodFacts, needs: Needs, environment: Environment, progress: Progress, options: Options
) -> None:
    """Bring what the builds of a runbook's installations need, so that they need no network."""
    for each in needs.installations:
        wanted = build_requirements(each, environment)
        if wanted:
            bootstrap_tools(agent, facts, environment, wanted, progress, options)


def build_requirements(each: Installation, environment: Environment, more: Iterable[str] = ()) -> list[str]:
    """What an environment for its build has to hold: where that sees the other one too, what that lacks."""
    wanted = [*each.project.requires, *more]
    if each.isolated(environment["kind"] == "system"):
        return wanted
    return [text for text in wanted if not meets(environment, Requirement(text))]


class _Layers:
    """Layers of one commit on one pod."""

    def __init__(
        self, agent: Agent, facts: PodFacts, commit: CommitParts, progress: Progress, options: Options
    ) -> None:
        self._agent, self._facts, self._commit = agent, facts, commit
        self._progress, self._options = progress, options

    def over(self, environment: Environment, installations: Iterable[Installation]) -> BuiltLayer:
        """The layer over `environment`: the one that is there, else one that is built now."""
        began = time.monotonic()
        request = self._request(environment, installations)
        found = self._find(request)
        if found["state"] == "changed":
            self._progress.warn(f"pod {self._agent.pod.name!r}: {plain(found['reason'], 1000)}; it is rebuilt")
        if found["state"] == "ready":
            layer, how = found["layer"], "already there"
        else:
            layer, how = self._build(request, environment, list(installations)), "built"
        what = ", ".join(f"{name} {version}" for name, version in sorted(layer["packages"].items()))
        since = seconds(time.monotonic() - began)
        self._progress.say(f"layer {layer['key']} with {what} of {self._commit['commit'][:7]}: {how}, {since}")
        return layer

    def _request(self, environment: Environment, installations: Iterable[Installation]) -> LayerRequest:
        pod = self._agent.pod
        variables = values_of(pod.env, f"env of pod {pod.name!r}", os.environ)
        projects = [
            AskedProject(
                path=each.asked.path,
                isolated=each.isolated(environment["kind"] == "system"),
                env=each.asked.env,
                requires=list(each.project.requires),
                tools=None,
            )
            for each in installations
        ]
        return {
            **self._commit,
            "environment": cast(Environment, {name: environment[name] for name in _TOLD if name in environment}),
            "projects": projects,
            "variables": {**variables.plain, **variables.secret},
            "secrets": sorted(variables.secret),
            "limit_s": self._options.source_build_s,
        }

    def _find(self, request: LayerRequest) -> LayerFound:
        asked = json.dumps(request).encode()
        found: LayerFound = self._agent.call(LayerFound, "env", "layer", "--workdir", self._agent.workdir, input=asked)
        return found

    def _build(self, request: LayerRequest, environment: Environment, installations: list[Installation]) -> BuiltLayer:
        more: dict[str, list[str]] = {}
        for _ in range(_BUILDS):
            for asked, each in zip(request["projects"], installations, strict=True):
                asked["requires"] = [*each.project.requires, *more.get(asked["path"], ())]
                asked["tools"] = self._tools(each, environment, more.get(asked["path"], ()), asked["isolated"])
            ended = built(self._agent, self._facts, "build-layer", request, "layer", self._progress)
            if ended["state"] == "failed" and ended.get("requires"):
                more.setdefault(str(ended.get("project")), []).extend(ended["requires"])
                continue
            if ended["state"] == "failed":
                raise EnvironmentFailed(f"pod {self._agent.pod.name!r}: {plain(ended['error'], 2000)}")
            found = self._find(request)
            if found["state"] == "ready":
                return found["layer"]
            self._progress.say("the build was cut off: starting it again")
        raise EnvironmentFailed(f"pod {self._agent.pod.name!r}: the build of the layer did not end in {_BUILDS} tries")

    def _tools(self, each: Installation, environment: Environment, more: Iterable[str], isolated: bool) -> str | None:
        """The root of the environment for the build; None where what there is will do."""
        wanted = build_requirements(each, environment, more)
        if not wanted and not isolated:
            return None
        tools = bootstrap_tools(self._agent, self._facts, environment, wanted, self._progress, self._options)
        return tools["root"]


def _of_plan(layer: BuiltLayer) -> Layer:
    return {
        "key": layer["key"],
        "root": layer["root"],
        "python": layer["python"],
        "tree": layer["tree"],
        "packages": layer["packages"],
    }


def asked_of_system(needs: Needs) -> list[str]:
    """Packages whose version in the pod's own Python matters to the builds, or to conditions."""
    built_with = (text for each in needs.installations for text in each.project.requires)
    return [*(canonicalize_name(Requirement(text).name) for text in built_with), *needs.asked_about]


def _unmet(layer: BuiltLayer, needs: Needs, environment: Environment, agent: Agent) -> list[Requirement]:
    """What the layer's packages say that they require, and that neither it nor the environment has."""
    wanted: list[tuple[Requirement, str]] = []
    for each in needs.installations:
        for text in layer["requires"].get(each.asked.path, ()):
            try:
                wanted += [(Requirement(text), extra) for extra in ("", *each.asked.extras)]
            except InvalidRequirement as e:
                raise EnvironmentFailed(f"{each.asked.path} requires {text!r}, which is no requirement: {e}") from e
    packages = environment["packages"]
    if environment["kind"] == "system":
        packages = system_packages(agent, (requirement.name for requirement, _ in wanted))["packages"]
    have: Environment = {**environment, "packages": {**packages, **layer["packages"]}}
    lacking = [requirement for requirement, extra in wanted if not meets(have, requirement, extra)]
    for requirement in lacking:
        requirement.marker = None  # it holds
    return list({str(requirement): requirement for requirement in lacking}.values())
