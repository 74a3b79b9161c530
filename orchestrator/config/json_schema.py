"""The JSON Schemas of pods.yaml and of runbooks, for editors: `python -m orchestrator.config.json_schema FOLDER`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from orchestrator.config.inventory import PodsFile
from orchestrator.config.runbook import Runbook

PUBLISHED = Path(__file__).parent / "schema"
"""Where they lie in the package."""
_DIALECT = "http://json-schema.org/draft-07/schema#"
_MODELS: dict[str, tuple[str, type[BaseModel]]] = {
    "pods.json": ("pods.yaml of nsa-pod", PodsFile),
    "runbook.json": ("a runbook of nsa-pod", Runbook),
}


def texts() -> dict[str, str]:
    """By the name of the file, its schema."""
    return {name: _text(title, model) for name, (title, model) in _MODELS.items()}


def _text(title: str, model: type[BaseModel]) -> str:
    schema = _in_draft_7(model.model_json_schema())
    found = {"$schema": _DIALECT, **schema, "title": title}
    return json.dumps(found, indent=1) + "\n"


def _in_draft_7(schema: Any) -> Any:
    """Without titles that only repeat the key, and in the dialect that every editor reads."""
    if isinstance(schema, list):
        return [_in_draft_7(item) for item in schema]
    if isinstance(schema, str):
        return schema.replace("#/$defs/", "#/definitions/")
    if not isinstance(schema, dict):
        return schema
    kept = {key: value for key, value in schema.items() if not (key == "title" and isinstance(value, str))}
    if "patternProperties" in kept:
        kept["additionalProperties"] = False
    return {"definitions" if key == "$defs" else key: _in_draft_7(value) for key, value in kept.items()}


def main(folder: Path) -> None:
    """Write them into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
