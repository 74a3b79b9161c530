"""A plan before it is launched, as a page for people: what would run, on which pod, what is blocked and why."""

from __future__ import annotations

import shlex

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from orchestrator.config.inventory import Pod
from orchestrator.config.runbook import EnvironmentSpec
from orchestrator.config.shell_lines import BASH
from orchestrator.shared.plan import Plan, Stage
from orchestrator.shared.text import count, listing
from orchestrator.text import plain
from orchestrator.ui import coloured
from orchestrator.verdict.rules import blocked_by_plan
from orchestrator.verdict.status import Status

_LONGEST_COMMAND = 300


def page(plan: Plan, pod: Pod, environment: EnvironmentSpec, expected: str) -> RenderableType:
    """The page; `environment` is what the runbook asks for, `expected` what the stages may take."""
    reasons = why_blocked(plan)
    blocked = [name for name, reason in reasons.items() if reason]
    lines = [
        f"runbook {plan['runbook']['name']} ({plan['runbook']['path']}) on commit {plan['commit'][:12]}",
        f"pod {pod.name}: {_place(pod)}; it was not contacted",
        f"environment: {_environment(pod, environment)}",
        f"{count(len(reasons) - len(blocked), 'stage')} would run, {len(blocked)} blocked, "
        f"{len(plan['left_out'])} left out{'; ' if expected else ''}{expected}",
    ]
    return Group(*(escape(plain(line, 2000)) for line in lines), "", _stages(plan, reasons))


def why_blocked(plan: Plan) -> dict[str, str | None]:
    """By stage, why it would not run as far as the plan knows; None for one that would."""
    statuses: dict[str, Status] = {}
    reasons: dict[str, str | None] = {}
    for stage in plan["stages"]:
        reasons[stage["name"]] = blocked_by_plan(stage, statuses)
        statuses[stage["name"]] = "blocked" if reasons[stage["name"]] else "passed"
    return reasons


def _stages(plan: Plan, reasons: dict[str, str | None]) -> Table:
    """Two lines for each, so that a narrow terminal breaks no path."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for stage in plan["stages"]:
        reason = reasons[stage["name"]]
        state = coloured("blocked") if reason else "runs"
        told = [f"[bold]{escape(stage['name'])}[/]{escape(f': {plain(reason)}') if reason else ''}"]
        told += [f"[dim]{escape(line)}[/]" for line in (_command(stage), f"evidence: {_evidence(stage)}")]
        table.add_row(state, "\n".join(told))
    for left in plan["left_out"]:
        table.add_row("[dim]left out[/]", f"[bold]{escape(left['name'])}[/]: {escape(plain(left['reason']))}")
    return table


def _command(stage: Stage) -> str:
    words = stage["argv"]
    text = words[-1] if tuple(words[: len(BASH)]) == BASH else shlex.join(words)
    where = f"in {stage['cwd']}: " if stage["cwd"] != "." else ""
    return plain(where + text, _LONGEST_COMMAND)


def _evidence(stage: Stage) -> str:
    expect = stage["expect"]
    tests = expect.get("tests")
    parts = [f"at least {count(tests.get('min_passed', 1), 'test')}"] if tests is not None else []
    parts += [f"route {operation}" for operation in expect.get("routes") or ()]
    parts += ["kernels on the GPU"] if expect.get("device") == "cuda" else []
    faults = len(expect.get("kills") or ()) + len(expect.get("mutants") or ())
    parts += [count(faults, "planted fault")] if faults else []
    artifacts = [artifact["path"] for artifact in expect.get("artifacts") or ()]
    parts += [listing(artifacts)] if artifacts else []
    return ", ".join(parts) or "none is asked for"


def _place(pod: Pod) -> str:
    if pod.transport == "local":
        return "this machine" + (f", which promises {pod.gpu}" if pod.gpu else "")
    return f"{pod.ssh_config or pod.host}, which promises {pod.gpu or 'no GPU'}"


def _environment(pod: Pod, spec: EnvironmentSpec) -> str:
    """What is asked for, without what nobody said."""
    given = spec.model_dump(exclude_defaults=True)
    parts = [f"{key} {', '.join(value) if isinstance(value, list) else value}" for key, value in given.items()]
    parts += [f"the pod's pin {pod.environment}"] if pod.environment else []
    return "; ".join(parts) or "Python, and nothing else"
