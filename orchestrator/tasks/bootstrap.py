"""Give a pod the environment that a runbook needs: choose it, and have it found, built or rebuilt there."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from orchestrator.config.inventory import Pod
from orchestrator.config.markers import applies
from orchestrator.config.projects import as_requirement
from orchestrator.config.runbook import EnvironmentSpec
from orchestrator.config.variables import values_of
from orchestrator.errors import EnvironmentFailed, InputError
from orchestrator.pairing.choose import SYSTEM, choose
from orchestrator.pairing.environment import Environment, Facts, Gpu, Interpreter
from orchestrator.pairing.table import table
from orchestrator.pairing.wanted import FLASH, is_python
from orchestrator.pod.client import Agent
from orchestrator.pod.facts import PodFacts, capability
from orchestrator.pod.retry import again
from orchestrator.shared import answers
from orchestrator.shared.answers import (
    BuildProgress,
    BuildStarted,
    BuildStep,
    EnvironmentFound,
)
from orchestrator.shared.environment_request import EnvironmentRequest, Means
from orchestrator.shared.plan import Environment as PlannedEnvironment
from orchestrator.store.trusted import tell_what_leaves
from orchestrator.tasks.carry import carry_uv, carry_wheelhouse
from orchestrator.text import listing, plain, seconds
from orchestrator.ui import Progress

_POLL_S = 10.0
_ANSWER_S = 60.0
_BUILDS = 3
_LOG = "build"  # the phase whose lines are a build's log
# flash-attn compiles for 45 minutes and more, and for many hours where there are few cores.
SOURCE_BUILD_S = 7200.0
_COMPILERS = ("gcc", "cc", "clang")
# Asked of a pod's own Python beside what the runbook names.
_ALWAYS_ASKED = ("torch", "triton", "flash-attn", "numpy", "pytest")


@dataclass(frozen=True)
class Options:
    """How an environment is built; none of it changes which one it is.

    `fresh` resolves anew instead of keeping the last lock; `wheelhouse` is a directory of wheels that is carried to the
    pod, which then asks no network; `offline` is the same without a new one; `source_build` lets the pod compile
    flash-attn where it has no wheel, for at most `source_build_s`.
    """

    fresh: bool = False
    wheelhouse: Path | None = None
    offline: bool = False
    source_build: bool = False
    source_build_s: float = SOURCE_BUILD_S


def bootstrap(
    agent: Agent,
    facts: PodFacts,
    spec: EnvironmentSpec,
    progress: Progress,
    options: Options | None = None,
    asked: Iterable[str] = (),
) -> PlannedEnvironment:
    """The plan's `environment`: the environment for `spec` on the pod, built if it is not there or was changed.

    Of the pod's own Python it says which versions it has of what is in `spec`, and of the packages `asked`.
    Raises EnvironmentFailed when none fits or it cannot be built, InputError for a pin or requirement that cannot be.
    """
    if is_system(agent.pod, spec):
        return {**_system(agent, spec, asked), "notes": [*filter(None, [overruled_pin(agent.pod, spec)])]}
    options = options or Options()
    tell_what_leaves(agent.pod, [agent.pod.env], progress.warn)
    chosen = explain(agent, facts, spec, options)
    for line in chosen.reasons:
        progress.detail(line)
    request: EnvironmentRequest = {**chosen.request(), **_how(agent, options)}
    found = _find(agent, request)
    if options.source_build and found["state"] == "ready" and _lacking(chosen, found["environment"]):
        request["fresh"] = True
    environment = _as_found(agent, facts, request, found, progress)
    for note in environment["notes"]:
        progress.warn(note)
    return environment


def bootstrap_tools(
    agent: Agent, facts: PodFacts, over: PlannedEnvironment, wanted: Sequence[str], progress: Progress, options: Options
) -> PlannedEnvironment:
    """An environment of the same Python as `over` for the requirements `wanted` of a build."""
    minor = ".".join(over["python_version"].split(".")[:2])
    chosen = Environment(None, minor, over["python"], tuple(sorted(set(wanted))))
    request: EnvironmentRequest = {**chosen.request(), **_how(agent, options)}
    return _as_found(agent, facts, request, _find(agent, request), progress)


def _as_found(
    agent: Agent, facts: PodFacts, request: EnvironmentRequest, found: EnvironmentFound, progress: Progress
) -> PlannedEnvironment:
    if found["state"] == "changed":
        progress.warn(f"pod {agent.pod.name!r}: {plain(found['reason'], 1000)}; it is rebuilt")
    if found["state"] == "ready" and not request["fresh"]:
        return found["environment"]
    return _build(agent, facts, request, progress)


def explain(agent: Agent, facts: PodFacts, spec: EnvironmentSpec, options: Options) -> Environment:
    """Which environment fits the pod and why; nothing is installed."""
    pod = agent.pod
    known = facts_for_pairing(facts.raw, pod, agent.python)
    known = replace(
        known,
        from_source=known.from_source or options.source_build,
        managed=known.managed and not (options.wheelhouse or options.offline),
    )
    _require_python(known, spec, pod)
    try:
        return choose(table(), known, spec, pod.environment)
    except EnvironmentFailed as e:
        raise EnvironmentFailed(f"pod {pod.name!r}: {e}") from e


def _require_python(known: Facts, spec: EnvironmentSpec, pod: Pod) -> None:
    """InputError for a lock that is for none of the pod's Pythons."""
    wanted = spec.python if spec.lock else None
    if wanted and not known.managed and not any(is_python(python.minor, wanted) for python in known.pythons):
        have = listing(python.version for python in known.pythons) or "none"
        raise InputError(f"environment: lock: {spec.lock} is for Python {wanted}, and pod {pod.name!r} has {have}")


def _lacking(chosen: Environment, environment: PlannedEnvironment) -> list[str]:
    """Wheels that were left out the last time."""
    return [wheel["name"] for wheel in chosen.wheels if wheel["name"] not in environment["packages"]]


def is_system(pod: Pod, spec: EnvironmentSpec) -> bool:
    """Whether the pod's own Python is used as it is."""
    return SYSTEM in (spec.python, pod.environment)


def overruled_pin(pod: Pod, spec: EnvironmentSpec) -> str | None:
    """What is to be said where the inventory pins an environment, and the runbook asks for the pod's own Python."""
    if pod.environment in (None, SYSTEM) or spec.python != SYSTEM:
        return None
    return (
        f"pod {pod.name!r} pins the environment {pod.environment}, but the runbook asks for `python: system`: "
        "the pod's own Python is used"
    )


def facts_for_pairing(raw: answers.Facts, pod: Pod, agent_python: str) -> Facts:
    """What the choice depends on, out of the probe's facts; `agent_python` is the pod's `python`, if it names one."""
    gpus = tuple(Gpu(str(gpu["name"] or "unnamed"), capability(gpu)) for gpu in raw["gpus"])
    libc, version = (*raw["libc"], "", "")[:2]
    pythons = [p for p in raw["pythons"] if _is_cpython(p) and (not pod.python or p["executable"] == agent_python)]
    compilers = [raw["programs"][name] for name in _COMPILERS if name in raw["programs"]]
    return Facts(
        system=raw["os"],
        machine=raw["arch"],
        glibc=version if libc == "glibc" else None,
        pythons=tuple(Interpreter(p["executable"], p["version"], p["headers"]) for p in pythons),
        managed=not pod.python,
        driver=next((gpu["driver"] for gpu in raw["gpus"]), None),
        gpus=gpus,
        from_source=FLASH in raw["built"],
        compiler=any(compilers) if any(compilers) or len(compilers) == len(_COMPILERS) else None,
    )


def _is_cpython(python: answers.Python) -> bool:
    """CPython with the usual ABI; free-threaded builds have wheels of their own."""
    return python["implementation"] == "cpython" and not re.match(r"cpython-\d+t", str(python["soabi"]))


def _how(agent: Agent, options: Options) -> Means:
    """What does not change which environment it is."""
    wheelhouse = carry_wheelhouse(agent, options.wheelhouse) if options.wheelhouse else None
    variables = values_of(agent.pod.env, f"env of pod {agent.pod.name!r}", os.environ)
    return {
        "fresh": options.fresh,
        "wheelhouse": wheelhouse,
        "offline": options.offline,
        "allow_source_build": options.source_build,
        "source_build_s": options.source_build_s,
        "variables": {**variables.plain, **variables.secret},
        "secrets": sorted(variables.secret),
    }


def _find(agent: Agent, request: EnvironmentRequest) -> EnvironmentFound:
    asked = json.dumps(request).encode()
    found: EnvironmentFound = agent.call(EnvironmentFound, "env", "check", "--workdir", agent.workdir, input=asked)
    return found


def _build(agent: Agent, facts: PodFacts, request: EnvironmentRequest, progress: Progress) -> PlannedEnvironment:
    """Start the build, or join the one under way, and wait for its end; a pod that has not got uv is brought it."""
    for _ in range(_BUILDS):
        ended = built(agent, facts, "build", request, "environment", progress)
        if ended["state"] == "failed":
            raise EnvironmentFailed(f"pod {agent.pod.name!r}: environment: {plain(ended['error'], 2000)}")
        found = _find(agent, request)
        if found["state"] == "ready":
            return found["environment"]
        progress.say("the build was cut off: starting it again")
    raise EnvironmentFailed(f"pod {agent.pod.name!r}: the build of the environment was cut off {_BUILDS} times")


def built(
    agent: Agent, facts: PodFacts, verb: str, request: Mapping[str, object], what: str, progress: Progress
) -> BuildProgress:
    """Start what the agent's `env VERB` builds, or join it, and wait for its end; how it ended."""
    carried = False
    while True:
        asked = json.dumps(request).encode()
        started = agent.call(BuildStarted, "env", verb, "--workdir", agent.workdir, input=asked)
        if not started["started"]:
            progress.say(f"the same {what} is being built for someone else: waiting for it")
        ended = _Watch(agent, started["job"], what, progress).to_end()
        if ended["state"] != "failed" or ended.get("lacks") != "uv" or carried:
            return ended
        try:
            carry_uv(agent, facts, progress)
        except EnvironmentFailed as e:
            failed = f"pod {agent.pod.name!r}: {what}: {plain(ended['error'], 2000)}"
            raise EnvironmentFailed(f"{failed}; and {e}: install uv on the pod (pip install uv)") from e
        carried = True


@dataclass
class _Watch:
    """Follows a build on the pod, which goes on whether or not anybody follows."""

    agent: Agent
    job: str
    what: str
    progress: Progress
    offset: int = 0
    phase: str = ""

    def to_end(self) -> BuildProgress:
        """{"state": "built" | "failed" | "lost", ...}"""
        retry = again(self.agent, self.progress, "the build goes on", "the same command, or bootstrap, joins it")
        return retry.until_done(lambda agent: self._follow(agent, retry.advance), self.agent)

    def _follow(self, agent: Agent, advance: Callable[[], None]) -> BuildProgress:
        while True:
            place = ["--workdir", agent.workdir, self.job, "--offset", str(self.offset), "--wait", str(_POLL_S)]
            told = agent.call(BuildProgress, "env", "wait", *place, timeout=_POLL_S + _ANSWER_S)
            advance()
            self.offset = told["offset"]
            for line in told["progress"]:
                self._show(line)
            if told["state"] != "running":
                return told

    def _show(self, line: BuildStep) -> None:
        text = plain(line["text"])
        if line["phase"] != self.phase:
            self.phase = line["phase"]
            self.progress.say(f"{self.what}: {text}")
        elif self.phase == _LOG:
            self.progress.say(f"  {text}")
        else:
            self.progress.detail(text)
        self.progress.busy(f"{self.what} · {self.phase} · {seconds(float(line['t']))} · {text}")


def _system(agent: Agent, spec: EnvironmentSpec, asked: Iterable[str]) -> PlannedEnvironment:
    """The pod's own Python with what it has; EnvironmentFailed for what is missing or another version."""
    wanted, optional = (
        [as_requirement(text, "environment") for text in texts]
        for texts in ((*spec.requires, *spec.extra), spec.optional)
    )
    found = system_packages(agent, [*(r.name for r in (*wanted, *optional)), *asked])
    if spec.python != SYSTEM and not is_python(found["python_version"], spec.python):
        raise EnvironmentFailed(
            f"pod {agent.pod.name!r}: its own Python {found['python']} is {found['python_version']}, and the "
            f"runbook asks for {spec.python}: name such a one under the pod's `python`, or have an environment built "
            "(with `environment` other than system)"
        )
    lacking = [str(r) for r in wanted if not meets(found, r)]
    if lacking:
        raise EnvironmentFailed(
            f"pod {agent.pod.name!r}: its own Python {found['python']} does not have {listing(lacking)}: "
            f"install it there, or have an environment built (with `environment` other than system)"
        )
    return found


def system_packages(agent: Agent, names: Iterable[str]) -> PlannedEnvironment:
    """The pod's own Python, with what it has of these packages and of some that always matter."""
    python = ["--python", agent.python] if agent.pod.python else []
    asked = sorted({*map(canonicalize_name, names), *_ALWAYS_ASKED})
    found: PlannedEnvironment = agent.call(PlannedEnvironment, "env", "system", *python, *asked)
    return found


def meets(environment: PlannedEnvironment, wanted: Requirement, extra: str = "") -> bool:
    """Whether what is installed there fulfils the requirement, or need not."""
    version = environment["packages"].get(canonicalize_name(wanted.name))
    if not applies(wanted, environment.get("python_version", ""), extra=extra):
        return True
    return version is not None and wanted.specifier.contains(version, prereleases=True)
