"""Can this pod be used? Everything that a run depends on, tried or looked at, each with what to do about it."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Literal

from orchestrator.config.inventory import Pod
from orchestrator.errors import HostKeyError, NsaPodError, PodError
from orchestrator.launchers import launcher_of
from orchestrator.launchers.claim import held_by
from orchestrator.pod.client import Agent, install_agent
from orchestrator.pod.facts import PodFacts, broken_promises, probe
from orchestrator.pod.session import PodSession
from orchestrator.shared.answers import Disk, Gpu, GpuUse
from orchestrator.store.hostkeys import Trust
from orchestrator.tasks.prune import ask
from orchestrator.text import plain, seconds, size
from orchestrator.transports import open_transport
from orchestrator.transports.base import Transport

_COPIED_BYTES = 1 << 18
_GIB = 2**30
# An environment with CUDA takes about 10 GiB, one without about 2.
_DISK_WARN, _DISK_FAIL = 12 * _GIB, 2 * _GIB
_WORTH_BYTES = 1 << 20
_INODES_WARN, _INODES_FAIL = 200_000, 20_000
_NOISE = "does a login script of the pod print something, or end the shell?"


@dataclass(frozen=True)
class Finding:
    """One finding. `advice` is empty where nothing is to be done."""

    name: str
    level: Literal["ok", "warn", "fail"]
    found: str
    advice: str = ""

    def as_dict(self) -> dict[str, str]:
        return asdict(self)


def doctor(session: PodSession) -> list[Finding]:
    """All checks that can be made; the list ends with the one without which nothing further can be looked at."""
    transport = open_transport(session.pod, Trust(session.confirm, session.accept_new_host_key))
    began = time.monotonic()
    session.tell_connecting()
    try:
        with transport:
            took = seconds(time.monotonic() - began)
            return [Finding("reachable", "ok", f"connected in {took}"), *_connected(transport, session)]
    except HostKeyError as error:
        return [Finding("host key", "fail", str(error), "find out which machine this is before anything else")]
    except NsaPodError as error:
        return [Finding("reachable", "fail", str(error), "nothing else can be checked before this works")]


def _connected(transport: Transport, session: PodSession) -> Iterator[Finding]:
    yield _host_key(transport)
    commands = _commands(transport)
    yield commands
    if commands.level == "fail":
        return
    try:
        agent = install_agent(transport)
        facts = probe(agent)
    except PodError as error:
        yield Finding("agent", "fail", str(error))
        return
    yield _file_copy(agent)
    for finding in from_facts(session.pod, facts, allow_different_gpu=session.allow_different_gpu):
        yield _with_what_can_go(finding, agent) if finding.name == "disk" else finding
    yield _lock(agent)


def from_facts(pod: Pod, facts: PodFacts, *, allow_different_gpu: bool = False) -> Iterator[Finding]:
    """The checks of what the agent's probe has found; pure."""
    yield _python(facts)
    yield _gpu(pod, facts, allow_different_gpu)
    yield _driver(pod, facts)
    yield from map(_gpu_use, facts.raw["gpus"], facts.raw["gpu_use"])
    yield _disk(facts.raw["disk"])
    yield _installer(facts)


def _host_key(transport: Transport) -> Finding:
    if transport.fingerprint is None:
        return Finding("host key", "ok", "not needed on this machine")
    return Finding("host key", "ok", f"{transport.fingerprint}, pinned")


def _commands(transport: Transport) -> Finding:
    advice = "the pod's SSH has to run commands, not only to open a terminal: see the provider's full SSH access"
    try:
        transport.output(["true"])
    except NsaPodError as error:
        return Finding("commands", "fail", str(error), advice)
    return Finding("commands", "ok", "run without a terminal")


def _file_copy(agent: Agent) -> Finding:
    """There as a small file, back as bulk: both ways that files take."""
    content = os.urandom(_COPIED_BYTES)
    remote = f"{agent.workdir}/doctor-{secrets.token_hex(8)}"
    try:
        agent.transport.put(content, remote)
        with agent.transport.stream(["cat", remote]) as stream:
            came = stream.read(_COPIED_BYTES + 1)
        agent.transport.run(["rm", "-f", remote])
    except NsaPodError as error:
        return Finding("file copy", "fail", str(error), "runs and their results travel as files: make this work first")
    if came != content:
        return Finding("file copy", "fail", f"{size(len(came))} of {size(_COPIED_BYTES)} came back, or changed", _NOISE)
    return Finding("file copy", "ok", f"{size(_COPIED_BYTES)} there and back unchanged")


def _python(facts: PodFacts) -> Finding:
    versions = [f"{python['version']} ({plain(python['path'])})" for python in facts.raw["pythons"]]
    return Finding("Python", "ok", ", ".join(map(plain, versions)))


def _gpu(pod: Pod, facts: PodFacts, allow_different_gpu: bool) -> Finding:
    found = ", ".join(plain(gpu["name"]) for gpu in facts.raw["gpus"]) or "no CUDA GPU"
    promised = pod.model_copy(update={"driver": None})
    try:
        differences = broken_promises(promised, facts, allow_different_gpu=allow_different_gpu)
    except PodError as error:
        return Finding("GPU", "fail", str(error), "correct the inventory, or use --allow-different-gpu")
    if not differences:
        return Finding("GPU", "ok", found)
    missing = pod.gpu is not None and facts.gpu is None
    advice = "its CUDA stages will be blocked: is this the pod that was rented?" if missing else ""
    return Finding("GPU", "fail" if missing else "warn", differences[0], advice)


def _driver(pod: Pod, facts: PodFacts) -> Finding:
    if facts.driver is None:
        if facts.gpu_complaint:
            return Finding("driver", "warn", "nvidia-smi is there, and does not tell", "is the NVIDIA driver loaded?")
        return Finding("driver", "ok", "none, as there is no GPU")
    found = f"{plain(facts.driver)}, CUDA up to {plain(facts.raw['driver_cuda'] or 'unknown')}"
    if pod.driver and pod.driver != facts.driver:
        return Finding("driver", "warn", f"{found}; promised is {pod.driver}", "correct `driver` in the inventory")
    return Finding("driver", "ok", found)


def _gpu_use(gpu: Gpu, use: GpuUse) -> Finding:
    """As the agent tells it: by the rule by which it blocks a stage that wants the GPU for itself."""
    name = f"GPU {gpu['index']} in use"
    if use["by"]:
        return Finding(name, "warn", plain(use["by"]), "stages that want the GPU for themselves will be blocked")
    if use["unknown"]:
        return Finding(name, "warn", plain(use["unknown"]), "see that nobody else works on it")
    memory, total, percent = gpu["memory_used_mib"], gpu["memory_total_mib"], gpu["utilization_percent"]
    return Finding(name, "ok", plain(f"idle: {memory} of {total} MiB, {percent} % busy"))


def _disk(disk: Disk) -> Finding:
    free, inodes = disk["free_bytes"], disk["free_inodes"]
    found = f"{size(free)} free at {plain(disk['path'])}" + (f", {inodes} inodes" if inodes is not None else "")
    if not disk["writable"]:
        return Finding("disk", "fail", f"{plain(disk['path'])} cannot be written", "set another `workdir`")
    if free < _DISK_FAIL or (inodes is not None and inodes < _INODES_FAIL):
        return Finding("disk", "fail", found, "free some, or set another `workdir`")
    if free < _DISK_WARN or (inodes is not None and inodes < _INODES_WARN):
        return Finding("disk", "warn", found, "an environment with CUDA takes about 10 GiB")
    return Finding("disk", "ok", found)


def _with_what_can_go(finding: Finding, agent: Agent) -> Finding:
    """Advice for a disk that has little room: what `prune` would really give back."""
    if finding.level == "ok" or "cannot be written" in finding.found:
        return finding
    command = f"nsa-pod prune --pod {agent.pod.name} --keep 1"
    try:
        planned = ask(agent, "--keep", "1", "--dry-run")
    except PodError as error:
        return replace(finding, advice=f"{finding.advice}; what {command} would give back cannot be told: {error}")
    freed = planned["before_bytes"] - planned["after_bytes"]
    if freed < _WORTH_BYTES:
        return replace(finding, advice=f"{finding.advice}; of its own, nsa-pod has nothing there that could go")
    return replace(finding, advice=f"{command} frees {size(freed)}; or {finding.advice}")


def _installer(facts: PodFacts) -> Finding:
    uv = facts.raw["programs"].get("uv")
    found = f"uv ({plain(uv)})" if uv else "no uv: a bootstrap fetches it, or carries it there"
    return Finding("installer", "ok", found)


def _lock(agent: Agent) -> Finding:
    holder = launcher_of(agent).holder()
    if holder is None:
        return Finding("lock", "ok", "free")
    return Finding("lock", "warn", f"held by {held_by(holder)}", "wait for it, or nsa-pod cancel")
