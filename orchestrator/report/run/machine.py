"""Where and when a run was: machine, commit, versions, times."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from pathlib import Path

from orchestrator.plan.plan import EnvironmentRecord
from orchestrator.report.document import Code, Facts, Inline
from orchestrator.results import Result, StageResult
from orchestrator.shared import telemetry
from orchestrator.shared.plan import is_not_the_commits
from orchestrator.text import number, plain, seconds, size

_MIB = 1 << 20


def where(result: Result, environment: EnvironmentRecord, directory: Path) -> Facts:
    """A line for each."""
    rows: list[tuple[str, Inline]] = [
        ("GPU host", _host(environment)),
        ("Hardware", _hardware(environment)),
        ("Clocks", _clocks(result.stages, directory)),
        ("Machine", _identity(environment)),
        ("Since the last run there", _changed(environment)),
        ("Commit", (Code(result.commit), " (tree ", Code(result.tree), ")")),
        ("Torch/Triton/CUDA", _versions(environment)),
        ("Installed from this tree", _installed(environment)),
        (
            "Python",
            "; ".join([str(environment.get("python_version", "-")), *map(plain, environment.get("notes") or ())]),
        ),
        ("Runbook", _runbook(result)),
        ("Run", Code(result.run_id)),
        ("Time", _times(result)),
        ("Cost", _cost(environment, result.stages)),
    ]
    return Facts(tuple((name, value) for name, value in rows if value))


def _runbook(result: Result) -> str:
    runbook = result.runbook
    committed = "as committed" if runbook["committed"] else ""
    state = "NOT as in this commit" if is_not_the_commits(runbook) else committed
    origin = ", ".join(filter(None, [runbook["source"], state]))
    return f"{runbook['name']} ({origin}, sha256 {runbook['sha256'][:12]})"


def _times(result: Result) -> str:
    """Moments are the pod's; durations do not depend on its clock."""
    moments = " to ".join(moment for moment in (result.started, result.ended) if moment)
    took = [f"{seconds(result.seconds)} in all"] if result.seconds is not None else []
    took += [f"{seconds(sum(stage.seconds or 0 for stage in result.stages))} in stages"]
    if result.environment_seconds is not None:
        took += [f"before it {seconds(result.environment_seconds)} for the environment"]
    return f"{moments}: {', '.join(took)}" if moments else ""


def _host(environment: EnvironmentRecord) -> str:
    first = next(iter(environment.get("gpus", ())), None)
    gpu = plain(first.get("name")) if first else f"no GPU, {plain(environment.get('cpu_model') or 'CPU unknown')}"
    driver = plain(environment.get("driver") or "none")
    ceiling = environment.get("driver_cuda")
    return f"{plain(environment.get('hostname', '-'))} / {gpu} / driver {driver}" + (
        f" (CUDA up to {plain(ceiling)})" if ceiling else ""
    )


def _hardware(environment: EnvironmentRecord) -> str:
    """Processors, memory, GPUs."""
    cpus = f"{plain(environment['cpus'])} x " if environment.get("cpus") else ""
    memory = number(environment.get("memory_bytes"))
    gpus = [
        f"GPU {plain(gpu.get('name'))}"
        + (f" with {size(int(mib * _MIB))}" if (mib := number(gpu.get("memory_total_mib"))) else "")
        for gpu in environment.get("gpus", ())
    ]
    main = [f"{size(int(memory))} of memory"] if memory else []
    return ", ".join([f"{cpus}{plain(environment.get('cpu_model') or 'CPU unknown')}", *main, *gpus])


def _clocks(stages: Iterable[StageResult], directory: Path) -> str:
    """Of the GPUs, over all stages that had them for themselves."""
    files = (directory / "stages" / stage.name / telemetry.FILE for stage in stages)
    return "; ".join(telemetry.summaries(list(chain.from_iterable(map(telemetry.read, files)))))


def _identity(environment: EnvironmentRecord) -> str:
    """What tells one machine from another at the same address."""
    ids = [f"GPU {plain(gpu.get('uuid'))}" for gpu in environment.get("gpus", ())]
    known = (("boot", environment.get("boot_id")), ("host key", environment.get("host_key")))
    return ", ".join([*ids, *(f"{name} {plain(value)}" for name, value in known if value)])


def _changed(environment: EnvironmentRecord) -> str:
    since = environment.get("changed_since")
    return f"{'; '.join(map(str, since['changes']))} (run {since['run_id']})" if since else ""


def _versions(environment: EnvironmentRecord) -> str:
    packages = environment.get("packages", {})
    shown = [f"{name} {plain(packages[name])}" for name in ("torch", "triton", "flash-attn") if packages.get(name)]
    if not packages.get("torch"):
        return ", ".join(shown) or "-"
    runtime = environment.get("torch_cuda", "not recorded") or "none (CPU build)"
    return ", ".join([*shown, f"CUDA runtime {plain(runtime)}"])


def _installed(environment: EnvironmentRecord) -> str:
    """The repository's own packages; nothing where it has none."""
    layer = environment.get("layer")
    packages = sorted(layer["packages"].items()) if layer else ()
    return ", ".join(f"{name} {version}" for name, version in packages)


def _cost(environment: EnvironmentRecord, stages: Iterable[StageResult]) -> str:
    rate = number(environment.get("cost_per_hour"))
    if rate is None:
        return ""
    spent = sum(stage.seconds or 0 for stage in stages)
    return f"{rate * spent / 3600:.4f} for {seconds(spent)} of stages at {rate:g} an hour"
