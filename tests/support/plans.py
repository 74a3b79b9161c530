"""A plan of a small runbook, for a pod with a GPU or without."""

from __future__ import annotations

from typing import Any

from orchestrator.config.inventory import Pod
from orchestrator.config.runbook import Runbook
from orchestrator.config.yamlfile import loads
from orchestrator.plan.plan import Capabilities, Place, Tree, Work, make_plan
from orchestrator.shared.plan import Plan, RunbookOrigin

RUNBOOK = """
name: r
env: {A: runbook, B: runbook, C: runbook}
stages:
  - {name: cpu, run: [python, -m, pytest, tests/test_a.py], env: {C: stage}}
  - {name: gpu, run: [pytest, tests], when: [cuda]}
  - {name: after_gpu, run: [pytest, tests], needs: [gpu]}
  - {name: ampere, run: [pytest, tests], when: ["sm>=80"]}
  - {name: fa2, run: [pytest, tests], when: ["has:flash-attn"]}
  - {name: absent, run: [python, missing.py], paths: [tests], expect: {artifacts: [{path: o, from: stdout}]}}
"""
CPU = Capabilities(sm=None, packages=frozenset({"torch"}))
ADA = Capabilities(sm=89, packages=frozenset({"torch", "flash-attn"}))
FILES = frozenset({"tests/test_a.py", "README"})


def plan_of(text: str = RUNBOOK, have: Capabilities = CPU, files: frozenset[str] = FILES, **pod: Any) -> Plan:
    runbook = loads(text, "r.yaml", Runbook)
    origin = RunbookOrigin(name="r", source="file", path="r.yaml", sha256="0" * 64, committed=True)
    tree = Tree("c" * 40, b"", "7" * 40, [], False, files)
    work = Work(runbook, origin, Pod(name="p", transport="local", **pod), tree)
    return make_plan(work, Place({"kind": "system"}, have, {}, "/w"))
