"""The table of rules: what the documents say is what decides."""

from __future__ import annotations

from orchestrator.report.rules import filled
from orchestrator.verdict.rules import RULES
from orchestrator.verdict.status import MEANINGS, OUTCOMES, STATUSES, making, verdict_of
from tests.support import ROOT


def test_the_documents_hold_the_table() -> None:
    text = (ROOT / "docs" / "verdict.md").read_text()
    assert text == filled(text), "python -m orchestrator.report.rules docs/verdict.md"


def test_every_status_has_a_rule_and_a_meaning() -> None:
    assert {rule.status for rule in RULES} == set(STATUSES) == set(MEANINGS)
    assert RULES[-1].status == "passed" and [rule.status for rule in RULES].count("passed") == 1
    assert sorted(status for verdict in OUTCOMES for status in making(verdict)) == sorted(STATUSES)


def test_the_worst_required_stage_decides() -> None:
    assert verdict_of(["passed", "passed"], None, ended=True) == "passed"
    assert verdict_of(["passed", "passed"], None, ended=False) == "incomplete"
    assert verdict_of([], None, ended=True) == "incomplete"
    assert verdict_of(["failed", "blocked", "passed"], None, ended=True) == "failed"
    assert verdict_of(["passed"], "the agent died", ended=True) == "error"
    for status in set(STATUSES) - {"passed"}:
        assert verdict_of(["passed", status], None, ended=True) == MEANINGS[status].makes != "passed"
