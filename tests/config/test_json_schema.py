"""The published schemas are those of the models, and refuse and allow what the models do."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from orchestrator.config import json_schema, starter
from orchestrator.config.survey import Survey
from tests.support import ROOT
from tests.support.whole_runbook import GOOD

RUNBOOKS = sorted(ROOT.glob("runbooks/*.yaml"))


def schema(name: str) -> Any:
    found = json.loads((json_schema.PUBLISHED / name).read_text())
    Draft7Validator.check_schema(found)
    return Draft7Validator(found)


def test_they_are_current() -> None:
    written = {path.name: path.read_text() for path in json_schema.PUBLISHED.glob("*.json")}
    assert written == json_schema.texts(), "python -m orchestrator.config.json_schema orchestrator/config/schema"


def test_the_shipped_files_fit() -> None:
    for path in RUNBOOKS:
        schema("runbook.json").validate(yaml.safe_load(path.read_text()))
    schema("pods.json").validate(yaml.safe_load((ROOT / "pods.yaml").read_text()))
    schema("pods.json").validate(yaml.safe_load(starter.PODS))
    schema("runbook.json").validate(yaml.safe_load(starter.runbook([Survey("x", tests=["tests"])])))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        ("wall: 300}", "wall: 1h30m}"),
        ("wall: 300}", "log_bytes: 1.5M}"),
        ("paths: []", "paths: []\n    cwd: kernels"),
        ("min_passed: 1", "checked: true"),
        ("routes: {selected: triton}", "routes: {selected: {backend: triton, tests: x}}"),
    ],
)
def test_what_is_right_is_allowed(old: str, new: str) -> None:
    schema("runbook.json").validate(yaml.safe_load(GOOD.replace(old, new) if old else GOOD))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("min_passed: 1", "min_pass: 1"),
        ("min_passed: 1", "min_passed: 0"),
        ("allow_skips: []", "allow_skips: ['']"),
        ("selected: triton", "selected: ''"),
        ("run: [python, -m, nsa.sanity]", "run: [a], paths: ['']"),
        ("path: routing.json", "path: ../routing.json"),
        ("kind: jsonl", "kind: jsonlines"),
        ("{finite: all}", "{finit: all}"),
        ("{equal: [reads_actual, reads_expected]}", "{equal: [a]}"),
        ("near: 100, within: 2", "near: 100"),
        ("when: [cuda", "when: [cudda"),
        ("wall: 300}", "wall: soon}"),
        ("from: stdout}]}}", "from: stdin}]}}"),
        ("run: [python, -m, nsa.sanity]", "run: []"),
        ("run: [python, -m, nsa.sanity]", "run: [a], shell: b"),
        ("limits: {wall: 3600", "limits: {wal: 3600"),
        ('NSA_TEST_TRITON_SEL: "1"', '"NSA-TEST": "1"'),
    ],
)
def test_what_is_wrong_is_refused(old: str, new: str) -> None:
    assert old in GOOD
    assert not schema("runbook.json").is_valid(yaml.safe_load(GOOD.replace(old, new)))


@pytest.mark.parametrize("pod", [{"prot": 3}, {"max_bytes": "8 cows"}, {"name": "x"}, {"host_key": "MD5:0"}])
def test_what_is_wrong_with_a_pod_is_refused(pod: dict[str, object]) -> None:
    assert schema("pods.json").is_valid({"pods": {"a": {"host": "x", "max_bytes": "8G"}}})
    assert not schema("pods.json").is_valid({"pods": {"a": {"host": "x", **pod}}})
    assert not schema("pods.json").is_valid({"pods": {"../a": {"host": "x"}}})
