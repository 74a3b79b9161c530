"""Types of what people write in one word or number: names, folders of the tree, durations, patterns."""

from __future__ import annotations

import math
import posixpath
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, WithJsonSchema
from pydantic_core import CoreSchema, core_schema

from orchestrator.shared.globs import wrong_pattern
from orchestrator.shared.text import plain

_NUMBER = r"(\d+(?:\.\d+)?)"
_DURATION = rf"{_NUMBER}|(?:{_NUMBER}d)?(?:{_NUMBER}h)?(?:{_NUMBER}m)?(?:{_NUMBER}s)?"  # not 1h30: 30 of what?
_UNITS = (1.0, 86400.0, 3600.0, 60.0, 1.0)
_SIZE = re.compile(r"(\d{1,15}(?:\.\d+)?) ?([KMGT])(?:iB)?")
_MULTIPLES = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}

_A_DURATION = "expected a duration such as 90m, 1h30m, 45s or 2700 (seconds)"


@dataclass(frozen=True, eq=False)  # one of a union has to be hashable
class Keeps:
    """Of a value of the right type that has to keep a rule: `wrong` says what is wrong, None if nothing is; `shown` is
    what of it a JSON Schema can say.
    """

    wrong: Callable[[Any], str | None]
    shown: Mapping[str, object] = field(default_factory=dict)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._kept, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {**handler(schema), **self.shown}

    def _kept(self, value: Any) -> Any:
        wrong = self.wrong(value)
        if wrong:
            raise ValueError(wrong)
        return value


def matching(pattern: str, words: str) -> Keeps:
    """Of text that has to match the pattern wholly; `words` say what that is."""

    def wrong(text: str) -> str | None:
        return None if re.fullmatch(pattern, text) else f"expected {words}, got {plain(repr(text))}"

    return Keeps(wrong, {"pattern": f"^(?:{pattern})$"})


def seconds_of(text: str) -> float:
    """Seconds of `90m`, `1h30m`, `7d`, `45s` or `2700`; ValueError for anything else."""
    match = re.fullmatch(_DURATION, text.strip())
    parts = match.groups(default="0") if match else ()
    found = sum(float(number) * unit for number, unit in zip(parts, _UNITS, strict=False))
    if not 0 < found < math.inf:
        raise ValueError(f"{_A_DURATION}, got {plain(text, 60)!r}")
    return found


def _seconds(value: object) -> float:
    if isinstance(value, str):
        return seconds_of(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= sys.float_info.max:
        raise ValueError(_A_DURATION)
    return float(value)


def _bytes(value: object) -> object:
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if isinstance(value, str) and match is None:
        raise ValueError("expected a number of bytes, or one with K, M, G or T such as 20G")
    return round(float(match[1]) * _MULTIPLES[match[2]]) if match else value


def _wrong_folder(text: str) -> str | None:
    path = posixpath.normpath(text) if text else ".."
    outside = path.startswith("/") or path.split("/")[0] == ".." or "{" in path or "\\" in path
    return f"expected a folder of the tree, as a relative path without '..', got {text!r}" if outside else None


def _as_text(value: object) -> object:
    # YAML reads `A: 1` as a number, which is what was meant; `A: yes` as a boolean, which is not.
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return getattr(value, "written", str(value))
    return value


Text = Annotated[str, BeforeValidator(_as_text), WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "number"}]})]
"""Text, or a number as it is written."""

NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}"
Name = Annotated[
    str, matching(NAME, "a name of at most 64 letters, digits, '_', '.' and '-', with a letter or digit first")
]
Condition = Annotated[str, matching(r"cuda|sm[>=]=\d{2,3}|has:[A-Za-z0-9._-]+", "cuda, sm>=NN, sm==NN or has:PACKAGE")]
Pattern = Annotated[str, Keeps(wrong_pattern)]
Folder = Annotated[str, Keeps(_wrong_folder)]
_LINES = Keeps(lambda text: None if text.strip() else "expected lines for bash, got none", {"pattern": r"\S"})
Lines = Annotated[str, _LINES]
Seconds = Annotated[
    float,
    BeforeValidator(_seconds),
    WithJsonSchema(
        {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string", "pattern": f"^(?:{_DURATION})$"}]}
    ),
]
Size = Annotated[
    int,
    BeforeValidator(_bytes),
    Field(gt=0),
    WithJsonSchema(
        {"anyOf": [{"type": "integer", "exclusiveMinimum": 0}, {"type": "string", "pattern": f"^{_SIZE.pattern}$"}]}
    ),
]
_SOME = Keeps(lambda text: None if text.strip() else "expected text, got none", {"pattern": r"\S"})
Some = Annotated[str, _SOME]
