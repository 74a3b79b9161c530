"""What may be asked of a stage (`expect`), as a JSON Schema: made from the types that the verdict itself checks by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin

from orchestrator.shared.schema import fields, is_typed_dict
from orchestrator.verdict import exit_codes, routes, sabotage, tests
from orchestrator.verdict.artifacts import asked, checks, figures, table, text
from orchestrator.verdict.expect import Expect

_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean"}
# What of the rules of a NewType a schema can say.
_RULES: Mapping[Any, Mapping[str, object]] = {
    asked.RelativePath: {"pattern": r"^(?!/)(?!(.*/)?\.\.(/|$)).+$"},
    asked.Source: {"pattern": "^(stdout|stderr|tree:.+)$"},
    text.Phrase: {"minLength": 1},
    table.Count: {"minimum": 1},
    tests.Least: {"minimum": 1},
    tests.Pattern: {"minLength": 1},
    checks.Pattern: {"minLength": 1},
    exit_codes.Code: {"minimum": 1, "maximum": 255},
    routes.Backend: {"minLength": 1},
    checks.Columns: {"minItems": 1},
    checks.Two: {"minItems": 2, "maxItems": 2},
    checks.Distance: {"minimum": 0},
    figures.Unit: {"minLength": 1},
    figures.Measures: {"minProperties": 1},
    sabotage.Function: {"pattern": "^[^:]+:[^:]+$"},
}


def of_expectations() -> dict[str, Any]:
    """The schema of `expect`."""
    schema = _of(Expect)
    schema["properties"]["artifacts"] = {"type": "array", "items": {"anyOf": [*map(_of_artifact, asked.KINDS)]}}
    return schema


def _of_artifact(kind: str) -> dict[str, Any]:
    keys = {**_properties(asked.Asked), **_properties(asked.KINDS[kind].asks), "kind": {"const": kind}}
    if "checks" in keys:
        keys["checks"] = {"type": "array", "items": {"anyOf": [_of_check(*shape) for shape in checks.shapes()]}}
    return _mapping(keys, ["path"] if kind == "text" else ["path", "kind"])


def _of_check(shape: Any, required: list[str]) -> dict[str, Any]:
    return _mapping(_properties(shape), required)


def _of(shape: Any) -> dict[str, Any]:
    if hasattr(shape, "__supertype__"):
        return {**_of(shape.__supertype__), **_RULES.get(shape, {})}
    if is_typed_dict(shape):
        return _mapping(_properties(shape), sorted(shape.__required_keys__))
    origin, arguments = get_origin(shape), get_args(shape)
    if origin is Union:
        return {"anyOf": [*map(_of, arguments)]}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin is list:
        return {"type": "array", "items": _of(arguments[0])}
    if origin is dict:
        return {"type": "object", "additionalProperties": _of(arguments[1])}
    return {"type": _PLAIN[shape]} if shape in _PLAIN else {}


def _properties(shape: Any) -> dict[str, Any]:
    return {key: _of(inner) for key, inner in fields(shape).items()}


def _mapping(properties: Mapping[str, Any], required: list[str]) -> dict[str, Any]:
    found = {"type": "object", "properties": dict(properties), "additionalProperties": False}
    return {**found, "required": required} if required else found
