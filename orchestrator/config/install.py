"""The repository's own installation, as a runbook asks for it: `install: [".[test]", {path: kernels/}]`."""

from __future__ import annotations

import posixpath
import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, WithJsonSchema

from orchestrator.config.words import Text

_ENTRY = re.compile(r"(?P<path>[^\[\]]+?)\s*(?:\[(?P<extras>[A-Za-z0-9._, -]+)\])?")


def _folder(text: str) -> str:
    path = posixpath.normpath(text)
    if text.startswith(("/", "~", "-")) or path.startswith(".."):
        raise ValueError(f"{text!r}: expected a folder of the repository, such as . or kernels/")
    return path


def _entry(value: object) -> object:
    """`kernels/[test]` as the mapping that it stands for."""
    if not isinstance(value, str):
        return value
    match = _ENTRY.fullmatch(value.strip())
    if not match:
        raise ValueError(f"{value!r}: expected a folder of the repository, with or without extras, such as .[test]")
    extras = [extra.strip() for extra in (match["extras"] or "").split(",") if extra.strip()]
    return {"path": match["path"], "extras": extras}


class _Install(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    path: Annotated[str, AfterValidator(_folder)]
    extras: list[str] = []
    isolated: bool | None = None
    env: dict[str, Text] = {}


_TEXT = {"type": "string"}
_SCHEMA = {
    "type": "object",
    "properties": {
        "path": _TEXT,
        "extras": {"type": "array", "items": _TEXT},
        "isolated": {"type": ["boolean", "null"]},
        "env": {"type": "object", "additionalProperties": {"anyOf": [_TEXT, {"type": "number"}]}},
    },
    "required": ["path"],
    "additionalProperties": False,
}
Install = Annotated[_Install, BeforeValidator(_entry), WithJsonSchema({"anyOf": [_TEXT, _SCHEMA]})]
"""A project of the repository: its folder, the extras whose packages it is wanted with, the variables of its build, and
whether that sees nothing but its build requirements (by default, unless one of them is torch, triton or flash-attn, or
the pod's own Python is used).
"""


def refuse_twice(entries: list[_Install]) -> list[_Install]:
    paths = [entry.path for entry in entries]
    twice = next((path for path in paths if paths.count(path) > 1), None)
    if twice:
        raise ValueError(f"expected each folder once, got {twice!r} twice")
    return entries


Installs = Annotated[list[Install], AfterValidator(refuse_twice)]
