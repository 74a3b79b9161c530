"""report.md: the seeds' reporting template, filled from evidence; each figure names the artifact it is from."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from urllib.parse import quote

from orchestrator.plan.plan import EnvironmentRecord, environment_record
from orchestrator.results import Result, StageResult
from orchestrator.shared.plan import Plan, is_not_the_commits
from orchestrator.text import listing, markdown, number, seconds, size
from orchestrator.verdict.tests import Summary as TestSummary

_ROWS_SHOWN = 12
_COUNTED = ("passed", "failed", "errors", "skipped", "xfailed", "xpassed", "rerun", "deselected", "unasserted")


def render(result: Result, plan: Plan, directory: Path) -> str:
    """The report of the run in `directory`, as Markdown."""
    sections = [
        _heading(result),
        _where(result, environment_record(plan)),
        _stages(result.stages),
        _attention(result),
        _sabotage(result.stages),
        _notes(result),
        _left_out(result),
        _figures(result, directory),
        _artifacts(result),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _heading(result: Result) -> str:
    lines = [f"# {result.verdict.upper()}: {markdown(result.runbook['name'])} on pod {markdown(result.pod)}"]
    lines.append(f"**{markdown(result.summary)}**")
    if result.error:
        lines.append(f"Error: {markdown(result.error)}")
    if result.state != "ended":
        lines.append(f"The run has not ended: it is {result.state}.")
    return "\n\n".join(lines)


def _where(result: Result, environment: EnvironmentRecord) -> str:
    runbook = result.runbook
    committed = "as committed" if runbook["committed"] else ""
    state = "NOT as in this commit" if is_not_the_commits(runbook) else committed
    origin = ", ".join(filter(None, [runbook["source"], state]))
    digest = markdown(runbook["sha256"][:12])
    rows = [
        ("GPU host", _host(environment)),
        ("Machine", _machine(environment)),
        ("Since the last run there", _changed(environment)),
        ("Commit", f"`{result.commit}` (tree `{result.tree}`)"),
        ("Torch/Triton/CUDA", _versions(environment)),
        ("Python", markdown(environment.get("python_version", "-"))),
        ("Installed from this tree", _installed(environment)),
        ("Runbook", f"{markdown(runbook['name'])} ({origin}, sha256 {digest})"),
        ("Run", f"`{markdown(result.run_id)}`"),
        ("Cost", _cost(environment, result.stages)),
    ]
    return "\n".join(f"- {name}: {value}" for name, value in rows if value)


def _installed(environment: EnvironmentRecord) -> str:
    """The repository's own packages; nothing where it has none."""
    layer = environment.get("layer")
    packages = sorted(layer["packages"].items()) if layer else ()
    return markdown(", ".join(f"{name} {version}" for name, version in packages))


def _host(environment: EnvironmentRecord) -> str:
    first = next(iter(environment.get("gpus", ())), None)
    gpu = markdown(first.get("name")) if first else f"no GPU, {markdown(environment.get('cpu_model') or 'CPU unknown')}"
    driver = markdown(environment.get("driver") or "none")
    ceiling = environment.get("driver_cuda")
    return f"{markdown(environment.get('hostname', '-'))} / {gpu} / driver {driver}" + (
        f" (CUDA up to {markdown(ceiling)})" if ceiling else ""
    )


def _machine(environment: EnvironmentRecord) -> str:
    """What tells one machine from another at the same address."""
    ids = [f"GPU {markdown(gpu.get('uuid'))}" for gpu in environment.get("gpus", ())]
    known = (("boot", environment.get("boot_id")), ("host key", environment.get("host_key")))
    return ", ".join([*ids, *(f"{name} {markdown(value)}" for name, value in known if value)])


def _changed(environment: EnvironmentRecord) -> str:
    since = environment.get("changed_since")
    return f"{'; '.join(map(markdown, since['changes']))} (run {markdown(since['run_id'])})" if since else ""


def _versions(environment: EnvironmentRecord) -> str:
    packages = environment.get("packages", {})
    shown = [f"{name} {markdown(packages[name])}" for name in ("torch", "triton", "flash-attn") if packages.get(name)]
    if not packages.get("torch"):
        return ", ".join(shown) or "-"
    runtime = environment.get("torch_cuda", "not recorded") or "none (CPU build)"
    return ", ".join([*shown, f"CUDA runtime {markdown(runtime)}"])


def _cost(environment: EnvironmentRecord, stages: Iterable[StageResult]) -> str:
    rate = number(environment.get("cost_per_hour"))
    if rate is None:
        return ""
    spent = sum(stage.seconds or 0 for stage in stages)
    return f"{rate * spent / 3600:.4f} for {seconds(spent)} of stages at {rate:g} an hour"


def _stages(stages: Sequence[StageResult]) -> str:
    rows = [
        (
            markdown(stage.name) + ("" if stage.required else " (optional)"),
            f"**{stage.status}**" if stage.status != "passed" else stage.status,
            seconds(stage.seconds),
            _counts(stage.tests),
            ", ".join(f"{markdown(op)}: {markdown(route)}" for op, route in stage.routes.items()) or "-",
            _executed(stage),
            markdown(stage.reason) or "-",
        )
        for stage in stages
    ]
    return "## Stages\n\n" + _table(("stage", "status", "time", "tests", "routes", "executed", "reason"), rows)


def _executed(stage: StageResult) -> str:
    """What was seen to run, by device; other work on CUDA has no names."""
    seen = [
        f"{markdown(device)}: {of['launches']} launched ({markdown(listing(of['kernels']))})"
        for device, of in stage.executed.items()
    ]
    other = stage.used_cuda and not any(device.startswith("cuda") for device in stage.executed)
    return "; ".join([*seen, *(["cuda"] if other else [])]) or "-"


def _counts(tests: TestSummary) -> str:
    numbers = {name: number for name, number in tests.items() if isinstance(number, int)}
    return ", ".join(f"{numbers[name]} {name}" for name in _COUNTED if numbers.get(name)) or "-"


def _attention(result: Result) -> str:
    """The stages that did not pass, each with where its output is."""
    lines = [
        f"- **{markdown(s.name)}** is {s.status}: {markdown(s.reason)} "
        f"([stdout](stages/{s.name}/stdout), [stderr](stages/{s.name}/stderr))"
        for s in result.stages
        if s.status not in ("passed", "not_run", "blocked")
    ]
    return "## What did not pass\n\n" + "\n".join(lines) if lines else ""


def _sabotage(stages: Sequence[StageResult]) -> str:
    """How many of the planted faults each stage's tests noticed, and which they did not."""
    rows = [
        (
            markdown(stage.name),
            f"{stage.kills['killed']} of {stage.kills['of']}",
            ", ".join(map(markdown, stage.kills["survivors"])) or "-",
        )
        for stage in stages
        if stage.kills
    ]
    return "## Planted faults\n\n" + _table(("stage", "noticed by its tests", "not noticed"), rows) if rows else ""


def _notes(result: Result) -> str:
    lines = [f"- {markdown(stage.name)}: {markdown(note)}" for stage in result.stages for note in stage.notes]
    lines += [f"- refused from the pod: {markdown(sentence)}" for sentence in result.refused]
    return "## Notes\n\n" + "\n".join(lines) if lines else ""


def _left_out(result: Result) -> str:
    lines = [f"- {markdown(name)}: {markdown(reason)}" for name, reason in result.left_out_reasons.items()]
    return "## Not part of this run\n\n" + "\n".join(lines) if lines else ""


def _figures(result: Result, directory: Path) -> str:
    """The rows of each credited CSV, so that every figure in the report is an artifact's row."""
    tables = [
        _csv_table(directory, artifact.path)
        for stage in result.stages
        if stage.status == "passed"
        for artifact in stage.artifacts
        if artifact.path.endswith(".csv")
    ]
    return "## Figures\n\n" + "\n\n".join(tables) if tables else ""


def _csv_table(directory: Path, name: str) -> str:
    link = f"[artifacts/{markdown(name)}](artifacts/{quote(name)})"
    with (directory / "artifacts" / name).open(newline="", encoding="utf-8", errors="replace") as f:
        rows = csv.reader(f)
        try:
            header, shown = next(rows, []), list(islice(rows, _ROWS_SHOWN))
            left = sum(1 for _ in rows)
        except csv.Error:  # an artifact of another kind with that name
            return f"{link} is no table."
    body = _table([markdown(c) for c in header], [[markdown(c) for c in row] for row in shown])
    more = f"\n\n{left} more rows in the file." if left else ""
    return f"From {link}:\n\n{body}{more}"


def _artifacts(result: Result) -> str:
    rows = [
        (markdown(a.path), markdown(s.name), s.status, size(a.bytes), f"`{markdown(a.sha256[:16])}`")
        for s in result.stages
        for a in s.artifacts
    ]
    return "## Artifacts\n\n" + _table(("file", "stage", "status", "size", "sha256"), rows) if rows else ""


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
