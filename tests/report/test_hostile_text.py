"""What a pod says is data: no terminal escapes, no markup of rich, Markdown or HTML, no exception from its shape."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from orchestrator.cli import main
from orchestrator.config.inventory import Pod
from orchestrator.errors import IntegrityError, PodError
from orchestrator.plan.plan import read_plan
from orchestrator.pod.client import Agent
from orchestrator.report import markdown, screen, terminal
from orchestrator.report.run import artifacts, document, failures
from orchestrator.results import ArtifactResult, Result, Seen
from orchestrator.shared.answers import KeptItem
from orchestrator.shared.plan import plan_hash
from orchestrator.tasks import request as request_task
from orchestrator.transports.base import Transport
from orchestrator.ui import Progress
from tests.support.project import Project
from tests.support.run_files import make_run, record, write_journal

EVIL = "\x1b]0;owned\x07\x1b[2J[bold red]x[/][/nothing][link=file:///etc/passwd]y\\\r\x9b31m\u202e<script>![i](http://e/x)|`"
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
KINDS = ["stage_started", "output", "stage_ended", "cancelled", "limit_reached", "run_resumed", EVIL]


@pytest.mark.parametrize("kind", KINDS, ids=ascii)
@pytest.mark.parametrize("value", [EVIL, None, 1.5, [EVIL], {"a": EVIL}, True], ids=ascii)
def test_a_journal_event_steers_no_terminal(kind: str, value: Any) -> None:
    out = io.StringIO()
    with Progress(verbosity=1) as progress:
        progress.console = Console(file=out, width=200)
        progress.expect_stages(["s"])
        keys = ("stage", "status", "reason", "seconds", "elapsed", "last_line", "by", "limit", "stolen")
        progress.event({"event": kind, **dict.fromkeys(keys, value)})
        progress.event({"event": kind})
    assert not CONTROL.search(out.getvalue().replace("\n", ""))


def test_a_result_steers_no_terminal_and_no_report() -> None:
    out = io.StringIO()
    raised = {"error": [EVIL, EVIL], "place": EVIL, "line": EVIL}
    stage = {
        "name": EVIL, "status": "failed", "reason": EVIL, "required": False, "cuda": False, "notes": [EVIL],
        "command": [EVIL], "env": {EVIL: EVIL}, "stderr_tail": [EVIL], "stdout_tail": [EVIL], "raised": raised,
        "unowed": [{"path": EVIL, "bytes": 1, "sha256": EVIL}],
        "skips": [{"outcome": EVIL, "reason": EVIL, "allowed": False, "count": 2, "first": EVIL}],
    }  # fmt: skip
    failure = {**raised, "id": EVIL, "outcome": EVIL, "called_from": EVIL}
    tests = {
        **stage, "failures": [failure],
        "causes": [{**raised, "count": 1, "of": [EVIL]}, {**raised, "count": 2, "of": [EVIL]}],
    }  # fmt: skip
    blocked = {**stage, "status": "blocked", "blocked_by": EVIL}
    result = Result(
        verdict="failed", summary=EVIL, state="ended", commit="c", tree="t", dirty=False, pod=EVIL, run_id=EVIL,
        path="p", runbook={}, left_out=[], left_out_reasons={}, refused=[EVIL], error=EVIL,
        stages=[stage, tests, blocked],
        causes=[{"cause": EVIL, "count": 2, "stages": [EVIL, "b"]}], started=EVIL, ended=EVIL,
    )  # fmt: skip
    console = Console(file=out, width=400, color_system="truecolor", force_terminal=True, legacy_windows=False)
    screen.show(result, console)
    console.print(terminal.table(("a",), [[EVIL]]))
    console.print(terminal.facts({EVIL: [EVIL, {"a": EVIL}]}))
    environment = {"key": EVIL, "profile": EVIL, "python": EVIL, "packages": {EVIL: EVIL}, "notes": [EVIL]}
    console.print(terminal.facts({**environment, "built": {EVIL: EVIL}, "python_version": EVIL, "torch_cuda": EVIL}))
    item: KeptItem = {"kind": EVIL, "name": EVIL, "bytes": 1, "in_use": EVIL}
    console.print(
        terminal.pruned(
            {"dry_run": False, "before_bytes": 1, "after_bytes": 1, "free_bytes": 1, "removed": [item], "kept": [item]}
        )
    )
    console.print(terminal.runs([{"run_id": EVIL, "pod": EVIL, "state": EVIL}]))
    shown = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())  # rich's own colours
    assert not CONTROL.search(shown.replace("\n", ""))
    assert "[bold red]x[/][/nothing]" in shown and "\x1b]" not in out.getvalue()
    sections = [
        *(section(result, Path("/nowhere")) for section in (failures.attention, artifacts.tables)),
        *(section(result) for section in (failures.skips, failures.commands, artifacts.files)),
    ]
    report = "\n".join(map(markdown.section, sections))
    assert not CONTROL.search(report.replace("\n", ""))
    assert not re.search(r"(?<!\\)<script|(?<!\\)!\[", report)
    assert "\\u001b" in result.to_json() and not CONTROL.search(result.to_json().replace("\n", ""))


def test_an_error_that_quotes_a_pod_steers_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], project: Project
) -> None:
    def refuse(*_: object) -> None:
        raise PodError(f"pod 'p': {EVIL}")

    monkeypatch.setattr(request_task, "find", refuse)
    monkeypatch.setenv("NSA_POD_INVENTORY", str(project.inventory))
    with pytest.raises(SystemExit):
        main(["validate", "--pod", "local", "--json"])
    captured = capsys.readouterr()
    assert not CONTROL.search(captured.err.replace("\n", "")) and "[bold red]x" in captured.err
    assert json.loads(captured.out)["error"].startswith("pod 'p'")


MARKUP = "`<script>![i](x)"


def test_a_plan_and_a_record_from_the_pod_put_no_markup_into_the_report(tmp_path: Path) -> None:
    """A run that was not launched from here is fetched with both."""
    run, plan = make_run(tmp_path, {"one": True})
    facts = record(run, "one")
    facts["files"][0]["sha256"] = MARKUP
    write_journal(run, plan, [facts])
    told = {"hostname": MARKUP, "gpus": [{"name": MARKUP}], "changed_since": {"run_id": MARKUP, "changes": [MARKUP]}}
    hostile = {**plan, "facts": told, "environment": {"packages": {"torch": MARKUP}}}
    run.settle(Seen("ended"))
    name = f"{MARKUP.replace('/', '')}.csv"
    (run.path / "artifacts" / name).write_text('a\n"' + "x" * 200_000)
    expected = ArtifactResult(path=name, bytes=1, sha256=MARKUP)
    result = run.rejudge()
    passed = result.stages[0].model_copy(update={"status": "passed", "artifacts": [expected]})
    shown = markdown.render(document(result.model_copy(update={"stages": [passed]}), hostile, run.path))
    assert "is no table" in shown and not re.search(r"(?<!\\)<script|(?<!\\)!\[", shown)


def test_no_command_that_is_proposed_holds_another(tmp_path: Path) -> None:
    _, plan = make_run(tmp_path, {"one": True})
    changed = {**plan, "pod": "p; touch /tmp/x"}
    changed["run_id"] = f"{plan['run_id'][:-8]}{plan_hash(changed)[:8]}"
    with pytest.raises(IntegrityError, match="not a plan: its pod"):
        read_plan(json.dumps(changed), "the plan on the pod")
    agent = Agent(cast(Transport, SimpleNamespace(pod=Pod(name="p", transport="local"))), "python3", "/w")
    assert "nsa-pod follow --pod p 'r; touch /tmp/x')" in str(agent.busy({"run_id": "r; touch /tmp/x"}))


HOSTILE_TOOL = """\
import os, pathlib, sys
evil = {evil!r}
print(evil, flush=True)
out = pathlib.Path(os.environ["NSA_POD_ARTIFACTS"])
(out / "t.csv").write_text("a,b\\n1,\\"" + evil.replace('"', "") + "\\"\\n")
(out / "plain <script> `name`.txt").write_text("x")
(out / ("x\\x1b[2J.txt")).write_text("x")
sys.exit(int(sys.argv[1]))
"""
HOSTILE_TEST = "import pytest\ndef test_it(): pytest.skip({evil!r})\ndef test_other(): assert 0, {evil!r}\n"
RUNBOOK = """\
name: r
environment: {python: system}
stages:
  - {name: csv, run: [python, tool.py, "0"], expect: {artifacts: [{path: t.csv, kind: csv}]}}
  - {name: fails, run: [python, -m, pytest, tests/test_it.py]}
"""


def test_a_stage_puts_no_markup_into_report_or_terminal(project: Project) -> None:
    evil = EVIL.replace("\r", "")
    project.commit({
        "runbooks/r.yaml": RUNBOOK, "tool.py": HOSTILE_TOOL.format(evil=evil),
        "tests/test_it.py": HOSTILE_TEST.format(evil=evil),
    })  # fmt: skip
    outcome = project.run("validate", "--pod", "local", "--runbook", "r", "-v")
    report = project.here("report", "--markdown")
    result = project.here("report", "--json")
    for text in (outcome.stdout, outcome.stderr, report.stdout, report.stderr, result.stdout):
        assert not CONTROL.search(text.replace("\n", ""))
    markup = report.stdout
    assert "From [artifacts/t.csv]" in markup  # it is shown
    assert not re.search(r"(?<!\\)<script|(?<!\\)!\[|(?<!\\)\[i", markup)
    rows = [line for line in markup.splitlines() if line.startswith("| 1 |")]
    assert len(rows) == 1 and len(re.findall(r"(?<!\\)\|", rows[0])) == 3
    names = {path.name for path in Path(project.root / result.json["path"]).rglob("*")}
    assert not any(CONTROL.search(name) for name in names)
