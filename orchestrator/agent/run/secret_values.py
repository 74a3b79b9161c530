"""The secret values of a run, as the launch hands them over: they stay in the agent's memory and its stages' own."""

from __future__ import annotations

import json
from typing import Any, Mapping, Sequence

from orchestrator.agent.host.inherited import inherited
from orchestrator.shared.failure import Failure
from orchestrator.shared.redaction import Redactor, looks_secret

Values = Mapping[str, Mapping[str, str]]


class Secrets:
    """Values by stage and name; `redactor` knows them all, and the credentials among what stages inherit."""

    def __init__(self, by_stage: Values) -> None:
        self._by_stage = by_stage
        own = [item for item in inherited().items() if looks_secret(*item)]
        given = [item for values in by_stage.values() for item in values.items()]
        self.redactor = Redactor([*given, *own])

    def of(self, stage: str) -> Mapping[str, str]:
        """The stage's variables that the plan only names."""
        return self._by_stage.get(stage, {})


def read(data: bytes) -> Values:
    """What `launch` got on stdin: {stage: {name: value}}, or nothing. The error does not show it."""
    try:
        found = json.loads(data or b"{}")
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(_are_variables(values) for values in found.values()):
        raise Failure("the secrets on stdin are not {stage: {name: value}}")
    return found


def require(stages: Sequence[Mapping[str, Any]], given: Values) -> None:
    """Failure if a value that the plan names was not given."""
    for stage in stages:
        missing = sorted(set(stage.get("secrets", ())) - set(given.get(stage["name"], {})))
        if missing:
            raise Failure(f"stage {stage['name']} needs the secret {missing[0]}, and the launch did not bring it")


def _are_variables(values: Any) -> bool:
    return isinstance(values, dict) and all(isinstance(x, str) for item in values.items() for x in item)
