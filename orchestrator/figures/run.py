"""A run's directory -> its figures."""

from __future__ import annotations

import posixpath
import statistics
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from orchestrator.figures.model import Clocks, Context, Figure, Figures, Identity
from orchestrator.figures.samples import flags_of
from orchestrator.shared import telemetry
from orchestrator.shared.files import Refused, open_inside
from orchestrator.shared.plan import Plan, Stage, artifacts_of, commits_of
from orchestrator.verdict.artifacts.asked import kind_of
from orchestrator.verdict.artifacts.kind import Bad
from orchestrator.verdict.artifacts.reading import FLAGS, Reading
from orchestrator.verdict.status import Status

# Of a stage's moments at work.
_THROTTLED = 0.05
_MOST_BESIDE = 256 << 20


def of_run(directory: Path, plan: Plan, statuses: Mapping[str, Status]) -> Figures:
    """What the run in `directory` measured; `statuses` are those of its stages, by name.

    A file that is not there, or cannot be read, has no figures: why is for the verdict to say.
    """
    told = {stage["name"]: _clocks(directory, stage["name"]) for stage in plan["stages"]}
    clocks = {name: of_stage for name, of_stage in told.items() if of_stage}
    found = [figure for stage in plan["stages"] for figure in _of_stage(directory, plan, stage, clocks)]
    return Figures(replace(context_of(plan), clocks=clocks, statuses=statuses), found)


def _of_stage(directory: Path, plan: Plan, stage: Stage, clocks: Mapping[str, Clocks]) -> Iterator[Figure]:
    throttled = stage["name"] in clocks and clocks[stage["name"]].throttled > _THROTTLED
    commit = commits_of(plan)[stage.get("beside", "")]["commit"]
    for asked in artifacts_of(stage):
        own = asked["path"][len(stage["folder"]) + 1 :] if "folder" in stage else asked["path"]
        name = own.replace(commit, "{commit}").replace(commit[:7], "{commit7}")
        for reading in _read(directory, asked):
            identity = Identity(stage["name"], name, reading.row, reading.column)
            said = {*reading.flags, *flags_of(reading.samples), *(("throttled",) if throttled else ())}
            flags = tuple(flag for flag in FLAGS if flag in said)
            yield Figure(identity, reading.unit, reading.better, reading.samples, flags)


def _read(directory: Path, asked: Mapping[str, Any]) -> list[Reading]:
    """None of a file that is not there, or not as it should be; a key or measure that is absent is a KeyError."""
    beside = partial(_beside, directory, asked["path"])
    try:
        with open_inside(directory, f"artifacts/{asked['path']}") as f:
            return list(kind_of(asked).figures(asked, f, beside))
    except (Bad, Refused, OSError, UnicodeDecodeError, LookupError, TypeError, AttributeError):
        return []


def _beside(directory: Path, artifact: str, path: str) -> bytes | None:
    """What an artifact names: beside itself, or as older writers do, beside the folder that it is in."""
    folder = posixpath.dirname(artifact)
    for name in (posixpath.join(folder, path), posixpath.join(posixpath.dirname(folder), path)):
        with suppress(Refused, OSError), open_inside(directory, posixpath.normpath(f"artifacts/{name}")) as f:
            return f.read(_MOST_BESIDE)
    return None


def _clocks(directory: Path, stage: str) -> Clocks | None:
    """Over all of the GPUs that were at work; None where nobody looked, or none was."""
    busy = [
        sample for sample in telemetry.read(directory / "stages" / stage / telemetry.FILE) if sample.utilization > 0
    ]
    if not busy:
        return None
    clocks = [sample.clock for sample in busy]
    throttled = sum(sample.is_throttled for sample in busy) / len(busy)
    capped = sum(sample.is_capped for sample in busy) / len(busy)
    return Clocks(statistics.median(clocks), min(clocks), max(clocks), throttled, capped)


def context_of(plan: Plan) -> Context:
    """Where the run of `plan` measures, as far as its plan tells."""
    environment, facts = plan["environment"], plan["facts"]
    gpus: list[dict[str, Any]] = list(facts.get("gpus") or ())
    layer = environment.get("layer")
    return Context(
        run_id=plan["run_id"],
        pod=plan["pod"],
        commit=plan["commit"],
        harness=plan["comparison"]["harness"] or plan["commit"] if "comparison" in plan else plan["commit"],
        dirty=plan["dirty"],
        runbook=plan["runbook"]["name"],
        hostname=facts.get("hostname"),
        boot_id=facts.get("boot_id"),
        gpus=tuple(str(gpu.get("name")) for gpu in gpus),
        gpu_ids=tuple(str(gpu.get("uuid")) for gpu in gpus),
        cpu=facts.get("cpu_model"),
        driver=facts.get("driver"),
        python=environment.get("python_version"),
        torch_cuda=environment.get("torch_cuda"),
        packages={**environment.get("packages", {}), **(layer["packages"] if layer else {})},
    )
